"""Requests one behind the other: how many reads and writes they take, and what becomes of bytes that came with the end of one."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any, cast

import pytest

from ottla.broker.network.connection import GATHERED_MAX, Connection
from ottla.broker.network.dispatch import Dispatcher, PendingReply, Route
from ottla.broker.network.request_memory import PEEK_BYTES, SPARE_BYTES
from ottla.broker.network.socket_server import ConnectionLimits, ListenerUse, SocketServer
from ottla.metrics import Counters
from ottla.ports import Network, Part
from ottla.protocol.messages.heartbeat import HeartbeatResponse
from ottla.protocol.registry import API_BY_NAME


class Line:
    """A transport whose peer sends what it is told to, and takes no reply while it is `slow`."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.slow = False
        self.paused = False
        self.replies: list[bytes] = []
        self.reads = 0
        self.not_read = b""
        connection.connection_made(cast(asyncio.BaseTransport, self))

    def send(self, data: bytes) -> None:
        """As much is read at a time as the connection wants."""
        self.not_read += data
        while self.not_read and not self.paused:
            buffer = self.connection.get_buffer(-1)
            count = min(len(buffer), len(self.not_read))
            buffer[:count] = self.not_read[:count]
            self.not_read = self.not_read[count:]
            self.reads += 1
            self.connection.buffer_updated(count)

    def take_replies(self) -> None:
        self.slow = False
        self.connection.resume_writing()

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def get_extra_info(self, name: str) -> object:
        return ("127.0.0.1", 1)

    def write(self, data: Any) -> None:
        self.replies.append(bytes(data))
        if self.slow:
            self.connection.pause_writing()

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False
        self.send(b"")

    def abort(self) -> None:
        self.not_read = b""


waiting: list[asyncio.Future[Any]] = [cast(Any, None)]
"""What the request "wait" waits for."""


def play(case: Callable[[Line, list[bytes], SocketServer], None], afterwards: Callable[[], object] = lambda: True) -> None:
    """`afterwards`: goes on until that is so."""
    got: list[bytes] = []

    def dispatch(request: memoryview, connection: Connection) -> list[Part] | PendingReply | None:
        got.append(bytes(request))
        if got[-1] == b"close":
            connection.close()
        if got[-1] == b"wait":
            loop = asyncio.get_running_loop()
            waiting[0] = loop.create_future()
            route = Route(API_BY_NAME["heartbeat"], 0, lambda *_: None, None)
            return PendingReply(Dispatcher({}, {}, loop), route, 1, None, waiting[0])
        if got[-1][:4] == b"mute":
            connection.mute(1)
        if got[-1] in (b"silent", b"mute silent"):
            return None
        return [bytes(request) if request[:1] == b"B" else bytes(request[:1])]

    async def main() -> None:
        network = cast(Network, type("Nowhere", (), {"file_sender": None}))
        server = SocketServer(asyncio.get_running_loop(), network, dispatch, ConnectionLimits(), Counters())
        server.open()
        case(Line(Connection(server, ListenerUse("PLAINTEXT"))), got, server)
        async with asyncio.timeout(60):
            while not afterwards():
                await asyncio.sleep(0)
        assert server.memory.held_bytes == 0

    asyncio.run(main())


def frames(*requests: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(request)) + request for request in requests)


LARGE = [bytes([65 + at]) * (900_000 + at) for at in range(6)]


def test_a_large_request_behind_another_takes_one_read() -> None:
    def case(line: Line, got: list[bytes], server: SocketServer) -> None:
        line.send(frames(LARGE[0]))  # its buffer is kept
        line.reads = 0
        line.send(frames(*LARGE))
        assert got == LARGE[:1] + LARGE
        assert line.reads == 1 + len(LARGE), "the first beginning by itself, then each with the beginning of the next"

    play(case)


@pytest.mark.parametrize("size", [900_000, SPARE_BYTES - PEEK_BYTES, SPARE_BYTES - 2, SPARE_BYTES, SPARE_BYTES + 1])
@pytest.mark.parametrize("slow", [False, True])
def test_what_came_with_the_end_of_a_large_request_is_answered_after_it(size: int, slow: bool) -> None:
    small = [b"1" * 10, b"2" * 300, b"3", b"4" * 2000]

    def case(line: Line, got: list[bytes], server: SocketServer) -> None:
        large = b"L" * size
        line.send(frames(large, large))
        line.slow = slow
        line.send(frames(large, *small))
        if slow:
            assert got == [large] * 3, "one request at a time"
            line.take_replies()
        assert got == [large, large, large, *small]
        assert b"".join(line.replies) == b"LLL1234"
        line.send(frames(large, b"5"))
        assert got[-2:] == [large, b"5"]

    play(case)


@pytest.mark.parametrize("cut", [1, 2, 3, 4, 5, 100])
def test_the_next_length_may_be_cut_anywhere(cut: int) -> None:
    def case(line: Line, got: list[bytes], server: SocketServer) -> None:
        line.send(frames(LARGE[0]))
        both = frames(LARGE[1], LARGE[2])
        at = 4 + len(LARGE[1]) + cut
        line.send(both[:at])
        line.send(both[at:])
        assert got == LARGE[:3]

    play(case)


