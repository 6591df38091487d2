"""Load generator for groups: many small groups that send heartbeats and commits, and rebalances of a large group.

A process of its own: `python -m bench.groups steady|rebalance|rebalance848 '{json options}'`. It prints `begin` when its set-up
is done, waits for a line, and prints one line of JSON after each measured load.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import uuid
from collections import Counter
from typing import Any

import uvloop

from bench import answer_help
from bench import group_frames as frames
from bench.load import ProduceConnection, Run, run_connections


class Connection:
    """One request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def open(cls, bootstrap: str) -> Connection:
        host, port = bootstrap.rsplit(":", 1)
        return cls(*await asyncio.open_connection(host, int(port), limit=1 << 22))

    async def call(self, frame: bytes) -> bytes:
        self.writer.write(frame)
        return await self.reader.readexactly(int.from_bytes(await self.reader.readexactly(4), "big"))


async def begin(**about: Any) -> None:
    """Hands over to who measures, and goes on when told."""
    print(json.dumps({"begin": about}), flush=True)
    await asyncio.to_thread(sys.stdin.readline)


def done(**figures: Any) -> None:
    print(json.dumps(figures), flush=True)


class Refused(RuntimeError):
    """The group has gone on."""


class Member:
    """Of a classic group."""

    def __init__(self, connection: Connection, group: str, topic: str) -> None:
        self.connection, self.group, self.topic = connection, group, topic
        self.id, self.generation = "", -1

    async def join(self, number: int) -> list[str]:
        """Who is in the group, if this is its leader."""
        while True:
            found = frames.read_joined(await self.connection.call(frames.join(self.group, self.id, self.topic, number)))
            if found.error == frames.MEMBER_ID_REQUIRED:
                self.id = found.member
            elif found.error in frames.NOT_YET:
                await self.connection.call(frames.find_coordinator(self.group))
                await asyncio.sleep(0.1)
            elif found.error:
                raise RuntimeError(f"JoinGroup {self.group}: error {found.error}")
            else:
                self.id, self.generation = found.member, found.generation
                return found.members if found.leader == found.member else []

    async def sync(self, assignments: dict[str, bytes]) -> int:
        error, given = frames.read_synced(
            await self.connection.call(frames.sync(self.group, self.generation, self.id, assignments))
        )
        if error:
            raise Refused(f"SyncGroup {self.group}: error {error}")
        return given

    async def beat(self) -> bool:
        """Whether the group wants to be joined again."""
        reply = await self.connection.call(frames.heartbeat(self.group, self.generation, self.id))
        return reply[frames.HEARTBEAT_ERROR_AT - 3] != 0


async def steady(
    bootstrap: str, topic: str, *, groups: int, partitions: int, connections: int, heartbeats: int, commits: int
) -> None:
    """`groups` groups of one member each; then heartbeats, then commits of all partitions, in turn over the groups."""
    openings = [await Connection.open(bootstrap) for _ in range(connections)]
    members = [Member(openings[number % connections], f"group-{number}", topic) for number in range(groups)]

    async def found(mine: list[Member]) -> None:
        for member in mine:
            everyone = await member.join(0)
            await member.sync({name: frames.assignment(topic, list(range(partitions))) for name in everyone})

    await found(members[:1])  # the topic of offsets is made once
    await asyncio.gather(*(found(members[number::connections]) for number in range(connections)))
    for opening in openings:
        opening.writer.close()
    for kind, requests in (("heartbeats", heartbeats), ("commits", commits)):
        await begin(kind=kind)
        shares: list[list[bytes]] = []
        for number in range(connections):
            mine = members[number::connections]
            if kind == "heartbeats":
                shares.append([frames.heartbeat(each.group, each.generation, each.id) for each in mine])
            else:
                shares.append(
                    [frames.commit(each.group, each.generation, each.id, topic, partitions, offset)
                     for offset in range(5) for each in mine]
                )  # fmt: skip
        error_at = frames.HEARTBEAT_ERROR_AT if kind == "heartbeats" else frames.commit_error_at(topic)
        run = Run(connections, requests, 0)
        elapsed = await run_connections(bootstrap, run, [ProduceConnection(run, share, error_at, 1) for share in shares])
        done(requests=run.replies, seconds=elapsed)


