"""franz-go's own kgo suite: every test of tests.allow passes (the ratchet). See FINDINGS.md."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_what_must_pass_passes() -> None:
    done = subprocess.run([sys.executable, str(Path(__file__).with_name("run.py"))], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
