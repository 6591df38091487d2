"""Alerts reach a webhook, and what does not get through stops nothing."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from ottla.pipelines.alerts import FAILED, Alerts, document
from ottla.pipelines.failure import PipelineError, Place


def test_a_webhook_gets_the_failure_as_json() -> None:
    received: list[Any] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Hook) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        alerts = Alerts(None, f"http://127.0.0.1:{server.server_port}/hook")
        failure = PipelineError("no way", Place("shop.py", 4), hint="another way")
        alerts.send(document(FAILED, "shop", "copy", failure, 2.0))
        alerts.close()
        server.shutdown()
    ((path, found),) = received
    assert path == "/hook"
    assert found.pop("at").endswith("Z")
    error = {"message": "no way", "place": "shop.py:4", "hint": "another way"}
    assert found == {"event": "failed", "pipeline": "shop", "flow": "copy", "error": error, "restart_in_s": 2.0}


def test_what_does_not_get_through_is_one_line_without_secrets(caplog: pytest.LogCaptureFixture) -> None:
    alerts = Alerts("exit 3 # geheim", "http://127.0.0.1:1/geheim")
    alerts.send(document(FAILED, "shop", "copy"))
    alerts.close()
    assert [record.getMessage().split(": ")[1] for record in caplog.records] == ["the command failed", "the webhook failed"]
    assert "exit code 3" in caplog.text
    assert "geheim" not in caplog.text