def test_after_a_close_nothing_more_is_looked_at() -> None:
    def case(line: Line, got: list[bytes], server: SocketServer) -> None:
        line.send(frames(LARGE[0]))
        line.send(frames(LARGE[1], b"close", b"never"))
        assert got == [*LARGE[:2], b"close"]

    play(case)


def test_replies_to_requests_of_one_read_go_out_in_one_write() -> None:
    def case(line: Line, got: list[bytes], server: SocketServer) -> None:
        line.send(frames(b"1", b"2", b"silent", b"3"))
        line.send(frames(b"4", b"5") + b"\0\0")
        line.send(b"\0\1" + b"6")
        assert line.replies == [b"123", b"45", b"6"]

    play(case)


def test_many_replies_or_large_ones_do_not_wait() -> None:
    def case(line: Line, got: list[bytes], server: SocketServer) -> None:
        line.send(frames(*[b"1"] * (GATHERED_MAX + 3)))
        assert [len(written) for written in line.replies] == [GATHERED_MAX + 1, 2]
        large = b"B" * 10_000
        line.send(frames(b"2", large, b"3", b"4"))
        assert line.replies[2:] == [b"2" + large, b"34"]

    play(case)


def test_replies_before_a_close_are_sent() -> None:
    def case(line: Line, got: list[bytes], server: SocketServer) -> None:
        line.send(frames(b"1", b"2", b"close", b"never"))
        assert line.replies == [b"12"]
        assert got == [b"1", b"2", b"close"]

    play(case)


@pytest.mark.parametrize("slow", [False, True])
def test_replies_do_not_wait_for_a_request_that_waits(slow: bool) -> None:
    def case(line: Line, got: list[bytes], server: SocketServer) -> None:
        line.slow = slow
        line.send(frames(b"1", b"2", b"wait", b"3", b"4"))
        assert line.replies == [b"12"]
        if slow:
            line.take_replies()
        assert got == [b"1", b"2", b"wait"], "one request at a time, whether or not the replies before it have left"
        waiting[0].set_result(HeartbeatResponse())
        asyncio.get_running_loop().call_soon(lambda: checked.append(line.replies))

    checked: list[list[bytes]] = []

    play(case, afterwards=lambda: checked)
    assert b"".join(checked[0]) == b"12" + b"\0\0\0\6" + b"\0\0\0\1" + b"\0\0" + b"34"


def test_a_peer_that_takes_no_replies_is_asked_nothing_more() -> None:
    def case(line: Line, got: list[bytes], server: SocketServer) -> None:
        line.slow = True
        line.send(frames(*[b"1"] * (GATHERED_MAX + 1), b"2", b"3"))
        assert got == [b"1"] * (GATHERED_MAX + 1)
        line.take_replies()
        assert b"".join(line.replies) == b"1" * (GATHERED_MAX + 1) + b"23"

    play(case)


# Muted connections


@pytest.mark.parametrize("slow", [False, True])
@pytest.mark.parametrize("request_", [b"mute", b"mute silent"])
def test_qu03_a_muted_connection_replies_at_once_and_then_reads_nothing(request_: bytes, slow: bool) -> None:
    lines: list[tuple[Line, list[bytes]]] = []

    def case(line: Line, got: list[bytes], server: SocketServer) -> None:
        lines.append((line, got))
        line.slow = slow
        line.send(frames(b"1", request_, b"2") + frames(b"3")[:3])
        assert line.replies == [b"1m" if request_ == b"mute" else b"1"]
        assert got == [b"1", request_]
        assert line.paused
        if slow:
            line.take_replies()
        line.send(frames(b"3")[3:])
        assert got == [b"1", request_]

    play(case, afterwards=lambda: lines[0][1][2:] == [b"2", b"3"])
    line, _ = lines[0]
    assert not line.paused
    assert b"".join(line.replies).endswith(b"23")


def test_qu03_a_request_that_waited_can_mute_its_connection() -> None:
    lines: list[tuple[Line, list[bytes]]] = []

    def case(line: Line, got: list[bytes], server: SocketServer) -> None:
        lines.append((line, got))
        line.send(frames(b"wait", b"2"))
        line.connection.mute(1)
        waiting[0].set_result(HeartbeatResponse())
        asyncio.get_running_loop().call_soon(lambda: answered.append((b"".join(line.replies), list(got))))

    answered: list[tuple[bytes, list[bytes]]] = []
    play(case, afterwards=lambda: lines[0][1] == [b"wait", b"2"])
    reply, got = answered[0]
    assert reply, "the reply does not wait"
    assert got == [b"wait"]


def test_qu03_a_muted_connection_can_be_closed() -> None:
    def case(line: Line, got: list[bytes], server: SocketServer) -> None:
        line.send(frames(b"mute", b"2"))
        assert server.sweep_idle() == 0
        line.connection.last_used -= 10_000
        assert server.sweep_idle() == 1
        line.connection.connection_lost(None)
        assert len(server) == 0
        asyncio.get_running_loop().call_later(0.02, lambda: checked.append(list(got)))

    checked: list[list[bytes]] = []
    play(case, afterwards=lambda: checked)
    assert checked == [[b"mute"]]
