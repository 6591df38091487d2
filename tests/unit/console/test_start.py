"""What the console starts without."""

from __future__ import annotations

import subprocess
import sys

import pytest

LATER = ("ottla.pipelines", "ottla.cluster.settings", "confluent_kafka", "pyspark", "pyarrow", "ottla.broker")


@pytest.mark.parametrize(
    ("module", "later"),
    [("ottla.console.server", LATER), ("ottla.cli.console.alone", (*LATER, "ottla.console", "ottla.cli.topic"))],
)
def test_it_starts_without_what_only_some_pages_need(module: str, later: tuple[str, ...]) -> None:
    code = f"import sys, {module}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert [name for name in later if name in loaded] == []
