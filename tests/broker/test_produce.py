"""Produce on the wire: order, acks, what is refused (W01, W04, W07, F18, F27)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.fetch import PartitionData
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records.batch import read_batch_header, scan_batches
from ottla.records.record import read_records


def values_of(data: PartitionData) -> list[bytes | None]:
    batches, _ = scan_batches(data.records or b"")  # type: ignore[arg-type]
    return [record.value for batch in batches for record in read_records(data.records, batch)]  # type: ignore[arg-type]


def test_w01_replies_come_in_the_order_of_requests_and_acks_0_gives_none(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        connection = await stage.connect()
        replies = []
        for number in range(50):
            replies.append(connection.send("produce", 9, stage.produce_request(stage.batch(b"%d" % number), acks=1)))
            connection.tell("produce", 9, stage.produce_request(stage.batch(b"quiet"), acks=0))
        offsets = [(await reply).responses[0].partition_responses[0].base_offset for reply in replies]
        assert offsets == list(range(0, 100, 2))
        data = await stage.fetch(connection, 0)
        assert values_of(data)[:4] == [b"0", b"quiet", b"1", b"quiet"]
        assert data.high_watermark == 100

    play(case)


def test_w01_a_waiting_fetch_holds_back_what_was_sent_behind_it(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        first, second = await stage.connect(), await stage.connect()
        fetch = first.send("fetch", 12, stage.fetch_request(0, max_wait_ms=60_000))
        behind = [first.send("produce", 9, stage.produce_request(stage.batch(b"behind"))) for _ in range(3)]
        versions = await second.call("api_versions", 0, ApiVersionsRequest())
        assert versions.error_code == 0
        assert not any(reply.done() for reply in behind)
        await stage.produce(second, stage.batch(b"news"))
        response = await fetch
        assert values_of(response.responses[0].partitions[0]) == [b"news"]
        assert [(await reply).responses[0].partition_responses[0].base_offset for reply in behind] == [1, 2, 3]

    play(case)


@pytest.mark.parametrize("reason", ["corrupt", "unknown topic"])
def test_w01_an_error_of_acks_0_closes_the_connection(play: Any, reason: str) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        connection, other = await stage.connect(), await stage.connect()
        batch = bytearray(stage.batch(b"value"))
        if reason == "corrupt":
            batch[-1] ^= 1
        topic = "t" if reason == "corrupt" else "nothing"
        connection.tell("produce", 9, stage.produce_request(bytes(batch), acks=0, topic=topic))
        await connection.wait_closed()
        assert (await stage.fetch(other, 0)).high_watermark == 0

    play(case)


def test_w04_a_damaged_batch_is_refused_and_nothing_of_it_is_kept(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        connection = await stage.connect()
        batch = bytearray(stage.batch(b"value"))
        batch[-1] ^= 1
        answer = await stage.produce(connection, bytes(batch))
        assert (answer.error_code, answer.base_offset) == (ErrorCode.CORRUPT_MESSAGE, -1)
        assert (await stage.fetch(connection, 0)).high_watermark == 0
        assert (await stage.produce(connection, stage.batch(b"good"))).base_offset == 0

    play(case)


def test_f18_a_batch_above_max_message_bytes_is_refused(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic(max_message_bytes="1000")
        connection = await stage.connect()
        answer = await stage.produce(connection, stage.batch(b"x" * 2000))
        assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert "1000" in (answer.error_message or "")
        assert (await stage.fetch(connection, 0)).high_watermark == 0

    play(case)


@pytest.mark.parametrize("version", [7, 8, 11])
def test_w04_records_without_a_key_on_a_compacted_topic_are_named(play: Any, version: int) -> None:
    async def case(stage: Any) -> None:
        await stage.topic(cleanup_policy="compact")
        connection = await stage.connect()
        answer = await stage.produce(connection, stage.batch(b"1", b"2", key=None), version=version)
        assert answer.error_code == ErrorCode.INVALID_RECORD
        named = [error.batch_index for error in answer.record_errors]
        assert named == ([] if version < 8 else [0, 1]), "versions before 8 have no room for them"
        assert (await stage.fetch(connection, 0)).high_watermark == 0

    play(case)


def test_a_partition_that_fails_does_not_stop_the_others(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic(partitions=2)
        connection = await stage.connect()
        bad = bytearray(stage.batch(b"bad"))
        bad[-1] ^= 1
        data = [
            PartitionProduceData(index=0, records=bytes(bad)),
            PartitionProduceData(index=1, records=stage.batch(b"good")),
            PartitionProduceData(index=2, records=stage.batch(b"no such partition")),
        ]
        request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=data)])
        answers = (await connection.call("produce", 9, request)).responses[0].partition_responses
        assert [answer.error_code for answer in answers] == [
            ErrorCode.CORRUPT_MESSAGE,
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]

    play(case)


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_acks_that_do_not_exist(play: Any, acks: int) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        connection = await stage.connect()
        answer = await stage.produce(connection, stage.batch(b"x"), acks=acks)
        assert answer.error_code == ErrorCode.INVALID_REQUIRED_ACKS
        assert (await stage.fetch(connection, 0)).high_watermark == 0

    play(case)


def test_f49_min_insync_replicas_guards_acks_all_only(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        connection = await stage.connect()
        stage.broker.partitions.get(("t", 0)).isr = ()
        assert (await stage.produce(connection, stage.batch(b"x"), acks=-1)).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert (await stage.fetch(connection, 0)).high_watermark == 0
        assert (await stage.produce(connection, stage.batch(b"x"), acks=1)).error_code == ErrorCode.NONE

    play(case)


def test_f49_more_replicas_than_there_are_need_not_be_in_sync(play: Any) -> None:
    """As with Kafka 3.9 and 4.3: one replica is enough where a topic has one, whatever `min.insync.replicas` asks for."""

    async def case(stage: Any) -> None:
        await stage.topic(min_insync_replicas="3")
        connection = await stage.connect()
        assert (await stage.produce(connection, stage.batch(b"x"), acks=-1)).error_code == ErrorCode.NONE
        assert (await stage.fetch(connection, 0)).high_watermark == 1

    play(case)


@pytest.mark.parametrize("version", [0, 2])
def test_versions_that_are_advertised_for_old_clients_get_an_honest_error(play: Any, version: int) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        connection = await stage.connect()
        answer = await stage.produce(connection, stage.batch(b"x"), version=version)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION

    play(case)


def test_zstd_needs_produce_7(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        connection = await stage.connect()
        batch = stage.batch(b"x", codec=4)
        assert (await stage.produce(connection, batch, version=6)).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert (await stage.produce(connection, batch, version=7)).error_code == ErrorCode.NONE

    play(case)


def test_topics_by_id_from_version_13_on(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        connection = await stage.connect()
        topic_id = stage.broker.image.topics["t"].topic_id
        data = [PartitionProduceData(index=0, records=stage.batch(b"x"))]
        for asked, code in ((topic_id, ErrorCode.NONE), (b"\7" * 16, ErrorCode.UNKNOWN_TOPIC_ID)):
            topics = [TopicProduceData(topic_id=asked, partition_data=data)]
            response = await connection.call("produce", 13, ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics))
            assert response.responses[0].topic_id == asked
            assert response.responses[0].partition_responses[0].error_code == code

    play(case)


def test_transactional_records_need_a_transactional_id_and_idempotent_ones_none(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        connection = await stage.connect()
        producer = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}
        refused = await stage.produce(connection, stage.batch(b"x", transactional=True, **producer))
        assert refused.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert (await stage.produce(connection, stage.batch(b"x", **producer))).base_offset == 0
        assert (await stage.fetch(connection, 0)).high_watermark == 1

    play(case)


def test_one_transactional_batch_without_transactional_id_refuses_the_whole_request(play: Any) -> None:
    """Whatever else is wrong with it, and whatever it is for: Kafka looks at this first."""

    async def case(stage: Any) -> None:
        await stage.topic(partitions=2)
        connection = await stage.connect()

        async def codes(transactional: bytes, topic: str = "t", acks: int = -1) -> list[int]:
            data = [
                PartitionProduceData(index=0, records=stage.batch(b"x")),
                PartitionProduceData(index=1, records=transactional),
            ]
            topics = [TopicProduceData(name=topic, partition_data=data)]
            answer = await connection.call("produce", 11, ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topics))
            return [each.error_code for found in answer.responses for each in found.partition_responses]

        nobodys = bytes(stage.batch(b"x", transactional=True))
        refused = [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
        assert await codes(nobodys) == refused
        assert await codes(nobodys[:-1] + b"?") == refused, "before its CRC is looked at"
        assert await codes(nobodys, topic="absent") == refused
        assert await codes(nobodys, acks=3) == refused
        assert (await stage.fetch(connection, 0)).high_watermark == 0, "nothing was written"
        assert await codes(nobodys[:-1]) == [ErrorCode.NONE, ErrorCode.INVALID_RECORD], "half a batch is none"

    play(case)


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_w07_every_codec_comes_back_byte_for_byte(play: Any, codec: int) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        connection = await stage.connect()
        batch = stage.batch(*[b"value %d" % number for number in range(100)], codec=codec)
        await stage.produce(connection, batch)
        stored = bytes((await stage.fetch(connection, 0)).records)
        # Base offset, length, leader epoch may be the broker's; from the CRC on every byte is the producer's.
        assert stored[17:] == batch[17:]

    play(case)


@pytest.mark.parametrize("topic_codec", ["gzip", "lz4", "uncompressed"])
def test_w07_the_topics_codec_wins(play: Any, topic_codec: str) -> None:
    async def case(stage: Any) -> None:
        await stage.topic(compression_type=topic_codec)
        connection = await stage.connect()
        await stage.produce(connection, stage.batch(b"a" * 100, b"b" * 100, codec=4))
        data = await stage.fetch(connection, 0)
        assert read_batch_header(data.records, 0).codec == {"uncompressed": 0, "gzip": 1, "lz4": 3}[topic_codec]
        assert values_of(data) == [b"a" * 100, b"b" * 100]

    play(case)


def test_log_append_time_is_told_and_stored(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic(message_timestamp_type="LogAppendTime")
        connection = await stage.connect()
        before = stage.broker.world.clock.now_ms()
        answer = await stage.produce(connection, stage.batch(b"x", timestamp=5))
        assert before <= answer.log_append_time_ms <= stage.broker.world.clock.now_ms()
        data = await stage.fetch(connection, 0)
        assert read_batch_header(data.records, 0).max_timestamp == answer.log_append_time_ms

    play(case)


def test_flush_messages_1_has_every_acknowledged_record_on_disk(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic(flush_messages="1")
        connection = await stage.connect()
        await stage.produce(connection, stage.batch(b"x"))
        [partition] = stage.broker.partitions
        assert partition.log.recovery_point == 1

    play(case)


def test_many_connections_at_once_keep_their_own_replies(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic(partitions=4)
        connections = [await stage.connect() for _ in range(40)]

        async def produce(number: int) -> None:
            for turn in range(10):
                batch = stage.batch(b"%d-%d" % (number, turn))
                answer = await stage.produce(connections[number], batch, partition=number % 4)
                assert answer.error_code == 0

        await asyncio.gather(*(produce(number) for number in range(40)))
        assert sum(partition.log.high_watermark for partition in stage.broker.partitions) == 400

    play(case)


@pytest.mark.parametrize("version", [7, 9])
def test_nobody_but_coordinators_writes_to_the_brokers_own_topics(play: Any, version: int) -> None:
    """What a client wrote there would be read as the offsets of groups, and a group could not be loaded any more."""

    async def case(stage: Any) -> None:
        await stage.topic("__consumer_offsets")
        connection = await stage.connect()
        answer = await stage.produce(connection, stage.batch(b"poison"), version=version, topic="__consumer_offsets")
        assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)
        [partition] = stage.broker.partitions
        assert partition.log.log_end_offset == 0

    play(case)
