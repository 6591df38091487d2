"""Connections before the broker is ready, and replies of every shape, on a real socket with a dispatcher of the test's own."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path

from ottla.broker.connection import Connection
from ottla.broker.dispatch import PendingReply
from ottla.broker.socket_server import ConnectionLimits, SocketServer
from ottla.metrics import Counters
from ottla.ports import FileRange, Part
from ottla.runtime.files import OsDisk
from ottla.runtime.loop import run
from ottla.runtime.network import RealNetwork

Dispatch = Callable[[memoryview, Connection], list[Part] | PendingReply | None]


def play(dispatch: Dispatch, case: Callable[[SocketServer, int], Awaitable[None]]) -> None:
    async def main() -> None:
        counters = Counters()
        loop = asyncio.get_running_loop()
        server = SocketServer(loop, RealNetwork(counters), dispatch, ConnectionLimits(), counters)
        port = await server.listen("PLAINTEXT", "127.0.0.1", 0)
        try:
            await asyncio.wait_for(case(server, port), 30)
        finally:
            server.close()
            await asyncio.sleep(0.01)

    run(main())


def frame(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def test_requests_that_come_before_the_broker_is_ready_wait_for_it() -> None:
    asked: list[bytes] = []

    def dispatch(request: memoryview, connection: Connection) -> list[Part]:
        asked.append(bytes(request))
        return [bytes(request)]

    async def case(server: SocketServer, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(frame(b"early") + frame(b"and another"))
        while server.memory.held_bytes == 0:
            await asyncio.sleep(0.001)
        writer.write(frame(b"third"))
        assert asked == []
        server.open()
        assert await reader.readexactly(21) == b"earlyand anotherthird"
        writer.write(frame(b"late"))
        assert await reader.readexactly(4) == b"late"
        assert server.memory.held_bytes == 0
        writer.close()

    play(dispatch, case)


def test_buffers_and_files_go_out_in_their_order_however_slow_the_reader(tmp_path: Path) -> None:
    content = bytes(range(256)) * 8192
    (tmp_path / "file").write_bytes(content)
    file = OsDisk().open(str(tmp_path / "file"))
    large = b"L" * 3_000_000

    def dispatch(request: memoryview, connection: Connection) -> list[Part]:
        return [
            b"head",
            FileRange(file, 0, len(content)),
            b"between",
            large,
            FileRange(file, 5, 0),
            FileRange(file, 256, 1000),
            b"tail",
        ]

    expected = b"head" + content + b"between" + large + content[256:1256] + b"tail"

    async def case(server: SocketServer, port: int) -> None:
        server.open()
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=4096)
        for _ in range(2):
            writer.write(frame(b"one") + frame(b"two"))
            for _ in range(2):
                received = b""
                while len(received) < len(expected):
                    received += await reader.readexactly(min(700_000, len(expected) - len(received)))
                assert received == expected
        writer.close()

    play(dispatch, case)
    file.close()


def test_a_file_shorter_than_promised_closes_the_connection(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"short")
    file = OsDisk().open(str(tmp_path / "file"))

    def dispatch(request: memoryview, connection: Connection) -> list[Part]:
        return [b"head", FileRange(file, 0, 100)]

    async def case(server: SocketServer, port: int) -> None:
        server.open()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(frame(b"x"))
        try:
            received = await reader.read()
        except ConnectionError:
            received = b""
        assert len(received) < 104
        assert len(server) == 0
        writer.close()

    play(dispatch, case)
    file.close()
