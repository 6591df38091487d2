from __future__ import annotations

from typing import Any

from ottla.errors import ErrorCode
from ottla.protocol.messages.alter_partition import AlterPartitionRequest, BrokerState, RequestPartitionData, RequestTopicData
from tests.kit.controller_world import World, all_here, in_world, make
from tests.kit.handlers import call_handler, every_version


@every_version("alter_partition")
def test_the_leader_shrinks_and_expands_the_isr(version: int) -> None:
    async def test(world: World) -> None:
        await world.add(1, 2)
        await all_here(world, 1, 2)
        topic = await make(world, "t", (1, 2))
        requests = world.active().controller.broker_requests
        epochs = {number: member.controller.broker_epoch for number, member in world.members.items()}

        async def alter(isr: list[int], partition_epoch: int) -> Any:
            data = RequestPartitionData(partition_index=0, leader_epoch=0, partition_epoch=partition_epoch)
            if version >= 3:
                data.new_isr_with_epochs = [BrokerState(broker_id=number, broker_epoch=epochs[number]) for number in isr]
            else:
                data.new_isr = isr
            asked = RequestTopicData(topic_name="t", topic_id=topic.topic_id, partitions=[data])
            request = AlterPartitionRequest(broker_id=1, broker_epoch=epochs[1], topics=[asked])
            response = await call_handler({"broker_requests": requests}, "alter_partition", version, request)
            assert response.error_code == 0
            return response.topics[0].partitions[0]

        shrunk = await alter([1], 0)
        assert (shrunk.error_code, shrunk.isr, shrunk.leader_id) == (0, [1], 1)
        assert world.state("t")["isr"] == [1]
        stale = await alter([1, 2], 0)
        assert stale.error_code == ErrorCode.INVALID_UPDATE_VERSION
        expanded = await alter([1, 2], shrunk.partition_epoch)
        assert (expanded.error_code, expanded.isr) == (0, [1, 2])

    in_world(test)


@every_version("alter_partition")
def test_a_broker_that_is_not_the_controller_refuses(version: int) -> None:
    async def test(world: World) -> None:
        await world.add(1, 2)
        await all_here(world, 1, 2)
        (other,) = [member.controller for member in world.members.values() if member is not world.active()]
        response = await call_handler(
            {"broker_requests": other.broker_requests}, "alter_partition", version, AlterPartitionRequest(broker_id=1)
        )
        assert (response.error_code, response.topics) == (ErrorCode.NOT_CONTROLLER, [])

    in_world(test)
