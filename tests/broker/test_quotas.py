"""Client quotas on a broker: bytes of Produce and Fetch, mutations, changes while it runs, and muted connections."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ottla.client.connection import ClientConnection
from ottla.errors import ErrorCode
from ottla.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from ottla.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.conftest import Play, Stage
from tests.kit.wait import until_async

PRODUCE, FETCH, REQUEST, MUTATION = "producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"
THROTTLED = ErrorCode.THROTTLING_QUOTA_EXCEEDED


async def set_quota(connection: ClientConnection, entity: dict[str, str | None], **quotas: float | None) -> None:
    entry = EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in quotas.items()],
    )
    response = await connection.call("alter_client_quotas", 1, AlterClientQuotasRequest(entries=[entry]))
    assert [each.error_code for each in response.entries] == [0]


async def client(stage: Stage, client_id: str) -> ClientConnection:
    connection = await ClientConnection.open(stage.broker.world.network, "127.0.0.1", stage.port, client_id=client_id)
    stage._open.append(connection)
    return connection


def muted(stage: Stage) -> int:
    return sum(connection.muted for connection in stage.broker.server._by_use)


# Produce


def test_qu03_a_produce_above_the_quota_is_answered_at_once_and_mutes_its_connection(play: Play) -> None:
    async def case(stage: Stage) -> None:
        await stage.topic()
        admin = await client(stage, "admin")
        await set_quota(admin, {"client-id": "p"}, **{PRODUCE: 100.0})
        producer, other = await client(stage, "p"), await client(stage, "q")
        response = await producer.call("produce", 9, stage.produce_request(stage.batch(bytes(1500))))
        assert response.responses[0].partition_responses[0].error_code == 0
        assert 5000 <= response.throttle_time_ms <= 7000  # 1,600 bytes in a window of ten seconds and a little
        assert muted(stage) == 1
        waits = producer.send("list_groups", 4, ListGroupsRequest())
        response = await other.call("produce", 9, stage.produce_request(stage.batch(bytes(15_000))))
        assert response.throttle_time_ms == 0
        assert (await other.call("list_groups", 4, ListGroupsRequest())).throttle_time_ms == 0
        assert not waits.done()
        # A second connection of the client is throttled too, as its bucket is full.
        second = await client(stage, "p")
        assert (await second.call("produce", 9, stage.produce_request(stage.batch(b"v")))).throttle_time_ms > 5000
        assert stage.counters.get("requests_throttled") == 2
        waits.cancel()

    play(case)


def test_qu03_a_muted_connection_goes_on_afterwards(play: Play) -> None:
    async def case(stage: Stage) -> None:
        await stage.topic()
        await set_quota(await client(stage, "admin"), {"user": None}, **{PRODUCE: 100_000.0})
        producer = await client(stage, "p")
        sends = [producer.send("produce", 9, stage.produce_request(stage.batch(bytes(260_000)))) for _ in range(4)]
        response = await sends[3]
        assert [(await send).throttle_time_ms > 0 for send in sends] == [False, False, False, True]
        assert muted(stage) == 1
        offset = response.responses[0].partition_responses[0].base_offset
        assert offset == 3
        assert (await producer.call("list_groups", 4, ListGroupsRequest())).throttle_time_ms == 0
        assert muted(stage) == 0

    play(case)


def test_qu03_acks_0_counts_bytes_and_mutes(play: Play) -> None:
    async def case(stage: Stage) -> None:
        await stage.topic()
        admin = await client(stage, "admin")
        await set_quota(admin, {"client-id": "p"}, **{PRODUCE: 100.0})
        await set_quota(admin, {"client-id": "t"}, **{REQUEST: 1e-6})
        timed = await client(stage, "t")
        timed.tell("produce", 9, stage.produce_request(stage.batch(b"v"), acks=0))
        await timed.call("list_groups", 4, ListGroupsRequest())  # not muted by the request before
        assert stage.counters.get("requests_throttled") == 1
        producer = await client(stage, "p")
        producer.tell("produce", 9, stage.produce_request(stage.batch(bytes(1500)), acks=0))
        await until_async(lambda: stage.counters.get("requests_throttled") == 2)
        waits = producer.send("list_groups", 4, ListGroupsRequest())
        await admin.call("list_groups", 4, ListGroupsRequest())
        assert not waits.done()
        waits.cancel()

    play(case)


# Fetch


def fetch_of(offset: int, session_id: int = 0, epoch: int = -1, **options: Any) -> FetchRequest:
    asked = [FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)]
    topics = [FetchTopic(topic="t", partitions=asked)] if epoch <= 0 else []
    return FetchRequest(max_bytes=50 << 20, session_id=session_id, session_epoch=epoch, topics=topics, **options)


def size_of(response: Any) -> int:
    return sum(len(each.records) for topic in response.responses for each in topic.partitions)


def test_qu03_a_throttled_fetch_is_empty_and_not_counted(play: Play) -> None:
    async def case(stage: Stage) -> None:
        await stage.topic()
        admin = await client(stage, "admin")
        for _ in range(40):
            await stage.produce(admin, stage.batch(bytes(100)))
        await set_quota(admin, {"client-id": "c"}, **{FETCH: 500.0})
        consumer = await client(stage, "c")
        response = await consumer.call("fetch", 12, fetch_of(0))
        assert 4000 < size_of(response) <= 5000, "cut to what ten seconds allow"
        assert response.throttle_time_ms == 0
        quota = stage.broker.quotas.of_client("ANONYMOUS", "c").fetch
        assert quota is not None
        counted = quota.rate.sum
        assert size_of(response) < counted < size_of(response) + 200
        response = await consumer.call("fetch", 12, fetch_of(0))
        assert response.throttle_time_ms > 1000
        assert response.error_code == 0
        assert response.responses == []
        assert quota.rate.sum == counted

    play(case)


def test_qu03_a_throttled_fetch_keeps_its_session_as_it_was(play: Play) -> None:
    async def case(stage: Stage) -> None:
        await stage.topic()
        admin = await client(stage, "admin")
        await stage.produce(admin, stage.batch(bytes(3000)))
        await set_quota(admin, {"client-id": "c"}, **{FETCH: 300.0})
        first = await client(stage, "c")
        # A full fetch that is throttled begins no session.
        await set_quota(admin, {"client-id": "c"}, **{FETCH: 100.0})
        response = await first.call("fetch", 12, fetch_of(0, epoch=0))
        assert (response.session_id, response.responses) == (0, [])
        assert response.throttle_time_ms > 0
        assert len(stage.broker.fetch_sessions) == 0
        await set_quota(admin, {"client-id": "c"}, **{FETCH: 1000.0})
        second = await client(stage, "c")
        response = await second.call("fetch", 12, fetch_of(1, epoch=0))
        session_id = response.session_id
        assert session_id
        # What came meanwhile is not told by an empty response, and is told by the next one.
        await stage.produce(admin, stage.batch(bytes(3000)))
        await set_quota(admin, {"client-id": "c"}, **{FETCH: 1.0})
        response = await second.call("fetch", 12, fetch_of(1, session_id, 1))
        assert response.throttle_time_ms > 0
        assert (response.error_code, response.session_id, response.responses) == (0, session_id, [])
        await set_quota(admin, {"client-id": "c"}, **{FETCH: None})
        third = await client(stage, "c")
        response = await third.call("fetch", 12, fetch_of(1, session_id, 2))
        assert response.error_code == 0
        assert response.responses[0].partitions[0].high_watermark == 2
        assert size_of(response) > 3000

    play(case)


def test_qu03_a_fetch_that_waits_is_counted_when_it_answers(play: Play) -> None:
    async def case(stage: Stage) -> None:
        await stage.topic()
        admin = await client(stage, "admin")
        await set_quota(admin, {"client-id": "c"}, **{FETCH: 10.0})
        consumer = await client(stage, "c")
        waits = consumer.send("fetch", 12, fetch_of(0, max_wait_ms=60_000, min_bytes=1))
        await until_async(lambda: len(stage.broker.purgatory) == 1)
        await stage.produce(admin, stage.batch(bytes(5000)))
        response = await waits
        assert response.responses == []
        assert response.throttle_time_ms > 100_000
        assert muted(stage) == 1

    play(case)


def test_qu03_followers_are_exempt(play: Play) -> None:
    async def case(stage: Stage) -> None:
        await stage.topic()
        admin = await client(stage, "admin")
        await set_quota(admin, {"client-id": "c"}, **{FETCH: 1.0, REQUEST: 1e-6})
        follower = await client(stage, "c")
        for _ in range(3):
            response = await follower.call("fetch", 12, fetch_of(0, replica_id=5))
            assert response.throttle_time_ms == 0
        assert muted(stage) == 0

    play(case)


# Mutations


async def create(connection: ClientConnection, version: int, **topics: int) -> tuple[list[int], int]:
    asked = [CreatableTopic(name=name, num_partitions=count, replication_factor=1) for name, count in topics.items()]
    response = await connection.call("create_topics", version, CreateTopicsRequest(topics=asked, timeout_ms=1000))
    return [each.error_code for each in response.topics], response.throttle_time_ms


async def delete(connection: ClientConnection, version: int, *topics: str) -> tuple[list[int], int]:
    states = [DeleteTopicState(name=name) for name in topics]
    request = DeleteTopicsRequest(topics=states) if version >= 6 else DeleteTopicsRequest(topic_names=list(topics))
    response = await connection.call("delete_topics", version, request)
    return [each.error_code for each in response.responses], response.throttle_time_ms


async def grow(connection: ClientConnection, version: int, **topics: int) -> tuple[list[int], int]:
    asked = [CreatePartitionsTopic(name=name, count=count, assignments=None) for name, count in topics.items()]
    response = await connection.call("create_partitions", version, CreatePartitionsRequest(topics=asked, timeout_ms=1000))
    return [each.error_code for each in response.results], response.throttle_time_ms


RATE = 0.01
"""Tokens per second: what comes back during a test is next to nothing. A window holds 11 of 1,000 s each."""
SETTINGS = {"controller_quota_window_num": "11", "controller_quota_window_size_seconds": "100"}
"""Eleven tokens."""


@pytest.mark.parametrize(("api", "strict_from"), [("create", 6), ("delete", 5), ("grow", 3)])
def test_qu05_topics_above_the_quota_are_refused_from_a_version_on(play: Play, api: str, strict_from: int) -> None:
    async def case(stage: Stage) -> None:
        admin = await client(stage, "admin")
        for name, partitions in (("a", 10), ("b", 5), ("c", 1)):
            if api != "create":
                await stage.topic(name, partitions if api == "delete" else 1)
        await set_quota(admin, {"user": "ANONYMOUS"}, **{MUTATION: RATE})
        for version in (strict_from, strict_from - 1):
            connection = await client(stage, "x")
            if api == "create":
                found = await create(connection, version, a=10, b=5, c=1)
            elif api == "delete":
                found = await delete(connection, version, "a", "b", "c")
            else:
                found = await grow(connection, version, a=11, b=6, c=2)
            errors, throttle_ms = found
            if version == strict_from:
                # 11 - 10 - 5: the third comes when nothing is left, and is told to wait until four tokens are back.
                assert errors == [0, 0, THROTTLED]
                assert 390_000 <= throttle_ms <= 400_000
                assert ("c" in stage.broker.image.topics) == (api != "create")
                if api == "create":
                    await stage.broker.controller.topic_requests.delete(["a", "b"])
                elif api == "delete":
                    await stage.topic("a", 10)
                    await stage.topic("b", 5)
                else:
                    await stage.broker.controller.topic_requests.delete(["a", "b"])
                    await stage.topic("a", 1)
                    await stage.topic("b", 1)
            else:
                assert errors == [0, 0, 0], "performed, and then throttled"
                assert 1_990_000 <= throttle_ms <= 2_000_000
        assert muted(stage) == 2

    play(case, **SETTINGS)


def test_qu05_validation_and_refused_topics_cost_nothing(play: Play) -> None:
    async def case(stage: Stage) -> None:
        await stage.topic("t", 3)
        admin = await client(stage, "admin")
        await set_quota(admin, {"user": None}, **{MUTATION: RATE})
        asked = [CreatableTopic(name="new", num_partitions=100, replication_factor=1)]
        response = await admin.call("create_topics", 7, CreateTopicsRequest(topics=asked, validate_only=True))
        assert response.topics[0].error_code == 0
        assert await create(admin, 7, t=100) == ([ErrorCode.TOPIC_ALREADY_EXISTS], 0)
        assert await delete(admin, 6, "unknown") == ([ErrorCode.UNKNOWN_TOPIC_OR_PARTITION], 0)
        assert await grow(admin, 3, t=2) == ([ErrorCode.INVALID_PARTITIONS], 0)
        bucket = stage.broker.quotas.of_client("ANONYMOUS", "admin").mutation
        assert bucket is not None
        now_ms = int(stage.broker.world.clock.monotonic() * 1000)
        assert bucket.tokens(now_ms) == pytest.approx(11)

    play(case, **SETTINGS)


def test_qu05_topics_that_metadata_requests_create_count_but_are_not_refused(play: Play) -> None:
    async def case(stage: Stage) -> None:
        admin = await client(stage, "admin")
        await set_quota(admin, {"user": None}, **{MUTATION: RATE})
        for name in ("a", "b"):
            request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
            response = await admin.call("metadata", 9, request)
            assert (response.topics[0].error_code, response.throttle_time_ms) == (0, 0)
        assert (await create(admin, 7, c=1))[0] == [THROTTLED]

    play(case, num_partitions="6", **SETTINGS)


# Changes


def test_quotas_take_effect_at_once_on_open_connections(play: Play) -> None:
    async def case(stage: Stage) -> None:
        await stage.topic()
        admin, producer = await client(stage, "admin"), await client(stage, "p")

        async def throttle_ms() -> int:
            response = await producer.call("produce", 9, stage.produce_request(stage.batch(bytes(2000))))
            return int(response.throttle_time_ms)

        assert await throttle_ms() == 0
        cached = [connection.header_cache for connection in stage.broker.server._by_use if connection.header_cache]
        assert all(each.context.meter is None and not each.route.metered for each in cached), "no quotas, no meters"
        await set_quota(admin, {"user": "ANONYMOUS", "client-id": "p"}, **{PRODUCE: 1e6})
        assert await throttle_ms() == 0
        await set_quota(admin, {"user": "ANONYMOUS", "client-id": "p"}, **{PRODUCE: None})
        assert await throttle_ms() == 0
        await set_quota(admin, {"client-id": None}, **{PRODUCE: 10.0})
        assert await throttle_ms() > 0

    play(case)


def test_stored_quotas_hold_from_the_start(play: Play) -> None:
    async def case(stage: Stage) -> None:
        await stage.topic()
        await set_quota(await client(stage, "admin"), {"client-id": "ünïcode/1"}, **{PRODUCE: 1.0})

    async def again(stage: Stage) -> None:
        producer = await client(stage, "ünïcode/1")
        response = await producer.call("produce", 9, stage.produce_request(stage.batch(bytes(2000))))
        assert response.throttle_time_ms > 0

    play(case)
    play(again)


def test_a_client_that_leaves_while_it_is_muted_leaves_nothing(play: Play) -> None:
    async def case(stage: Stage) -> None:
        await stage.topic()
        admin = await client(stage, "admin")
        await set_quota(admin, {"client-id": "p"}, **{PRODUCE: 100_000.0})
        producer = await client(stage, "p")
        response = await producer.call("produce", 9, stage.produce_request(stage.batch(bytes(1_010_000))))
        assert response.throttle_time_ms > 0
        producer.close()
        await until_async(lambda: len(stage.broker.server) == 1)

    play(case)


def test_idle_buckets_are_dropped_and_found_again(play: Play) -> None:
    async def case(stage: Stage) -> None:
        await stage.topic()
        await set_quota(await client(stage, "admin"), {"client-id": None}, **{PRODUCE: 1e6})
        producer = await client(stage, "p")
        await stage.produce(producer, stage.batch(b"v"))
        before = stage.broker.quotas.of_client("ANONYMOUS", "p").produce
        now_ms = int(stage.broker.world.clock.monotonic() * 1000)
        assert stage.broker.quotas.forget_idle(now_ms + 100_000, 60_000)
        stage.broker.server.forget_headers()
        await stage.produce(producer, stage.batch(b"v"))
        after = stage.broker.quotas.of_client("ANONYMOUS", "p").produce
        assert after is not None
        assert after is not before
        assert after.rate.sum > 0

    play(case)


def test_without_event_loop_time_nothing_is_throttled(play: Play) -> None:
    """A generous request quota of everyone: no request is throttled, and all are counted."""

    async def case(stage: Stage) -> None:
        await stage.topic()
        await set_quota(await client(stage, "admin"), {"user": None}, **{REQUEST: 1e6})
        producer = await client(stage, "p")
        await asyncio.gather(*(stage.produce(producer, stage.batch(b"v")) for _ in range(20)))
        assert (await producer.call("fetch", 12, fetch_of(0))).throttle_time_ms == 0
        quota = stage.broker.quotas.of_client("ANONYMOUS", "p").request
        assert quota is not None
        assert quota.rate.sum > 0
        assert stage.counters.get("requests_throttled") == 0

    play(case)
