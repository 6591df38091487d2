"""Tells a command and a webhook that a flow failed, and that it runs again. Flows never wait for it.

Both get one JSON document: the command on its standard input, the webhook as the body of a POST.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import subprocess
import threading
import urllib.request
from datetime import UTC, datetime
from typing import Any

from ottla.pipelines.failure import PipelineError

FAILED, RECOVERED = "failed", "recovered"
WAITING, CONNECTED = "waiting", "connected"
"""Of a pipeline, not of a flow: no broker answers, and one answers again."""
_TIMEOUT_S = 30.0
_WAITING_MAX = 1_000

logger = logging.getLogger("ottla.pipelines")


def document(
    event: str, pipeline: str, flow: str | None = None, failure: PipelineError | None = None, restart_in_s: float | None = None
) -> dict[str, Any]:
    error = None
    if failure is not None:
        place = None if failure.place is None else str(failure.place)
        error = {"message": failure.message, "place": place, "hint": failure.hint}
    at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {"event": event, "pipeline": pipeline, "flow": flow, "at": at, "error": error, "restart_in_s": restart_in_s}


class Alerts:
    """Sends documents in their order, in a thread that starts with the first of them."""

    def __init__(self, command: str | None, webhook: str | None) -> None:
        self._command, self._webhook = command, webhook
        self._waiting: queue.Queue[dict[str, Any] | None] = queue.Queue(_WAITING_MAX)
        self._thread: threading.Thread | None = None

    def send(self, told: dict[str, Any]) -> None:
        if self._command is None and self._webhook is None:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="alerts", daemon=True)
            self._thread.start()
        try:
            self._waiting.put_nowait(told)
        except queue.Full:
            logger.warning("Alert about flow %s dropped: %d others wait", told["flow"], _WAITING_MAX)

    def close(self) -> None:
        """Return when all alerts are sent, or do not get through."""
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join(2 * _TIMEOUT_S)
            self._thread = None

    def _run(self) -> None:
        while (told := self._waiting.get()) is not None:
            text = json.dumps(told)
            for name, ways in (("command", self._by_command), ("webhook", self._by_webhook)):
                try:
                    ways(text, told)
                except (OSError, ValueError, subprocess.SubprocessError) as error:
                    # An address or a command may hold a secret: neither is in the text.
                    logger.warning("Alert about flow %s: the %s failed: %s", told["flow"], name, _shown(error))

    def _by_command(self, text: str, told: dict[str, Any]) -> None:
        if self._command is None:
            return
        names = {f"OTTLA_{name.upper()}": told[name] for name in ("event", "pipeline", "flow")}
        subprocess.run(
            self._command,
            shell=True,
            input=text.encode(),
            env={**os.environ, **names},
            stdout=subprocess.DEVNULL,
            timeout=_TIMEOUT_S,
            check=True,
        )

    def _by_webhook(self, text: str, told: dict[str, Any]) -> None:
        if self._webhook is None:
            return
        request = urllib.request.Request(self._webhook, data=text.encode(), headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S):
            pass


def _shown(error: Exception) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        return f"exit code {error.returncode}"
    if isinstance(error, subprocess.TimeoutExpired):
        return f"no end after {_TIMEOUT_S:.0f} s"
    return str(error) if isinstance(error, OSError) else type(error).__name__
