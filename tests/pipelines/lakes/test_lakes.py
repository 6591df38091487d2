"""Delta and Iceberg tables on each Spark that they have jars for (F82)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.sparks import environment

HERE = Path(__file__).parent


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("format", "release"), [("delta", "4.1"), ("delta", "4.2"), ("iceberg", "4.1")])
def test_each_batch_is_in_the_table_once(format: str, release: str, tmp_path: Path) -> None:
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        f"--basetemp={tmp_path}/cases",
        str(HERE / "cases.py"),
    ]
    done = subprocess.run(
        words, capture_output=True, text=True, env={**environment(release), "OTTLA_TEST_LAKE": format}, timeout=1700
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
