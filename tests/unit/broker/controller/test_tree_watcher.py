"""The controller follows what other brokers and tools write in the tree (F59, C09), as Kafka's controller does."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from ottla.broker.controller.partition_requests import Reassignment
from ottla.cluster.broker_changes import IsrProposal
from ottla.ports import Create, Delete, SetData
from ottla.types import TopicPartition
from tests.kit.controller_world import World, all_here, in_world, make, until
from tests.kit.present import present


def topic_node(*replicas: tuple[int, ...], **fields: Any) -> bytes:
    partitions = {str(number): list(brokers) for number, brokers in enumerate(replicas)}
    return json.dumps({"version": 1, "partitions": partitions, **fields}).encode()


def notified(world: World, api_name: str, topic: str) -> set[int]:
    return {
        number
        for number, name, request in world.requests
        if name == api_name and topic in {each.topic_name for each in request.topic_states}
    }


def test_a_topic_created_in_the_tree_gets_leaders_configs_and_an_id() -> None:
    async def test(world: World) -> None:
        await world.add(1, 2, 3)
        await all_here(world, 1, 2, 3)
        world.write(Create("/brokers/topics/theirs", topic_node((2, 3), (9, 3))))
        await until(lambda: "theirs" in world.active().controller.state.image.topics)
        assert world.state("theirs", 1)["leader"] == 3
        assert (world.state("theirs")["leader"], world.state("theirs")["isr"]) == (2, [2, 3])
        assert world.state("theirs", 1)["isr"] == [3], "broker 9 does not exist"
        stored = json.loads(present(world.tree.get("/brokers/topics/theirs")).data)
        image = world.active().controller.state.image
        assert image.topics["theirs"].partitions[1].replicas == (9, 3)
        assert stored["version"] == 3
        assert image.topic_names[image.topics["theirs"].topic_id] == "theirs"
        assert world.tree.get("/config/topics/theirs") is not None
        await until(lambda: notified(world, "leader_and_isr", "theirs") == {2, 3})
        await until(lambda: notified(world, "update_metadata", "theirs") == {1, 2, 3})

    in_world(test)


def test_partitions_added_in_the_tree_get_leaders() -> None:
    async def test(world: World) -> None:
        await world.add(1, 2)
        await all_here(world, 1, 2)
        topic = await make(world, "t", (1, 2))
        controller = world.active().controller
        await until(lambda: "t" in controller._topic_znodes._watched and not controller._topic_znodes._touched)
        world.requests.clear()
        world.write(SetData("/brokers/topics/t", topic_node((1, 2), (2, 1), (2,))))
        await until(lambda: len(controller.state.image.topics["t"].partitions) == 3)
        assert [world.state("t", number)["leader"] for number in range(3)] == [1, 2, 2]
        assert controller.state.image.topics["t"].topic_id == topic.topic_id, "the id it had, although the new node names none"
        assert controller.state.image.topics["t"].partitions[0] is topic.partitions[0]
        await until(lambda: notified(world, "leader_and_isr", "t") == {1, 2})
        (states,) = [
            request.topic_states[0].partition_states
            for number, name, request in world.requests
            if (number, name) == (2, "leader_and_isr")
        ]
        assert [state.partition_index for state in states] == [1, 2]

    in_world(test)


def test_a_marked_topic_is_deleted_and_the_mark_of_an_unknown_topic_removed() -> None:
    async def test(world: World) -> None:
        await world.add(1, 2)
        await all_here(world, 1, 2)
        await make(world, "doomed", (1, 2))
        await make(world, "kept", (1, 2))
        world.write(Create("/admin/delete_topics/doomed"), Create("/admin/delete_topics/nothing"))
        await until(lambda: not world.tree.children("/admin/delete_topics") and not world.active().controller._deletion.deleting)
        assert world.tree.children("/brokers/topics") == ["kept"]
        assert set(world.active().controller.state.image.topics) == {"kept"}
        await until(lambda: notified(world, "stop_replica", "doomed") == {1, 2})
        await make(world, "doomed", (2, 1))
        assert world.state("doomed")["leader"] == 2

    in_world(test)


def test_a_topic_created_and_marked_at_once_is_deleted() -> None:
    async def test(world: World) -> None:
        await world.add(1)
        await all_here(world, 1)
        world.write(Create("/brokers/topics/short", topic_node((1,))), Create("/admin/delete_topics/short"))
        await until(lambda: not world.tree.children("/admin/delete_topics") and not world.tree.children("/brokers/topics"))

    in_world(test)


@pytest.mark.parametrize(
    "node",
    [
        b"",
        b"not json",
        b"[]",
        b'{"version":3}',
        b'{"version":3,"partitions":{}}',
        topic_node(()),
        topic_node((1, 1)),
        b'{"version":3,"partitions":{"1":[1]}}',
        b'{"version":3,"partitions":{"0":[1]},"topic_id":"?"}',
    ],
)
def test_an_invalid_topic_node_is_ignored(node: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Neither during a term nor at the start of one; once the node can be parsed, the topic is there."""

    async def test(world: World) -> None:
        await world.add(1, 2)
        await all_here(world, 1, 2)
        with caplog.at_level(logging.ERROR):
            world.write(Create("/brokers/topics/odd", node))
            await until(lambda: "Ignoring topic odd" in caplog.text)
        await make(world, "fine", (1, 2))
        epoch = world.epoch()
        await world.active().controller.election.resign()
        await until(lambda: world.epoch() > epoch and set(world.active().controller.state.image.topics) == {"fine"})
        await all_here(world, 1, 2)
        world.write(SetData("/brokers/topics/odd", topic_node((2, 1))))
        await until(lambda: world.state("odd")["leader"] == 2)
        await until(lambda: "odd" in world.active().controller.state.image.topics)

    in_world(test)


