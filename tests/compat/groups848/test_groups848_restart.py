"""The coordinator of a group of the new protocol dies and comes back (G07); and one that reads what Kafka's has written (G11)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupState
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.coordinator.group.consumer_group import ConsumerGroup
from ottla.coordinator.group.consumer_member import MemberState
from ottla.coordinator.group.group import GroupConfig
from ottla.coordinator.group.shard import GroupShard
from ottla.coordinator.shard import Now
from ottla.records.batch import scan_batches
from ottla.records.record import read_records
from ottla.testing import Broker
from tests.kit.peers import KAFKA_4, ApacheKafka
from tests.kit.subject import chosen
from tests.kit.wait import until


@pytest.mark.skipif(chosen() != "ottla", reason="kills the broker under test")
@pytest.mark.parametrize("how", ["kill", "stop"])
def test_g07_members_go_on_where_they_were(how: str) -> None:
    settings = {"group.consumer.heartbeat.interval.ms": 200, "group.consumer.min.heartbeat.interval.ms": 200}
    with Broker({**settings, "group.consumer.assignment.interval.ms": 0}) as broker:
        servers = broker.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        admin.create_topics([NewTopic("t", 6, 1)])["t"].result(60)
        changes: list[int] = []
        consumers = []
        for number in range(3):
            consumer = Consumer(
                {
                    "bootstrap.servers": servers,
                    "group.id": "g",
                    "group.protocol": "consumer",
                    "client.id": f"c{number}",
                    "reconnect.backoff.max.ms": 200,
                    "log_level": 0,
                }
            )
            consumer.subscribe(["t"], on_assign=lambda _, partitions: changes.append(len(partitions)))
            consumers.append(consumer)

        def poll() -> None:
            for consumer in consumers:
                consumer.poll(0.02)

        def described() -> Any:
            poll()
            # A fresh one each time: it has no former connection to wait for.
            admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
            return admin.describe_consumer_groups(["g"])["g"].result(60)

        def owned(group: Any) -> dict[str, list[int]]:
            return {m.client_id: sorted(p.partition for p in m.assignment.topic_partitions) for m in group.members}

        def settled() -> bool:
            group = described()
            return group.state == ConsumerGroupState.STABLE and sorted(map(len, owned(group).values())) == [2, 2, 2]

        until(settled)
        until(lambda: sum(len(consumer.assignment()) for consumer in consumers) == 6, meanwhile=poll)
        before, known = owned(described()), len(changes)
        getattr(broker, how)()
        broker.start()
        end = time.monotonic() + 3
        while time.monotonic() < end:
            poll()
        after = described()
        assert (after.state, owned(after)) == (ConsumerGroupState.STABLE, before)
        assert len(changes) == known, "nobody was given another assignment"
        consumers.pop().close()
        until(lambda: [len(consumer.assignment()) for consumer in consumers] == [3, 3], meanwhile=poll)
        for consumer in consumers:
            consumer.close()


@pytest.mark.java
def test_g11_what_kafka_has_written_is_understood(tmp_path: Path) -> None:
    """Kafka's own log of a group with two members, one of them static with a pattern, replayed here."""
    data = tmp_path / "kafka"
    with ApacheKafka(KAFKA_4, data_dir=data, offsets_topic_num_partitions=1) as kafka:
        servers = kafka.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic("t", 4, 1)])["t"].result(60)
        config = {"bootstrap.servers": servers, "group.id": "g", "group.protocol": "consumer", "auto.offset.reset": "earliest"}
        consumers = [Consumer({**config, "client.id": "plain"}), Consumer({**config, "group.instance.id": "i"})]
        consumers[0].subscribe(["t"])
        consumers[1].subscribe(["^t$"])
        until(
            lambda: [consumer.poll(0.1) for consumer in consumers] and [len(each.assignment()) for each in consumers] == [2, 2],
            every_s=0,
        )
        has = [{part.partition for part in consumer.assignment()} for consumer in consumers]
        kafka.kill()
    shard = GroupShard(GroupConfig(), 0)
    for segment in sorted((data / "__consumer_offsets-0").glob("*.log")):
        buffer = segment.read_bytes()
        for batch in scan_batches(buffer)[0]:
            if not batch.is_control:
                for record in read_records(buffer, batch):
                    assert record.key is not None
                    shard.replay(record.key, record.value)
    group = shard.groups.by_id["g"]
    assert isinstance(group, ConsumerGroup)
    assert (group.state_name, group.assignment_epoch) == ("Stable", group.epoch)
    plain = next(member for member in group.members.values() if member.client_id == "plain")
    static = group.static_member("i")
    assert static is not None
    for member, partitions in zip((plain, static), has, strict=True):
        assert (member.epoch, member.state) == (group.epoch, MemberState.STABLE)
        assert [set(owned) for owned in member.assigned.values()] == [partitions]
        assert [set(target) for target in group.target_of(member.member_id).values()] == [partitions]
    assert (plain.topic_names, static.pattern) == (frozenset({"t"}), "(^t$)")
    assert group.patterns["(^t$)"].topics == {"t"}
    decision = shard.on_loaded(Now(1_000, 1_000))
    assert {timer.key[3] for timer in decision.timers} == set(group.members), "their sessions begin"
