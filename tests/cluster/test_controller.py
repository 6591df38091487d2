"""Controllers, brokers and ZooKeeper itself fail; the cluster goes on (F60, F51, C01, C02, C04, C07-C10, R16)."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.kit.cluster import WAIT_S, Cluster, clusters, until, until_done
from tests.kit.zookeeper import ZooKeeper


def epoch(cluster: Cluster) -> int:
    return int(cluster.tree.get("/controller_epoch")[0])


def test_another_controller_takes_over_under_the_next_epoch(cluster: Callable[..., Cluster]) -> None:
    """C01, F60; C09: what the former one had begun is finished."""
    three = cluster(3)
    three.create_topic("before", partitions=3, replicas=3)
    three.create_topic("doomed", partitions=2, replicas=3)
    first, first_epoch = three.controller(), epoch(three)
    three.brokers[first].pause()
    # Half of a deletion, half of a creation, as a controller that dies in the middle leaves them.
    three.tree.create("/admin/delete_topics/doomed")
    three.tree.create("/config/topics/half", json.dumps({"version": 1, "config": {}}).encode())
    node = {**three.json("/brokers/topics/before"), "topic_id": "AAAAAAAAAAAAAAAAAAAAKg", "partitions": {"0": [1, 2, 3]}}
    three.tree.create("/brokers/topics/half", json.dumps(node).encode())
    three.brokers[first].kill()
    second = until(lambda: three.controller() not in (-1, first) and three.controller(), "another controller")
    assert second != first
    assert epoch(three) == first_epoch + 1
    until(lambda: three.leader("half") not in (-1, first), "the new topic has a leader")
    until(lambda: "doomed" not in three.tree.get_children("/brokers/topics"), "the deleted topic is gone")
    until(lambda: three.tree.get_children("/admin/delete_topics") == [])
    until(lambda: all(three.leader("before", number) not in (-1, first) for number in range(3)), "leaders")
    three.produce("before", [b"x"] * 10)
    three.produce("half", [b"x"] * 10)
    for number in {1, 2, 3} - {first}:
        until(lambda number=number: not (three.brokers[number].data / "doomed-0").exists(), "its logs too")
    three.brokers[first].start()
    until(lambda: three.isr("before") == {1, 2, 3})
    assert not (three.brokers[first].data / "doomed-0").exists()


def test_a_controller_that_was_away_changes_nothing(cluster: Callable[..., Cluster]) -> None:
    """C02: stopped for longer than its session, then it goes on as if nothing had been."""
    three = cluster(3)
    three.create_topic("t", partitions=6, replicas=3)
    zombie, before = three.controller(), epoch(three)
    three.brokers[zombie].pause()
    until(lambda: three.controller() != zombie, "another controller")
    until(lambda: all(three.leader("t", number) not in (-1, zombie) for number in range(6)), "leaders moved")
    until(lambda: all(zombie not in three.isr("t", number) for number in range(6)), "it follows nowhere")
    three.until_agreed()
    three.create_topic("meanwhile", partitions=1, replicas=2)
    states = [three.state("t", number) for number in range(6)]
    three.brokers[zombie].resume()
    until(lambda: zombie in three.live_brokers(), "back with a new session")
    until(lambda: all(three.isr("t", number) == {1, 2, 3} for number in range(6)), "in sync again")
    assert epoch(three) == before + 1
    for number, state in enumerate(states):
        after = three.state("t", number)
        assert (after["leader"], after["leader_epoch"]) == (state["leader"], state["leader_epoch"])
    three.produce("t", [b"x"] * 50)


def test_a_broker_whose_session_ended_is_a_new_life(cluster: Callable[..., Cluster]) -> None:
    """C04."""
    three = cluster(3)
    three.create_topic("t", partitions=1, replicas=3)
    victim = next(number for number in (1, 2, 3) if number != three.controller())
    first_life = three.tree.exists(f"/brokers/ids/{victim}").czxid
    three.brokers[victim].pause()
    until(lambda: victim not in three.live_brokers(), "its session is over")
    until(lambda: three.isr("t") == {1, 2, 3} - {victim})
    three.produce("t", [b"x"] * 100)
    three.brokers[victim].resume()
    until(lambda: victim in three.live_brokers())
    assert three.tree.exists(f"/brokers/ids/{victim}").czxid > first_life
    until(lambda: three.isr("t") == {1, 2, 3}, "in sync again")


def test_a_number_and_an_address_can_be_used_once(cluster: Callable[..., Cluster]) -> None:
    two = cluster(2)
    second = two.rival(1)
    third = two.add(3, wait=False, advertised_listeners=f"PLAINTEXT://{two.brokers[2].address}")
    assert second.process is not None
    assert third.process is not None
    assert second.process.wait(WAIT_S) == 1
    assert "another broker with broker.id=1 is running" in second.output().splitlines()[-1]
    assert third.process.wait(WAIT_S) == 1
    assert f"{two.brokers[2].address} is advertised by broker 2 already" in third.output().splitlines()[-1]
    assert two.live_brokers() == {1, 2}


def test_a_broker_killed_and_started_at_once_waits_for_its_former_session(cluster: Callable[..., Cluster]) -> None:
    two = cluster(2)
    life = two.tree.exists("/brokers/ids/1").czxid
    two.brokers[1].kill()
    two.brokers[1].start(wait=False)
    until(lambda: two.tree.exists("/brokers/ids/1").czxid > life, "registered again")


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"zookeeper_connect": "127.0.0.1:1/x"}, "ZooKeeper cannot be reached at zookeeper.connect=127.0.0.1:1/x"),
        ({"zookeeper_connect": "somewhere:abc"}, "is not host:port"),
        ({"zookeeper_connect": "127.0.0.1:2181:9"}, "is not host:port"),
        ({"zookeeper_connect": ""}, "names no host"),
    ],
)
def test_a_wrong_zookeeper_is_said_in_one_line(cluster: Callable[..., Cluster], properties: dict[str, str], words: str) -> None:
    none = cluster(0, zookeeper_connection_timeout_ms="500")
    broker = none.add(1, wait=False, **properties)
    assert broker.process is not None
    assert broker.process.wait(WAIT_S) == 1
    assert words in broker.output().splitlines()[-1]
    assert "Traceback" not in broker.output()
    broker.process = None


@pytest.mark.parametrize("path", ["another's", "nobody's"])
def test_data_of_another_cluster_are_refused(cluster: Callable[..., Cluster], path: str) -> None:
    """And nothing of them is touched. Also where there is no cluster yet: a slip of the pen in the path must not begin one."""
    one = cluster(1)
    connect = cluster(1).connect if path == "another's" else f"{one.connect}-nobody"
    one.create_topic("t", partitions=1, replicas=1)
    one.produce("t", [b"mine"] * 10)
    assert one.brokers[1].stop() == 0
    stranger = one.brokers[1]
    before = _files(stranger.data)
    stranger.start(wait=False, zookeeper_connect=connect, broker_id="1")
    assert stranger.process is not None
    assert stranger.process.wait(WAIT_S) == 1
    assert "belong to the cluster" in stranger.output().splitlines()[-1]
    stranger.process = None
    assert _files(stranger.data) == before
    stranger.start()
    assert one.produce("t", [b"mine again"]) == [(0, 10)]


def _files(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_a_broker_that_stops_hands_its_leaderships_over(cluster: Callable[..., Cluster]) -> None:
    """C07, F58: the producer notices nothing."""
    three = cluster(3, min_insync_replicas="2")
    three.create_topic("t", partitions=6, replicas=3)
    failures: list[object] = []
    acknowledged = 0
    done = threading.Event()

    def heard(error: object, _: object) -> None:
        nonlocal acknowledged
        if error is not None:
            failures.append(error)
        acknowledged += error is None

    def produce() -> None:
        producer = three.producer(**{"linger.ms": 5, "retry.backoff.ms": 20, "max.in.flight": 5, "enable.idempotence": True})
        while not done.is_set():
            producer.produce("t", b"x", on_delivery=heard)
            producer.poll(0.002)
        producer.flush(WAIT_S)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        until(lambda: acknowledged > 100)
        for number in (1, 2, 3):
            assert three.brokers[number].stop() == 0
            states = [three.state("t", partition) for partition in range(6)]
            assert all(state["leader"] not in (-1, number) for state in states), states
            assert all(number not in state["isr"] for state in states), states
            seen = acknowledged
            until(lambda seen=seen: acknowledged > seen + 50, "it goes on")
            three.brokers[number].start()
            until(lambda: all(three.isr("t", partition) == {1, 2, 3} for partition in range(6)), "all in sync")
    finally:
        done.set()
        thread.join(WAIT_S)
    assert not failures, failures[:5]


def test_a_topic_deleted_and_made_again_while_a_broker_was_down(cluster: Callable[..., Cluster]) -> None:
    """C08."""
    three = cluster(3)
    three.create_topic("t", partitions=1, replicas=3)
    three.create_topic("gone", partitions=1, replicas=3)
    three.produce("t", [b"old"] * 100)
    three.produce("gone", [b"old"] * 100)
    away = next(number for number in (1, 2, 3) if number != three.controller())
    three.brokers[away].kill()
    until(lambda: away not in three.live_brokers())
    admin = three.admin()
    for topic, future in admin.delete_topics(["t", "gone"]).items():
        assert future.result(WAIT_S) is None, topic
    until_done(lambda: three.create_topic_at("t", [sorted({1, 2, 3} - {away})]), "the name is free again")
    three.produce("t", [b"new"] * 3)
    three.brokers[away].start()
    until(lambda: not (three.brokers[away].data / "gone-0").exists(), "the deleted topic's log is gone")
    until(lambda: not (three.brokers[away].data / "t-0").exists(), "and the one of the former topic of the same name")


class Reader:
    """Reads so many records, and goes on from there; a position that is none any more is an error to it."""

    def __init__(self, cluster: Cluster, topic: str, count: int) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": "reader",
                "auto.offset.reset": "error",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(topic, 0, 0)])
        self.values: list[bytes] = []
        until(lambda: self._poll() is None and len(self.values) == count, f"{count} records read")

    def _poll(self) -> KafkaError | None:
        message = self._consumer.poll(0.2)
        if message is not None and message.error() is None:
            self.values.append(message.value() or b"")
        return message.error() if message is not None else None

    def until_truncation(self) -> list[bytes]:
        """What it read after its log was cut under it, before it was told so."""
        before = len(self.values)

        def told() -> bool:
            error = self._poll()
            return error is not None and error.code() in (KafkaError._LOG_TRUNCATION, KafkaError._AUTO_OFFSET_RESET)

        until(told, "the reader is told that records are gone")
        self._consumer.close()
        return self.values[before:]


def test_an_unclean_election_only_where_it_is_allowed(cluster: Callable[..., Cluster]) -> None:
    """R16."""
    three = cluster(3, replica_lag_time_max_ms="2000")
    controller = three.controller()
    stale, last = sorted({1, 2, 3} - {controller})
    three.create_topic_at("t", [[last, stale]])
    three.produce("t", [b"seen by both"] * 5)
    three.brokers[stale].kill()
    until(lambda: three.isr("t") == {last})
    three.produce("t", [b"seen by one"] * 5)
    reader = Reader(three, "t", 10)
    three.brokers[last].kill()
    until(lambda: three.leader("t") == -1, "nobody leads")
    three.brokers[stale].start()
    until(lambda: stale in three.live_brokers())
    three.until_agreed()
    three.create_topic("other", replicas=2)
    assert three.leader("t") == -1
    assert three.isr("t") == {last}
    before = three.state("t")["leader_epoch"]
    entry = ConfigEntry("unclean.leader.election.enable", "true", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, "t", incremental_configs=[entry])
    admin = three.admin()
    admin.incremental_alter_configs([resource])[resource].result(WAIT_S)
    until(lambda: three.leader("t") == stale, "elected from outside the in-sync replicas")
    state = three.state("t")
    assert state["isr"] == [stale]
    assert state["leader_epoch"] > before
    # The reader is at 10, which is there again, with other records: it must notice (KIP-320).
    assert three.produce("t", [b"after"] * 10) == [(0, offset) for offset in range(5, 15)]
    assert reader.until_truncation() == []


@pytest.fixture
def own_zookeeper() -> Iterator[ZooKeeper]:
    server = ZooKeeper()
    server.start()
    yield server
    server.close()


def test_records_flow_while_zookeeper_is_away(
    own_zookeeper: ZooKeeper, zookeeper: ZooKeeper, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """C10, for longer than the sessions last."""
    with clusters(own_zookeeper, tmp_path_factory.mktemp("away")) as make:
        three = make(3, zookeeper_session_timeout_ms="3000")
        three.create_topic("t", partitions=3, replicas=3)
        three.produce("t", [b"before"] * 30)
        before = [three.state("t", number) for number in range(3)]
        own_zookeeper.stop()
        for _ in range(5):
            three.produce("t", [b"meanwhile"] * 30)
            threading.Event().wait(1)
        own_zookeeper.start()
        until(lambda: three.live_brokers() == {1, 2, 3}, "all registered")
        until(lambda: three.controller() in (1, 2, 3))
        until(lambda: all(three.isr("t", number) == {1, 2, 3} for number in range(3)), "all in sync")
        for number, state in enumerate(before):
            assert three.state("t", number)["leader_epoch"] >= state["leader_epoch"]
        three.until_agreed()
        three.produce("t", [b"after"] * 30)
        three.create_topic("after", partitions=3, replicas=3)