async def rebalance(bootstrap: str, topic: str, *, members: int, partitions: int, rounds: int) -> None:
    """All join, one of them shares out, all get their share; again and again, each time because all want something else."""
    team = [Member(await Connection.open(bootstrap), "large", topic) for _ in range(members)]

    async def take_part(member: Member, number: int) -> int:
        everyone = await member.join(number)
        shares = {name: frames.assignment(topic, list(range(at, partitions, len(everyone)))) for at, name in enumerate(everyone)}
        return await member.sync(shares)

    # They come one by one, so there are several smaller rebalances first, followed as clients do it: by heartbeats.
    all_in = asyncio.Event()
    synced: Counter[int] = Counter()

    async def come(member: Member) -> None:
        while not all_in.is_set():
            try:
                await take_part(member, 0)
            except Refused:
                continue
            synced[member.generation] += 1
            if synced[member.generation] == members:
                all_in.set()
            while not all_in.is_set() and not await member.beat():
                await asyncio.sleep(0.05)

    await asyncio.wait_for(asyncio.gather(*(come(member) for member in team)), 60)
    await begin()
    started = time.perf_counter()
    for number in range(rounds):
        given = await asyncio.gather(*(take_part(member, 1 + number) for member in team))
        assert sum(given) == partitions, "all partitions are given"
    done(rounds=rounds, seconds=time.perf_counter() - started)


class Beating:
    """A member of the new protocol: it takes what it is given and gives back what it is not, at once."""

    def __init__(self, connection: Connection, group: str, topic: str) -> None:
        self.connection, self.group, self.topic = connection, group, topic
        self.id, self.epoch = str(uuid.uuid4()), 0
        self.owned: tuple[bytes, list[int]] = (bytes(16), [])
        self.requests = 0

    async def beat(self, *, all_of_it: bool = False) -> bool:
        """Whether something changed, so that the coordinator should hear of it at once."""
        first = self.epoch == 0
        topic = self.topic if first or all_of_it else None
        said = self.owned if first or all_of_it else None
        reply = await self.connection.call(frames.consumer_heartbeat(self.group, self.id, self.epoch, topic, said))
        self.requests += 1
        found = frames.read_consumer_heartbeat(reply)
        if found.error in frames.NOT_YET:
            await self.connection.call(frames.find_coordinator(self.group))
            await asyncio.sleep(0.1)
            return True
        if found.error:
            raise RuntimeError(f"ConsumerGroupHeartbeat: error {found.error}")
        self.epoch = found.epoch
        if found.given is None or found.given[1] == self.owned[1]:
            return False
        self.owned = found.given
        return True

    async def leave(self) -> None:
        await self.connection.call(frames.consumer_heartbeat(self.group, self.id, -1, None, None))
        self.epoch, self.owned = 0, (bytes(16), [])


async def rebalance848(
    bootstrap: str, topic: str, *, members: int, partitions: int, rounds: int, interval_s: float = 0.1
) -> None:
    """Half of the members leave and come back; each beats every `interval_s`, and at once after a change, as clients do."""
    team = [Beating(await Connection.open(bootstrap), "large848", topic) for _ in range(members)]

    def settled() -> bool:
        return sum(len(each.owned[1]) for each in team) == partitions and len({each.epoch for each in team}) == 1

    async def live(member: Beating, until: asyncio.Event) -> None:
        changed = False
        while not until.is_set():
            changed = await member.beat(all_of_it=changed)
            if settled():
                until.set()
            if not changed:
                try:
                    await asyncio.wait_for(until.wait(), interval_s)
                except TimeoutError:
                    pass

    async def settle() -> None:
        until = asyncio.Event()
        await asyncio.wait_for(asyncio.gather(*(live(member, until) for member in team)), 120)

    await team[0].beat()
    await settle()
    await begin()
    started = time.perf_counter()
    requests = sum(each.requests for each in team)
    for _ in range(rounds):
        for member in team[::2]:
            await member.leave()
        await settle()
    done(rounds=rounds, seconds=time.perf_counter() - started, requests=sum(each.requests for each in team) - requests)


def main() -> None:
    answer_help(__doc__)
    kind, options = sys.argv[1], json.loads(sys.argv[2])
    uvloop.run({"steady": steady, "rebalance": rebalance, "rebalance848": rebalance848}[kind](**options))  # type: ignore[operator]


if __name__ == "__main__":
    main()
