"""What the command loads before it knows what to do."""

from __future__ import annotations

import subprocess
import sys

LATER = (
    "confluent_kafka",
    "ottla.filters.parsing",
    "ottla.filters.filter",
    "ottla.records",
    "ottla.notebook",
    "pandas",
    "pyarrow",
    "re2",
)


def test_the_start_loads_neither_the_kafka_client_nor_the_filter_language() -> None:
    code = f"import sys, ottla.cli.app; print([name for name in {LATER} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n", done.stderr
