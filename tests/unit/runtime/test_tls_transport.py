"""The TLS transport between two ends in one process, on asyncio's loop and on uvloop."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import uvloop

from ottla.metrics import Counters
from ottla.ports import File, FileRange
from ottla.runtime import tls_handshakes, tls_transport
from ottla.runtime.files import OsDisk
from ottla.runtime.network import RealNetwork
from ottla.runtime.tls_handshakes import TlsListener
from ottla.runtime.tls_read_ahead import read_ahead_of
from ottla.runtime.tls_transport import BESIDE_BYTES, CHUNK_BYTES, LOW_WATER_BYTES, RECORD_BYTES
from ottla.tls.config import KeyStore, TlsSettings, TrustStore
from ottla.tls.context import client_context, server_context
from tests.kit.certificates import Authority
from tests.kit.wait import until_async

AUTHORITY = Authority()
_BROKER = AUTHORITY.issue("broker")
SERVER = TlsSettings(KeyStore("PEM", key=_BROKER.key_pem(), certificate_chain=_BROKER.certificate_pem))
CLIENT = TlsSettings(trust_store=TrustStore("PEM", certificates=AUTHORITY.pem))


class Tls:
    def __init__(self, settings: TlsSettings = SERVER) -> None:
        self._context = server_context(settings)
        self.failures: list[tuple[str, str]] = []
        self.admitted = True

    def context(self) -> ssl.SSLContext:
        return self._context

    def admits(self, host: str) -> bool:
        return self.admitted

    def failed(self, host: str, port: int, reason: str) -> None:
        self.failures.append((host, reason))


class End:
    """Keeps what it receives. With a buffer of its own, as the broker's connections."""

    def __init__(self, buffer_bytes: int = 100_000) -> None:
        self._buffer = memoryview(bytearray(buffer_bytes))
        self.received = bytearray()
        self.transport: Any = None
        self.calls: list[str] = []
        self.lost: list[Exception | None] = []

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.set_write_buffer_limits(high=0)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, count: int) -> None:
        self.received += self._buffer[:count]

    def eof_received(self) -> None:
        self.calls.append("eof")

    def pause_writing(self) -> None:
        self.calls.append("pause")

    def resume_writing(self) -> None:
        self.calls.append("resume")

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.append(error)


class FrameEnd(End):
    """Waits for a frame of so many bytes."""

    frame_bytes = 0

    def missing_bytes(self) -> int:
        return max(self.frame_bytes - len(self.received), 0)


class Plain(asyncio.Protocol):
    def __init__(self) -> None:
        self.transport: Any = None
        self.received = bytearray()
        self.lost: list[Exception | None] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)


class Pair:
    def __init__(self, server: End, client: Plain, listener: TlsListener, network: RealNetwork, tls: Tls, counters: Counters):
        self.server, self.client, self.listener = server, client, listener
        self.network, self.tls, self.counters = network, tls, counters

    async def heard(self, count: int) -> None:
        await until_async(lambda: len(self.client.received) >= count, "the client hears everything")


async def paired(
    case: Callable[[Pair], Awaitable[None]],
    tls: Tls | None = None,
    client: TlsSettings = CLIENT,
    server_end: Callable[[], End] = End,
) -> None:
    tls = tls or Tls()
    counters = Counters()
    network = RealNetwork(counters)
    ends: list[End] = []

    def factory() -> asyncio.BaseProtocol:
        ends.append(server_end())
        return cast(asyncio.BaseProtocol, ends[-1])

    listener = cast(TlsListener, await network.listen(factory, "127.0.0.1", 0, tls))
    end = Plain()
    try:
        await network.connect(lambda: end, "127.0.0.1", listener.port, client_context(client))
        await until_async(lambda: ends, "the server's end is made")
        await case(Pair(ends[0], end, listener, network, tls, counters))
    finally:
        listener.close()
        both: list[Any] = [end, *ends]
        for each in both:
            if each.transport is not None:
                each.transport.abort()
                await until_async(lambda each=each: each.lost, "the connection is lost")
                assert len(each.lost) == 1
        assert not listener, "no handshake is left"


