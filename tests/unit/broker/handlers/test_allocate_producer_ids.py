from __future__ import annotations

from ottla.errors import ErrorCode
from ottla.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from tests.kit.controller_world import World, all_here, in_world
from tests.kit.handlers import call_handler


def test_blocks_do_not_overlap_and_a_stale_registration_gets_none() -> None:
    async def test(world: World) -> None:
        await world.add(1, 2)
        await all_here(world, 1, 2)
        requests = world.active().controller.broker_requests
        blocks: list[range] = []
        for number in (1, 2):
            epoch = world.members[number].controller.broker_epoch
            request = AllocateProducerIdsRequest(broker_id=number, broker_epoch=epoch)
            response = await call_handler({"broker_requests": requests}, "allocate_producer_ids", 0, request)
            assert response.error_code == 0
            blocks.append(range(response.producer_id_start, response.producer_id_start + response.producer_id_len))
        assert all(blocks)
        assert not set(blocks[0]) & set(blocks[1])
        stale = AllocateProducerIdsRequest(broker_id=1, broker_epoch=-5)
        response = await call_handler({"broker_requests": requests}, "allocate_producer_ids", 0, stale)
        assert response.error_code == ErrorCode.STALE_BROKER_EPOCH

    in_world(test)
