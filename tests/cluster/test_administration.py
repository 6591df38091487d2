"""What administrators do to a cluster of three: topics, settings, leaders, replicas (F54, F56, F59, F61, C08)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka import ElectionType, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)

from ottla.errors import ErrorCode
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.controlled_shutdown import ControlledShutdownRequest
from ottla.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from ottla.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records.record import build_batch
from tests.kit.cluster import WAIT_S, Cluster, until


def test_the_tree_is_kafkas(three: Cluster) -> None:
    three.create_topic("tree", partitions=2, replicas=2, retention_ms="60000")
    node = three.json("/brokers/topics/tree")
    assert node["version"] == 3
    assert set(node["partitions"]) == {"0", "1"}
    assert node["adding_replicas"] == node["removing_replicas"] == {}
    assert three.state("tree") == {
        "version": 1,
        "leader": node["partitions"]["0"][0],
        "leader_epoch": 0,
        "controller_epoch": int(three.tree.get("/controller_epoch")[0]),
        "isr": node["partitions"]["0"],
    }
    assert three.json("/config/topics/tree") == {"version": 1, "config": {"retention.ms": "60000"}}
    broker = three.json("/brokers/ids/1")
    assert broker["endpoints"] == [f"PLAINTEXT://127.0.0.1:{three.brokers[1].port}"]
    assert three.json("/controller")["brokerid"] == three.controller()


def test_topics_are_made_grown_and_deleted_on_all_brokers(three: Cluster) -> None:
    admin = three.admin()
    three.create_topic("made", partitions=3, replicas=3)
    with pytest.raises(KafkaException) as caught:
        three.create_topic("made", partitions=3, replicas=3)
    assert caught.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    admin.create_partitions([NewPartitions("made", 6)])["made"].result(WAIT_S)
    until(lambda: all(three.isr("made", number) == {1, 2, 3} for number in range(6)), "all in sync")
    three.produce("made", [b"%d" % number for number in range(60)])
    logs = {f"made-{number}" for number in range(6)}
    for broker in three.brokers.values():
        until(lambda data=broker.data: {path.name for path in data.glob("made-*")} == logs, "a log of each partition")
    first_id = three.json("/brokers/topics/made")["topic_id"]
    admin.delete_topics(["made"])["made"].result(WAIT_S)
    assert "made" not in three.tree.get_children("/brokers/topics")
    assert three.tree.get_children("/admin/delete_topics") == []
    for broker in three.brokers.values():
        assert not [path.name for path in broker.data.glob("made-*") if "delete" not in path.name]
    three.create_topic("made", partitions=1, replicas=3)
    assert three.json("/brokers/topics/made")["topic_id"] != first_id
    assert three.produce("made", [b"x"])[0] == (0, 0)


def test_every_broker_knows_the_same_and_names_the_controller(three: Cluster) -> None:
    three.create_topic("known", partitions=3, replicas=2)
    for broker in three.brokers.values():

        def told(address: str = broker.address) -> bool:
            metadata = three.admin_at(address).list_topics(timeout=WAIT_S)
            topic = metadata.topics.get("known")
            return (
                set(metadata.brokers) == {1, 2, 3}
                and metadata.controller_id == three.controller()
                and topic is not None
                and {number: part.leader for number, part in topic.partitions.items()}
                == {number: three.leader("known", number) for number in range(3)}
            )

        until(told, f"broker {broker.number} knows")


def test_settings_changed_anywhere_hold_everywhere(three: Cluster) -> None:
    three.create_topic("configured", replicas=3)
    resource = ConfigResource(ResourceType.TOPIC, "configured")
    admin = three.admin_at(three.brokers[2].address)
    admin.incremental_alter_configs([_change("configured", "retention.ms", "12345")])[resource].result(WAIT_S)
    assert three.json("/config/topics/configured")["config"]["retention.ms"] == "12345"
    notices = three.tree.get_children("/config/changes")
    assert {"version": 2, "entity_path": "topics/configured"} in [three.json(f"/config/changes/{name}") for name in notices]
    for broker in three.brokers.values():
        until(lambda address=broker.address: _config(three, address, "configured")["retention.ms"].value == "12345")
    # As Kafka's own tool on ZooKeeper does it: the node, then a notice.
    three.tree.set("/config/topics/configured", json.dumps({"version": 1, "config": {"retention.ms": "777"}}).encode())
    three.tree.create(
        "/config/changes/config_change_",
        json.dumps({"version": 2, "entity_path": "topics/configured"}).encode(),
        sequence=True,
    )
    for broker in three.brokers.values():
        until(lambda address=broker.address: _config(three, address, "configured")["retention.ms"].value == "777")


def _change(topic: str, name: str, value: str) -> ConfigResource:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    return ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])


def _config(three: Cluster, address: str, topic: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = three.admin_at(address)
    found: dict[str, ConfigEntry] = admin.describe_configs([resource])[resource].result(WAIT_S)
    return found


def _reassign(three: Cluster, topic: str, replicas: list[int] | None) -> int:
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=topic, partitions=[ReassignablePartition(partition_index=0, replicas=replicas)])]
    )
    response = three.brokers[three.controller()].ask("alter_partition_reassignments", 0, request)
    assert response.error_code == 0, response
    code: int = response.responses[0].partitions[0].error_code
    return code


def test_a_partition_moves_to_other_brokers_and_its_old_replica_goes(three: Cluster) -> None:
    three.create_topic_at("moving", [[1, 2]])
    three.produce("moving", [b"%d" % number for number in range(100)])
    assert _reassign(three, "moving", [3, 2]) == 0
    until(lambda: three.json("/brokers/topics/moving")["partitions"]["0"] == [3, 2], "arrived")
    node = three.json("/brokers/topics/moving")
    assert node["adding_replicas"] == node["removing_replicas"] == {}
    assert three.isr("moving") == {2, 3}
    until(lambda: not (three.brokers[1].data / "moving-0").exists(), "the old replica is gone")
    until(lambda: not under_way(three), "the controller is done with it")
    assert three.produce("moving", [b"after"]) == [(0, 100)]
    assert _reassign(three, "moving", None) == 85  # NO_REASSIGNMENT_IN_PROGRESS
    assert _reassign(three, "moving", [3, 9]) == 39  # INVALID_REPLICA_ASSIGNMENT
    assert not under_way(three)


def under_way(three: Cluster) -> list[str]:
    listed = three.brokers[three.controller()].ask("list_partition_reassignments", 0, ListPartitionReassignmentsRequest())
    return [topic.name for topic in listed.topics]


def test_the_preferred_leader_leads_again_on_request(three: Cluster) -> None:
    three.create_topic_at("preferred", [[2, 3]])
    assert three.leader("preferred") == 2
    assert _reassign(three, "preferred", [3, 2]) == 0
    until(lambda: three.json("/brokers/topics/preferred")["partitions"]["0"] == [3, 2])
    assert three.leader("preferred") == 2
    admin = three.admin()
    partition = TopicPartition("preferred", 0)
    outcome = admin.elect_leaders(ElectionType.PREFERRED, [partition]).result(WAIT_S)
    assert outcome[partition] is None, outcome
    assert three.leader("preferred") == 3
    outcome = admin.elect_leaders(ElectionType.PREFERRED, [partition]).result(WAIT_S)
    assert outcome[partition].code() == KafkaError.ELECTION_NOT_NEEDED
    until(lambda: admin.describe_topics(TopicCollection(["preferred"]))["preferred"].result(WAIT_S).partitions[0].leader.id == 3)


def test_requests_for_the_controller_are_refused_elsewhere(three: Cluster) -> None:
    from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest

    other = next(broker for number, broker in three.brokers.items() if number != three.controller())
    request = CreateTopicsRequest(topics=[CreatableTopic(name="refused", num_partitions=1, replication_factor=1)])
    response = other.ask("create_topics", 5, request)
    assert response.topics[0].error_code == 41  # NOT_CONTROLLER
    leaving = other.ask("controlled_shutdown", 3, ControlledShutdownRequest(broker_id=99, broker_epoch=1))
    assert leaving.error_code == ErrorCode.STALE_CONTROLLER_EPOCH, "the word that Apache Kafka 3.9 has for it"


def test_each_replica_tells_of_its_producers(three: Cluster) -> None:
    """As Apache Kafka's do, for who looks for differences between them."""
    three.create_topic_at("written", [[1, 2]])
    three.produce("written", [b"x"], **{"enable.idempotence": True})
    asked = DescribeProducersRequest(topics=[TopicRequest(name="written", partition_indexes=[0])])

    def producers(number: int) -> list[int]:
        (found,) = three.brokers[number].ask("describe_producers", 0, asked).topics[0].partitions
        assert found.error_code == (ErrorCode.NOT_LEADER_OR_FOLLOWER if number == 3 else ErrorCode.NONE)
        return [each.producer_id for each in found.active_producers]

    assert len(producers(1)) == 1
    until(lambda: producers(2) == producers(1), "the follower has heard of it")
    assert producers(3) == []


