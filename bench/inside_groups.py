"""CPU of group requests inside the broker, without the kernel's sockets. As `bench.inside`, for members of groups.

python -m bench.inside_groups            # µs of CPU for a heartbeat of one of 1,000 groups; ms for a rebalance of 100 members
python -m bench.inside_groups profile    # the same under cProfile (functions compiled by mypyc are not shown)
"""

from __future__ import annotations

import asyncio
import cProfile
import gc
import pstats
import sys
import time

from bench import answer_help
from bench import group_frames as frames
from bench.inside import Inside, started
from ottla.cli.serve import GC_THRESHOLDS
from ottla.runtime.loop import run

GROUPS = 1_000
MEMBERS = 100
PARTITIONS = 1_000
LOOKS = 5
ROUNDS = 20


class Team:
    """The members of one group, on connections of their own."""

    def __init__(self, inside: Inside, group: str, size: int) -> None:
        self.inside = inside
        self.group = group
        self.ids = [""] * size
        self.generation = 0
        self.turn = 0
        self.spent_ns = 0

    async def join(self) -> None:
        """One generation more, from JoinGroup to the answers to SyncGroup."""
        self.turn += 1
        joins = [bytearray(frames.join(self.group, name, "t", self.turn)) for name in self.ids]
        joined = [frames.read_joined(reply) for reply in await self.ask(joins)]
        for at, found in enumerate(joined):
            if found.error == frames.MEMBER_ID_REQUIRED:
                self.ids[at] = found.member
            else:
                assert not found.error, found.error
        if any(found.error for found in joined):
            await self.join()
            return
        everyone = next(found.members for found in joined if found.members)
        shares = {name: frames.assignment("t", list(range(at, PARTITIONS, len(everyone)))) for at, name in enumerate(everyone)}
        self.generation = joined[0].generation
        syncs = [
            bytearray(frames.sync(self.group, self.generation, name, shares if found.members else {}))
            for name, found in zip(self.ids, joined, strict=True)
        ]
        given = [frames.read_synced(reply) for reply in await self.ask(syncs)]
        assert all(not error for error, _ in given)
        assert sum(count for _, count in given) == PARTITIONS

    async def ask(self, requests: list[bytearray]) -> list[bytes]:
        inside, count = self.inside, len(requests)
        began = time.thread_time_ns()
        for connection, frame in zip(inside.connections, requests, strict=False):
            inside.send(connection, frame)
        while not all(connection.idle for connection in inside.connections[:count]):
            await asyncio.sleep(0)
        self.spent_ns += time.thread_time_ns() - began
        return [bytes(sink.last[4:]) for sink in inside.sinks[:count]]


async def rebalance(inside: Inside, profile: cProfile.Profile | None) -> float:
    """The CPU of one in ms, that of the loop's turns included, that of making and reading the members' bytes not."""
    team = Team(inside, f"large-{time.monotonic_ns()}", MEMBERS)
    await team.join()
    team.spent_ns = 0
    if profile is not None:
        profile.enable()
    for _ in range(ROUNDS):
        await team.join()
    if profile is not None:
        profile.disable()
    return team.spent_ns / ROUNDS / 1e6


async def main(wanted: str) -> None:
    gc.set_threshold(*GC_THRESHOLDS)  # as in service
    async with started(PARTITIONS, {"group.initial.rebalance.delay.ms": "0"}) as inside:
        await inside.broker.groups.shards.topic.leader_of("")
        teams = [Team(inside, f"group-{number}", 1) for number in range(GROUPS)]
        for team in teams:
            await team.join()
        beats = [bytearray(frames.heartbeat(team.group, team.generation, team.ids[0])) for team in teams]
        longest = max(map(len, beats))
        same = [beat for beat in beats if len(beat) == longest]
        profile = cProfile.Profile(time.thread_time) if wanted == "profile" else None
        if profile is not None:
            profile.runcall(inside.spend, same)
            pstats.Stats(profile).sort_stats("tottime").print_stats(25)
            profile = cProfile.Profile(time.thread_time)
            await rebalance(inside, profile)
            pstats.Stats(profile).sort_stats("tottime").print_stats(45)
        else:
            print(f"heartbeat {min(inside.spend(same) for _ in range(LOOKS)):6.2f} µs")
            print(f"rebalance {min([await rebalance(inside, None) for _ in range(LOOKS)]):6.2f} ms")


if __name__ == "__main__":
    answer_help(__doc__)
    run(main(sys.argv[1] if len(sys.argv) > 1 else ""))
