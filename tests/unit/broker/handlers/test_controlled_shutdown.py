from __future__ import annotations

from ottla.errors import ErrorCode
from ottla.protocol.messages.controlled_shutdown import ControlledShutdownRequest
from tests.kit.controller_world import World, all_here, in_world, make
from tests.kit.handlers import call_handler, every_version


@every_version("controlled_shutdown")
def test_leaderships_move_to_other_replicas_and_the_rest_is_told(version: int) -> None:
    async def test(world: World) -> None:
        await world.add(1, 2)
        await all_here(world, 1, 2)
        active = world.active()
        (leaving,) = [member for member in world.members.values() if member is not active]
        await make(world, "moves", (leaving.number, active.number))
        await make(world, "stays", (leaving.number,))
        request = ControlledShutdownRequest(broker_id=leaving.number, broker_epoch=leaving.controller.broker_epoch)
        response = await call_handler(
            {"broker_requests": active.controller.broker_requests}, "controlled_shutdown", version, request
        )
        assert response.error_code == 0
        assert world.state("moves")["leader"] == active.number
        assert response.remaining_partitions == [], "a partition without another replica does not hold up the shutdown"

    in_world(test)


@every_version("controlled_shutdown")
def test_a_broker_that_is_not_the_controller_refuses(version: int) -> None:
    async def test(world: World) -> None:
        await world.add(1, 2)
        await all_here(world, 1, 2)
        (other,) = [member.controller for member in world.members.values() if member is not world.active()]
        response = await call_handler(
            {"broker_requests": other.broker_requests}, "controlled_shutdown", version, ControlledShutdownRequest(broker_id=1)
        )
        assert response.error_code == ErrorCode.STALE_CONTROLLER_EPOCH

    in_world(test)
