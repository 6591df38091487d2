"""franz-go's own kgo suite: every test of tests.allow passes (the ratchet). See FINDINGS.md."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.kit import ROOT


@pytest.mark.parametrize("brokers", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_what_must_pass_passes(brokers: int) -> None:
    # Fewer records than `make compat` takes: the suite's time is mostly its own waits, but the machine has other tests to run.
    command = [sys.executable, "-m", "tests.compat.franz_go.run", "--records", "4000", "--brokers", str(brokers)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


@pytest.mark.slow
def test_what_must_pass_over_tls_passes() -> None:
    command = [sys.executable, "-m", "tests.compat.franz_go.run", "--records", "4000", "--secured"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
