"""confluent-kafka (librdkafka) in groups: every assignment strategy, static members, patterns, churn, a broker that is killed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from tests.kit.wait import until

STRATEGIES = ["range", "roundrobin", "range,roundrobin", "cooperative-sticky"]


class Members:
    """Consumers of one group, polled in turn; who owns what is checked at every step."""

    def __init__(self, servers: str, group: str, topics: list[str], **config: Any) -> None:
        self.config = {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 30_000,  # nobody here waits for one to end
            "heartbeat.interval.ms": 100,
            "topic.metadata.refresh.interval.ms": 200,
            **config,
        }
        self.topics = topics
        self.live: list[Consumer] = []
        self.owned: dict[Consumer, set[tuple[str, int]]] = {}
        self.seen: dict[bytes, int] = {}
        self.rebalances = 0

    def add(self, **config: Any) -> Consumer:
        consumer = Consumer(self.config | config)
        self.live.append(consumer)
        self.owned[consumer] = set()
        cooperative = "cooperative" in str(self.config.get("partition.assignment.strategy"))

        def assigned(which: Consumer, partitions: list[TopicPartition]) -> None:
            self.rebalances += 1
            for partition in partitions:
                place = (partition.topic, partition.partition)
                for other, owned in self.owned.items():
                    assert other is which or place not in owned, f"{place} has two owners"
                self.owned[which].add(place)
            (which.incremental_assign if cooperative else which.assign)(partitions)

        def revoked(which: Consumer, partitions: list[TopicPartition]) -> None:
            self.owned[which] -= {(partition.topic, partition.partition) for partition in partitions}
            if cooperative:
                which.incremental_unassign(partitions)
            else:
                which.unassign()

        def lost(which: Consumer, partitions: list[TopicPartition]) -> None:
            revoked(which, partitions)

        consumer.subscribe(self.topics, on_assign=assigned, on_revoke=revoked, on_lost=lost)
        return consumer

    def remove(self, consumer: Consumer) -> None:
        self.live.remove(consumer)
        consumer.close()
        self.owned.pop(consumer)

    def poll(self) -> None:
        for consumer in self.live:
            for message in consumer.consume(100, timeout=0.02):
                assert message.error() is None, message.error()
                self.seen[message.value()] = self.seen.get(message.value(), 0) + 1  # type: ignore[arg-type, index]

    def balanced(self, partitions: int) -> bool:
        self.poll()
        counts = [len(owned) for owned in self.owned.values()]
        return sum(counts) == partitions and max(counts) - min(counts) <= 1

    def close(self) -> None:
        for consumer in list(self.live):
            self.remove(consumer)


@contextmanager
def members(*args: Any, **config: Any) -> Iterator[Members]:
    made = Members(*args, **config)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_f33_f35_f36_partitions_are_shared_and_move_with_membership(
    servers: str, group: str, filled: Callable[..., str], strategy: str
) -> None:
    topic = filled(partitions=6)
    with members(servers, group, [topic], **{"partition.assignment.strategy": strategy}) as team:
        team.add()
        until(lambda: team.balanced(6), "one member owns all")
        until(lambda: len(team.seen) == 120, "all records are read", meanwhile=team.poll)
        team.add()
        team.add()
        until(lambda: team.balanced(6), "three share")
        team.remove(team.live[0])
        until(lambda: team.balanced(6), "two share what three had")
        spare = [team.add() for _ in range(6)]
        until(lambda: team.balanced(6), "each has at most one")
        assert sum(not team.owned[consumer] for consumer in team.live) == len(spare) + 2 - 6, "spare members idle"


def test_f33_several_groups_each_read_everything(servers: str, group: str, filled: Callable[..., str]) -> None:
    topic = filled(partitions=2)
    with members(servers, f"{group}-a", [topic]) as first, members(servers, f"{group}-b", [topic]) as second:
        first.add()
        second.add()

        def poll() -> None:
            first.poll()
            second.poll()

        until(lambda: len(first.seen) == len(second.seen) == 40, meanwhile=poll)
        assert set(first.seen.values()) == set(second.seen.values()) == {1}


def test_f34_a_pattern_follows_new_topics(servers: str, group: str, filled: Callable[..., str]) -> None:
    first = filled(partitions=2)
    with members(servers, group, [f"^{first}.*"], **{"partition.assignment.strategy": "range"}) as team:
        team.add()
        until(lambda: team.balanced(2))
        filled(partitions=3, name=f"{first}-more")
        until(lambda: team.balanced(5), "the new topic's partitions are read too")


def test_f35_new_partitions_are_shared_out(servers: str, group: str, filled: Callable[..., str]) -> None:
    topic = filled(partitions=2)
    with members(servers, group, [topic]) as team:
        team.add()
        team.add()
        until(lambda: team.balanced(2))
        admin = AdminClient({"bootstrap.servers": servers})
        (grown,) = admin.create_partitions([NewPartitions(topic, 5)]).values()
        grown.result(60)
        until(lambda: team.balanced(5))


def test_g04_a_static_member_restarts_without_a_rebalance(servers: str, group: str, filled: Callable[..., str]) -> None:
    topic = filled(partitions=4)
    with members(servers, group, [topic], **{"session.timeout.ms": 60_000}) as team:
        one = team.add(**{"group.instance.id": "one"})
        team.add(**{"group.instance.id": "two"})
        until(lambda: team.balanced(4))
        before = set(team.owned[one])
        rebalances = team.rebalances
        # A static member that closes does not leave.
        team.remove(one)
        for _ in range(10):
            team.poll()
        assert team.rebalances == rebalances
        again = team.add(**{"group.instance.id": "one"})
        until(lambda: team.balanced(4))
        assert team.owned[again] == before
        assert team.rebalances == rebalances + 1, "only the one that came back was given an assignment"


def test_f42_offsets_are_kept_and_a_new_member_goes_on_from_them(servers: str, group: str, filled: Callable[..., str]) -> None:
    topic = filled(partitions=1, each=10)
    config = {"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer(config)
    consumer.subscribe([topic])
    first = [message.value() for message in _take(consumer, 4)]
    consumer.commit(offsets=[TopicPartition(topic, 0, 4, "so weit")], asynchronous=False)
    consumer.close()
    consumer = Consumer(config)
    [found] = consumer.committed([TopicPartition(topic, 0)], timeout=60)
    assert (found.offset, found.metadata) == (4, "so weit")
    consumer.subscribe([topic])
    rest = [message.value() for message in _take(consumer, 6)]
    assert first + rest == [b"0:%d" % number for number in range(10)]
    consumer.close()


def _take(consumer: Consumer, count: int) -> list[Any]:
    taken: list[Any] = []
    while len(taken) < count:
        messages = consumer.consume(count - len(taken), timeout=60)
        assert messages, "no more records"
        assert all(message.error() is None for message in messages)
        taken += messages
    return taken


def test_f43_auto_offset_reset(servers: str, group: str, filled: Callable[..., str]) -> None:
    topic = filled(partitions=1, each=5)
    config = {"bootstrap.servers": servers, "enable.auto.commit": False}
    early = Consumer(config | {"group.id": f"{group}-e", "auto.offset.reset": "earliest"})
    early.subscribe([topic])
    assert len(_take(early, 5)) == 5
    early.close()
    none = Consumer(config | {"group.id": f"{group}-n", "auto.offset.reset": "error"})
    none.subscribe([topic])
    message = None
    while message is None:
        message = none.poll(10)
    assert "no previously committed offset" in str(message.error()).lower()
    none.close()


def test_a_commit_from_outside_a_live_group_is_refused(servers: str, group: str, filled: Callable[..., str]) -> None:  # G08
    topic = filled(partitions=1)
    admin = AdminClient({"bootstrap.servers": servers})
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 3)])
    admin.alter_consumer_group_offsets([wanted])[group].result(60)
    with members(servers, group, [topic]) as team:
        team.add()
        until(lambda: team.balanced(1))
        try:
            altered = admin.alter_consumer_group_offsets([wanted])[group].result(60)
            refusals = [partition.error for partition in altered.topic_partitions]
        except KafkaException as refusal:
            refusals = list(refusal.args)
        assert ["UNKNOWN_MEMBER_ID" in str(refusal) for refusal in refusals] == [True]
    admin.delete_consumer_groups([group])[group].result(60)


def test_g05_g06_churn(servers: str, group: str, filled: Callable[..., str]) -> None:
    """Members come and go at random: every record is read, no partition has two owners at once, the group settles."""
    chance = random.Random(8)
    topic = filled(partitions=12, each=10)
    producer = Producer({"bootstrap.servers": servers})
    sent = {b"%d:%d" % (partition, number) for partition in range(12) for number in range(10)}
    with members(
        servers, group, [topic], **{"partition.assignment.strategy": "cooperative-sticky", "auto.commit.interval.ms": 200}
    ) as team:
        for step in range(25):
            if len(team.live) < 2 or (len(team.live) < 6 and chance.random() < 0.5):
                team.add()
            else:
                team.remove(chance.choice(team.live))
            for partition in range(12):
                value = b"step %d %d" % (step, partition)
                producer.produce(topic, value, partition=partition)
                sent.add(value)
            producer.flush(60)
            for _ in range(chance.randrange(1, 8)):
                team.poll()
        until(lambda: team.balanced(12))
        until(lambda: sent <= team.seen.keys(), "every record is read", meanwhile=team.poll)
