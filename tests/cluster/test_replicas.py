"""Replicas of three real brokers: what was acknowledged stays, whoever is killed, paused or restarted, and the logs are equal."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from ottla.errors import ErrorCode
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records.record import build_batch
from ottla.runtime.free_ports import free_port
from tests.kit.cluster import BrokerProcess, Cluster, until
from tests.kit.present import present


def log_bytes(cluster: Cluster, number: int, topic: str, partition: int = 0) -> bytes:
    directory = cluster.brokers[number].data / f"{topic}-{partition}"
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


def until_equal(cluster: Cluster, topic: str, partitions: int = 1) -> None:
    """All replicas have the same bytes."""

    def equal() -> bool:
        for partition in range(partitions):
            found = {log_bytes(cluster, number, topic, partition) for number in cluster.state(topic, partition)["isr"]}
            if len(found) != 1 or len(cluster.isr(topic, partition)) != len(cluster.brokers):
                return False
        return True

    until(equal, f"equal replicas of {topic}")


def read(cluster: Cluster, topic: str, partitions: int, **settings: Any) -> list[bytes]:
    """Every record from the first to the end, without a group."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "none", "enable.partition.eof": True, **settings})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    values: list[bytes] = []
    ended: set[int] = set()

    deadline = time.monotonic() + 60
    try:
        while len(ended) < partitions:
            assert time.monotonic() < deadline, f"only {sorted(ended)} of {topic} came to their end"
            message = consumer.poll(0.5)
            if message is None:
                continue
            error = message.error()
            if error is None:
                values.append(message.value() or b"")
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())  # type: ignore[arg-type]
    finally:
        consumer.close()
    return values


class Load:
    """Numbers, one after the other, with acks=all; remembers which were acknowledged and what errors were not retried."""

    def __init__(self, cluster: Cluster, topic: str, **settings: Any) -> None:
        self.acknowledged: list[bytes] = []
        self.failed: list[str] = []
        self._topic = topic
        self._producer = cluster.producer(**{"enable.idempotence": True, "linger.ms": 2, **settings})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _heard(self, error: object, message: Any) -> None:
        if error is None:
            self.acknowledged.append(message.value())
        else:
            self.failed.append(str(error))

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            self._producer.produce(self._topic, b"%d" % number, on_delivery=self._heard)
            self._producer.poll(0.002)
            number += 1
        self._producer.flush(60)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def more(self, count: int = 100) -> None:
        before = len(self.acknowledged)
        until(lambda: len(self.acknowledged) >= before + count, "acknowledged records")


def test_r20_the_whole_cluster_is_killed_and_nothing_acknowledged_is_lost(cluster: Callable[..., Cluster]) -> None:
    three = cluster(3, min_insync_replicas="2", log_segment_bytes="20000")
    three.create_topic("t", partitions=3)
    with Load(three, "t") as load:
        load.more(500)
        for broker in three.brokers.values():
            broker.kill()
        acknowledged = list(load.acknowledged)
        for broker in three.brokers.values():
            broker.start(wait=False)
        for broker in three.brokers.values():
            broker.wait_ready()
        load.more(200)
    assert not load.failed
    values = read(three, "t", 3)
    assert set(acknowledged) <= set(values)
    assert sorted(load.acknowledged, key=int) == sorted(values, key=int), "nothing lost, nothing twice"
    until_equal(three, "t", 3)


def test_f58_a_rolling_restart_under_load_shows_nothing(cluster: Callable[..., Cluster]) -> None:
    three = cluster(3, min_insync_replicas="2")
    three.create_topic("t", partitions=3)
    with Load(three, "t") as load:
        load.more()
        for number, broker in three.brokers.items():
            assert broker.stop() == 0
            load.more()
            broker.start()
            until(lambda number=number: all(number in three.isr("t", p) for p in range(3)), "back in sync")
    assert not load.failed
    assert sorted(read(three, "t", 3), key=int) == sorted(load.acknowledged, key=int)
    until_equal(three, "t", 3)


