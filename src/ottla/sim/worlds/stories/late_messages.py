"""Stories of messages that arrive late, each refused by one of the fences."""

from __future__ import annotations

from ottla.ports import Delete
from ottla.protocol.registry import API_BY_NAME
from ottla.sim.worlds.story_stage import AFTERWARDS_S, StoryStage


async def late_deletion(stage: StoryStage) -> None:
    """A StopReplica request that deletes a replica arrives when there is another topic of that name.

    It is from a controller that was replaced (C02), for a previous registration of the broker (C03), or was sent again on another
    connection since. Or it is an UpdateMetadata request which says that the topic is gone.
    """
    target, other = stage.two_others(stage.controller())
    controller = stage.controller()
    await stage.create(target, other)
    then = stage.rng.choice(("another controller", "another life", "nothing"))
    late = API_BY_NAME["update_metadata" if then == "nothing" and stage.rng.random() < 0.4 else "stop_replica"].key
    held = stage.network.hold_requests(controller.host, target.host, late)
    await stage.delete()
    await stage.until(lambda: stage.is_gone(target, other), "the topic is gone")
    if then == "another controller":
        await stage.replace_controller(controller)
    elif then == "another life":
        stage.trace.add(f"{target.host} loses its session")
        epoch = target.broker.metadata.broker_epoch if target.broker is not None else -1
        stage.tree.lose_sessions_of(target.host)
        await stage.until(
            lambda: target.broker is not None and target.broker.metadata.broker_epoch > epoch, "it is registered again"
        )
    await stage.create(target, other)
    await stage.produce()
    stage.trace.add(f"{target.host} gets the late request")
    stage.network.release(held)


async def late_isr_change(stage: StoryStage) -> None:
    """An AlterPartition request that adds a follower to the ISR arrives when the follower has left it again (C05, C06)."""
    controller = stage.controller()
    leader, follower = stage.two_others(controller)
    await stage.create(leader, follower)
    await stage.produce()
    with stage.cut(leader, follower):
        await stage.produce_one(b"one has it", acks=1)
        await stage.until(lambda: stage.isr() == {leader.number}, "the follower has left")
    held = stage.network.hold_requests(leader.host, controller.host, API_BY_NAME["alter_partition"].key)
    await stage.until(lambda: stage.isr() == {leader.number, follower.number}, "the follower is back")
    with stage.cut(leader, follower):
        await stage.produce_one(b"one has it", acks=1)
        await stage.until(lambda: stage.isr() == {leader.number}, "the follower has left again")
        await stage.produce()
        stage.trace.add(f"{controller.host} gets the first AlterPartition")
        stage.network.release(held)
        await stage.pass_time(AFTERWARDS_S)


async def late_write(stage: StoryStage) -> None:
    """A controller does not reach the store, but keeps its session; an operator deletes `/controller`, as Kafka's manual advises.
    The write of the old controller arrives when it reaches the store again (C02)."""
    controller = stage.controller()
    one, other = stage.two_others(controller)
    await stage.create(one, other)
    stage.trace.add(f"{controller.host} does not reach the store")
    controller.cut_store()
    asked = stage.loop.create_task(stage.delete(once=controller))
    await stage.pass_time(0.3)
    stage.trace.add("an operator removes /controller")
    stage.tree.multi([Delete("/controller")], object())
    await stage.until(lambda: stage.find_controller() not in (None, controller), "another one is the controller")
    await stage.delete()
    await stage.until(lambda: stage.is_gone(one, other), "the topic is gone")
    await stage.create(one, other)
    await stage.produce()
    stage.trace.add(f"{controller.host} reaches the store again")
    controller.heal_store()
    await asked


async def late_fetch(stage: StoryStage) -> None:
    """A follower's fetch arrives two leader epochs later. The follower has truncated its log since, and the leader has other
    records at that offset (R08)."""
    leader, other = stage.two_others(stage.controller())
    follower = stage.rng.choice([node for node in stage.nodes if node not in (leader, other)])
    await stage.create(leader, other, follower)
    await stage.produce()
    with stage.cut(leader, other):
        held = stage.network.hold_requests(follower.host, leader.host, API_BY_NAME["fetch"].key)
        await stage.produce_one(b"two have it", acks=1)
        end_offset = stage.replica(leader).log.log_end_offset
        await stage.until(lambda: stage.replica(follower).log.log_end_offset >= end_offset, "the follower has it")
        deposed = await stage.depose(leader, other)
    await stage.until_settled()
    if not deposed or not await stage.depose(other, leader):
        stage.trace.add("another broker leads: this story cannot be told")
        stage.network.release(held)
        return
    await stage.until_settled()
    stage.trace.add(f"{follower.host} gets nothing from {leader.host}")
    stage.network.block(leader.host, follower.host)
    sending = stage.loop.create_task(stage.produce())
    await stage.until(lambda: stage.replica(other).log.log_end_offset >= end_offset, "the other follower has something else")
    stage.trace.add(f"{leader.host} gets the fetch")
    stage.network.release(held)
    await stage.pass_time(AFTERWARDS_S)
    stage.network.heal()
    await sending
