"""What peers may send and how many may connect: limits, and malformed input on the connection layer (W02, F30, F75, F87)."""

from __future__ import annotations

import asyncio
import logging
import struct
from dataclasses import replace
from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.headers import decode_response, encode_request
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.registry import API_BY_NAME
from tests.kit.wait import until_async

API_VERSIONS = API_BY_NAME["api_versions"]


def header(api_key: int, version: int, correlation_id: int = 1, client_id: bytes = b"me") -> bytes:
    return struct.pack(">hhih", api_key, version, correlation_id, len(client_id)) + client_id


async def lives(stage: Any) -> None:
    """The broker serves others as before."""
    connection = await stage.connect()
    response = await connection.call("api_versions", 0, ApiVersionsRequest())
    assert response.error_code == 0


MALFORMED = {
    "length -1": b"\xff\xff\xff\xff",
    "length 0": b"\x00\x00\x00\x00",
    "length above the limit": struct.pack(">i", (100 << 20) + 1),
    "length 2^31-1": b"\x7f\xff\xff\xff",
    "a frame of one byte": b"\x00\x00\x00\x01\x00",
    "http": b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
    "a TLS hello": bytes.fromhex("16030100c8010000c40303") + bytes(32),
    "unknown api": struct.pack(">i", 12) + header(999, 0),
    "negative api": struct.pack(">i", 12) + header(-1, 0),
    "an api of brokers only": struct.pack(">i", 12) + header(4, 0),
    "unknown version": struct.pack(">i", 12) + header(3, 99),
    "negative version": struct.pack(">i", 12) + header(3, -1),
    "client id past the end": struct.pack(">i", 10) + struct.pack(">hhih", 3, 0, 1, 30000),
    "client id not UTF-8": struct.pack(">i", 12) + header(3, 0, client_id=b"\xff\xfe"),
    "array of 2^31-1": struct.pack(">i", 16) + header(3, 1) + b"\x7f\xff\xff\xff",
    "array of -5": struct.pack(">i", 24) + header(0, 3) + struct.pack(">hhii", -1, 1, 1000, -5),
    "string past the end": struct.pack(">i", 18) + header(3, 1) + b"\x00\x00\x00\x01\x7f\xff",
    "topic not UTF-8": struct.pack(">i", 20) + header(3, 1) + b"\x00\x00\x00\x01\x00\x02\xc3\x28",
    "overlong varint": struct.pack(">i", 19) + header(3, 9) + b"\x00" + b"\xff" * 6,
    "262,145 topics": struct.pack(">i", 16 + 3 * 262_145) + header(3, 1) + struct.pack(">i", 262_145) + b"\x00\x01a" * 262_145,
    "1,025 tags": struct.pack(">i", 14 + 3 * 1025)
    + header(18, 3)
    + b"\x81\x08"
    + b"".join(bytes([0x80 | number & 0x7F, number >> 7, 0]) for number in range(1025)),
    "an empty body": struct.pack(">i", 12) + header(0, 3),
}


SAID = {"http": "It is an HTTP request", "a TLS hello": "It begins a TLS handshake"}
"""What the log says of the protocols that people mistake for Kafka's."""


@pytest.mark.parametrize("name", MALFORMED)
def test_f87_malformed_input_closes_its_connection_and_no_other(play: Any, name: str, caplog: Any) -> None:
    async def case(stage: Any) -> None:
        other = await stage.connect()
        raw = await stage.raw()
        raw.send(MALFORMED[name])
        assert await raw.closed()
        assert (await other.call("api_versions", 0, ApiVersionsRequest())).error_code == 0
        await lives(stage)
        assert stage.counters.get("connections_closed_malformed") == 1

    with caplog.at_level(logging.WARNING):
        play(case)
    lines = [record for record in caplog.records if record.name.startswith("ottla")]
    assert len(lines) == 1, "one line, and no traceback"
    assert lines[0].exc_info is None
    assert SAID.get(name, "") in lines[0].getMessage()


def test_f87_half_a_frame_holds_no_more_memory_than_was_sent(play: Any) -> None:
    async def case(stage: Any) -> None:
        for _ in range(50):
            raw = await stage.raw()
            raw.send(struct.pack(">i", 100 << 20) + b"x" * 1000)
        while len(stage.broker.server) < 50 or stage.broker.server.memory.held_bytes < 50 * 1000:
            await asyncio.sleep(0.001)
        assert stage.broker.server.memory.held_bytes <= 50 * (64 << 10)
        await lives(stage)

    play(case)


def test_a_frame_may_come_byte_by_byte(play: Any) -> None:
    async def case(stage: Any) -> None:
        raw = await stage.raw()
        request = b"".join(encode_request(API_VERSIONS, 0, 7, "slow", ApiVersionsRequest()))  # type: ignore[arg-type]
        for position in range(len(request)):
            raw.send(request[position : position + 1])
            await asyncio.sleep(0)
        correlation_id, _ = decode_response(API_VERSIONS, 0, memoryview(await raw.frame()))
        assert correlation_id == 7

    play(case)


