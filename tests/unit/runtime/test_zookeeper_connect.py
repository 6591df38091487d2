"""What is said of a ZooKeeper that cannot be: without a server (F59)."""

from __future__ import annotations

import asyncio
import socket
import sys

import pytest

from ottla.ports import StoreError, StoreUnavailable
from ottla.runtime.zookeeper_connect import parse_connect
from ottla.runtime.zookeeper_store import ZooKeeperStore

HOUR_MS = 3_600_000


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kazoo.client", None)

    async def run() -> None:
        with pytest.raises(StoreUnavailable, match=r"pip install 'ottla\[cluster\]'"):
            await ZooKeeperStore.open("127.0.0.1:2181", session_timeout_ms=1000, connection_timeout_ms=1000)

    asyncio.run(run())


def test_nobody_there_is_said_within_the_time_given() -> None:
    async def run() -> None:
        with pytest.raises(StoreUnavailable, match=r"cannot be reached at zookeeper\.connect=127\.0\.0\.1:1/x within 200 ms"):
            await ZooKeeperStore.open("127.0.0.1:1/x", session_timeout_ms=1000, connection_timeout_ms=200)

    asyncio.run(run())


@pytest.mark.parametrize("somebody", [False, True], ids=["nobody there", "somebody silent"])
def test_who_stops_waiting_for_it_waits_no_longer(somebody: bool) -> None:
    async def run(address: str) -> None:
        opening = asyncio.create_task(ZooKeeperStore.open(address, session_timeout_ms=500, connection_timeout_ms=HOUR_MS))
        await asyncio.sleep(0.3)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening

    if not somebody:
        asyncio.run(run("127.0.0.1:1"))
        return
    with socket.create_server(("127.0.0.1", 0)) as listener:
        asyncio.run(run(f"127.0.0.1:{listener.getsockname()[1]}"))


@pytest.mark.parametrize(
    ("text", "hosts", "chroot"),
    [
        ("a", ["a:2181"], ""),
        ("a:1, b:2 ,c", ["a:1", "b:2", "c:2181"], ""),
        ("a:1,b:2/kafka", ["a:1", "b:2"], "/kafka"),
        ("a:1/kafka/one/", ["a:1"], "/kafka/one"),
        ("a:1/", ["a:1"], ""),
        ("[::1]:2181/x", ["[::1]:2181"], "/x"),
    ],
)
def test_addresses_as_kafka_reads_them(text: str, hosts: list[str], chroot: str) -> None:
    assert parse_connect(text) == (hosts, chroot)


@pytest.mark.parametrize(
    "text", ["", " ", ",", "/x", "a:b", "a:0", "a:65536", ":1", "a:1//x", "a:1/../x", "a:1:2", "::1", "::1:2181"]
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(StoreError, match=r"zookeeper\.connect"):
        parse_connect(text)


def _reason(address: str) -> str:
    async def run() -> str:
        with pytest.raises(StoreUnavailable) as caught:
            await ZooKeeperStore.open(address, session_timeout_ms=6000, connection_timeout_ms=300)
        return str(caught.value)

    return asyncio.run(run())


def test_the_reason_is_what_one_would_find_by_hand() -> None:
    assert "unknown host nowhere.invalid" in _reason("nowhere.invalid:2181")
    assert "127.0.0.1:1: connection refused" in _reason("127.0.0.1:1")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert f"127.0.0.1:{port} accepts connections but does not answer as ZooKeeper" in _reason(f"127.0.0.1:{port}/x")
