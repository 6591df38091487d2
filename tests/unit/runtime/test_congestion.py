"""Which algorithm a connection has is a matter of where its peer is."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.metrics import Counters
from ottla.runtime import congestion
from ottla.runtime.congestion import begin_unpaced, same_machine, use_system_algorithm
from ottla.runtime.loop import new_event_loop
from ottla.runtime.network import RealNetwork

DEADLINE_S = 60


@pytest.mark.parametrize(
    ("own", "peer", "same"),
    [
        (("127.0.0.1", 9092), ("127.0.0.1", 40000), True),
        (("127.0.0.2", 9092), ("127.0.0.1", 40000), True),
        (("::1", 9092, 0, 0), ("::1", 40000, 0, 0), True),
        (("::ffff:127.0.0.1", 9092, 0, 0), ("::ffff:127.0.0.3", 40000, 0, 0), True),
        (("10.0.0.7", 9092), ("10.0.0.7", 40000), True),
        (("::ffff:10.0.0.7", 9092, 0, 0), ("::FFFF:10.0.0.7", 40000, 0, 0), True),
        (("2001:db8::7", 9092, 0, 0), ("2001:db8::7", 40000, 0, 0), True),
        (("10.0.0.7", 9092), ("10.0.0.8", 40000), False),
        (("10.0.0.7", 9092), ("10.0.0.70", 40000), False),
        (("::ffff:10.0.0.7", 9092, 0, 0), ("::ffff:10.0.0.8", 40000, 0, 0), False),
        (("2001:db8::7", 9092, 0, 0), ("2001:db8::1", 40000, 0, 0), False),
        (("127.0.0.1", 9092), ("1.127.0.1", 40000), False),
        ("/run/socket", "", False),
        (("10.0.0.7", 9092), None, False),
        (None, None, False),
    ],
)
def test_a_peer_is_on_this_machine_by_its_addresses(own: Any, peer: Any, same: Any) -> None:
    assert same_machine(own, peer) is same


class System:
    """Sockets of a system with its own default, in which some names may not be set."""

    def __init__(self, default: Any = b"bbr", refused: Any = ()) -> None:
        self.default, self.refused = default, refused

    def socket(self) -> Any:
        return Socket(self)


class Socket:
    def __init__(self, system: Any, algorithm: Any = None) -> None:
        self.system, self.algorithm = system, algorithm or system.default

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def getsockopt(self, level: Any, option: Any, size: Any) -> Any:
        assert (level, option) == (socket.IPPROTO_TCP, congestion._OPTION)
        return self.algorithm.ljust(size, b"\0")

    def setsockopt(self, level: Any, option: Any, value: Any) -> None:
        assert (level, option) == (socket.IPPROTO_TCP, congestion._OPTION)
        if value in self.system.refused:
            raise PermissionError(1, "not permitted")
        self.algorithm = value


@pytest.fixture
def on(monkeypatch: Any) -> Any:
    def make(**how: Any) -> Any:
        system = System(**how)
        monkeypatch.setattr(congestion, "_OPTION", 13)
        monkeypatch.setattr(congestion, "socket", SimpleNamespace(socket=system.socket, IPPROTO_TCP=socket.IPPROTO_TCP))
        return system

    return make


def test_only_bbr_is_replaced(on: Any) -> None:
    for default, begun in ((b"bbr", b"reno"), (b"cubic", b"cubic"), (b"reno", b"reno"), (b"dctcp", b"dctcp")):
        listener = Socket(on(default=default))
        assert begin_unpaced(cast(Any, listener)) is (default == b"bbr")
        assert listener.algorithm == begun


@pytest.mark.parametrize("refused", [b"bbr", b"reno"])
def test_what_could_not_be_given_back_is_not_taken(on: Any, refused: Any) -> None:
    listener = Socket(on(refused=(refused,)))
    assert not begin_unpaced(cast(Any, listener))
    assert listener.algorithm == b"bbr"


def test_a_system_without_a_choice(on: Any, monkeypatch: Any) -> None:
    listener = Socket(on())
    monkeypatch.setattr(congestion, "_OPTION", -1)
    assert not begin_unpaced(cast(Any, listener))
    assert listener.algorithm == b"bbr"


def test_a_peer_elsewhere_has_what_the_system_has_now(on: Any) -> None:
    system = on()
    accepted = Socket(system, b"reno")
    use_system_algorithm(cast(Any, accepted))
    assert accepted.algorithm == b"bbr"
    system.default = b"cubic"
    accepted = Socket(system, b"reno")
    use_system_algorithm(cast(Any, accepted))
    assert accepted.algorithm == b"cubic"


def test_what_a_route_says_stays(on: Any) -> None:
    accepted = Socket(on(), b"vegas")
    use_system_algorithm(cast(Any, accepted))
    assert accepted.algorithm == b"vegas"


def test_a_refusal_is_harmless(on: Any) -> None:
    accepted = Socket(on(refused=(b"bbr",)), b"reno")
    use_system_algorithm(cast(Any, accepted))
    assert accepted.algorithm == b"reno"


class Echo(asyncio.Protocol):
    ended = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def connection_lost(self, exc: Any) -> None:
        self.ended = True

    def data_received(self, data: Any) -> None:
        self.transport.write(data)


class BufferedEcho:
    """As the broker's connections: buffered, and of no class of asyncio's."""

    def __init__(self) -> None:
        self.buffer = bytearray(100)
        self.ended = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def get_buffer(self, sizehint: Any) -> Any:
        return memoryview(self.buffer)

    def buffer_updated(self, count: Any) -> None:
        self.transport.write(bytes(self.buffer[:count]))

    def eof_received(self) -> Any:
        return None

    def pause_writing(self) -> None:
        pass

    def resume_writing(self) -> None:
        pass

    def connection_lost(self, exc: Any) -> None:
        self.ended = True


async def hear_echo(factory: Any) -> None:
    made = []

    def make() -> Any:
        made.append(factory())
        return made[-1]

    listener = await RealNetwork(Counters()).listen(make, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    writer.write(b"hello")
    assert await reader.readexactly(5) == b"hello"
    writer.close()
    await writer.wait_closed()
    (protocol,) = made
    while not protocol.ended:
        await asyncio.sleep(0.001)
    listener.close()
    await asyncio.sleep(0)


def play(case: Any, loop_factory: Any = new_event_loop) -> None:
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(asyncio.wait_for(case, DEADLINE_S))


@pytest.mark.parametrize("factory", [Echo, BufferedEcho])
@pytest.mark.parametrize("loop_factory", [new_event_loop, asyncio.SelectorEventLoop])
@pytest.mark.parametrize("here", [True, False])
def test_the_protocol_takes_over_when_the_connection_is_there(
    monkeypatch: Any, factory: Any, loop_factory: Any, here: Any
) -> None:
    """On both loops, whatever this system's algorithm is."""
    elsewhere: list[Any] = []
    monkeypatch.setattr("ottla.runtime.network.begin_unpaced", lambda listener: True)
    monkeypatch.setattr(congestion, "use_system_algorithm", elsewhere.append)
    if not here:
        monkeypatch.setattr(congestion, "same_machine", lambda own, peer: False)
    play(hear_echo(factory), loop_factory)
    assert len(elsewhere) == (not here)