def test_r15_a_paused_leader_acknowledges_nothing_any_more(cluster: Callable[..., Cluster]) -> None:
    three = cluster(3, min_insync_replicas="2")
    three.create_topic("t")
    three.produce("t", [b"before"])
    former = three.leader("t")
    three.brokers[former].pause()
    try:
        until(lambda: three.leader("t") not in (-1, former), "another leader")
        three.produce("t", [b"after"])
    finally:
        three.brokers[former].resume()
    # Whatever it still believed of itself: a write to it alone is not acknowledged, and leaves no trace.
    batch = build_batch([(None, b"zombie", (), 0)])
    data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch)])
    answer = three.brokers[former].ask("produce", 9, ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data]))
    code = answer.responses[0].partition_responses[0].error_code
    assert code in (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    )
    until(lambda: three.isr("t") == {1, 2, 3}, "the former leader back in sync")
    until_equal(three, "t")
    assert read(three, "t", 1) == [b"before", b"after"]


def test_r11_with_two_of_three_away_acks_all_is_refused_and_acks_1_is_not(cluster: Callable[..., Cluster]) -> None:
    three = cluster(3, min_insync_replicas="2")
    three.create_topic("t")
    three.produce("t", [b"all"])
    leader = three.leader("t")
    for number, broker in three.brokers.items():
        if number != leader:
            broker.kill()
    until(lambda: three.isr("t") == {leader}, "alone in sync")

    def produce(acks: int, value: bytes) -> int:
        data = TopicProduceData(
            name="t", partition_data=[PartitionProduceData(index=0, records=build_batch([(None, value, (), 0)]))]
        )
        answer = three.brokers[leader].ask("produce", 9, ProduceRequest(acks=acks, timeout_ms=50_000, topic_data=[data]))
        return int(answer.responses[0].partition_responses[0].error_code)

    # The leader hears of it after the tree: what it took before that, it has and cannot commit.
    kept = [b"all"]
    while (code := produce(-1, b"refused %d" % len(kept))) == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND:
        kept.append(b"refused %d" % len(kept))
    assert code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert produce(1, b"one") == 0
    for number, broker in three.brokers.items():
        if number != leader:
            broker.start()
    until(lambda: three.isr("t") == {1, 2, 3}, "all in sync")
    while produce(-1, b"again") == ErrorCode.NOT_ENOUGH_REPLICAS:
        pass  # it waits for the answer to its own wish for a larger ISR
    until_equal(three, "t")
    assert read(three, "t", 1) == [*kept, b"one", b"again"]


@contextmanager
def transactional(cluster: Cluster, name: str) -> Iterator[Producer]:
    producer = cluster.producer(**{"transactional.id": name, "transaction.timeout.ms": 60_000})
    patiently(producer.init_transactions)
    yield producer


def patiently(end: Callable[[float], object]) -> None:
    while True:
        try:
            end(30)
            return
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


def test_t06_transactions_over_brokers_go_on_when_their_coordinator_is_killed(cluster: Callable[..., Cluster]) -> None:
    # The reader comes when only two are left; its group needs a coordinator even to leave.
    three = cluster(3, min_insync_replicas="2", offsets_topic_replication_factor="2")
    three.create_topic("t", partitions=3)
    committed: list[bytes] = []
    with transactional(three, "copier") as producer:
        for round_number in range(12):
            producer.begin_transaction()
            values = [b"%d.%d" % (round_number, number) for number in range(9)]
            for index, value in enumerate(values):
                producer.produce("t", value, partition=index % 3)
            if round_number % 3 == 2:
                patiently(producer.abort_transaction)
                continue
            patiently(producer.commit_transaction)
            committed += values
            if round_number == 4:
                # Where copier is coordinated: the hash of its name says which partition.
                partition = next(p for p in range(5) if three.state("__transaction_state", p)["leader"] > 0)
                three.brokers[three.leader("__transaction_state", partition)].kill()
    found = read(three, "t", 3, **{"isolation.level": "read_committed"})
    assert sorted(found) == sorted(committed)