@pytest.mark.parametrize("size", [100, 60_000, 300_000, 900_000])
def test_frames_of_every_size_in_one_stream(play: Any, size: int) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        raw = await stage.raw(limit=1 << 24)
        api = API_BY_NAME["produce"]
        frames = []
        for number in range(12):
            request = stage.produce_request(stage.batch(bytes([65 + number]) * size if number % 3 else b"small"))
            frames.append(b"".join(encode_request(api, 9, number, "mix", request)))  # type: ignore[arg-type]
        raw.send(b"".join(frames)[:-10])
        replies = [decode_response(api, 9, memoryview(await raw.frame())) for _ in range(11)]
        raw.send(frames[-1][-10:])
        replies.append(decode_response(api, 9, memoryview(await raw.frame())))
        assert [correlation_id for correlation_id, _ in replies] == list(range(12))
        assert [reply.responses[0].partition_responses[0].base_offset for _, reply in replies] == list(range(12))
        assert stage.broker.server.memory.held_bytes == 0

    play(case)


def test_w02_an_unknown_api_versions_version_is_answered_in_version_0(play: Any) -> None:
    async def case(stage: Any) -> None:
        raw = await stage.raw()
        for version in (5, 99, 32767):
            raw.send_frame(header(18, version, 42) + b"\x00\x01\x02")
            correlation_id, response = decode_response(API_VERSIONS, 0, memoryview(await raw.frame()))
            assert correlation_id == 42
            assert isinstance(response, ApiVersionsResponse)
            assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
            [known] = response.api_keys
            assert (known.api_key, known.min_version, known.max_version) == (18, 0, 4)
        raw.send(b"".join(encode_request(API_VERSIONS, 3, 43, "me", _asking())))  # type: ignore[arg-type]
        assert decode_response(API_VERSIONS, 3, memoryview(await raw.frame()))[0] == 43

    play(case)


def _asking() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="test", client_software_version="1.0")


def test_api_versions_advertises_what_exists(play: Any) -> None:
    async def case(stage: Any) -> None:
        connection = await stage.connect()
        for version in range(5):
            response = await connection.call("api_versions", version, _asking())
            ranges = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
            assert ranges[0][0] == 0, "KAFKA-18659"
            assert ranges[0][1] >= 7
            assert ranges[1][1] >= 10
            assert 10 in ranges
            assert [each.name for each in response.finalized_features] == (["transaction.version"] if version >= 3 else [])
        for name, value in (("", "1"), ("with space", "1"), ("name", "-")):
            bad = ApiVersionsRequest(client_software_name=name, client_software_version=value)
            assert (await connection.call("api_versions", 3, bad)).error_code == ErrorCode.INVALID_REQUEST

    play(case)


def test_qu06_max_connections_per_ip_and_its_exceptions(play: Any) -> None:
    async def case(stage: Any) -> None:
        kept = [await stage.raw() for _ in range(2)]
        while len(stage.broker.server) < 2:
            await asyncio.sleep(0)
        refused = await stage.raw()
        assert await refused.closed()
        assert stage.counters.get("connections_refused") == 1
        kept[0].close()
        while len(stage.broker.server) > 1:
            await asyncio.sleep(0)
        await lives(stage)

    play(case, max_connections_per_ip="2")
    play(lambda stage: _refused_at_once(stage), max_connections_per_ip="5", max_connections_per_ip_overrides="127.0.0.1:0")
    play(lambda stage: _refused_at_once(stage), max_connections_per_ip="5", max_connections_per_ip_overrides="localhost:0")


async def _refused_at_once(stage: Any) -> None:
    assert await (await stage.raw()).closed()


def test_max_connections(play: Any) -> None:
    async def case(stage: Any) -> None:
        for _ in range(3):
            await stage.raw()
        while len(stage.broker.server) < 3:
            await asyncio.sleep(0)
        waiting, refused = await stage.raw(), await stage.raw()
        assert await refused.closed()
        assert len(stage.broker.server) == 3
        waiting.close()

    play(case, max_connections="3", socket_listen_backlog_size="1")
    play(case, listener_name_plaintext_max_connections="3", socket_listen_backlog_size="1")


def test_who_comes_too_fast_waits_for_his_turn(play: Any) -> None:
    async def case(stage: Any) -> None:
        # None at all would be one in a second: the first ones wait too, and are heard.
        await asyncio.gather(*(lives(stage) for _ in range(3)))
        assert stage.counters.get("connections_delayed") >= 3
        assert stage.counters.get("connections_refused") == 0

    play(case, max_connection_creation_rate="0")
    play(case, listener_name_plaintext_max_connection_creation_rate="0")


