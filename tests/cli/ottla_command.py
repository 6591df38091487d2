"""The command `ottla` as a user runs it: a process, its exit code, its stdout and stderr."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass

TIMEOUT_S = 60


def environment(**more: str) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OTTLA_")}
    return {**clean, "NO_COLOR": "1", "COLUMNS": "120", **more}


@dataclass(frozen=True)
class Ottla:
    """The command `ottla`, pointed at a cluster."""

    bootstrap_servers: str

    @property
    def environment(self) -> dict[str, str]:
        return environment(OTTLA_BOOTSTRAP_SERVERS=self.bootstrap_servers)

    @staticmethod
    def command(*words: str) -> list[str]:
        return [sys.executable, "-P", "-m", "ottla", *words]

    def run(self, *words: str, stdin: bytes | str = b"") -> subprocess.CompletedProcess[str]:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        done = subprocess.run(
            self.command(*words), input=data, capture_output=True, env=self.environment, timeout=TIMEOUT_S, check=False
        )
        return subprocess.CompletedProcess(words, done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode())

    def ok(self, *words: str, stdin: bytes | str = b"") -> str:
        """Run, expect success, return stdout."""
        done = self.run(*words, stdin=stdin)
        assert done.returncode == 0, f"{words} ended in {done.returncode}: {done.stderr}"
        return done.stdout

    def fails(self, *words: str, stdin: bytes | str = b"", code: int = 1) -> str:
        """Run, expect failure without a traceback, return stderr."""
        done = self.run(*words, stdin=stdin)
        assert done.returncode == code, f"{words} ended in {done.returncode}: {done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr
        return done.stderr
