"""Stories of readers: the closest replica, the latest offset of a new leader, a coordinator that moves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ottla.broker.coordinators.group_shards import OFFSETS_TOPIC
from ottla.errors import ErrorCode
from ottla.sim.actors.play import Actor
from ottla.sim.actors.readers import commit_offset, fetch_committed_offsets
from ottla.sim.models.log_files import scan
from ottla.sim.violation import require
from ottla.sim.worlds.story_stage import PLACE, SOON_S, StoryStage


async def closest_replica(stage: StoryStage) -> None:
    """A consumer is sent to the replica in its rack, which serves committed records only; never to one that is not in sync
    (R19)."""
    leader, near, third = stage.three()
    await stage.create(leader, near, third)
    await stage.until_settled()
    await stage.produce()

    async def preferred(rack: str) -> int:
        return int((await stage.fetch(leader, 0, rack)).preferred_read_replica)

    end_s = stage.loop.time() + SOON_S
    while (told := await preferred(f"rack-{near.number}")) != near.number:
        require(stage.loop.time() < end_s, "closest", f"a consumer in the rack of {near.host} is sent to {told}")
        await stage.pass_time(0.5)
    require(await preferred("elsewhere") == -1, "closest", "a consumer outside of all racks is sent to a follower")
    # The third replica does not get the next record: the near one has it, and it is not committed.
    with stage.cut(leader, third):
        await stage.send(leader, b"two have it", acks=1)
        end = stage.replica(leader).log.log_end_offset
        if stage.isr() == {node.number for node in (leader, near, third)}:
            await stage.until(lambda: stage.replica(near).log.log_end_offset >= end, "the near one has it")
        offset = 0
        while True:
            answer = await stage.fetch(near, offset, "")
            batches, _ = scan(bytes(answer.records or b""))
            mark = stage.replica(leader).log.high_watermark
            require(
                not batches or batches[-1].last_offset < mark,
                "read-bound",
                f"{near.host} returns offset {batches[-1].last_offset if batches else -1}, the high watermark is {mark} (R19)",
            )
            if not batches:
                break
            offset = batches[-1].last_offset + 1
        code = ErrorCode((await stage.fetch(near, end + 3, "")).error_code)
        require(
            code == ErrorCode.OFFSET_NOT_AVAILABLE,
            "closest",
            f"a fetch beyond the log end of {near.host} is answered with {code.name} (R19)",
        )
    await stage.until_settled()
    with stage.cut(leader, near):
        await stage.send(leader, b"some have it", acks=1)
        await stage.until(lambda: near.number not in stage.replica(leader).isr, "the near one has left")
        told = await preferred(f"rack-{near.number}")
        require(told == -1, "closest", f"a consumer is sent to {told}, which is not in sync (R19)")


async def latest_offset_of_new_leader(stage: StoryStage) -> None:
    """A new leader does not yet know the high watermark: it answers no latest offset below what was committed (R04)."""
    leader, third = stage.two_others(stage.controller())
    new = stage.controller()
    await stage.create(leader, new, third)
    await stage.until_settled()
    await stage.produce()
    committed = stage.replica(leader).log.high_watermark
    stage.trace.add(f"kill {third.host}; {leader.host} loses its session")
    third.kill()  # it counts as in sync until its session is over
    stage.tree.lose_sessions_of(leader.host)
    await stage.until(lambda: stage.replica(new).is_leader, "the next one leads")
    for version in (4, 5, 9):
        code, offset = await stage.latest_offset(new, version)
        not_yet = ErrorCode.OFFSET_NOT_AVAILABLE if version >= 5 else ErrorCode.LEADER_NOT_AVAILABLE
        require(
            code == not_yet or (code == ErrorCode.NONE and offset >= committed),
            "high-watermark",
            f"{new.host} answers {code.name}, {offset}; the high watermark was {committed} (R04)",
        )
    await stage.start(third)


async def coordinator_moves(stage: StoryStage) -> None:
    """A new coordinator does not yet know the high watermark of its partition; it knows all committed offsets (G07)."""
    await stage.create(*stage.two_others(stage.controller()))
    group, place = "group", (OFFSETS_TOPIC, 0)

    def committer(offset: int) -> Callable[[Actor], Awaitable[None]]:
        async def act(actor: Actor) -> None:
            while not await commit_offset(actor, group, PLACE, offset):
                await actor.backoff()

        return act

    await stage.alone("member", committer(1))
    while True:
        await stage.until_settled()
        state = stage.rules.state(place)
        assert state is not None
        after = [number for number in state.replicas if number != state.leader]
        leader, new, third = (stage.nodes[number - 1] for number in (state.leader, *after))
        if stage.controller() not in (leader, third):
            break
        await stage.replace_controller(stage.controller())
    await stage.alone("member", committer(2))
    stage.trace.add(f"kill {third.host}; {leader.host}, the coordinator, loses its session")
    third.kill()  # it counts as in sync until it lags
    stage.tree.lose_sessions_of(leader.host)

    def has_moved() -> bool:
        now = stage.rules.state(place)
        return now is not None and now.leader == new.number

    await stage.until(has_moved, "another one coordinates")
    found = await stage.cluster.scene.alone("member", lambda actor: fetch_committed_offsets(actor, group, [PLACE]))
    require(found == {PLACE: 2}, "committed", f"{new.host} answers {found}, 2 was committed (G07)")
    await stage.start(third)