@pytest.fixture(params=["asyncio", "uvloop"])
def play(request: pytest.FixtureRequest) -> Callable[..., None]:
    def run(case: Callable[[Pair], Awaitable[None]], **options: Any) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop if request.param == "uvloop" else None) as runner:
            runner.run(asyncio.wait_for(paired(case, **options), 60))

    return run


@pytest.fixture
def file(tmp_path: Path) -> Iterator[File]:
    file = OsDisk().open(str(tmp_path / "log"), create=True)
    file.write(0, [os.urandom(5 << 20)])
    yield file
    file.close()


def test_bytes_arrive_in_both_directions(play: Callable[..., None]) -> None:
    async def case(pair: Pair) -> None:
        large = os.urandom(3 * RECORD_BYTES + 17)
        pair.client.transport.write(b"ask")
        pair.client.transport.writelines([b"ing", large])
        await until_async(lambda: len(pair.server.received) == 6 + len(large), "the server hears everything")
        assert pair.server.received == b"asking" + large
        pair.server.transport.writelines([b"an", b"swer"])
        await pair.heard(6)
        assert pair.client.received == b"answer"
        assert pair.server.calls == []
        for transport in (pair.client.transport, pair.server.transport):
            assert transport.get_extra_info("cipher")[1] == "TLSv1.3"
            assert transport.get_extra_info("peername")[0] == "127.0.0.1"
            assert transport.get_extra_info("unknown", 1) == 1
            assert transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert pair.client.transport.get_extra_info("peercert_der") == _BROKER.der
        assert pair.server.transport.get_extra_info("peercert_der") is None

    play(case)


@pytest.mark.parametrize("frame_bytes", [5000, *(LOW_WATER_BYTES + RECORD_BYTES + more for more in (-1, 0, 1, 1000)), 1 << 20])
@pytest.mark.parametrize("record_bytes", [500, RECORD_BYTES])
def test_a_large_frame_of_small_records_wakes_the_loop_seldom(
    play: Callable[..., None], frame_bytes: int, record_bytes: int
) -> None:
    """It is complete with its last byte, also if that comes alone."""

    async def case(pair: Pair) -> None:
        end = cast(FrameEnd, pair.server)
        end.frame_bytes = frame_bytes
        data = os.urandom(frame_bytes)
        low_water: set[int] = set()
        for start in range(0, frame_bytes - 1, record_bytes):
            pair.client.transport.write(data[start : min(start + record_bytes, frame_bytes - 1)])
            await asyncio.sleep(0)
            low_water.add(end.transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT))
        await until_async(lambda: len(end.received) == frame_bytes - 1, "all but the last byte is there")
        pair.client.transport.write(data[-1:])
        await until_async(lambda: end.received == data, "the frame is complete")
        if frame_bytes == 1 << 20:
            assert LOW_WATER_BYTES in low_water
        elif frame_bytes < LOW_WATER_BYTES + RECORD_BYTES:
            assert low_water == {1}
        pair.client.transport.write(b"next")
        await until_async(lambda: end.received == data + b"next", "the next frame comes at once")

    play(case, server_end=FrameEnd)


def test_small_records_of_a_frame_are_handed_over_together(play: Callable[..., None]) -> None:
    async def case(pair: Pair) -> None:
        end = cast(FrameEnd, pair.server)
        end.frame_bytes = 20_000
        updated, counts = end.buffer_updated, []

        def counting(count: int) -> None:
            counts.append(count)
            updated(count)

        end.buffer_updated = counting  # type: ignore[method-assign]
        data = os.urandom(end.frame_bytes)
        for start in range(0, len(data), 500):
            pair.client.transport.write(data[start : start + 500])
        await until_async(lambda: end.received == data, "the frame is complete")
        assert len(counts) <= 4, counts

    play(case, server_end=FrameEnd)


