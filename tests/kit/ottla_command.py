"""The `ottla` command as a user runs it: exit code, stdout and stderr."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from typer.testing import CliRunner

TIMEOUT_S = 180


def environment(**more: Any) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OTTLA_")}
    return {**clean, "NO_COLOR": "1", "COLUMNS": "120", **more}


@dataclass(frozen=True)
class Ottla:
    """The command `ottla` with the bootstrap servers of a cluster."""

    bootstrap_servers: str

    @property
    def environment(self) -> dict[str, str]:
        return environment(OTTLA_BOOTSTRAP_SERVERS=self.bootstrap_servers)

    @staticmethod
    def command(*words: str) -> list[str]:
        return [sys.executable, "-P", "-m", "ottla", *words]

    def run(self, *words: str, stdin: bytes | str = b"") -> subprocess.CompletedProcess[str]:
        """Run the command in this process, which saves the start of Python."""
        from ottla.cli.app import app

        data = stdin.encode() if isinstance(stdin, str) else stdin
        result = CliRunner(charset="utf-8").invoke(app, list(words), input=data, env=self.environment, prog_name="ottla")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return subprocess.CompletedProcess(words, result.exit_code, result.stdout_bytes.decode("utf-8", "replace"), result.stderr)

    def spawn(self, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Run the command as a process."""
        return subprocess.run(
            self.command(*words), input=stdin, capture_output=True, env=self.environment, timeout=TIMEOUT_S, check=False
        )

    def ok(self, *words: str, stdin: bytes | str = b"") -> str:
        """Run, expect success, return stdout."""
        done = self.run(*words, stdin=stdin)
        assert done.returncode == 0, f"{words} ended in {done.returncode}: {done.stderr}"
        return done.stdout

    def fails(self, *words: str, stdin: bytes | str = b"", code: int = 1) -> str:
        """Run, expect failure, return stderr."""
        done = self.run(*words, stdin=stdin)
        assert done.returncode == code, f"{words} ended in {done.returncode}: {done.stdout}{done.stderr}"
        return done.stderr