def test_invalid_registrations_and_configs_are_ignored(caplog: pytest.LogCaptureFixture) -> None:
    """Neither during a term nor at the start of one: invalid registrations are ignored, and configs stay as they were."""

    async def test(world: World) -> None:
        await world.add(1, 2)
        await all_here(world, 1, 2)
        world.write(Create("/config/brokers/1", b'{"version":1,"config":{"log.cleaner.threads":"2"}}'))
        world.write(Create("/config/changes/config_change_", b'{"version":2,"entity_path":"brokers/1"}', sequential=True))
        for member in world.members.values():
            await until(lambda member=member: member.controller.dynamic_configs.brokers == {"1": {"log.cleaner.threads": "2"}})
        with caplog.at_level(logging.ERROR):
            world.write(Create("/brokers/ids/someone", b"{}"), Create("/brokers/ids/7", b"nonsense"))
            await until(
                lambda: "/brokers/ids/someone is not a broker id" in caplog.text and "/brokers/ids/7 is not JSON" in caplog.text
            )
        world.write(SetData("/config/brokers/1", b"nonsense"))
        await make(world, "fine", (1, 2))
        epoch = world.epoch()
        await world.active().controller.election.resign()
        await until(lambda: world.epoch() > epoch and set(world.active().controller.state.image.topics) == {"fine"})
        await all_here(world, 1, 2)
        assert world.active().controller.state.image.broker_configs == {"1": {"log.cleaner.threads": "2"}}

    in_world(test)


def test_topics_whose_nodes_are_removed_are_forgotten() -> None:
    async def test(world: World) -> None:
        await world.add(1)
        await all_here(world, 1)
        await make(world, "t", (1,))
        world.requests.clear()
        paths = ["/partitions/0/state", "/partitions/0", "/partitions", ""]
        world.write(*(Delete(f"/brokers/topics/t{path}") for path in paths))
        await until(lambda: not world.active().controller.state.image.topics)
        assert not notified(world, "stop_replica", "t"), "whoever does that may want to keep the records"
        await make(world, "t", (1,))

    in_world(test)


def test_a_reassignment_requested_in_the_tree_stays_there_until_it_is_complete() -> None:
    """R18: the way from before there was a request for it; the tool looks whether the node is still there."""

    async def test(world: World) -> None:
        await world.add(1, 2, 3)
        await all_here(world, 1, 2, 3)
        controller = world.active().controller
        await make(world, "t", (1, 2), (1, 2))
        wanted = [
            {"topic": "t", "partition": 0, "replicas": [3, 2]},
            {"topic": "t", "partition": 1, "replicas": [2, 3]},
            {"topic": "t", "partition": 7, "replicas": [1]},
            {"topic": "nothing", "partition": 0, "replicas": [1]},
        ]
        path = "/admin/reassign_partitions"

        def left() -> list[tuple[str, int]]:
            node = world.tree.get(path)
            assert node is not None
            return [(each["topic"], each["partition"]) for each in json.loads(node.data)["partitions"]]

        world.write(Create(path, json.dumps({"version": 1, "partitions": wanted}).encode()))
        await until(lambda: left() == [("t", 0), ("t", 1)])
        assert len(controller.partition_requests.reassignments()) == 2
        assert await controller.partition_requests.alter_reassignments([Reassignment("t", 1, None)]) == [None]
        await until(lambda: left() == [("t", 0)])
        ((_, _, partition),) = controller.partition_requests.reassignments()
        lives = {number: broker.epoch for number, broker in controller.state.image.brokers.items()}
        proposal = IsrProposal(1, partition.leader_epoch, [(each, lives[each]) for each in (1, 2, 3)], partition.partition_epoch)
        await controller.broker_requests.alter_partitions(1, lives[1], [(TopicPartition("t", 0), proposal)])
        await until(lambda: world.tree.get(path) is None and not controller.partition_requests.reassignments())
        assert controller.state.image.topics["t"].partitions[0].replicas == (3, 2)
        assert controller.state.image.topics["t"].partitions[1].replicas == (2, 1), "as Kafka puts them back"

    in_world(test)


def test_a_preferred_election_requested_in_the_tree_is_performed() -> None:
    """F54."""

    async def test(world: World) -> None:
        await world.add(1, 2)
        await all_here(world, 1, 2)
        await make(world, "t", (1, 2), (2, 1))
        asked = {"version": 1, "partitions": [{"topic": "t", "partition": 0}, {"topic": "no", "partition": 0}]}
        world.write(Create("/admin/preferred_replica_election", json.dumps(asked).encode()))
        await until(lambda: world.tree.get("/admin/preferred_replica_election") is None)
        world.write(Create("/admin/preferred_replica_election", b"nonsense"))
        await until(lambda: world.tree.get("/admin/preferred_replica_election") is None)
        assert world.active().controller.state.is_active

    in_world(test)