@pytest.mark.parametrize("reads_ahead", [True, False])
def test_a_pause_keeps_what_openssl_has_read_ahead(
    play: Callable[..., None], monkeypatch: pytest.MonkeyPatch, reads_ahead: bool
) -> None:
    """Small records behind a large frame, whose receiver pauses once it is complete."""
    switched: list[int] = []

    def noting(sock: ssl.SSLSocket) -> Callable[[int], object] | None:
        switch = read_ahead_of(sock)
        assert switch is not None, "the fields of a connection are others in this Python"

        def both(on: int) -> None:
            switched.append(on)
            switch(on)

        return both if reads_ahead else None

    monkeypatch.setattr(tls_transport, "read_ahead_of", noting)

    async def case(pair: Pair) -> None:
        end = cast(FrameEnd, pair.server)
        end.frame_bytes = 600_000
        updated = end.buffer_updated

        def pausing(count: int) -> None:
            updated(count)
            if len(end.received) - count < end.frame_bytes <= len(end.received):
                end.transport.pause_reading()

        end.buffer_updated = pausing  # type: ignore[method-assign]
        data = os.urandom(end.frame_bytes + 3_000)
        for start in range(0, len(data), 500):
            pair.client.transport.write(data[start : start + 500])
        await until_async(lambda: len(end.received) >= end.frame_bytes, "the frame is complete")
        end.transport.resume_reading()
        await until_async(lambda: end.received == data, "the rest is there")
        assert switched == ([1, 0] if reads_ahead else [])

    play(case, server_end=FrameEnd)


@pytest.mark.parametrize("size", [300_000, 3 * BESIDE_BYTES + 11])
def test_a_reader_that_pauses_gets_everything_in_order(play: Callable[..., None], size: int) -> None:
    """Below `BESIDE_BYTES` the loop encrypts, above it a worker."""

    async def case(pair: Pair) -> None:
        pair.client.transport.pause_reading()
        sent = [os.urandom(size), b"after", os.urandom(size)]
        for data in sent:
            pair.server.transport.write(data)
        await until_async(lambda: pair.server.calls, "the writer is told to wait")
        assert pair.server.transport.get_write_buffer_size() > 0 or size > BESIDE_BYTES
        pair.client.transport.resume_reading()
        await pair.heard(2 * size + 5)
        assert pair.client.received == b"".join(sent)
        await until_async(lambda: pair.server.calls[-1] == "resume", "the writer may go on")
        assert pair.server.calls.count("pause") == pair.server.calls.count("resume")
        assert (pair.counters.get("tls_encrypted_beside") > 0) == (size > BESIDE_BYTES)

    play(case)


def test_a_pause_keeps_what_openssl_has_decrypted(play: Callable[..., None]) -> None:
    """One record, of which the first read takes a part: no event of the socket tells of the rest."""

    async def case(pair: Pair) -> None:
        pair.server._buffer = memoryview(bytearray(1000))
        pair.client.transport.write(os.urandom(RECORD_BYTES))
        await until_async(lambda: pair.server.received, "the first bytes are there")
        await until_async(lambda: len(pair.server.received) == RECORD_BYTES, "all bytes are there")
        updated = pair.server.buffer_updated

        def pausing(count: int) -> None:
            updated(count)
            pair.server.transport.pause_reading()

        pair.server.buffer_updated = pausing  # type: ignore[method-assign]
        pair.client.transport.write(os.urandom(RECORD_BYTES))
        await until_async(lambda: len(pair.server.received) > RECORD_BYTES, "the next record begins")
        for step in range(1, 17):
            pair.server.transport.resume_reading()
            await until_async(
                lambda step=step: len(pair.server.received) >= min(RECORD_BYTES + 1000 * (step + 1), 2 * RECORD_BYTES)
            )
        assert len(pair.server.received) == 2 * RECORD_BYTES

    play(case)


@pytest.mark.parametrize("size", [1, 40_000, CHUNK_BYTES, 3 * CHUNK_BYTES + 5, BESIDE_BYTES, 4 << 20])
def test_tl06_a_file_range_follows_its_head(play: Callable[..., None], file: File, size: int) -> None:
    async def case(pair: Pair) -> None:
        expected = bytearray()
        sender = pair.network.file_sender(pair.server.transport)
        for position in (0, 7, 100_001):
            outcomes: list[OSError | None] = []
            head = os.urandom(100)
            expected += head + file.read(position, size)
            if not sender.send(head, FileRange(file, position, size), outcomes.append):
                await until_async(lambda outcomes=outcomes: outcomes, "the range is sent")
                assert outcomes == [None]
        await pair.heard(len(expected))
        assert pair.client.received == expected
        sender.close()

    play(case)


