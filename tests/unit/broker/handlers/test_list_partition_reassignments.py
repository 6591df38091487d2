from __future__ import annotations

from ottla.broker.controller.partition_requests import Reassignment
from ottla.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tests.kit.controller_world import World, all_here, in_world, make
from tests.kit.handlers import call_handler


def test_a_reassignment_is_listed_until_it_ends() -> None:
    async def test(world: World) -> None:
        await world.add(1, 2, 3)
        await all_here(world, 1, 2, 3)
        await make(world, "t", (1, 2), (1, 2))
        requests = world.active().controller.partition_requests

        async def listed(topics: list[ListPartitionReassignmentsTopics] | None) -> list[tuple[object, ...]]:
            request = ListPartitionReassignmentsRequest(topics=topics)
            response = await call_handler({"partition_requests": requests}, "list_partition_reassignments", 0, request)
            return [
                (topic.name, each.partition_index, each.replicas, each.adding_replicas, each.removing_replicas)
                for topic in response.topics
                for each in topic.partitions
            ]

        assert await listed(None) == []
        assert await requests.alter_reassignments([Reassignment("t", 1, (1, 3))], factor_may_change=True) == [None]
        moving = [("t", 1, [1, 3, 2], [3], [2])]
        assert await listed(None) == moving
        assert await listed([ListPartitionReassignmentsTopics(name="t", partition_indexes=[0])]) == []
        assert await listed([ListPartitionReassignmentsTopics(name="t", partition_indexes=[1])]) == moving
        assert await requests.alter_reassignments([Reassignment("t", 1, None)], factor_may_change=True) == [None]
        assert await listed(None) == []

    in_world(test)