def test_who_is_asked_in_the_place_of_the_leader_names_it(three: Cluster) -> None:
    """KIP-951: with its epoch and its address, in the versions that have room for it."""
    three.create_topic_at("elsewhere", [[1]])
    topic_id = three.brokers[2].ask("metadata", 12, MetadataRequest(topics=[MetadataRequestTopic(name="elsewhere")]))
    topic_id = topic_id.topics[0].topic_id
    place = [(1, three.brokers[1].host, three.brokers[1].port)]

    def leader(partition: Any) -> tuple[int, int] | None:
        assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        named = partition.current_leader
        return (named.leader_id, named.leader_epoch) if named is not None else None

    def places(response: Any) -> list[tuple[int, str, int]]:
        return [(each.node_id, each.host, each.port) for each in response.node_endpoints]

    batch = PartitionProduceData(index=0, records=build_batch([(None, b"x", (), 0)]))
    for version in (9, 10, 13):
        data = TopicProduceData(name="elsewhere", topic_id=topic_id, partition_data=[batch])
        said = three.brokers[2].ask("produce", version, ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data]))
        named = leader(said.responses[0].partition_responses[0]), places(said)
        assert named == (((1, 0), place) if version >= 10 else (None, []))
    for version in (15, 16, 18):
        for state in (None, ReplicaState(replica_id=3)):  # a consumer, a follower
            asked = FetchTopic(topic_id=topic_id, partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)])
            fetch = FetchRequest(replica_state=state, max_wait_ms=0, min_bytes=1, topics=[asked])
            said = three.brokers[2].ask("fetch", version, fetch)
            named = leader(said.responses[0].partitions[0]), places(said)
            assert named == (((1, 0), place) if version >= 16 else (None, []))