def test_g07_a_group_goes_on_when_its_coordinator_is_killed(cluster: Callable[..., Cluster]) -> None:
    three = cluster(3)
    three.create_topic("t")
    three.produce("t", [b"%d" % number for number in range(50)])
    settings = {
        "bootstrap.servers": three.bootstrap,
        "group.id": "g",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": 45_000,
    }
    consumer = Consumer(settings)
    consumer.subscribe(["t"])
    seen: list[bytes] = []

    def take(count: int) -> Callable[[], bool]:
        def taken() -> bool:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                seen.append(message.value() or b"")
            return len(seen) >= count

        return taken

    try:
        until(take(50), "fifty records")
        consumer.commit(asynchronous=False)
        partition = abs(_java_hash("g")) % 5
        coordinator = three.leader("__consumer_offsets", partition)
        three.brokers[coordinator].kill()
        until(lambda: three.leader("__consumer_offsets", partition) not in (-1, coordinator), "another coordinator")
        three.produce("t", [b"%d" % number for number in range(50, 60)])
        until(take(60), "ten more")
        until(lambda: consumer.commit(asynchronous=False) is not None, "a commit at the new coordinator")
        assert [partition.offset for partition in consumer.committed([TopicPartition("t", 0)], 30)] == [60]
    finally:
        consumer.close()
    assert seen == [b"%d" % number for number in range(60)]


def _java_hash(text: str) -> int:
    code = 0
    for letter in text:
        code = (31 * code + ord(letter)) & 0xFFFFFFFF
    return code - (1 << 32) if code & 0x80000000 else code