def test_a_file_that_is_too_short_is_an_error(play: Callable[..., None], file: File) -> None:
    async def case(pair: Pair) -> None:
        sender = pair.network.file_sender(pair.server.transport)
        with pytest.raises(OSError, match="ends 10 bytes before"):
            sender.send(b"head", FileRange(file, file.size() - 10, 20), lambda error: None)
        outcomes: list[OSError | None] = []
        assert not sender.send(b"head", FileRange(file, file.size() - BESIDE_BYTES, BESIDE_BYTES + 20), outcomes.append)
        await until_async(lambda: outcomes, "the worker says so")
        assert "bytes before the end" in str(outcomes[0])

    play(case)


@pytest.mark.parametrize("size", [500_000, 4 << 20])
def test_an_abort_ends_a_range_in_progress(play: Callable[..., None], file: File, size: int) -> None:
    async def case(pair: Pair) -> None:
        pair.client.transport.pause_reading()
        for transport in (pair.client.transport, pair.server.transport):
            for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, option, 4096)
        outcomes: list[OSError | None] = []
        sender = pair.network.file_sender(pair.server.transport)
        while sender.send(b"head", FileRange(file, 0, size), outcomes.append):
            pass
        while outcomes == [None]:
            outcomes.clear()
            sender.send(b"head", FileRange(file, 0, size), outcomes.append)
        pair.server.transport.abort()
        await until_async(lambda: pair.server.lost, "the connection is lost")
        assert isinstance(outcomes[0], ConnectionError)
        assert pair.server.lost == [None]

    play(case)


def test_close_writes_what_is_queued(play: Callable[..., None]) -> None:
    async def case(pair: Pair) -> None:
        pair.client.transport.pause_reading()
        data = os.urandom(900_000)
        pair.server.transport.write(data)
        pair.server.transport.close()
        pair.server.transport.write(b"too late")
        assert pair.server.transport.is_closing()
        pair.client.transport.resume_reading()
        await pair.heard(len(data))
        await until_async(lambda: pair.client.lost and pair.server.lost, "both ends are closed")
        assert pair.client.received == data
        assert pair.client.lost == [None]

    play(case)


def test_a_peer_that_closes_without_a_goodbye_is_an_end(play: Callable[..., None]) -> None:
    async def case(pair: Pair) -> None:
        pair.client.transport.abort()
        await until_async(lambda: pair.server.lost, "the server sees the end")
        assert pair.server.calls == ["eof"]

    play(case)


def test_a_peer_that_breaks_tls_is_named_once(play: Callable[..., None]) -> None:
    async def case(pair: Pair) -> None:
        os.write(pair.client.transport.get_extra_info("socket").fileno(), b"\x17\x03\x03\x00\x20" + bytes(32))
        await until_async(lambda: pair.server.lost, "the connection is closed")
        assert pair.tls.failures == [("127.0.0.1", "TLS failed: decryption failed or bad record mac")]

    play(case)


# Handshakes


