"""Apache Kafka's own tests of group requests: every one of tests.allow passes (the ratchet). See FINDINGS.md.

The whole list takes an hour: `make compat CLIENT=kafka_suite`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.kit import ROOT


@pytest.mark.slow
@pytest.mark.java
def test_what_must_pass_passes() -> None:
    command = [sys.executable, "-m", "tests.compat.kafka_suite.run", "--suite", "groups"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
