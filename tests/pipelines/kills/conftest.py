"""Makes `listening`, `drivers` and `stage` importable here, and `peers` (Apache Kafka from its jars)."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2] / "compat")]