class Availability:
    """What a topic of three replicas allows, asked at whoever leads it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def _ask(self, api_name: str, version: int, request: object, at: int | None = None) -> Any:
        leader = self.cluster.leader("t") if at is None else at
        assert leader >= 0
        return self.cluster.brokers[leader].ask(api_name, version, request)

    def write(self) -> int:
        batch = build_batch([(None, b"x", (), 0)])
        data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch)])
        answer = self._ask("produce", 9, ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data]))
        return int(answer.responses[0].partition_responses[0].error_code)

    def writable(self) -> bool:
        return self.write() == 0

    def read(self, at: int | None = None) -> int:
        """How many bytes of records can be read at a leader that knows it is one: in later versions followers answer too."""
        asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic="t", partitions=[asked])])
        data = self._ask("fetch", 10, request, at).responses[0].partitions[0]
        assert data.error_code == 0
        return len(data.records)


def two_of_three_in_sync(cluster: Callable[..., Cluster]) -> tuple[Cluster, Availability]:
    three = cluster(3, min_insync_replicas="2", auto_leader_rebalance_enable="false")
    three.create_topic_at("t", [[1, 2, 3]])
    three.brokers[3].kill()
    until(lambda: three.isr("t") == {1, 2}, "two in sync")
    topic = Availability(three)
    until(topic.writable, "a write to two replicas")
    return three, topic


def test_f52_one_of_two_in_sync_goes_down(cluster: Callable[..., Cluster]) -> None:
    """Reads go on, writes with acks=all do not, until two are in sync again: it may be the third."""
    three, topic = two_of_three_in_sync(cluster)
    stored = topic.read()
    three.brokers[1].kill()
    until(lambda: three.state("t")["leader"] == 2 and three.isr("t") == {2}, "2 leads alone")
    until(lambda: topic.read() == stored, "reads")
    assert topic.write() == ErrorCode.NOT_ENOUGH_REPLICAS
    three.brokers[3].start()
    until(lambda: three.isr("t") == {2, 3}, "the third in sync")
    until(topic.writable, "writes")


def test_f52_both_in_sync_go_down_one_after_the_other(cluster: Callable[..., Cluster]) -> None:
    """Only the last one has everything: without it there is neither reading nor writing, whoever else comes back."""
    three, topic = two_of_three_in_sync(cluster)
    three.brokers[1].kill()
    until(lambda: three.state("t")["leader"] == 2 and three.isr("t") == {2}, "2 leads alone")
    until(lambda: topic.read() > 0, "reads")
    three.brokers[2].kill()
    three.brokers[1].start()
    three.brokers[3].start()
    until(lambda: three.leader("t") == -1, "no leader")
    assert three.isr("t") == {2}
    three.brokers[2].start()
    until(lambda: three.leader("t") == 2, "the last one leads again")
    until(lambda: three.isr("t") == {1, 2, 3}, "all in sync")
    until(topic.writable, "writes")
    until_equal(three, "t")


def test_f52_both_in_sync_go_down_at_once(cluster: Callable[..., Cluster]) -> None:
    """Both have everything: the first that comes back leads, reads at once, and writes when there are two again."""
    three, topic = two_of_three_in_sync(cluster)
    stored = topic.read()
    three.brokers[1].kill()
    three.brokers[2].kill()
    assert three.isr("t") == {1, 2}
    three.brokers[2].start()
    until(lambda: three.leader("t") == 2, "the first that is back leads")
    until(lambda: topic.read() == stored, "reads")
    assert topic.write() == ErrorCode.NOT_ENOUGH_REPLICAS
    three.brokers[1].start()
    until(lambda: three.isr("t") >= {1, 2}, "two in sync")
    until(topic.writable, "writes")


def test_r18_a_partition_moves_under_load_although_one_that_takes_it_is_killed(cluster: Callable[..., Cluster]) -> None:
    five = cluster(5, min_insync_replicas="2")
    five.create_topic_at("t", [[1, 2, 3]])
    with Load(five, "t") as load:
        load.more()
        moved = five.brokers[five.controller()].ask(
            "alter_partition_reassignments",
            0,
            AlterPartitionReassignmentsRequest(
                timeout_ms=30_000,
                topics=[ReassignableTopic(name="t", partitions=[ReassignablePartition(partition_index=0, replicas=[3, 4, 5])])],
            ),
        )
        assert moved.error_code == 0
        five.brokers[4].kill()
        load.more()
        assert five.isr("t") & {1, 2, 3}, "the old ones stay until the new ones are in sync"
        five.brokers[4].start()
        until(lambda: five.json("/brokers/topics/t")["partitions"]["0"] == [3, 4, 5], "the move to be done")
        until(lambda: five.isr("t") == {3, 4, 5}, "the new replicas in sync")
        load.more()
    assert not load.failed
    assert sorted(read(five, "t", 1), key=int) == sorted(load.acknowledged, key=int)
    until(lambda: not any(list(five.brokers[number].data.glob("t-0")) for number in (1, 2)), "the old replicas gone")
    until(lambda: len({log_bytes(five, number, "t") for number in (3, 4, 5)}) == 1, "equal replicas")


def test_f68_brokers_use_a_listener_of_their_own_among_themselves(cluster: Callable[..., Cluster]) -> None:
    three = cluster(
        0,
        inter_broker_listener_name="INTERNAL",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
        min_insync_replicas="2",
    )
    internal = {}
    for number in (1, 2, 3):
        broker = three.brokers[number] = BrokerProcess(three, number, f"broker-{number}")
        internal[number] = free_port()
        listeners = f"PLAINTEXT://127.0.0.1:{broker.port},INTERNAL://127.0.0.1:{internal[number]}"
        broker.start(wait=False, listeners=listeners)
    for broker in three.brokers.values():
        broker.wait_ready()
    three.until_agreed()
    three.create_topic("t")
    three.produce("t", [b"x"] * 10)
    until_equal(three, "t")
    # A client is told the addresses of the listener it came by.
    response = three.brokers[1].ask("metadata", 9, MetadataRequest(topics=[]))
    assert {broker.port for broker in response.brokers} == {broker.port for broker in three.brokers.values()}
    connections = Path(f"/proc/{present(three.brokers[1].process).pid}/net/tcp").read_text()
    assert any(f":{port:04X}" in connections for number, port in internal.items() if number != 1)
