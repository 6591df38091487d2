"""Karapace's own tests of its REST API: every test of tests.allow passes (the ratchet). See FINDINGS.md."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.kit import ROOT


@pytest.mark.slow
def test_what_must_pass_passes() -> None:
    command = [sys.executable, "-m", "tests.compat.karapace.run"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
