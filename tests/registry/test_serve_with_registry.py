"""`ottla serve --registry`: a registry that begins and ends with the broker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import httpx

from ottla.runtime.free_ports import free_port, is_free
from tests.kit.wait import until


def test_registry_begins_and_ends_with_the_broker(tmp_path: Path) -> None:
    port, registry_port = free_port(), free_port()
    listeners = f"listeners=PLAINTEXT://127.0.0.1:{port}"
    console_port = free_port()
    beside = ["--registry", f"127.0.0.1:{registry_port}", "--console", f"127.0.0.1:{console_port}"]
    words = ["serve", *beside, "-d", str(tmp_path), "--set", listeners]
    url, console_url = f"http://127.0.0.1:{registry_port}", f"http://127.0.0.1:{console_port}"
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-P", "-m", "ottla", *words], stdout=log, stderr=log)
    try:
        until(lambda: httpx.get(f"{url}/subjects").json() == [], "the registry", ignoring=httpx.TransportError)
        # The console beside it reads it.
        answer = until(lambda: httpx.get(f"{console_url}/api/schemas"), "the console", ignoring=httpx.TransportError)
        assert answer.json() == {"total": 0, "matched": 0, "subjects": []}
    finally:
        process.kill()
        process.wait()
    until(lambda: is_free(registry_port), "the end of the registry")


def test_registry_for_other_machines_is_a_command_of_its_own() -> None:
    words = [sys.executable, "-P", "-m", "ottla", "serve", "--registry", "0.0.0.0:8081"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "ottla registry --listen" in done.stderr
