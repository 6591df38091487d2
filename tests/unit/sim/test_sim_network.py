from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from ottla.ports import FileRange
from ottla.sim.kernel.disk import SimDisk
from ottla.sim.kernel.loop import SimLoop
from ottla.sim.kernel.network import NetworkSettings, SimNetwork
from ottla.sim.kernel.process import Process


class Collector(asyncio.BufferedProtocol):
    """Keeps what arrives, in a buffer of a given size."""

    def __init__(self, buffer_bytes: Any = 64) -> None:
        self.buffer = bytearray(buffer_bytes)
        self.received = bytearray()
        self.events: list[Any] = []
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.events.append("made")

    def get_buffer(self, sizehint: Any) -> Any:
        return self.buffer

    def buffer_updated(self, nbytes: Any) -> None:
        self.received += self.buffer[:nbytes]

    def eof_received(self) -> None:
        self.events.append("eof")

    def connection_lost(self, exc: Any) -> None:
        self.events.append("lost" if exc is None else f"lost {type(exc).__name__}")

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")


class Plain(asyncio.Protocol):
    def __init__(self) -> None:
        self.received = bytearray()

    def data_received(self, data: Any) -> None:
        self.received += data


def play(main: Any, seed: Any = 1, **settings: Any) -> Any:
    loop = SimLoop()  # type: ignore[abstract]
    try:
        result = loop.run_until_complete(main(SimNetwork(random.Random(seed), NetworkSettings(**settings))))
    finally:
        loop.close()
    assert loop.unhandled == []
    return result


async def pair(network: Any, server_protocol: Any, client_protocol: Any) -> Any:
    server, client = Process("server"), Process("client")
    listener = await network.view(server).listen(lambda: server_protocol, "", 0)
    transport = await network.view(client).connect(lambda: client_protocol, "localhost", listener.port)
    await asyncio.sleep(0.1)
    return server, client, transport


@pytest.mark.parametrize("seed", range(20))
def test_bytes_arrive_once_in_order_whatever_the_pieces(seed: Any) -> None:
    payload = random.Random(seed).randbytes(5_000)

    async def main(network: Any) -> None:
        server, client = Collector(), Plain()
        _, _, transport = await pair(network, server, client)
        for start in range(0, len(payload), 700):
            transport.write(payload[start : start + 700])
            await asyncio.sleep(0.0005)
        server.transport.writelines([b"back", b"wards"])
        await asyncio.sleep(600)
        assert server.received == payload
        assert client.received == b"backwards"

    play(main, seed, crumbs_chance=0.7, window_bytes=1000)


def test_a_reader_that_pauses_stops_its_writer_at_the_marks() -> None:
    async def main(network: Any) -> None:
        server, client = Collector(4096), Collector()
        _, _, transport = await pair(network, server, client)
        server.transport.pause_reading()
        transport.set_write_buffer_limits(high=2000)
        transport.write(bytes(1000))
        assert client.events == ["made"]
        transport.write(bytes(3000))
        assert client.events == ["made", "pause"]
        await asyncio.sleep(5)
        assert (len(server.received), transport.get_write_buffer_size()) == (0, 3000)
        server.transport.resume_reading()
        await asyncio.sleep(5)
        assert client.events == ["made", "pause", "resume"]
        assert len(server.received) == 4000

    play(main, window_bytes=1000, crumbs_chance=0.0)


def test_close_delivers_what_was_written_then_the_end() -> None:
    async def main(network: Any) -> None:
        server, client = Collector(), Collector()
        _, _, transport = await pair(network, server, client)
        transport.write(b"x" * 500)
        transport.close()
        transport.write(b"too late")
        await asyncio.sleep(5)
        assert server.received == b"x" * 500
        assert server.events == ["made", "eof", "lost"]
        assert client.events == ["made", "lost"]

    play(main, window_bytes=100)


def test_abort_and_cut_reset_the_other_side() -> None:
    async def main(network: Any) -> None:
        server, client = Collector(), Collector()
        _, _, transport = await pair(network, server, client)
        transport.abort()
        await asyncio.sleep(5)
        assert (server.events, client.events) == (["made", "lost ConnectionResetError"], ["made", "lost"])
        server, client = Collector(), Collector()
        await pair(network, server, client)
        assert network.cut_one() is not None
        await asyncio.sleep(5)
        assert server.events == client.events == ["made", "lost ConnectionResetError"]
        assert network.cut_one() is None

    play(main)


def test_a_dead_server_resets_its_clients_and_refuses_new_ones() -> None:
    async def main(network: Any) -> None:
        server, client = Collector(), Collector()
        server_process, client_process, transport = await pair(network, server, client)
        server.transport.write(b"in the kernel already")
        server_process.die()
        await asyncio.sleep(5)
        assert client.received == b"in the kernel already"
        assert client.events == ["made", "lost ConnectionResetError"]
        assert server.events == ["made"], "the dead hear nothing"
        with pytest.raises(ConnectionRefusedError):
            await network.view(client_process).connect(Plain, "localhost", transport.get_extra_info("peername")[1])

    play(main)


def test_a_port_is_bound_once_and_free_after_close() -> None:
    async def main(network: Any) -> None:
        view = network.view(Process("server"))
        listener = await view.listen(Plain, "", 9092)
        with pytest.raises(OSError):
            await view.listen(Plain, "", 9092)
        listener.close()
        (await view.listen(Plain, "", 9092)).close()

    play(main)


@pytest.mark.parametrize("size", [0, 10, 999, 1000, 1001, 5000])
@pytest.mark.parametrize("head", [b"", b"between", b"long" * 700])
def test_file_ranges_go_as_the_window_takes_them(size: Any, head: Any) -> None:
    async def main(network: Any) -> None:
        server, client = Collector(), Plain()
        server_process, _, _ = await pair(network, server, client)
        disk = SimDisk(random.Random(1)).view(server_process)
        disk.make_dirs("/d")
        file = disk.open("/d/f", create=True)
        content = random.Random(3).randbytes(6000)
        file.write(0, [content])
        sender = network.view(server_process).file_sender(server.transport)
        server.transport.write(b"head")
        sent = asyncio.get_running_loop().create_future()
        at_once = sender.send(head, FileRange(file, 100, size), sent.set_result)
        assert at_once == (len(head) + size <= 996)
        if not at_once:
            assert await sent is None
        server.transport.write(b"tail")
        await asyncio.sleep(5)
        assert client.received == b"head" + head + content[100 : 100 + size] + b"tail"

    play(main, window_bytes=1000)


def test_a_file_on_its_way_fails_with_its_connection() -> None:
    async def main(network: Any) -> None:
        server, client = Collector(), Collector()
        server_process, _, transport = await pair(network, server, client)
        disk = SimDisk(random.Random(1)).view(server_process)
        disk.make_dirs("/d")
        file = disk.open("/d/f", create=True)
        file.write(0, [bytes(5000)])
        transport.pause_reading()
        sent = asyncio.get_running_loop().create_future()
        sender = network.view(server_process).file_sender(server.transport)
        assert not sender.send(b"", FileRange(file, 0, 5000), sent.set_result)
        await asyncio.sleep(1)
        assert not sent.done()
        transport.abort()
        assert isinstance(await sent, ConnectionResetError)

    play(main, window_bytes=1000)