def test_an_address_that_may_not_connect_so_fast_is_closed(play: Any) -> None:
    async def case(stage: Any) -> None:
        await lives(stage)
        await stage.broker.controller.config_requests.alter_client(
            (("ip", "127.0.0.1"),), lambda old: {"connection_creation_rate": "0"}
        )
        assert await (await stage.raw()).closed()
        assert stage.counters.get("connections_refused") == 1
        await stage.broker.controller.config_requests.alter_client((("ip", "127.0.0.1"),), lambda old: {})
        await lives(stage)

    play(case)


def test_socket_request_max_bytes(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        connection = await stage.connect()
        assert (await stage.produce(connection, stage.batch(b"x" * 500))).error_code == 0
        with pytest.raises(ConnectionError):
            await stage.produce(connection, stage.batch(b"x" * 2000))
        await lives(stage)

    play(case, socket_request_max_bytes="1000")


def test_f30_idle_connections_are_closed_and_busy_ones_are_not(play: Any) -> None:
    async def case(stage: Any) -> None:
        # The limit counts only while nobody else is between two requests: a process that was paused would find them idle too.
        server = stage.broker.server
        strict, generous = server.limits, replace(server.limits, idle_ms_max=600_000)
        server.limits_changed(generous)
        await stage.topic()
        waiting = await stage.connect()
        fetch = asyncio.ensure_future(stage.fetch(waiting, 0, max_wait_ms=120_000))
        while not len(stage.broker.purgatory):
            await asyncio.sleep(0)
        idle = await stage.raw()
        half = await stage.raw()
        half.send(b"\x00\x00\x10\x00half a frame")
        server.limits_changed(strict)
        assert await idle.closed()
        assert await half.closed()
        server.limits_changed(generous)
        assert not fetch.done(), "it was waiting for us, not we for it"
        await stage.produce(await stage.connect(), stage.batch(b"one"))
        assert (await fetch).high_watermark == 1

    play(case, connections_max_idle_ms="500")


def test_f30_a_connection_that_closed_behind_a_long_wait_is_forgotten(play: Any) -> None:
    """Nothing is read behind a request that waits, so the end of the connection is seen only when somebody looks."""

    async def case(stage: Any) -> None:
        await stage.topic()
        lasting = await stage.connect()
        fetch = asyncio.ensure_future(stage.fetch(lasting, 0, max_wait_ms=2**31 - 1))
        raw = await stage.raw()
        request = stage.fetch_request(0, max_wait_ms=2**31 - 1)
        frame = b"".join(encode_request(API_BY_NAME["fetch"], 12, 1, "gone", request))  # type: ignore[arg-type]
        raw.send(frame + frame)
        await until_async(lambda: len(stage.broker.purgatory) == 2, "both wait")
        raw.close()
        await until_async(lambda: len(stage.broker.purgatory) == 1, "one is forgotten")
        assert not fetch.done()
        await stage.produce(await stage.connect(), stage.batch(b"one"))
        assert (await fetch).high_watermark == 1

    play(case, connections_max_idle_ms="500")


def test_queued_max_request_bytes_makes_large_requests_wait_not_fail(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic(partitions=8)
        connections = [await stage.connect() for _ in range(8)]
        batch = stage.batch(b"x" * 900_000)
        answers = await asyncio.gather(
            *(
                stage.produce(connection, batch, partition=number)
                for number, connection in enumerate(connections)
                for _ in range(3)
            )
        )
        assert [answer.error_code for answer in answers] == [0] * 24
        assert stage.broker.server.memory.held_bytes == 0

    play(case, queued_max_request_bytes="300000")


def test_a_thousand_idle_connections_cost_little(play: Any) -> None:
    async def case(stage: Any) -> None:
        for _ in range(200):
            await stage.raw()
        while len(stage.broker.server) < 200:
            await asyncio.sleep(0)
        assert stage.broker.server.memory.held_bytes == 0
        await lives(stage)

    play(case)


def test_a_bug_in_a_handler_is_logged_once_and_answered(play: Any, caplog: Any, monkeypatch: Any) -> None:
    from ottla.broker.replicas.partitions import Partitions

    def broken(self: Partitions, key: object) -> None:
        raise ZeroDivisionError("a planted bug")

    async def case(stage: Any) -> None:
        await stage.topic()
        connection = await stage.connect()
        batch = stage.batch(b"x")
        with monkeypatch.context() as patch:
            patch.setattr(Partitions, "get", broken)
            patch.setattr(stage.broker.partitions, "by_key", {})  # where what is often asked for is looked up first
            for _ in range(3):
                assert (await stage.produce(connection, batch)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
                assert (await stage.fetch(connection, 0)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert (await stage.produce(connection, batch)).error_code == 0

    with caplog.at_level(logging.ERROR):
        play(case)
    assert sum(record.exc_info is not None for record in caplog.records) == 2, "one traceback for each API"
