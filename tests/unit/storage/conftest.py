"""Makes `storage_kit` (a disk in memory that can fail and lose power, and makers of records) importable below this folder."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
