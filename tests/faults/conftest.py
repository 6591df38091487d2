"""The fault tests use the counterparts (`peers`) and the raw client (`raw`) of the compatibility tests."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "compat"))
