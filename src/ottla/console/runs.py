"""Runs and resets the pipelines whose files the console was started with, on its machine.

1. What is run is `ottla pipeline run FILE` with the settings beside the file. Nothing of it comes from the cluster: who may write
   `__ottla_pipelines` must not choose what runs here.
2. Nothing is run or reset while the pipeline publishes that it runs, nor with another storage than that of its last run: a run
   with other checkpoints would write everything a second time.
3. A driver that was started here is a process of its own, and goes on when the console ends.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ottla.cli.failure import Failure

_ENV: Final = "OTTLA_PIPELINE_ENV"
_RESET_TIMEOUT_S: Final = 120.0
_SHOWN_BYTES: Final = 8 << 10
_RUNS: Final = ("starting", "running")


@dataclass(slots=True)
class Driver:
    """A process that was started here."""

    process: subprocess.Popen[bytes]
    log: Path
    began_ms: int

    def document(self) -> dict[str, Any]:
        return {
            "pid": self.process.pid,
            "began_ms": self.began_ms,
            "exit_code": self.process.poll(),
            "log": str(self.log),
            "output": _tail(self.log),
        }


class Runs:
    def __init__(self, files: tuple[str, ...], bootstrap_servers: str) -> None:
        self._files = [Path(each) for each in files]
        self._servers = bootstrap_servers
        self._lock = threading.Lock()
        self._drivers: dict[str, Driver] = {}

    def file_of(self, name: str) -> Path | None:
        """The file of a pipeline; None if the console was not given it."""
        from ottla.pipelines import PipelineError
        from ottla.pipelines.project import name_of

        for file in self._files:
            try:
                if name_of(file, env=os.environ.get(_ENV)) == name:
                    return file
            except PipelineError:
                continue
        return None

    def driver(self, name: str) -> Driver | None:
        """The last one that was started here."""
        return self._drivers.get(name)

    # Blocking

    def run(self, published: Mapping[str, Any]) -> Driver:
        name = str(published["pipeline"])
        file = self._checked(published)
        with self._lock:
            before = self._drivers.get(name)
            if before is not None and before.process.poll() is None:
                raise _runs_already(name, f"pid {before.process.pid}")
            log = file.with_suffix(".log")
            with log.open("ab") as output:
                process = subprocess.Popen(
                    self._command("run", file),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    cwd=file.parent,
                    start_new_session=True,
                )
            self._drivers[name] = Driver(process, log, int(time.time() * 1000))
            return self._drivers[name]

    def reset(self, published: Mapping[str, Any], flows: list[str], to: str | None, *, execute: bool) -> list[str]:
        """The steps of `ottla pipeline reset`. The file is Python: another process reads it."""
        file = self._checked(published)
        words = [word for flow in flows for word in ("--flow", flow)] + (["--to", to] if to is not None else [])
        command = [*self._command("reset", file), "--yes" if execute else "--dry-run", *words]
        with self._lock:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_RESET_TIMEOUT_S, cwd=file.parent
            )
        lines = done.stderr.splitlines()
        if done.returncode:
            message = next((line for line in lines if line.startswith("error: ")), "it failed").removeprefix("error: ")
            raise Failure(message, f"the command was: ottla {shlex.join(command[3:])}", code="PIPELINE_FAILED")
        return lines

    def _command(self, verb: str, file: Path) -> list[str]:
        return [sys.executable, "-m", "ottla", "pipeline", verb, str(file), "-b", self._servers]

    def _checked(self, published: Mapping[str, Any]) -> Path:
        from ottla.pipelines import PipelineError
        from ottla.pipelines.project import read

        name, plan = str(published["pipeline"]), published["plan"]
        file = self.file_of(name)
        if file is None:
            raise Failure(
                f"this console was not given the file of pipeline {name}",
                "start it with --pipeline FILE, or run the command where the file is",
                code="NOT_HERE",
            )
        if any(flow["state"] in _RUNS for flow in published["flows"]):
            raise _runs_already(name, f"on {plan.get('host')}")
        try:
            storage = read(file, env=os.environ.get(_ENV)).storage
        except PipelineError as error:
            raise Failure(str(error), error.hint, code="PIPELINE_FAILED") from None
        if plan.get("storage") not in (None, storage):
            raise Failure(
                f"the last run of {name} had its checkpoints in {plan['storage']}, its settings say {storage}",
                "from there it would begin anew: run it by hand, with --storage or --env",
                code="OTHER_STORAGE",
            )
        return file


def _runs_already(name: str, where: str) -> Failure:
    return Failure(f"pipeline {name} runs already, {where}", "stop it first", code="ALREADY_RUNS")


def _tail(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _SHOWN_BYTES))
            return file.read().decode("utf-8", "replace")
    except OSError as error:
        return f"{log}: {error.strerror}"
