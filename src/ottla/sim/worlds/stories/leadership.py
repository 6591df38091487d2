"""Stories of leaders that stop, die, return, or lose a disk."""

from __future__ import annotations

from ottla.sim.kernel.disk import Fault
from ottla.sim.violation import require
from ottla.sim.worlds.story_stage import QUIET_S, SOON_S, StoryStage

BALANCE_S = 10.0
"""`leader.imbalance.check.interval.seconds`"""


async def broker_stops(stage: StoryStage) -> None:
    """A broker stops cleanly: its partitions have another leader before it is gone, and are never without one (C07)."""
    nodes = stage.three()
    await stage.create(*nodes)
    await stage.until_settled()
    await stage.produce()
    leader = nodes[0]
    stage.was_leaderless = False
    stage.trace.add(f"{leader.host} is asked to stop")
    stopped = stage.loop.create_task(leader.stop())
    while not stopped.done():
        await stage.produce()
    require(stopped.result(), "handover", f"{leader.host} died while it stopped")
    state = stage.state()
    is_relieved = state.leader not in (leader.number, -1) and leader.number not in state.isr and not stage.was_leaderless
    require(
        is_relieved,
        "handover",
        f"{leader.host} has stopped: the leader is {state.leader}, the ISR {state.isr}, leaderless: {stage.was_leaderless} (C07)",
    )
    await stage.produce()
    await stage.start(leader)


async def last_in_sync_dies(stage: StoryStage) -> None:
    """The last replica in sync dies and a stale one is alive: it leads only where unclean elections are allowed, in a new epoch
    and as the only member of the ISR (R16)."""
    allowed = stage.rng.random() < 0.5
    leader, other = stage.two_others(stage.controller())
    await stage.create(leader, other, config={"unclean.leader.election.enable": "true" if allowed else "false"})
    await stage.until_settled()
    await stage.produce()
    stage.trace.add(f"kill {other.host}")
    other.kill()
    await stage.until(lambda: stage.isr() == {leader.number}, "one is in sync")
    await stage.produce()
    if allowed:
        stage.cluster.lossy = True
        stage.acknowledged.clear()
    stage.trace.add(f"kill {leader.host}")
    leader.kill()
    await stage.until(lambda: stage.state().leader == -1, "nobody leads")
    epoch = stage.state().leader_epoch
    await stage.start(other)
    if allowed:
        await stage.until(lambda: stage.state().leader == other.number, "who is there leads", SOON_S)
        state = stage.state()
        require(state.isr == (other.number,), "unclean", f"{other.host} was elected uncleanly, and the ISR is {state.isr}")
        require(state.leader_epoch > epoch, "unclean", f"{other.host} was elected without a new leader epoch: {epoch}")
        await stage.produce()
    else:
        await stage.pass_time(QUIET_S)
        require(
            stage.state().leader == -1, "unclean", f"{other.host} leads, though it was not in sync and unclean elections are off"
        )
    await stage.start(leader)


async def preferred_leader_returns(stage: StoryStage) -> None:
    """The preferred leader dies and returns: it leads again when it is in sync (F54), and not before."""
    nodes = stage.three()
    await stage.create(*nodes)
    await stage.until_settled()
    preferred = nodes[0]
    preferred.kill()
    stage.trace.add(f"kill {preferred.host}")
    await stage.until(lambda: stage.state().leader not in (preferred.number, -1), "another one leads")
    await stage.produce()
    leader = next(node for node in nodes if node.number == stage.state().leader)
    with stage.cut(leader, preferred):
        await stage.start(preferred)
        await stage.pass_time(BALANCE_S + QUIET_S)
        state = stage.state()
        require(state.leader == leader.number, "isr", f"{state.leader} leads, though it is not in sync with {leader.host}")
    await stage.until(lambda: stage.state().leader == preferred.number, "the preferred leader leads", SOON_S)
    await stage.produce()


async def directory_fails(stage: StoryStage) -> None:
    """A directory of the leader fails: another replica leads, and the broker goes on with its other directory (L06)."""
    leader, other = stage.two_others(stage.controller())
    await stage.create(leader, other)
    await stage.until_settled()
    await stage.produce()
    stage.trace.add(f"{leader.host}: writing fails in {stage.replica(leader).data_dir.path}")
    leader.disk.faults.append(Fault("write", f"{stage.replica(leader).data_dir.path}/"))
    writing = stage.loop.create_task(stage.produce())
    await stage.until(lambda: stage.state().leader == other.number, "another one leads", SOON_S, rule="isolation")
    require(leader.alive, "isolation", f"{leader.host} is dead, though one of its directories is sound")
    await writing
    leader.heal_disk()
    leader.kill()
    await stage.start(leader)
