"""Processes that the kit starts end with the test run."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from tests.kit import ROOT
from tests.kit.wait import until

STARTS_ONE = """
import sys
from pathlib import Path

from tests.kit.peers import Service

class Sleeper(Service):
    def command(self):
        return ["sleep", "1000"]

    def is_ready(self):
        # Until then it is on its way there, and the kernel has not heard yet whom it is to end with.
        return Path(f"/proc/{self.pid}/comm").read_text() == "sleep\\n"

service = Sleeper(sys.argv[1])
service.start()
print(service.pid, flush=True)
sys.stdin.read()
"""


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def test_a_service_ends_with_a_test_run_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STARTS_ONE, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as run:
        assert run.stdout is not None
        pid = int(run.stdout.readline())
        assert is_alive(pid)
        run.send_signal(signal.SIGKILL)
        run.wait()
    until(lambda: not is_alive(pid), "the service ends")
