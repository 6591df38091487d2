"""Makes `peers` (the real counterparts) and `subject` (the broker under test) importable by the tests below this folder."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
