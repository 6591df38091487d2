"""kafka-python's own integration suite: every test of tests.allow passes (the ratchet). See FINDINGS.md."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("brokers", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_what_must_pass_passes(brokers: int) -> None:
    command = [sys.executable, str(Path(__file__).with_name("run.py")), "--brokers", str(brokers)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
