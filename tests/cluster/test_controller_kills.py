"""The controller is killed while it makes, grows, moves and deletes topics: the next one finishes what was begun (C09, F60)."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewPartitions, NewTopic

from ottla.errors import ErrorCode
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.metadata import MetadataRequest
from tests.kit.cluster import WAIT_S, Cluster, until

pytestmark = pytest.mark.slow

ROUNDS = 16


class Administrator:
    """Knows what it was promised: how many partitions each topic has, on how many brokers."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.topics: dict[str, int] = {}
        self.deleted: set[str] = set()
        self._cluster = cluster
        self._chance = random.Random(seed)

    def step(self, number: int) -> None:
        """One thing is asked for, and the controller dies at once, or a little later."""
        known = sorted(self.topics)
        what = self._chance.choice(["make", "grow", "delete", "move"]) if len(known) > 2 else "make"
        topic = f"t{number}" if what == "make" else self._chance.choice(known)
        admin = self._cluster.admin()
        wanted = self.topics.get(topic, 0) + self._chance.randrange(2, 7)
        ask: Callable[[], Any] = {
            "make": lambda: admin.create_topics([NewTopic(topic, wanted, 3)])[topic],
            "grow": lambda: admin.create_partitions([NewPartitions(topic, wanted)])[topic],
            "delete": lambda: admin.delete_topics([topic])[topic],
            "move": lambda: None,
        }[what]
        asked = ask()
        if what == "move":
            self._move(topic)
        controller = self._cluster.brokers[self._cluster.controller()]
        time.sleep(self._chance.choice([0.0, 0.005, 0.02, 0.1]))
        controller.kill()
        controller.start(wait=False)
        self._insist(asked, ask)
        if what == "delete":
            del self.topics[topic]
            self.deleted.add(topic)
        elif what != "move":
            self.topics[topic] = wanted
        controller.wait_ready()

    def _insist(self, asked: Any, ask: Callable[[], Any]) -> None:
        """Again until it is done; that it is done already is an answer to who asks twice."""
        deadline = time.monotonic() + 3 * WAIT_S
        while asked is not None:
            try:
                asked.result(WAIT_S)
                return
            except KafkaException as failure:
                error = failure.args[0]
                if error.code() in (
                    KafkaError.TOPIC_ALREADY_EXISTS,
                    KafkaError.UNKNOWN_TOPIC_OR_PART,
                    KafkaError.INVALID_PARTITIONS,
                ):
                    return
                assert time.monotonic() < deadline, error
                time.sleep(0.1)
                asked = ask()

    def _move(self, topic: str) -> None:
        """All partitions to two brokers; whether that is heard or not, nothing is lost by it."""
        replicas = self._chance.sample([1, 2, 3], 2)
        moved = [ReassignablePartition(partition_index=number, replicas=replicas) for number in range(self.topics[topic])]
        request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=topic, partitions=moved)])
        answer = self._cluster.brokers[self._cluster.controller()].ask("alter_partition_reassignments", 0, request)
        assert answer.error_code in (ErrorCode.NONE, ErrorCode.NOT_CONTROLLER), ErrorCode(answer.error_code)

    def check(self) -> None:
        """What was promised is there on every broker, led and in sync; nothing is left of the rest."""
        cluster = self._cluster
        tree = cluster.tree
        until(lambda: tree.get_children("/admin/delete_topics") == [], "all deletions are done")
        until(lambda: tree.exists("/admin/reassign_partitions") is None, "all moves are done")
        for broker in cluster.brokers.values():

            def agrees(broker: Any = broker) -> bool:
                told = broker.ask("metadata", 9, MetadataRequest(topics=None))
                counts = {
                    topic.name: len([each for each in topic.partitions if each.leader_id > 0 and not each.error_code])
                    for topic in told.topics
                }
                return counts == self.topics

            until(agrees, f"broker {broker.number} knows {self.topics}")
        for topic, count in self.topics.items():
            node = cluster.json(f"/brokers/topics/{topic}")
            assert not node["adding_replicas"]
            assert not node["removing_replicas"]
            assert sorted(map(int, node["partitions"])) == list(range(count))
            for number in range(count):
                wanted = set(node["partitions"][str(number)])
                until(lambda topic=topic, number=number, wanted=wanted: cluster.isr(topic, number) == wanted, "all in sync")
        for topic in self.deleted:
            for broker in cluster.brokers.values():
                until(lambda broker=broker, topic=topic: not list(broker.data.glob(f"{topic}-[0-9]")), f"{topic} is gone")


@pytest.mark.parametrize("seed", [1, 2])
def test_c09_whatever_was_asked_for_is_done_although_the_controller_dies(cluster: Callable[..., Cluster], seed: int) -> None:
    three = cluster(3, min_insync_replicas="1", controlled_shutdown_enable="false", zookeeper_session_timeout_ms="3000")
    administrator = Administrator(three, int(os.environ.get("CHAOS_SEED", seed)))
    for number in range(ROUNDS):
        administrator.step(number)
    administrator.check()
    for topic in administrator.topics:
        three.produce(topic, [b"x"] * 20)
    for broker in three.brokers.values():
        assert "Traceback" not in broker.output(), broker.output()[-4000:]