def grown(network: Any, own: Any, peer: Any, refused: Any = False) -> Any:
    """What becomes of a connection's send buffer when a file is to go out on it, and what it was."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)

        def refuse(*_: Any) -> None:
            raise OSError(9, "it is gone")

        known = SimpleNamespace(fileno=ours.fileno, setsockopt=refuse if refused else ours.setsockopt)
        transport = SimpleNamespace(get_extra_info={"sockname": own, "peername": peer, "socket": known}.get)
        before = ours.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)

        async def main() -> None:
            network.file_sender(transport).close()

        play(main())
        return ours.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) > before


def test_files_to_this_machine_have_a_larger_buffer_unless_one_is_set() -> None:
    here, there = ("10.0.0.7", 40000), ("10.0.0.8", 40000)
    own = ("10.0.0.7", 9092)
    assert grown(RealNetwork(Counters()), own, here)
    assert not grown(RealNetwork(Counters()), own, there)
    assert not grown(RealNetwork(Counters(), send_buffer_bytes=10_000), own, here)
    assert not grown(RealNetwork(Counters(), send_buffer_bytes=-1), own, here)
    assert not grown(RealNetwork(Counters()), own, here, refused=True), "and that is harmless"


@pytest.mark.skipif(congestion._OPTION < 0, reason="Linux has it")
def test_a_connection_of_this_machine_is_never_paced() -> None:
    algorithms = []

    class Look(Echo):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            algorithms.append(congestion._algorithm(transport.get_extra_info("socket")))

    play(hear_echo(Look))
    assert len(algorithms) == 1
    assert algorithms != [b"bbr"]
