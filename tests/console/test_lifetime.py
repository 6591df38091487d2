"""How a console starts and ends, and what it does while the cluster is away."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from ottla.runtime.free_ports import free_port
from ottla.testing import Broker
from tests.console.running import running_console
from tests.kit.ottla_command import Ottla, environment
from tests.kit.wait import until


def answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5).status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_one_that_the_broker_starts_ends_with_it(tmp_path: Path, number: signal.Signals) -> None:
    kafka, http = free_port(), free_port()
    words = (
        "serve",
        "--data-dir",
        str(tmp_path),
        "--set",
        f"listeners=PLAINTEXT://127.0.0.1:{kafka}",
        f"--console=127.0.0.1:{http}",
    )
    log = tmp_path / "log"
    with log.open("wb") as out, subprocess.Popen(Ottla.command(*words), stderr=out, env=environment()) as broker:
        try:
            url = f"http://127.0.0.1:{http}"
            until(lambda: answers(f"{url}/api/overview"), log.read_text)
            found = httpx.get(f"{url}/api/overview").json()
            assert found["bootstrap_servers"] == f"127.0.0.1:{kafka}"
            broker.send_signal(number)
            broker.wait(60)
            until(lambda: not answers(f"{url}/healthz"), "the console ends")
        finally:
            broker.kill()


@pytest.mark.parametrize(
    ("words", "says"),
    [(["--console=0.0.0.0:8080"], "with a login"), (["--console=127.0.0.1:99999"], "not host:port")],
)
def test_a_broker_that_does_not_start_one(words: list[str], says: str) -> None:
    done = Ottla("").spawn("serve", *words)
    assert done.returncode == 2
    assert says in done.stderr.decode()


def test_without_its_packages_it_says_what_to_install(tmp_path: Path) -> None:
    """A package that fails to import stands for one that is not there."""
    for name in ("starlette", "uvicorn"):
        (tmp_path / f"{name}.py").write_text(f"raise ModuleNotFoundError('no', name='{name}')")
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    command = [sys.executable, "-m", "ottla", "console", "--listen", "127.0.0.1:0", "-b", "127.0.0.1:1"]
    done = subprocess.run(command, capture_output=True, env=environment(PYTHONPATH=path), timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.decode().strip().splitlines() == [
        "error: the console needs packages that are not installed: pip install 'ottla[console]'"
    ]


def test_a_cluster_that_goes_away_and_comes_back(tmp_path: Path) -> None:
    port = free_port()
    settings = {"listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    with running_console(f"127.0.0.1:{port}") as console:
        error = console.refused("GET", "/api/overview", 503)
        assert error["code"] == "BROKER_AWAY"
        assert answers(f"{console.url}/")
        with Broker(settings, data_dir=tmp_path) as _:
            until(lambda: answers(f"{console.url}/api/overview"), "it is seen")
            console.post("/api/topics", {"topic": "orders"})
            live = console.events("/api/live/topics/orders")
            events = live.__enter__()
            assert next(events)[0] == "snapshot"
        assert next(name for name, _ in events if name != "delta") == "trouble"
        # The last snapshot stays.
        assert console.get("/api/topics")["rows"][0]["topic"] == "orders"
        assert console.refused("POST", "/api/topics/orders/records", 503, {"value": "x"})["code"] == "BROKER_AWAY"
        with Broker(settings, data_dir=tmp_path):
            assert any(name == "well" for name, _ in events)  # trouble may be told again before
            live.__exit__(None, None, None)
            assert console.post("/api/topics/orders/records", {"value": json.dumps({"n": 1})})["records"][0]["offset"] == 0


def test_a_live_view_outlives_the_broker() -> None:
    """Killed and started again: an open view shows what is produced then, and so does one that goes on with its token."""
    with Broker() as broker, running_console(broker.bootstrap_servers) as console:
        broker.create_topic("orders")
        path = "/api/topics/orders/records?live=1"
        with console.events(path) as events:
            word = next(events)[1]["continue"]
            broker.kill()
            broker.start()
            console.post("/api/topics/orders/records", {"value": "after"})
            with console.events(f"{path}&continue={word}") as again:
                for each in (events, again):
                    shown = next(document["records"] for name, document in each if name == "records")
                    assert [record["value"]["text"] for record in shown] == ["after"]
