"""Stories of the ISR: too few in it, who may join, lost answers, diverging logs."""

from __future__ import annotations

import asyncio

from ottla.errors import ErrorCode
from ottla.protocol.registry import API_BY_NAME
from ottla.sim.violation import require
from ottla.sim.worlds.story_stage import QUIET_S, SOON_S, StoryStage


async def too_few_in_sync(stage: StoryStage) -> None:
    """Fewer in sync than `min.insync.replicas`: acks=all is not stored, acks=1 is stored and not committed (R11-R13)."""
    leader, other = stage.two_others(stage.controller())
    await stage.create(leader, other, config={"min.insync.replicas": "2"})
    await stage.until_settled()
    await stage.produce()
    replica = stage.replica(leader)
    with stage.cut(leader, other):
        waiting = stage.loop.create_task(stage.send(leader, b"waits", acks=-1, timeout_ms=60_000))
        await stage.until(lambda: stage.isr() == {leader.number}, "the follower has left")
        await stage.until(lambda: replica.isr == (leader.number,), "the leader knows the ISR")
        before, committed = replica.log.log_end_offset, replica.log.high_watermark
        code = await waiting
        allowed = (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.NOT_ENOUGH_REPLICAS)
        require(code in allowed, "min-isr", f"acks=all that waited for replicas is answered with {code.name} (R12)")
        code = await stage.send(leader, b"refused", acks=-1)
        require(code == ErrorCode.NOT_ENOUGH_REPLICAS, "min-isr", f"acks=all with one in sync is answered with {code.name} (R11)")
        end = replica.log.log_end_offset
        require(end == before, "min-isr", f"a refused batch was stored: the log end went from {before} to {end} (R11)")
        code = await stage.send(leader, b"one has it", acks=1)
        require(code == ErrorCode.NONE, "min-isr", f"acks=1 is answered with {code.name}")
        await stage.pass_time(QUIET_S)
        mark = replica.log.high_watermark
        require(mark == committed, "min-isr", f"with one of two in sync the high watermark went from {committed} to {mark} (R13)")
    await stage.until_settled()
    await stage.produce()


async def follower_restarts(stage: StoryStage) -> None:
    """A leader asks to add a follower to the ISR that has crashed since and lost its tail: the request names the previous
    registration of the follower, and is refused (C06, KIP-903)."""
    controller = stage.controller()
    leader, follower = stage.two_others(controller)
    await stage.create(leader, follower)
    await stage.until_settled()
    with stage.cut(leader, follower):
        await stage.send(leader, b"one has it", acks=1)
        await stage.until(lambda: stage.replica(leader).isr == (leader.number,), "the leader knows the ISR")
        await stage.produce()
    held = stage.network.hold_requests(leader.host, controller.host, API_BY_NAME["alter_partition"].key)
    await stage.until(lambda: stage.replica(leader).leadership.pending is not None, "the leader asks to add it")
    for way in ((leader.host, follower.host), (follower.host, leader.host)):
        stage.network.block(*way)
    stage.tree.lose_sessions_of(follower.host)
    follower.crash()
    await stage.start(follower)
    stage.trace.add(f"{controller.host} gets the AlterPartition")
    stage.network.release(held)
    await stage.pass_time(QUIET_S)
    stage.network.heal()


async def follower_below_epoch_start(stage: StoryStage) -> None:
    """A new leader does not yet know the high watermark: a follower that has only reached its own is not in sync (R03)."""
    slow = stage.nodes[-1]
    while stage.controller() is slow:
        await stage.replace_controller(slow)
    new = stage.controller()
    leader, third = stage.rng.sample([node for node in stage.nodes if node not in (slow, new)], 2)
    await stage.create(leader, new, third, slow)
    await stage.until_settled()
    with stage.cut(leader, slow):
        await stage.produce_one(b"not all have it", acks=1)
        await stage.until(lambda: slow.number not in stage.replica(leader).isr, "the slow one has left")
        await stage.send_many(leader, 30)
        end = stage.replica(leader).log.log_end_offset
        while stage.replica(leader).log.high_watermark < end:
            await asyncio.sleep(0.002)
        stage.rules.check()
        stage.trace.add(f"kill {third.host}; {leader.host} loses its session")
        third.kill()  # it counts as in sync until it lags
        stage.tree.lose_sessions_of(leader.host)
        end_s = stage.loop.time() + SOON_S
        while stage.loop.time() < end_s and slow.number not in stage.isr():
            await asyncio.sleep(0.002)
            stage.rules.check()
    await stage.start(third)


async def isr_answer_is_lost(stage: StoryStage) -> None:
    """The controller changes the ISR and its answer is lost: the leader asks again, and is told that it is done (C05)."""
    controller = stage.controller()
    leader, follower = stage.two_others(controller)
    await stage.create(leader, follower)
    await stage.until_settled()
    with stage.cut(leader, follower):
        await stage.send(leader, b"one has it", acks=1)
        await stage.until(lambda: stage.replica(leader).isr == (leader.number,), "the follower has left")
        stage.trace.add(f"{leader.host} gets nothing from {controller.host}")
        stage.network.block(controller.host, leader.host)
        for way in ((leader.host, follower.host), (follower.host, leader.host)):
            stage.network.unblock(*way)
        await stage.until(lambda: stage.isr() == {leader.number, follower.number}, "the follower is back")
        # The leader does not know it yet: the follower counts all the same (R02).
        for way in ((leader.host, follower.host), (follower.host, leader.host)):
            stage.network.block(*way)
        await stage.send(leader, b"one has it", acks=1)
        await stage.pass_time(QUIET_S)
    await stage.until_settled()
    await stage.produce()


async def histories_diverge(stage: StoryStage) -> None:
    """Two replicas lead in turn, each with records that the other never gets. Then one follows the other, which lacks its last
    epoch and has more of the one before: it truncates to the end of its own part of that epoch (R07, KIP-279)."""
    one, other = stage.two_others(stage.controller())
    await stage.create(one, other, config={"unclean.leader.election.enable": "true"})
    await stage.until_settled()
    await stage.produce()
    stage.cluster.lossy = True
    with stage.cut(one, other):
        for _ in range(stage.rng.randint(1, 4)):
            await stage.send(one, b"one has it", acks=1)
        stage.trace.add(f"{one.host} loses its session")
        stage.tree.lose_sessions_of(one.host)
        await stage.until(lambda: stage.replica(other).is_leader, "the other one leads")
        for _ in range(stage.rng.randint(1, 4)):
            await stage.send(other, b"the other has it", acks=1)
        stage.trace.add(f"kill {other.host}")
        other.kill()
        await stage.until(lambda: stage.replica(one).is_leader, "the first one leads again")
        await stage.produce()
    await stage.start(other)
    await stage.until_settled(SOON_S)
