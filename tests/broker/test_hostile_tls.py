"""What peers may do inside of TLS and with TLS itself (F87, TL07): their own connection ends, and nothing else happens."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.messages.api_versions import ApiVersionsRequest
from tests.broker.test_hostile_wire import MALFORMED
from tests.broker.test_tls import client, secured
from tests.kit.wait import until_async

__all__ = ["secured"]


async def lives(stage: Any) -> None:
    connection = await stage.connect(client())
    assert (await connection.call("api_versions", 0, ApiVersionsRequest())).error_code == 0
    connection.close()


def opened(stage: Any, context: ssl.SSLContext) -> ssl.SSLSocket:
    """A connection after its handshake, blocking. Call it in a thread: the broker is in this loop."""
    sock = socket.create_connection(("127.0.0.1", stage.port))
    sock.settimeout(60)
    return context.wrap_socket(sock, server_hostname="127.0.0.1")


def sent_and_closed(stage: Any, context: ssl.SSLContext, data: bytes) -> bool:
    """Whether the broker closes the connection without an answer."""
    with opened(stage, context) as sock:
        try:
            sock.sendall(data)
            return sock.recv(1) == b""
        except (ConnectionError, ssl.SSLError):
            return True


@pytest.mark.parametrize("protocol", ["TLSv1.2", "TLSv1.3"])
def test_f87_malformed_input_inside_tls_closes_its_connection_and_no_other(
    play: Any, secured: dict[str, str], protocol: str
) -> None:
    async def case(stage: Any) -> None:
        context = client(protocols=(protocol,))
        other = await stage.connect(client())
        for name, data in MALFORMED.items():
            assert await asyncio.to_thread(sent_and_closed, stage, context, data), name
            assert (await other.call("api_versions", 0, ApiVersionsRequest())).error_code == 0
        assert stage.counters.get("connections_closed_malformed") == len(MALFORMED)
        await until_async(lambda: len(stage.broker.server) == 1, "the others are gone")
        await lives(stage)

    play(case, **secured)


def test_f87_half_a_frame_inside_tls_holds_no_more_memory_than_was_sent(play: Any, secured: dict[str, str]) -> None:
    async def case(stage: Any) -> None:
        half = []
        for _ in range(20):
            sock = await asyncio.to_thread(opened, stage, client())
            sock.sendall(struct.pack(">i", 100 << 20) + b"x" * 1000)
            half.append(sock)
        await until_async(lambda: stage.broker.server.memory.held_bytes >= 20 * 1000, "the halves are there")
        assert stage.broker.server.memory.held_bytes <= 20 * (64 << 10)
        await lives(stage)
        for sock in half:
            sock.close()
        await until_async(lambda: stage.broker.server.memory.held_bytes == 0, "and their memory is free again")

    play(case, **secured)


def test_tl07_records_that_were_changed_close_the_connection(play: Any, secured: dict[str, str]) -> None:
    async def case(stage: Any) -> None:
        rubbish = (
            b"\x17\x03\x03\x00\x20" + bytes(32),  # application data that nobody encrypted
            b"\x17\x03\x03\xff\xff" + bytes(100),  # a record that is too long
            b"\x16\x03\x03\x00\x04\x00\x00\x00\x00",  # HelloRequest
            b"\x15\x03\x03\x00\x02\x02\x28",  # an alert in the clear
            b"GET / HTTP/1.1\r\n\r\n",
            bytes(1000),
        )
        for count, data in enumerate(rubbish, 1):
            sock = await asyncio.to_thread(opened, stage, client())
            os.write(sock.fileno(), data)
            await until_async(
                lambda count=count: stage.counters.get("tls_handshakes_failed") == count, f"{data[:9]!r} is refused"
            )
            sock.close()
        await until_async(lambda: not len(stage.broker.server), "all are closed")
        await lives(stage)

    play(case, **secured)


def test_a_client_cannot_renegotiate(play: Any, secured: dict[str, str]) -> None:
    async def case(stage: Any) -> None:
        words = ["openssl", "s_client", "-connect", f"127.0.0.1:{stage.port}", "-tls1_2", "-legacy_renegotiation"]
        process = await asyncio.create_subprocess_exec(
            *words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert process.stdin is not None
        assert process.stdout is not None
        await until_async(lambda: len(stage.broker.server) == 1, "it is connected")
        process.stdin.write(b"R\n")
        output, _ = await asyncio.wait_for(process.communicate(), 60)
        assert b"no renegotiation" in output.lower(), output[-500:]
        await lives(stage)

    play(case, **secured)


def test_a_reader_that_stops_holds_little_and_ends_with_its_connection(play: Any, secured: dict[str, str]) -> None:
    """Forty consumers ask for four megabytes each and read nothing; then they are gone."""

    async def case(stage: Any) -> None:
        await stage.topic(max_message_bytes=str(8 << 20))
        connection = await stage.connect(client())
        await stage.produce(connection, stage.batch(os.urandom(4 << 20)))
        silent = [await stage.connect(client()) for _ in range(40)]
        for each in silent:
            each._transport.pause_reading()
            each.send("fetch", 12, stage.fetch_request(0, partition_max_bytes=8 << 20))
        await until_async(lambda: stage.counters.get("tls_encrypted_beside") >= 40, "all are being answered")
        data = await stage.fetch(connection, 0, partition_max_bytes=8 << 20)
        assert len(data.records) > 4 << 20, "others are answered meanwhile"
        for each in silent:
            each._transport.abort()
        await until_async(lambda: len(stage.broker.server) == 1, "they are gone")
        assert stage.broker.world.network._chunks.held == 0

    play(case, **secured)


def test_tl07_handshakes_that_stop_at_every_byte(play: Any, secured: dict[str, str]) -> None:
    """A ClientHello that is cut at each of its bytes, and then closed."""

    async def case(stage: Any) -> None:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        end = client().wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
        with pytest.raises(ssl.SSLWantReadError):
            end.do_handshake()
        hello = outgoing.read()
        for size in range(0, len(hello) + 1, 3):
            with socket.create_connection(("127.0.0.1", stage.port)) as sock:
                sock.sendall(hello[:size])
        (listener,) = stage.broker.server._listeners
        await until_async(lambda: not listener, "no handshake is left")
        assert len(stage.broker.server) == 0
        await lives(stage)

    play(case, **secured)


def test_store_files_of_others_are_not_taken(play: Any, secured: dict[str, str], tmp_path: Path) -> None:
    """A directory, a device and rubbish as key stores: an error of the start, no hang and no traceback."""
    from ottla.broker.startup_error import StartupError

    async def never(stage: Any) -> None:
        raise AssertionError

    rubbish = tmp_path / "rubbish.jks"
    for content in (
        b"",
        b"\xfe\xed\xfe\xed",
        b"\xfe\xed\xfe\xed" + bytes(16) + b"\xff" * 40,
        b"\x30\x82\xff\xff",
        os.urandom(500),
    ):
        rubbish.write_bytes(content)
        with pytest.raises(StartupError, match=r"listener SSL: ssl.keystore.location="):
            play(
                never,
                **secured
                | {"ssl_keystore_type": "JKS", "ssl_keystore_location": str(rubbish), "ssl_keystore_password": "planted-secret"},
            )
    with pytest.raises(StartupError, match="it cannot be read"):
        play(never, **secured | {"ssl_keystore_location": str(tmp_path)})
