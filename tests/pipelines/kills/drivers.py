"""`ottla pipeline run` (or another of its commands) as a process, with everything it starts: the JVM, and Spark's Python workers.

Owns: finding all of them (they inherit a tag in their environment), killing, stopping and waking them. Ends nothing else.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

TAG = "OTTLA_TEST_DRIVER"


class Driver:
    def __init__(
        self, file: Path, servers: str, log: Path, *words: str, verb: str = "run", env: Mapping[str, str] = os.environ
    ) -> None:
        self.tag = uuid.uuid4().hex
        self.log_file = log
        command = [sys.executable, "-m", "ottla", "pipeline", verb, str(file), "-b", servers, *words]
        # Python says what it buffers too late for one who was killed.
        environment = {**env, TAG: self.tag, "PYTHONUNBUFFERED": "1"}
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                command, stdout=output, stderr=output, env=environment, cwd=file.parent, start_new_session=True
            )

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        """All of it at once, as when a machine goes down. It is stopped first: nothing may start while we look."""
        self.pause()
        self.signal(signal.SIGKILL, self._tree())
        self.process.wait(60)

    def kill_python(self) -> None:
        """The driver's own process only; the JVM notices by itself."""
        self.process.kill()
        self.process.wait(60)

    def kill_jvm(self) -> None:
        self.signal(signal.SIGKILL, [pid for pid in self._tree() if _command(pid)[:1] and "java" in Path(_command(pid)[0]).name])

    def kill_workers(self) -> int:
        """The Python workers that run tasks, not the process that makes them. How many."""
        daemons = {pid for pid in self._tree() if "pyspark.daemon" in _command(pid)}
        workers = [pid for pid in daemons if _parent(pid) in daemons]
        self.signal(signal.SIGKILL, workers)
        return len(workers)

    def pause(self) -> None:
        before: set[int] = set()
        while (found := set(self._tree())) != before:
            self.signal(signal.SIGSTOP, found)
            before = found

    def wake(self) -> None:
        self.signal(signal.SIGCONT, self._tree())

    def close(self) -> None:
        if self.running:
            self.kill()
        self.signal(signal.SIGKILL, self._tree())

    def signal(self, number: int, pids: list[int] | set[int]) -> None:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _tree(self) -> list[int]:
        mark = f"{TAG}={self.tag}".encode()
        found = []
        for entry in os.listdir("/proc"):
            if entry.isdecimal():
                with suppress(OSError):
                    if mark in Path("/proc", entry, "environ").read_bytes().split(b"\0"):
                        found.append(int(entry))
        return found


def _command(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return []


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return -1
