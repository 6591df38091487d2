"""Connections before the broker is ready, and replies of every shape, on a real socket with a dispatcher of the test's own."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path

from ottla.broker.network.connection import Connection
from ottla.broker.network.dispatch import PendingReply
from ottla.broker.network.socket_server import USE_S, ConnectionLimits, SocketServer
from ottla.metrics import Counters
from ottla.ports import FileRange, Part, UnlimitedDescriptors
from ottla.runtime.files import OsDisk
from ottla.runtime.loop import run
from ottla.runtime.network import RealNetwork

Dispatch = Callable[[memoryview, Connection], list[Part] | PendingReply | None]


def play(
    dispatch: Dispatch,
    case: Callable[[SocketServer, int], Awaitable[None]],
    limits: ConnectionLimits | None = None,
    descriptors: UnlimitedDescriptors | None = None,
    counters: Counters | None = None,
) -> None:
    async def main() -> None:
        counted = counters or Counters()
        loop = asyncio.get_running_loop()
        server = SocketServer(
            loop, RealNetwork(counted), dispatch, limits or ConnectionLimits(), counted, descriptors=descriptors
        )
        port = await server.listen("PLAINTEXT", "127.0.0.1", 0)
        try:
            await asyncio.wait_for(case(server, port), 60)
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


class Client:
    """Sends requests that the test's dispatcher answers with themselves."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, port: int) -> Client:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    def send(self, text: bytes) -> None:
        self._writer.write(frame(text))

    async def answer(self, text: bytes) -> None:
        assert await self._reader.readexactly(len(text)) == text

    async def call(self, text: bytes) -> None:
        self.send(text)
        await self.answer(text)

    async def is_closed(self) -> bool:
        try:
            return await self._reader.read(1) == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        self._writer.close()


def echo(request: memoryview, connection: Connection) -> list[Part]:
    return [bytes(request)]


def test_who_finds_no_place_waits_for_one_and_too_many_are_refused() -> None:
    async def case(server: SocketServer, port: int) -> None:
        server.open()
        first, second = await Client.connect(port), await Client.connect(port)
        await first.call(b"one")
        await second.call(b"two")
        waiting = await Client.connect(port)
        waiting.send(b"three")
        while not server._waiting:
            await asyncio.sleep(0.001)
        refused = await Client.connect(port)
        assert await refused.is_closed()
        refused.close()
        await first.call(b"still here")
        assert len(server) == 2
        second.close()
        await waiting.answer(b"three")
        assert len(server) == 2
        waiting.close()
        first.close()

    play(echo, case, ConnectionLimits(connections_max=2, waiting_max=1))


def test_one_who_waited_and_left_takes_no_place() -> None:
    async def case(server: SocketServer, port: int) -> None:
        server.open()
        first = await Client.connect(port)
        await first.call(b"one")
        gone = await Client.connect(port)
        while not server._waiting:
            await asyncio.sleep(0.001)
        gone.close()
        while server._waiting:
            await asyncio.sleep(0.001)
        last = await Client.connect(port)
        last.send(b"two")
        first.close()
        await last.answer(b"two")
        last.close()

    play(echo, case, ConnectionLimits(connections_max=1))


def test_a_listener_has_a_limit_of_its_own() -> None:
    async def case(server: SocketServer, port: int) -> None:
        server.open()
        other_port = await server.listen("INSIDE", "127.0.0.1", 0)
        outside = await Client.connect(port)
        await outside.call(b"one")
        waiting = await Client.connect(port)
        waiting.send(b"two")
        while not server._waiting:
            await asyncio.sleep(0.001)
        inside = [await Client.connect(other_port) for _ in range(3)]
        for client in inside:
            await client.call(b"inside")
        assert list(server._waiting) != []
        server.limits_changed(ConnectionLimits(per_listener_max={"PLAINTEXT": 2}))
        await waiting.answer(b"two")
        for client in (outside, waiting, *inside):
            client.close()

    play(echo, case, ConnectionLimits(per_listener_max={"PLAINTEXT": 1}))


def test_a_broker_always_finds_a_place_and_the_longest_silent_client_has_to_go() -> None:
    async def case(server: SocketServer, port: int) -> None:
        server.open()
        brokers_port = await server.listen("BROKERS", "127.0.0.1", 0)
        silent, lively = await Client.connect(port), await Client.connect(port)
        await silent.call(b"one")
        await asyncio.sleep(2 * USE_S)  # uses within USE_S of each other do not change the order
        await lively.call(b"two")
        broker = await Client.connect(brokers_port)
        await broker.call(b"three")
        assert await silent.is_closed()
        silent.close()
        await lively.call(b"four")
        for client in (lively, broker):
            client.close()

    play(echo, case, ConnectionLimits(connections_max=2, brokers_listener="BROKERS"))


def test_requests_of_every_size_one_behind_the_other() -> None:
    """Of a request that may be large too, only the beginning is read together with what was before it."""
    sizes = [10, 200_000, 10, 900_000, 900_001, 1020, 1021, 300_000, 5000, 131_072, 131_071, 2_000_000, 1, 1_500_000, 70_000]
    got: list[bytes] = []

    def dispatch(request: memoryview, connection: Connection) -> list[Part]:
        got.append(bytes(request))
        return [b"."]

    async def case(server: SocketServer, port: int) -> None:
        server.open()
        sent = [bytes([65 + at]) * size for at, size in enumerate(sizes)]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"".join(frame(each) for each in sent))
        assert await reader.readexactly(len(sent)) == b"." * len(sent)
        for each in sent:
            writer.write(frame(each))
            assert await reader.readexactly(1) == b"."
        assert got == sent * 2
        assert server.memory.held_bytes == 0
        writer.close()

    play(dispatch, case)


def test_listeners_pause_while_no_descriptor_is_left_for_connections() -> None:
    class Descriptors(UnlimitedDescriptors):
        is_full = False

        def full(self) -> bool:
            return self.is_full

    def echo(request: memoryview, connection: Connection) -> list[Part]:
        return [bytes(request)]

    descriptors, counters = Descriptors(), Counters()

    async def case(server: SocketServer, port: int) -> None:
        server.open()
        descriptors.is_full = True
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(frame(b"in"))
        assert await reader.readexactly(2) == b"in"
        assert counters.get("listeners_paused") == 1
        later, waits = await asyncio.open_connection("127.0.0.1", port)
        waits.write(frame(b"late"))
        writer.write(frame(b"still served"))
        assert await reader.readexactly(12) == b"still served"
        assert len(server) == 1
        descriptors.is_full = False
        assert await later.readexactly(4) == b"late"
        assert counters.get("listeners_paused") == 1
        writer.close()
        waits.close()

    play(echo, case, descriptors=descriptors, counters=counters)
