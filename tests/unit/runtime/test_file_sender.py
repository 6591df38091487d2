"""File ranges on real sockets: as the peer takes them, with what goes before them, one behind the other, and to the end or not at
all."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from typing import Any

import pytest

from ottla.metrics import Counters
from ottla.ports import FileRange
from ottla.runtime.file_sender import SocketFileSender
from ottla.runtime.files import OsDisk
from ottla.runtime.loop import new_event_loop

DEADLINE_S = 60
DATA_SEGS_OUT_AT = 156
"""Of `tcpi_data_segs_out` in Linux's struct tcp_info."""
CONTENT = random.Random(5).randbytes(3_000_000)


class Transport(asyncio.Transport):
    """All that a sender asks of one."""

    def __init__(self, sock: Any) -> None:
        super().__init__()
        self.sock = sock

    def get_extra_info(self, name: Any, default: Any = None) -> Any:
        assert name == "socket"
        return self.sock


@pytest.fixture
def file(tmp_path: Any) -> Any:
    (tmp_path / "f").write_bytes(CONTENT)
    return OsDisk().open(str(tmp_path / "f"))


@pytest.fixture
def ends() -> Any:
    """A connection whose sending side takes little at once."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 20_000)
    with client, server:
        for end in (client, server):
            end.setblocking(False)
        yield server, client


def play(main: Any) -> None:
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(asyncio.wait_for(main(), DEADLINE_S))


async def receive(client: Any, count: Any) -> Any:
    loop = asyncio.get_running_loop()
    data = b""
    while len(data) < count:
        piece = await loop.sock_recv(client, min(1 << 16, count - len(data)))
        assert piece, f"the end after {len(data)} of {count} bytes"
        data += piece
    return data


def test_what_fits_is_sent_at_once(file: Any, ends: Any) -> None:
    server, client = ends

    async def main() -> None:
        sender = SocketFileSender(asyncio.get_running_loop(), Transport(server), Counters())
        assert sender.send(b"head", FileRange(file, 7, 100), lambda error: pytest.fail("it was sent already"))
        sender.close()
        assert await receive(client, 104) == b"head" + CONTENT[7:107]

    play(main)


def test_the_bytes_before_a_range_are_no_packet_of_their_own(file: Any, ends: Any) -> None:
    """They would wake the peer up for nothing."""
    server, client = ends

    def packets() -> Any:
        return struct.unpack_from("=I", server.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256), DATA_SEGS_OUT_AT)[0]

    async def main() -> None:
        sender = SocketFileSender(asyncio.get_running_loop(), Transport(server), Counters())
        for _ in range(10):
            assert sender.send(b"head", FileRange(file, 7, 100), lambda error: pytest.fail("it was sent already"))
            await receive(client, 104)
        sender.close()

    server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as an event loop does
    before = packets()
    play(main)
    assert packets() - before == 10


def test_a_range_that_is_begun_when_the_last_one_ends(file: Any, ends: Any) -> None:
    """As connections do: the reply's next part is begun by the call that says that the one before is sent."""
    server, client = ends
    parts = [
        (b"", FileRange(file, 0, 1_000_000)),
        (b"between", FileRange(file, 5, 1)),
        (bytearray(b"more than the socket takes. " * 10_000), FileRange(file, 9, 2_000_000)),
    ]

    async def main() -> None:
        loop = asyncio.get_running_loop()
        counters = Counters()
        sender = SocketFileSender(loop, Transport(server), counters)
        all_sent = loop.create_future()
        left = list(parts)

        def go_on(error: Any) -> None:
            assert error is None
            while left:
                if not sender.send(*left.pop(0), go_on):  # type: ignore[arg-type]
                    return
            all_sent.set_result(None)

        def complain(_: Any, context: Any) -> None:
            all_sent.set_exception(context.get("exception") or RuntimeError(context["message"]))

        loop.set_exception_handler(complain)
        go_on(None)
        assert not all_sent.done(), "more than the socket takes"
        expected = b"".join(head + CONTENT[part.position : part.position + part.size] for head, part in parts)  # type: ignore[operator]
        assert await receive(client, len(expected)) == expected
        await all_sent
        assert counters.get("sendfile_bytes") == sum(part.size for _, part in parts)
        assert not sender._watched
        sender.close()

    play(main)


def test_a_connection_that_closes_in_the_middle(file: Any, ends: Any) -> None:
    server, _ = ends

    async def main() -> None:
        loop = asyncio.get_running_loop()
        sender = SocketFileSender(loop, Transport(server), Counters())
        told: list[Any] = []
        assert not sender.send(b"", FileRange(file, 0, 3_000_000), told.append)
        assert not told
        sender.close()
        assert [type(error) for error in told] == [ConnectionResetError]
        sender.close()
        assert len(told) == 1

    play(main)


def test_a_file_that_is_shorter_than_promised(file: Any, ends: Any) -> None:
    server, client = ends

    async def main() -> None:
        loop = asyncio.get_running_loop()
        sender = SocketFileSender(loop, Transport(server), Counters())
        told = loop.create_future()
        assert not sender.send(b"", FileRange(file, 0, 3_000_001), told.set_result)
        await receive(client, 3_000_000)
        assert "1 bytes before" in str(await told)
        sender.close()

    play(main)
