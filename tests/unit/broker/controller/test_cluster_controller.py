"""The controllers of several brokers on one tree in memory: elections, writes, control requests (C01-C07, C09, F60, F61)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from unittest.mock import patch

import pytest

from ottla.broker.controller.cluster_controller import ClusterController
from ottla.broker.controller.partition_requests import Reassignment
from ottla.cluster.broker_changes import IsrProposal
from ottla.cluster.image import ClusterImage
from ottla.cluster.requests import ConfigAlteration, ConfigChange, ConfigOperation, NewPartitions, NewTopic, ResourceType
from ottla.errors import ErrorCode, KafkaError
from ottla.ports import Change, Create, StoreUnavailable
from ottla.types import TopicPartition
from tests.kit.controller_world import Member, World, all_here, in_world, make, until


def test_one_broker_is_elected_and_each_term_raises_the_controller_epoch_by_one() -> None:
    """C01."""

    async def test(world: World) -> None:
        await world.add(1, 2, 3)
        assert world.epoch() == 1
        for expected in (2, 3):
            loser = world.active()
            await loser.controller.election.resign()
            await until(lambda expected=expected: world.epoch() >= expected and world.active())
            assert world.epoch() == expected
        await until(lambda: len({member.controller.controller_id for member in world.members.values()}) == 1)

    in_world(test)


def test_a_controller_that_was_replaced_writes_nothing() -> None:
    """C02."""

    async def test(world: World) -> None:
        await world.add(1, 2)
        first = world.active()
        term = first.controller.state.term
        first.store.lose()
        await until(lambda: world.epoch() == 2 and world.active())
        await all_here(world, 1, 2)
        # Whoever it is: one that still believes in the first term.
        image = world.active().controller.state.image
        zombie = next(member for member in world.members.values() if not member.controller.state.is_active)
        zombie.controller.state.term, zombie.controller.state.image = term, image
        (outcome,) = await zombie.controller.topic_requests.create([NewTopic("late", 1, 1)])
        assert isinstance(outcome, KafkaError)
        assert outcome.code == ErrorCode.NOT_CONTROLLER
        assert world.tree.get("/brokers/topics/late") is None

    in_world(test)


def test_a_broker_whose_session_expired_registers_with_a_new_epoch() -> None:
    """C04, C03: control requests carry the broker epoch they are meant for."""

    async def test(world: World) -> None:
        await world.add(1, 2, 3)
        await all_here(world, 1, 2, 3)
        victim = next(member for member in world.members.values() if not member.controller.state.is_active)
        other = next(member.number for member in world.members.values() if member is not victim)
        await make(world, "t", (victim.number, other))
        first = victim.controller.broker_epoch
        victim.store.lose()
        await until(lambda: victim.controller.broker_epoch > first)
        await until(lambda: world.active().controller.state.image.brokers[victim.number].epoch == victim.controller.broker_epoch)
        await until(lambda: world.state("t")["leader"] == other)
        assert world.state("t")["isr"] == [other]
        await until(
            lambda: any(
                number == victim.number and request.broker_epoch == victim.controller.broker_epoch
                for number, _, request in world.requests
            )
        )

    in_world(test)


def test_a_broker_id_that_is_registered_is_refused() -> None:
    async def test(world: World) -> None:
        await world.add(1)
        rival = Member(world, 1)
        rival.controller.registration.expiry_s = 0.05
        with pytest.raises(Exception, match=r"another broker with broker\.id=1 is running"):
            await rival.controller.start(rival.refused.append)
        await rival.controller.stop()

    in_world(test)


def test_isr_changes_are_written_and_answered() -> None:
    """C05, C06."""

    async def test(world: World) -> None:
        await world.add(1, 2, 3)
        await all_here(world, 1, 2, 3)
        controller = world.active().controller
        await make(world, "t", (1, 2, 3))
        key = TopicPartition("t", 0)
        lives = {number: broker.epoch for number, broker in controller.state.image.brokers.items()}

        async def ask(*isr: int, version: int, broker_epoch: int | None = None) -> Any:
            proposal = IsrProposal(1, 0, [(number, lives[number]) for number in isr], version)
            return (
                await controller.broker_requests.alter_partitions(
                    1, lives[1] if broker_epoch is None else broker_epoch, [(key, proposal)]
                )
            )[0]

        shrunk = await ask(1, 2, version=0)
        assert (shrunk.isr, shrunk.partition_epoch) == ((1, 2), 1)
        assert world.state("t")["isr"] == [1, 2]
        assert world.state("t")["leader_epoch"] == 0
        assert await ask(1, version=0) is ErrorCode.INVALID_UPDATE_VERSION
        assert (await ask(1, 2, version=0)).partition_epoch == 1
        with pytest.raises(KafkaError) as caught:
            await ask(1, version=1, broker_epoch=lives[1] - 1)
        assert caught.value.code == ErrorCode.STALE_BROKER_EPOCH
        unknown = IsrProposal(1, 0, [(1, -1)], 0)
        assert await controller.broker_requests.alter_partitions(1, lives[1], [(TopicPartition("none", 0), unknown)]) == [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        ]

    in_world(test)


def test_every_broker_knows_a_topic_when_its_creation_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """F61: the answer waits for the control requests of that change, also to brokers without a replica, and for no later ones."""

    def names(request: Any) -> set[str]:
        return {topic.topic_name for topic in getattr(request, "topic_states", ())}

    async def test(world: World) -> None:
        await world.add(1, 2, 3)
        await all_here(world, 1, 2, 3)
        controller = world.active().controller
        await make(world, "t", (1, 2, 3))
        held = asyncio.Event()
        send = world.send

        async def slow(broker: Any, api_name: str, version: int, request: Any) -> object:
            if broker.id == 3 and "new" in names(request):
                await held.wait()
            return await send(broker, api_name, version, request)

        controller._sender._channels.close()  # they are made anew, with the slow way
        monkeypatch.setattr(controller._sender._channels, "_send", slow)
        asked = asyncio.ensure_future(make(world, "new", (1, 2)))
        await until(lambda: any(number == 1 and names(request) == {"new"} for number, _, request in world.requests))
        before = len(world.requests)
        another = asyncio.ensure_future(controller.topic_requests.create_partitions([NewPartitions("t", 2)]))
        await until(lambda: any(number == 1 and names(request) == {"t"} for number, _, request in world.requests[before:]))
        assert not asked.done()
        held.set()
        await asyncio.gather(asked, another)
        assert any(number == 3 and names(request) == {"new"} for number, _, request in world.requests)

    in_world(test)


def test_controlled_shutdown_moves_leaderships() -> None:
    """C07."""

    async def test(world: World) -> None:
        await world.add(1, 2, 3)
        await all_here(world, 1, 2, 3)
        controller = world.active().controller
        await make(world, "t", (1, 2), (2, 1))
        await make(world, "lone", (1,))
        epoch = controller.state.image.brokers[1].epoch
        assert await controller.broker_requests.controlled_shutdown(1, epoch) == []
        assert [world.state("t", number)["leader"] for number in range(2)] == [2, 2]
        assert [world.state("t", number)["isr"] for number in range(2)] == [[2], [2]]
        assert (world.state("lone")["leader"], world.state("lone")["isr"]) == (1, [1])
        # Nobody gives it anything new, and it does not come back in sync.
        (outcome,) = await controller.topic_requests.create([NewTopic("n", assignments=[(0, (1,))])])
        assert isinstance(outcome, KafkaError)
        proposal = IsrProposal(2, 1, [(2, -1), (1, -1)], 1)
        life = controller.state.image.brokers[2].epoch
        assert await controller.broker_requests.alter_partitions(2, life, [(TopicPartition("t", 0), proposal)]) == [
            ErrorCode.INELIGIBLE_REPLICA
        ]
        with pytest.raises(KafkaError) as caught:
            await controller.broker_requests.controlled_shutdown(1, epoch - 1)
        assert caught.value.code == ErrorCode.STALE_BROKER_EPOCH

    in_world(test)


def test_controlled_shutdown_names_partitions_that_cannot_move() -> None:
    async def test(world: World) -> None:
        await world.add(1, 2)
        await all_here(world, 1, 2)
        controller = world.active().controller
        await make(world, "t", (1, 2))
        lives = {number: broker.epoch for number, broker in controller.state.image.brokers.items()}
        proposal = IsrProposal(1, 0, [(1, lives[1])], 0)
        await controller.broker_requests.alter_partitions(1, lives[1], [(TopicPartition("t", 0), proposal)])
        assert await controller.broker_requests.controlled_shutdown(1, lives[1]) == [("t", 0)]
        assert world.state("t")["leader"] == 1

    in_world(test)


def test_a_deletion_is_finished_by_the_next_controller() -> None:
    """C09."""

    async def test(world: World) -> None:
        await world.add(1, 2)
        await all_here(world, 1, 2)
        await make(world, "doomed", (1, 2), (2, 1))
        await world.active().store.multi([Create("/admin/delete_topics/doomed"), Create("/admin/delete_topics/never")])
        world.requests.clear()
        await world.active().controller.election.resign()
        await until(lambda: world.tree.get("/brokers/topics/doomed") is None and not world.tree.children("/admin/delete_topics"))
        stopped = {
            number
            for number, name, request in world.requests
            if name == "stop_replica" and request.topic_states[0].topic_name == "doomed"
        }
        assert stopped == {1, 2}
        assert "doomed" not in world.active().controller.state.image.topics

    in_world(test)


def test_control_requests_are_sent_again_until_they_are_answered() -> None:
    async def test(world: World) -> None:
        await world.add(1, 2)
        await all_here(world, 1, 2)
        deaf = next(member.number for member in world.members.values() if not member.controller.state.is_active)
        await until(lambda: any(number == deaf for number, _, _ in world.requests))
        world.deaf.add(deaf)
        world.requests.clear()
        making = asyncio.ensure_future(make(world, "t", (deaf,)))
        await until(lambda: world.requests)
        assert not making.done()
        assert all(number != deaf for number, _, _ in world.requests)
        world.deaf.clear()
        await making
        assert [name for number, name, _ in world.requests if number == deaf] == ["leader_and_isr", "update_metadata"]

    in_world(test)


def test_a_reassignment_completes_when_its_target_is_in_sync() -> None:
    """R18."""

    async def test(world: World) -> None:
        await world.add(1, 2, 3)
        await all_here(world, 1, 2, 3)
        controller = world.active().controller
        await make(world, "t", (1, 2))
        assert await controller.partition_requests.alter_reassignments([Reassignment("t", 0, (3, 2))]) == [None]
        ((name, number, partition),) = controller.partition_requests.reassignments()
        assert (name, number, partition.replicas, partition.adding, partition.removing) == ("t", 0, (3, 2, 1), (3,), (1,))
        node = world.tree.get("/brokers/topics/t")
        assert node is not None
        stored = json.loads(node.data)
        assert stored["adding_replicas"] == {"0": [3]}
        lives = {number: broker.epoch for number, broker in controller.state.image.brokers.items()}
        proposal = IsrProposal(1, partition.leader_epoch, [(each, lives[each]) for each in (1, 2, 3)], partition.partition_epoch)
        await controller.broker_requests.alter_partitions(1, lives[1], [(TopicPartition("t", 0), proposal)])
        await until(lambda: not controller.partition_requests.reassignments())
        assert controller.state.image.topics["t"].partitions[0].replicas == (3, 2)
        assert world.state("t")["leader"] == 3
        await until(lambda: any(number == 1 and name == "stop_replica" for number, name, _ in world.requests))
        assert await controller.partition_requests.elect_leaders([("t", 0)], unclean=False) != []

    in_world(test)


def test_a_reassignment_completes_though_the_leader_that_reported_the_isr_has_disconnected() -> None:
    """R18: the request is cancelled with its connection, the change of the ISR is not. Found by seed 970022."""

    async def test(world: World) -> None:
        controller, altered = await _reassigned(world)
        async with controller.state.lock:  # the change waits for it
            request = asyncio.ensure_future(altered())
            await asyncio.sleep(0)
            request.cancel()
        await until(lambda: not controller.partition_requests.reassignments())
        assert world.state("t")["isr"] == [2, 3]

    in_world(test)


def test_a_reassignment_completes_though_the_store_was_away() -> None:
    """R18: the ISR is written, what follows from it is not."""

    async def test(world: World) -> None:
        controller, altered = await _reassigned(world)
        store, write = world.active().store, world.active().store.multi
        refused: list[Sequence[Change]] = []

        async def multi(changes: Sequence[Change]) -> Sequence[Any]:
            if world.state("t")["isr"] == [1, 2, 3] and not refused:
                refused.append(changes)
                raise StoreUnavailable("away")
            return await write(changes)

        with patch.object(store, "multi", multi):
            await altered()
            await until(lambda: not controller.partition_requests.reassignments())
        assert refused

    in_world(test)


async def _reassigned(world: World) -> tuple[ClusterController, Callable[[], Awaitable[object]]]:
    """The controller of t-0, which moves from 1 and 2 to 3 and 2, and the request of its leader once broker 3 is in sync."""
    await world.add(1, 2, 3)
    await all_here(world, 1, 2, 3)
    controller = world.active().controller
    await make(world, "t", (1, 2))
    assert await controller.partition_requests.alter_reassignments([Reassignment("t", 0, (3, 2))]) == [None]
    ((_, _, partition),) = controller.partition_requests.reassignments()
    lives = {number: broker.epoch for number, broker in controller.state.image.brokers.items()}
    proposal = IsrProposal(1, partition.leader_epoch, [(each, lives[each]) for each in (1, 2, 3)], partition.partition_epoch)
    return controller, lambda: controller.broker_requests.alter_partitions(1, lives[1], [(TopicPartition("t", 0), proposal)])


def test_configs_reach_every_broker_by_the_tree() -> None:
    """F59: whoever changes them."""

    async def test(world: World) -> None:
        one, two = await world.add(1, 2)
        await all_here(world, 1, 2)
        await make(world, "t", (1, 2))
        change = ConfigChange(ConfigOperation.SET, "retention.ms", "5")
        asked = ConfigAlteration(ResourceType.TOPIC, "t", [change])
        outsider = one if two.controller.state.is_active else two
        assert await outsider.controller.config_requests.alter([asked]) == [None]
        await until(lambda: one.configs.get("t") == two.configs.get("t") == {"retention.ms": "5"})
        await until(lambda: world.active().controller.state.image.topics["t"].config == {"retention.ms": "5"})

    in_world(test)


def test_no_two_brokers_get_the_same_producer_ids() -> None:
    async def test(world: World) -> None:
        members = await world.add(1, 2, 3)
        await all_here(world, 1, 2, 3)
        await until(lambda: all(member.controller.controller_id > 0 for member in members))
        ids = await asyncio.gather(*(member.controller.producer_ids.next() for member in members))
        assert len({number // 1000 for number in ids}) == 3

    in_world(test)


def test_a_term_that_loads_the_tree_answers_from_no_empty_image() -> None:
    """C09: brokers ask a new controller before it knows their topics."""

    async def test(world: World) -> None:
        await world.add(1)
        controller = world.active().controller
        topic = await make(world, "t", (1,))
        async with controller.state.lock:  # the term that begins waits for it
            await controller.election.resign()
            await until(lambda: controller.state.is_active)
            proposal = IsrProposal(1, 0, [(1, controller.broker_epoch)], 0)
            altered = asyncio.ensure_future(
                controller.broker_requests.alter_partitions(1, controller.broker_epoch, [((topic.topic_id, 0), proposal)])
            )
            with pytest.raises(KafkaError, match="NOT_CONTROLLER"):
                controller.partition_requests.reassignments()
            with pytest.raises(KafkaError, match="NOT_CONTROLLER"):
                await controller.broker_requests.allocate_producer_ids(1, controller.broker_epoch)
        assert await altered == [controller.state.image.topics["t"].partitions[0]]
        assert controller.partition_requests.reassignments() == []

    in_world(test)


def test_a_broker_that_is_not_the_controller_refuses_changes() -> None:
    async def test(world: World) -> None:
        await world.add(1, 2)
        other = next(member.controller for member in world.members.values() if not member.controller.state.is_active)
        attempts: list[Callable[[], Awaitable[Any]]] = [
            lambda: other.topic_requests.create([NewTopic("t", 1, 1)], forward=False),
            lambda: other.topic_requests.delete(["t"]),
            lambda: other.topic_requests.create_partitions([]),
            lambda: other.partition_requests.elect_leaders(None, unclean=False),
            lambda: other.partition_requests.alter_reassignments([]),
            lambda: other.broker_requests.alter_partitions(1, 1, []),
            lambda: other.broker_requests.controlled_shutdown(1, 1),
            lambda: other.broker_requests.allocate_producer_ids(1, 1),
        ]
        for attempt in attempts:
            with pytest.raises(KafkaError) as caught:
                await attempt()
            assert caught.value.code == ErrorCode.NOT_CONTROLLER
        assert other.state.image == ClusterImage("")

    in_world(test)


def test_group_configs_reach_every_broker_and_leave_no_node_behind() -> None:
    """F59, KIP-848: by whichever broker they were set."""

    def asked(operation: ConfigOperation, value: str | None) -> ConfigAlteration:
        change = ConfigChange(operation, "consumer.session.timeout.ms", value)
        return ConfigAlteration(ResourceType.GROUP, "g/1", [change])

    async def test(world: World) -> None:
        one, two = await world.add(1, 2)
        assert await two.controller.config_requests.alter([asked(ConfigOperation.SET, "50000")]) == [None]
        for member in (one, two):
            await until(
                lambda member=member: (
                    member.controller.dynamic_configs.groups == {"g/1": {"consumer.session.timeout.ms": "50000"}}
                )
            )
        assert one.controller.dynamic_configs.brokers == {}
        assert await one.controller.config_requests.alter([asked(ConfigOperation.DELETE, None)]) == [None]
        for member in (one, two):
            await until(lambda member=member: member.controller.dynamic_configs.groups == {})
        assert world.tree.children("/config/groups") == []

    in_world(test)