def test_a_topic_is_made_by_writing_to_it_whichever_broker_is_asked(three: Cluster) -> None:
    assert three.produce("by_itself", [b"x", b"y"])
    assert three.state("by_itself")["leader"] in (1, 2, 3)


def test_producer_ids_come_in_blocks_from_the_controller(three: Cluster) -> None:
    from ottla.protocol.messages.init_producer_id import InitProducerIdRequest

    seen: set[int] = set()
    for broker in three.brokers.values():
        for _ in range(3):
            response = broker.ask("init_producer_id", 4, InitProducerIdRequest(transactional_id=None))
            assert response.error_code == 0
            seen.add(response.producer_id)
    assert len(seen) == 9
    assert len({producer_id // 1000 for producer_id in seen}) == 3


def test_the_old_ways_to_ask_still_work(three: Cluster) -> None:
    """/admin/reassign_partitions and /admin/preferred_replica_election, as tools before Kafka 2.4 wrote them."""
    three.create_topic_at("old", [[1, 2]])
    wanted = {"version": 1, "partitions": [{"topic": "old", "partition": 0, "replicas": [2, 3]}]}
    three.tree.create("/admin/reassign_partitions", json.dumps(wanted).encode())
    until(lambda: three.json("/brokers/topics/old")["partitions"]["0"] == [2, 3], "moved")
    until(lambda: three.tree.exists("/admin/reassign_partitions") is None, "answered")
    assert _reassign(three, "old", [3, 2]) == 0
    until(lambda: three.json("/brokers/topics/old")["partitions"]["0"] == [3, 2] and three.leader("old") == 2)
    asked = {"version": 1, "partitions": [{"topic": "old", "partition": 0}]}
    three.tree.create("/admin/preferred_replica_election", json.dumps(asked).encode())
    until(lambda: three.leader("old") == 3, "the preferred one leads")
    until(lambda: three.tree.exists("/admin/preferred_replica_election") is None, "answered")


def test_settings_that_lie_around_do_not_stop_a_new_topic(three: Cluster) -> None:
    three.tree.create("/config/topics/again", json.dumps({"version": 1, "config": {"retention.ms": "1"}}).encode())
    three.create_topic("again", replicas=3, retention_ms="99999")
    assert three.json("/config/topics/again")["config"] == {"retention.ms": "99999"}
    until(
        lambda: _config(three, three.brokers[1].address, "again")["retention.ms"].value == "99999", "the broker's own knowledge"
    )
