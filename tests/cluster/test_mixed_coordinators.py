"""Transactions and groups in a cluster of Apache Kafka 3.9 and ours: coordinators of either kind with partitions that the other
leads (AddPartitionsToTxn, WriteTxnMarkers, AllocateProducerIds in both directions), and coordinators that move from one to the
other, who must read what the other wrote (F64, F66, T10, G07)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from ottla.coordinator.shard import positive_hash
from ottla.errors import ErrorCode
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records.record import build_batch
from tests.cluster.test_mixed import all_know
from tests.cluster.test_replicas import read
from tests.compat.transactions import test_txn_java_kills
from tests.kit.apache_kafka import ApacheBroker
from tests.kit.cluster import WAIT_S, Cluster, ask_at, until, until_done
from tests.kit.peers import KAFKA_3, KAFKA_4, run_tool

pytestmark = [pytest.mark.slow, pytest.mark.java]

OURS, THEIRS = 1, 3
LOG_PARTITIONS = 5
TRANSACTIONS, OFFSETS = "__transaction_state", "__consumer_offsets"
SETTINGS = {
    "auto.leader.rebalance.enable": "false",
    "default.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}
READ_COMMITTED = {"isolation.level": "read_committed"}


class Mixed:
    """Brokers 1 and 2 are ours, 3 is Apache Kafka; partitions of `in` and `out` are led by each of them."""

    def __init__(self, cluster: Cluster, theirs: ApacheBroker) -> None:
        self.cluster = cluster
        self.theirs = theirs
        self.servers = f"{cluster.bootstrap},{theirs.address}"

    def address(self, number: int) -> str:
        return self.theirs.address if number == THEIRS else self.cluster.brokers[number].address

    def producer(self, transactional_id: str) -> Producer:
        settings = {"bootstrap.servers": self.servers, "transactional.id": transactional_id, "message.timeout.ms": 60_000}
        producer = Producer({**settings, "transaction.timeout.ms": 120_000})
        patiently(lambda: producer.init_transactions(30))
        return producer

    def consumer(self, group: str, **settings: Any) -> Consumer:
        return Consumer({"bootstrap.servers": self.servers, "group.id": group, "auto.offset.reset": "earliest", **settings})

    def coordinated(self, log: str, number: int, word: str) -> str:
        """A transactional id, or a group, that this broker coordinates."""
        return next(
            name
            for name in (f"{word}-{number}-{index}" for index in range(1000))
            if self.cluster.leader(log, positive_hash(name) % LOG_PARTITIONS) == number
        )

    def led_by(self, log: str, name: str, number: int) -> None:
        """The coordinator of this name becomes another, as an operator of a ZooKeeper would have it: by two nodes."""
        index = positive_hash(name) % LOG_PARTITIONS
        replicas = [number, *(other for other in (1, 2, 3) if other != number)]
        self._ordered("/admin/reassign_partitions", [{"topic": log, "partition": index, "replicas": replicas}])
        until(lambda: self.cluster.json(f"/brokers/topics/{log}")["partitions"][str(index)] == replicas, "the order of replicas")
        self._ordered("/admin/preferred_replica_election", [{"topic": log, "partition": index}])
        until(lambda: self.cluster.leader(log, index) == number, f"{number} leads {log}-{index}")

    def _ordered(self, path: str, partitions: list[dict[str, Any]]) -> None:
        tree = self.cluster.tree
        tree.create(path, json.dumps({"version": 1, "partitions": partitions}).encode())
        until(lambda: tree.exists(path) is None, f"{path} is done")


@pytest.fixture(params=["ours", "theirs"])
def mixed(cluster: Callable[..., Cluster], request: pytest.FixtureRequest) -> Iterator[Mixed]:
    """Under the controller of the one, and of the other."""
    both = cluster(2 if request.param == "ours" else 0, **SETTINGS)
    theirs = ApacheBroker(both, THEIRS, **SETTINGS)
    try:
        theirs.start()
        if request.param == "theirs":
            until(lambda: both.controller() == THEIRS)
            for number in (1, 2):
                both.add(number)
        all_know(both, 1, 2, 3)
        assert (both.controller() == THEIRS) == (request.param == "theirs")
        for topic in ("in", "out"):
            until_done(partial(both.create_topic_at, topic, [[1, 2, 3], [2, 3, 1], [3, 1, 2]]), "the topic")
        found = Mixed(both, theirs)
        # The coordinators' own topics come with the first who needs them.
        first = found.producer("first")
        first.begin_transaction()
        consumer = found.consumer("first")
        until(lambda: consumer.committed([TopicPartition("in", 0)], 30))
        first.send_offsets_to_transaction([TopicPartition("in", 0, 0)], consumer.consumer_group_metadata(), 60)
        first.commit_transaction(60)
        consumer.close()
        yield found
    finally:
        theirs.kill()


def patiently(call: Callable[[], Any]) -> Any:
    """Until it succeeds, or fails for good."""
    deadline = time.monotonic() + 3 * WAIT_S
    while True:
        try:
            return call()
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise


def committed(consumer: Consumer, partitions: int) -> list[int]:
    """Of `in`. Unstable until the last marker is there: it is what has been committed by then."""
    asked = [TopicPartition("in", partition) for partition in range(partitions)]
    # librdkafka tells of a coordinator that is none any more, and looks for the next one then.
    return [each.offset for each in until(lambda: consumer.committed(asked, 60), "positions")]


def test_any_coordinator_with_partitions_of_any_leader(mixed: Mixed) -> None:
    """Three coordinators of transactions, each with three of groups, and leaders of both kinds in every transaction."""
    expected: list[bytes] = []
    for coordinator in (1, 2, 3):
        producer = mixed.producer(mixed.coordinated(TRANSACTIONS, coordinator, "t"))
        for group_coordinator in (1, 2, 3):
            group = mixed.coordinated(OFFSETS, group_coordinator, f"g{coordinator}")
            consumer = mixed.consumer(group)
            for position, commits in ((7, True), (9, False)):
                producer.begin_transaction()
                values = [b"%d %d %d %s" % (coordinator, group_coordinator, p, str(commits).encode()) for p in range(3)]
                for partition, value in enumerate(values):
                    producer.produce("out", value, partition=partition)
                offsets = [TopicPartition("in", partition, position) for partition in range(3)]
                patiently(lambda: producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 60))  # noqa: B023
                if commits:
                    patiently(lambda: producer.commit_transaction(60))  # noqa: B023
                    expected += values
                else:
                    assert producer.flush(60) == 0
                    patiently(lambda: producer.abort_transaction(60))  # noqa: B023
            assert committed(consumer, 3) == [7, 7, 7]
            consumer.close()
    found = read(mixed.cluster, "out", 3, **READ_COMMITTED)
    assert sorted(found) == sorted(expected)


def test_t10_what_was_not_added_is_refused_by_any_leader(mixed: Mixed) -> None:
    """The leader asks the coordinator, of whatever kind it is."""
    for coordinator in (OURS, THEIRS):
        name = mixed.coordinated(TRANSACTIONS, coordinator, "refused")
        asked = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        given = until(
            lambda asked=asked, coordinator=coordinator: next(
                (
                    found
                    for found in [ask_at(mixed.address(coordinator), "init_producer_id", 4, asked)]
                    if found.error_code == ErrorCode.NONE
                ),
                None,
            )
        )
        for partition, leader in ((0, 1), (1, 2), (2, 3)):
            batch = build_batch(
                [(b"k", b"v", (), 0)],
                producer_id=given.producer_id,
                producer_epoch=given.producer_epoch,
                base_sequence=0,
                transactional=True,
            )
            data = PartitionProduceData(index=partition, records=batch)
            request = ProduceRequest(
                transactional_id=name,
                acks=-1,
                timeout_ms=30_000,
                topic_data=[TopicProduceData(name="out", partition_data=[data])],
            )
            response = ask_at(mixed.address(leader), "produce", 9, request)
            code = response.responses[0].partition_responses[0].error_code
            assert code == ErrorCode.INVALID_TXN_STATE, (coordinator, leader, ErrorCode(code))
    assert read(mixed.cluster, "out", 3) == []


def test_a_coordinator_of_transactions_moves_between_both(mixed: Mixed) -> None:
    """With a transaction open, and with its producer idle: the next reads what the one before wrote."""
    name = mixed.coordinated(TRANSACTIONS, OURS, "moves")
    group = mixed.coordinated(OFFSETS, OURS, "moves")
    consumer = mixed.consumer(group)
    producer = mixed.producer(name)
    expected: list[bytes] = []
    for number, to in enumerate((THEIRS, OURS, 2, THEIRS, 2, OURS)):
        commits = number % 3 != 1
        values = [b"%d.%d" % (number, index) for index in range(6)]
        producer.begin_transaction()
        for index in range(3):
            producer.produce("out", values[index], partition=index)
        offsets = [TopicPartition("in", 0, number + 1)]
        patiently(lambda: producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 60))  # noqa: B023
        mixed.led_by(TRANSACTIONS, name, to)
        if number % 2:
            mixed.led_by(OFFSETS, group, to)
        for index in range(3):
            producer.produce("out", values[3 + index], partition=index)
        assert producer.flush(60) == 0
        patiently(lambda: producer.commit_transaction(60) if commits else producer.abort_transaction(60))  # noqa: B023
        if commits:
            expected += values
            last = number + 1
        assert committed(consumer, 1) == [last]
    consumer.close()
    assert sorted(read(mixed.cluster, "out", 3, **READ_COMMITTED)) == sorted(expected)
    # A second of that name fences the first, whoever remembers it.
    mixed.led_by(TRANSACTIONS, name, THEIRS)
    producer.begin_transaction()
    producer.produce("out", b"late", partition=0)
    second = mixed.producer(name)
    with pytest.raises(KafkaException) as caught:
        producer.commit_transaction(60)
    assert caught.value.args[0].fatal()
    second.begin_transaction()
    second.produce("out", b"second", partition=0)
    patiently(lambda: second.commit_transaction(60))
    assert sorted(read(mixed.cluster, "out", 3, **READ_COMMITTED)) == sorted([*expected, b"second"])


def test_g07_a_coordinator_of_groups_moves_between_both(mixed: Mixed) -> None:
    """Members keep what they have, and commit to the next one; who comes later finds the positions."""
    group = mixed.coordinated(OFFSETS, OURS, "live")
    assigned: list[int] = []
    members = [
        mixed.consumer(group, **{"session.timeout.ms": 45_000, "enable.auto.commit": False, "client.id": f"m{number}"})
        for number in range(2)
    ]
    for number, member in enumerate(members):
        member.subscribe(["in"], on_assign=lambda _, partitions, number=number: assigned.append(number))  # type: ignore[misc]

    def settled() -> bool:
        for member in members:
            member.poll(0.1)
        return sorted(len(member.assignment()) for member in members) == [1, 2]

    until(settled, "both have partitions")
    times = len(assigned)
    for number, to in enumerate((THEIRS, 2, THEIRS, OURS)):
        mixed.led_by(OFFSETS, group, to)
        for member in members:
            wanted = [TopicPartition(each.topic, each.partition, number + 1) for each in member.assignment()]
            patiently(lambda: member.commit(offsets=wanted, asynchronous=False))  # noqa: B023
            assert member.poll(0.1) is None
    assert len(assigned) == times, "nobody was told to begin anew"
    assert sorted(len(member.assignment()) for member in members) == [1, 2]
    for member in members:
        member.close()
    mixed.led_by(OFFSETS, group, THEIRS)
    late = mixed.consumer(group)
    assert committed(late, 3) == [4, 4, 4]
    late.close()


@pytest.mark.parametrize("version", [KAFKA_4, KAFKA_3])
def test_javas_transactions_whoever_is_asked_first(mixed: Mixed, version: str) -> None:
    """A client of Kafka 4 learns from the first broker which generation of transactions there is; Kafka 3.9 has the first."""
    expected = 0
    for coordinator in (OURS, THEIRS):
        for first in (OURS, THEIRS):
            name = mixed.coordinated(TRANSACTIONS, coordinator, f"java{first}")
            run_tool(
                version, "ProducerPerformance", "--topic", "out", "--num-records", "300", "--record-size", "10",
                "--throughput", "100", "--transactional-id", name, "--transaction-duration-ms", "300",
                "--producer-props", f"bootstrap.servers={mixed.address(first)}", "batch.size=100",
                check=True,
            )  # fmt: skip
            expected += 300
    assert len(read(mixed.cluster, "out", 3, **READ_COMMITTED)) == expected


@pytest.mark.parametrize("version", [KAFKA_4, KAFKA_3])
def test_t13_in_java_on_both(mixed: Mixed, version: str, tmp_path: Path) -> None:
    """Java's clients of both generations relay while brokers of both kinds are killed and paused."""
    both = mixed.cluster
    for topic in ("source", "sink"):
        both.create_topic(topic, test_txn_java_kills.PARTITIONS)
    victims: Iterator[Any] = iter([mixed.theirs, both.brokers[1], mixed.theirs, both.brokers[2]] * 3)
    test_txn_java_kills.relayed(
        mixed.servers,
        version,
        6,
        tmp_path,
        lambda: next(victims),
        lambda: mixed.theirs.output()[-1500:] + both.brokers[1].output()[-1500:],
    )
    for broker in both.brokers.values():
        assert "Traceback" not in broker.output(), broker.output()[-4000:]
