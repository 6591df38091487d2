"""What a killed pipeline leaves in the directory for temporary files is gone with the next one (F79)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

MAKES = """
import sys
from ottla.pipelines import scratch
made = scratch.directory()
assert made == scratch.directory()
(made / "file").write_text("x")
print(made, flush=True)
sys.stdin.read()
"""


class Process:
    """One that has its directory, and ends when its input does."""

    def __init__(self, folder: Path) -> None:
        words, environment = [sys.executable, "-c", MAKES], {**os.environ, "TMPDIR": str(folder)}
        self.it = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        assert self.it.stdout is not None
        self.directory = Path(self.it.stdout.readline().strip())

    def ends(self) -> int:
        self.it.communicate(timeout=120)
        return self.it.returncode

    def kill(self) -> None:
        self.it.kill()
        self.it.communicate()


def test_a_directory_lives_as_long_as_its_process(tmp_path: Path) -> None:
    (tmp_path / "ottla-pipeline-file").write_text("no directory")
    with ExitStack() as stack:
        killed, stopped = Process(tmp_path), Process(tmp_path)
        for each in (killed, stopped):
            stack.callback(each.it.kill)
            assert each.directory.is_dir()
        stopped.it.send_signal(signal.SIGSTOP)
        killed.kill()
        last = Process(tmp_path)
        stack.callback(last.it.kill)
        assert not killed.directory.exists(), "nobody holds it any more"
        assert (stopped.directory / "file").is_file(), "its process may go on"
        stopped.it.send_signal(signal.SIGCONT)
        assert (stopped.ends(), last.ends()) == (0, 0)
    assert [entry.name for entry in tmp_path.iterdir()] == ["ottla-pipeline-file"]
