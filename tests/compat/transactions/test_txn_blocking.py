"""Transactions by our own blocking client, with a producer id and epoch that several connections share (F79)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient

from ottla.client.blocking import Client
from ottla.client.offsets import EARLIEST, LATEST, commit_offsets, committed_offsets, list_offsets
from ottla.client.options import plain_options
from ottla.client.transactions import (
    CommittedOffset,
    add_offsets,
    add_partitions,
    end_txn,
    init_producer_id,
    produce,
    txn_offset_commit,
)
from ottla.errors import ErrorCode, KafkaError
from ottla.records.record import build_batch
from ottla.types import ProducerIdAndEpoch, TopicPartition

Read = Callable[..., list[bytes]]


@pytest.fixture
def client(servers: str) -> Iterator[Client]:
    with Client(plain_options(servers, client_id="blocking-test", api_timeout_ms=30_000)) as client:
        yield client


def batch(producer: ProducerIdAndEpoch, first: int, *values: bytes) -> bytes:
    return build_batch(
        [(None, value, (), 1_700_000_000_000) for value in values],
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=first,
        transactional=True,
    )


def test_f79_two_connections_write_one_transaction(
    client: Client, servers: str, make_topic: Callable[..., str], name: str, read: Read
) -> None:
    topic = make_topic(2)
    producer = init_producer_id(client, name, 60_000)
    add_partitions(client, name, producer, [TopicPartition(topic, 0), TopicPartition(topic, 1)])
    for partition in (0, 1):
        with Client(plain_options(servers)) as task:
            assert produce(task, topic, partition, batch(producer, 0, b"a", b"b"), transactional_id=name) == 0
            assert produce(task, topic, partition, batch(producer, 2, b"c"), transactional_id=name) == 2
    assert read(topic, partitions=2) == []
    end_txn(client, name, producer, commit=True)
    end_txn(client, name, producer, commit=True)
    assert sorted(read(topic, partitions=2)) == [b"a", b"a", b"b", b"b", b"c", b"c"]
    ends = list_offsets(client, {TopicPartition(topic, 0): LATEST, TopicPartition(topic, 1): EARLIEST})
    assert ends[TopicPartition(topic, 0)].offset == 4
    assert ends[TopicPartition(topic, 1)].offset == 0


def test_f79_a_batch_sent_twice_is_stored_once(client: Client, make_topic: Callable[..., str], name: str, read: Read) -> None:
    topic = make_topic()
    producer = init_producer_id(client, name, 60_000)
    add_partitions(client, name, producer, [TopicPartition(topic, 0)])
    first = batch(producer, 0, b"once")
    assert [produce(client, topic, 0, first, transactional_id=name) for _ in range(2)] == [0, 0]
    end_txn(client, name, producer, commit=True)
    assert read(topic) == [b"once"]


def test_f79_an_abort_is_not_seen_and_the_next_epoch_begins_at_sequence_0(
    client: Client, make_topic: Callable[..., str], name: str, read: Read
) -> None:
    topic = make_topic()
    for number in range(4):
        # At once after the end of the one before: CONCURRENT_TRANSACTIONS is waited out.
        producer = init_producer_id(client, name, 60_000)
        add_partitions(client, name, producer, [TopicPartition(topic, 0)])
        produce(client, topic, 0, batch(producer, 0, b"%d" % number), transactional_id=name)
        end_txn(client, name, producer, commit=number % 2 == 0)
    assert read(topic) == [b"0", b"2"]


def test_f79_a_zombie_is_refused(client: Client, servers: str, make_topic: Callable[..., str], name: str, read: Read) -> None:
    topic = make_topic()
    zombie = init_producer_id(client, name, 60_000)
    add_partitions(client, name, zombie, [TopicPartition(topic, 0)])
    produce(client, topic, 0, batch(zombie, 0, b"lost"), transactional_id=name)
    with Client(plain_options(servers)) as other:
        heir = init_producer_id(other, name, 60_000)
        assert heir.producer_id == zombie.producer_id
        assert heir.producer_epoch > zombie.producer_epoch
        add_partitions(other, name, heir, [TopicPartition(topic, 0)])
        produce(other, topic, 0, batch(heir, 0, b"kept"), transactional_id=name)
        fenced = {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED}
        with pytest.raises(KafkaError) as late:
            produce(client, topic, 0, batch(zombie, 1, b"late"), transactional_id=name)
        assert late.value.code in fenced
        with pytest.raises(KafkaError) as ended:
            end_txn(client, name, zombie, commit=True)
        assert ended.value.code in fenced
        with pytest.raises(KafkaError) as added:
            add_partitions(client, name, zombie, [TopicPartition(topic, 0)])
        assert added.value.code in fenced
        end_txn(other, name, heir, commit=True)
    assert read(topic) == [b"kept"]


def test_f79_a_late_write_after_the_end_of_its_transaction_is_refused(
    client: Client, make_topic: Callable[..., str], name: str, read: Read
) -> None:
    topic = make_topic()
    producer = init_producer_id(client, name, 60_000)
    add_partitions(client, name, producer, [TopicPartition(topic, 0)])
    produce(client, topic, 0, batch(producer, 0, b"in"), transactional_id=name)
    end_txn(client, name, producer, commit=True)
    init_producer_id(client, name, 60_000)  # waits until the transaction is complete
    with pytest.raises(KafkaError):
        produce(client, topic, 0, batch(producer, 1, b"late"), transactional_id=name)
    assert read(topic) == [b"in"]


def test_f80_a_marker_is_committed_with_the_transaction_and_others_see_it(
    client: Client, servers: str, make_topic: Callable[..., str], name: str
) -> None:
    topic = make_topic()
    where = TopicPartition(topic, 0)
    producer = init_producer_id(client, name, 60_000)
    add_offsets(client, name, producer, name)
    marker = CommittedOffset(7, '{"query": "q", "batch": 7}')
    txn_offset_commit(client, name, producer, name, {where: marker})
    assert committed_offsets(client, name) == {}
    end_txn(client, name, producer, commit=True)
    assert committed_offsets(client, name, [where], require_stable=True) == {where: marker}
    assert committed_offsets(client, name, require_stable=True) == {where: marker}
    assert committed_offsets(client, name, []) == {}
    producer = init_producer_id(client, name, 60_000)
    add_offsets(client, name, producer, name)
    txn_offset_commit(client, name, producer, name, {where: CommittedOffset(8, "never")})
    end_txn(client, name, producer, commit=False)
    assert committed_offsets(client, name, [where], require_stable=True) == {where: marker}
    commit_offsets(client, name, {where: CommittedOffset(9, "tool")})
    assert committed_offsets(client, name, [where]) == {where: CommittedOffset(9, "tool")}
    admin = AdminClient({"bootstrap.servers": servers})
    asked = ConsumerGroupTopicPartitions(name, [ConfluentPartition(topic, 0)])
    (seen,) = admin.list_consumer_group_offsets([asked])[name].result(60).topic_partitions
    assert seen.offset == 9


def test_a_timeout_that_the_broker_does_not_allow_is_said_at_once(client: Client, name: str) -> None:
    with pytest.raises(KafkaError) as refused:
        init_producer_id(client, name, 2_000_000_000)
    assert refused.value.code == ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_topics_and_a_missing_one(client: Client, make_topic: Callable[..., str]) -> None:
    topic = make_topic(3)
    assert sorted(client.topic(topic).partitions) == [0, 1, 2]
    assert client.topics()[topic] == client.topic(topic)
    with pytest.raises(KafkaError, match="no-such-topic") as missing:
        client.topic("no-such-topic")
    assert missing.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "no-such-topic" not in client.topics()
