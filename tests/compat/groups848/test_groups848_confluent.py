"""confluent-kafka with group.protocol=consumer (F40), and groups of both protocols."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewPartitions

from tests.kit.present import present
from tests.kit.wait import until


def described(admin: AdminClient, group: str) -> Any:
    return admin.describe_consumer_groups([group])[group].result(60)


def is_stable(admin: AdminClient, group: str, size: int) -> bool:
    found = described(admin, group)
    return found.state == ConsumerGroupState.STABLE and len(found.members) == size


def is_balanced(*readers: Any, partitions: int) -> bool:
    sizes = sorted(len(one.owned) for one in readers)
    return sum(sizes) == partitions and sizes[-1] - sizes[0] <= 1


def test_members_come_and_go(
    reader: Callable[..., Any],
    filled: Callable[..., str],
    ledger: Any,
    admin: AdminClient,
    group: str,
) -> None:
    topic = filled(partitions=7, each=20)
    readers = []
    for number in range(3):
        readers.append(reader(f"r{number}", topic))
        # A group is stable when its coordinator has given out the last partition; a moment later its member knows.
        until(lambda: is_stable(admin, group, len(readers)) and is_balanced(*readers, partitions=7))
        assert not ledger.twice
    found = described(admin, group)
    assert found.type == ConsumerGroupType.CONSUMER
    assert found.partition_assignor == "uniform"
    assert {member.client_id for member in found.members} == {"r0", "r1", "r2"}
    kept = {one.name: one.owned for one in readers}
    readers[1].close()
    remaining = [readers[0], readers[2]]
    until(lambda: is_balanced(*remaining, partitions=7))
    assert all(kept[one.name] <= one.owned for one in remaining), "nobody lost what it had"
    until(lambda: len(ledger.read) == 140)
    assert not ledger.twice
    assert not [error for one in readers for error in one.errors]


def test_a_member_that_dies_is_followed_after_its_session(
    reader: Callable[..., Any], filled: Callable[..., str], ledger: Any, servers: str, group: str
) -> None:
    """G06: the process is gone without a word."""
    topic = filled(partitions=4, each=5)
    script = (
        "import sys; from confluent_kafka import Consumer\n"
        "c = Consumer({'bootstrap.servers': sys.argv[1], 'group.id': sys.argv[2], 'group.protocol': 'consumer'})\n"
        "c.subscribe([sys.argv[3]], on_assign=lambda *_: print('given', flush=True))\n"
        "while True: c.poll(0.1)\n"
    )
    victim = subprocess.Popen([sys.executable, "-c", script, servers, group, topic], stdout=subprocess.PIPE, text=True)
    try:
        assert victim.stdout is not None
        assert victim.stdout.readline() == "given\n"
        survivor = reader("survivor", topic)
        until(lambda: len(survivor.owned) == 2)
        victim.kill()
        until(lambda: len(survivor.owned) == 4)
    finally:
        victim.kill()
        victim.wait()
        present(victim.stdout).close()
    assert not ledger.twice


def test_offsets_are_kept_and_a_fenced_commit_is_refused(
    servers: str, filled: Callable[..., str], group: str, admin: AdminClient
) -> None:
    topic = filled(partitions=1, each=10)
    config = {
        "bootstrap.servers": servers,
        "group.id": group,
        "group.protocol": "consumer",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    first = Consumer(config)
    first.subscribe([topic])
    got = first.consume(4, 60)
    assert [message.offset() for message in got] == [0, 1, 2, 3]
    first.commit(message=got[-1], asynchronous=False)
    first.close()
    stranger, second = Consumer(config), Consumer(config)
    try:
        second.subscribe([topic])
        assert [message.offset() for message in second.consume(2, 60)] == [4, 5]
        with pytest.raises(KafkaException) as refused:
            stranger.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
        assert refused.value.args[0].code() == KafkaError.UNKNOWN_MEMBER_ID, "while there are members, only they commit"
    finally:
        second.close()
        stranger.close()
    committed = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(60)
    assert [(part.topic, part.partition, part.offset) for part in committed.topic_partitions] == [(topic, 0, 4)]


def test_a_pattern_follows_the_topics(
    reader: Callable[..., Any],
    filled: Callable[..., str],
    ledger: Any,
    admin: AdminClient,
    group: str,
) -> None:
    base = filled(partitions=2, each=3)
    one = reader("a", f"^{base}.*")
    until(lambda: ledger.of("a") == {(base, 0), (base, 1)})
    other = filled(partitions=1, each=3, name=f"{base}-more")
    until(lambda: ledger.of("a") == {(base, 0), (base, 1), (other, 0)}, "the new topic is not read")
    until(lambda: len(ledger.read) == 9)
    admin.delete_topics([other])[other].result(60)
    until(lambda: ledger.of("a") == {(base, 0), (base, 1)})
    one.close()


def test_partitions_added_are_read(
    reader: Callable[..., Any], filled: Callable[..., str], ledger: Any, admin: AdminClient
) -> None:
    topic = filled(partitions=2, each=1)
    first, second = reader("a", topic), reader("b", topic)
    until(lambda: len(first.owned) == len(second.owned) == 1)
    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(60)
    until(lambda: len(first.owned) == len(second.owned) == 2)
    assert not ledger.twice


def test_the_range_assignor_gives_runs(
    reader: Callable[..., Any], filled: Callable[..., str], admin: AdminClient, group: str
) -> None:
    topic = filled(partitions=6, each=1)
    readers = [reader(f"r{number}", topic, group_remote_assignor="range") for number in range(2)]
    until(lambda: {frozenset(one.owned) for one in readers} == {frozenset({0, 1, 2}), frozenset({3, 4, 5})})
    assert described(admin, group).partition_assignor == "range"


def test_a_static_member_restarts_without_a_rebalance(
    reader: Callable[..., Any],
    filled: Callable[..., str],
    ledger: Any,
    admin: AdminClient,
    group: str,
) -> None:
    """G04."""
    topic = filled(partitions=4, each=1)
    static, other = reader("static", topic, group_instance_id="i"), reader("other", topic)
    until(lambda: len(static.owned) == len(other.owned) == 2 and is_stable(admin, group, 2))
    had, others = static.owned, other.owned
    static.close()
    time.sleep(0.5)
    assert other.owned == others, "its partitions are kept for it"
    back = reader("back", topic, group_instance_id="i")
    until(lambda: back.owned == had)
    assert other.owned == others
    assert not ledger.twice


@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
def test_a_live_group_goes_over_to_the_new_protocol_and_back(
    reader: Callable[..., Any],
    filled: Callable[..., str],
    ledger: Any,
    admin: AdminClient,
    group: str,
    strategy: str,
) -> None:
    topic = filled(partitions=6, each=20)

    def settled(*readers: Any, kind: ConsumerGroupType) -> None:
        def done() -> bool:
            sizes = [len(one.owned) for one in readers]
            found = described(admin, group)
            return (
                sum(sizes) == 6
                and max(sizes) - min(sizes) <= 1
                and (found.type, found.state) == (kind, ConsumerGroupState.STABLE)
            )

        until(done, f"{kind} with {len(readers)}")
        assert not ledger.twice

    old = [reader(f"old{number}", topic, protocol="classic", partition_assignment_strategy=strategy) for number in range(2)]
    settled(*old, kind=ConsumerGroupType.CLASSIC)
    new = [reader("new0", topic)]
    settled(*old, *new, kind=ConsumerGroupType.CONSUMER)
    new.append(reader("new1", topic))
    settled(*old, *new, kind=ConsumerGroupType.CONSUMER)
    old.pop().close()
    settled(*old, *new, kind=ConsumerGroupType.CONSUMER)
    old.append(reader("old2", topic, protocol="classic", partition_assignment_strategy=strategy))
    settled(*old, *new, kind=ConsumerGroupType.CONSUMER)
    for one in new:
        one.close()
    settled(*old, kind=ConsumerGroupType.CLASSIC)
    until(lambda: len(ledger.read) == 120)
    assert not [error for one in [*old, *new] for error in one.errors]


def test_a_group_whose_assignor_keeps_data_in_assignments_is_not_upgraded(
    reader: Callable[..., Any], filled: Callable[..., str], admin: AdminClient, group: str
) -> None:
    """librdkafka's cooperative-sticky does; Kafka refuses it too, and the group goes on as it was."""
    topic = filled(partitions=4, each=5)
    old = []
    for number in range(2):
        # One after the other: the second rebalance is the one with data.
        old.append(reader(f"old{number}", topic, protocol="classic", partition_assignment_strategy="cooperative-sticky"))
        until(lambda: sum(len(one.owned) for one in old) == 4 and all(one.owned for one in old))
    until(lambda: is_stable(admin, group, 2))
    refused = reader("new", topic)
    until(lambda: bool(refused.errors))
    assert "group id does not exist" in refused.errors[0]
    assert described(admin, group).type == ConsumerGroupType.CLASSIC
    assert [len(one.owned) for one in old] == [2, 2]


def test_churn_of_both_protocols(reader: Callable[..., Any], filled: Callable[..., str], ledger: Any) -> None:
    """Members of both protocols come and go at random: each record is handed over, no partition owned twice, it settles."""
    chance = random.Random(848)
    topic = filled(partitions=8, each=40)
    alive: list[Any] = []
    for number in range(16):
        if alive and (len(alive) >= 4 or chance.random() < 0.35):
            alive.pop(chance.randrange(len(alive))).close()
        else:
            protocol = chance.choice(["consumer", "consumer", "classic"])
            options = {"partition_assignment_strategy": "range"} if protocol == "classic" else {}
            alive.append(reader(f"m{number}", topic, protocol=protocol, **options))
        time.sleep(chance.choice([0.1, 0.5, 1.5]))
    until(lambda: sum(len(one.owned) for one in alive) == 8 and len(ledger.read) == 320)
    assert not ledger.twice