def test_tl07_what_is_no_handshake_is_named(play: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_handshakes, "HANDSHAKE_S", 0.3)

    async def case(pair: Pair) -> None:
        failures = pair.tls.failures

        def send(data: bytes) -> socket.socket:
            sock = socket.create_connection(("127.0.0.1", pair.listener.port))
            sock.sendall(data)
            return sock

        with send(b"\x00\x00\x00\x10plaintext"):
            await until_async(lambda: len(failures) == 1, "plaintext is refused")
        with send(b"GET / HTTP/1.1\r\n\r\n"):
            await until_async(lambda: len(failures) == 2, "HTTP is refused")
        with send(b"\x16\x03\x01\x02\x00" + bytes(0x200)):
            await until_async(lambda: len(failures) == 3, "rubbish in a record is refused")
        with send(b"\x16\x03\x01"):
            await until_async(lambda: len(failures) == 4, "half a handshake ends")
        send(b"\x16\x03\x01").close()
        await until_async(lambda: len(failures) == 5, "half a handshake ends early")
        send(b"").close()
        await until_async(lambda: not pair.listener, "a connection without a byte is closed")
        assert [host for host, _ in failures] == ["127.0.0.1"] * 5
        assert [reason for _, reason in failures] == [
            "it does not speak TLS; this listener does",
            "it does not speak TLS; this listener does",
            failures[2][1],
            "no TLS handshake within 0 s",
            "it closed the connection during the TLS handshake",
        ]
        assert failures[2][1].startswith("TLS failed: ")

    play(case)


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_tl07_a_bad_certificate_is_named(play: Callable[..., None], version: str) -> None:
    mutual = Tls(TlsSettings(SERVER.key_store, CLIENT.trust_store, "required"))
    stranger = Authority("other").issue("client", ())
    known = AUTHORITY.issue("client", ())
    good = TlsSettings(KeyStore("PEM", key=known.key_pem(), certificate_chain=known.certificate_pem), CLIENT.trust_store)

    async def case(pair: Pair) -> None:
        async def fails(settings: TlsSettings) -> str:
            before = len(pair.tls.failures)
            end = Plain()
            try:
                await pair.network.connect(lambda: end, "127.0.0.1", pair.listener.port, client_context(settings))
            except OSError:
                pass  # with TLS 1.3 a client learns of it with its first read
            await until_async(lambda: len(pair.tls.failures) > before, "the failure is reported")
            if end.transport is not None:
                end.transport.abort()
            return pair.tls.failures[-1][1]

        bad = KeyStore("PEM", key=stranger.key_pem(), certificate_chain=stranger.certificate_pem)
        old = AUTHORITY.issue("client", (), days=-1)
        expired = KeyStore("PEM", key=old.key_pem(), certificate_chain=old.certificate_pem)
        trust, only = CLIENT.trust_store, (version,)
        assert await fails(TlsSettings(None, trust, protocols=only)) == ("it presented no certificate (ssl.client.auth=required)")
        assert "its certificate is not accepted: " in await fails(TlsSettings(bad, trust, protocols=only))
        assert await fails(TlsSettings(expired, trust, protocols=only)) == (
            "its certificate is not accepted: certificate has expired"
        )
        assert "does not trust the certificate of this broker" in await fails(
            TlsSettings(good.key_store, TrustStore("PEM", certificates=Authority("other").pem), protocols=only)
        )
        assert pair.server.transport.get_extra_info("peercert_der") == known.der

    play(case, tls=mutual, client=good)


def test_unfinished_handshakes_are_bounded_and_others_find_a_place(
    play: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_handshakes, "PENDING_MAX", 20)

    async def case(pair: Pair) -> None:
        silent = [socket.create_connection(("127.0.0.1", pair.listener.port)) for _ in range(100)]
        await until_async(lambda: len(pair.tls.failures) == 80, "the others gave way")
        assert len(pair.listener) == 20
        for _ in range(5):
            transport = await pair.network.connect(Plain, "127.0.0.1", pair.listener.port, client_context(CLIENT))
            transport.abort()
        assert len(pair.listener) <= 20
        assert "handshakes are unfinished" in pair.tls.failures[0][1]
        for sock in silent:
            sock.close()

    play(case)


def test_an_address_without_a_place_gets_no_handshake(play: Callable[..., None]) -> None:
    async def case(pair: Pair) -> None:
        pair.tls.admitted = False
        with pytest.raises(OSError):
            await pair.network.connect(Plain, "127.0.0.1", pair.listener.port, client_context(CLIENT))
        assert pair.tls.failures == []

    play(case)


def test_a_client_checks_the_server(play: Callable[..., None]) -> None:
    async def case(pair: Pair) -> None:
        stranger = TlsSettings(trust_store=TrustStore("PEM", certificates=Authority("other").pem))
        with pytest.raises(ssl.SSLCertVerificationError):
            await pair.network.connect(Plain, "127.0.0.1", pair.listener.port, client_context(stranger))
        port = pair.listener.port
        pair.listener.close()
        with pytest.raises(ConnectionRefusedError):
            await pair.network.connect(Plain, "127.0.0.1", port, client_context(CLIENT))

    play(case)
