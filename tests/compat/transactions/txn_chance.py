"""A dialogue of two transactional ids with a broker that a seed decides: mostly what a producer does, and much that none should.

The next word may depend on what was heard, and on nothing else: two brokers that answer alike are asked alike.
"""

from __future__ import annotations

import random
from typing import Any

from ottla.client.connection import ClientConnection
from ottla.errors import ErrorCode
from tests.kit.router import Router
from tests.kit.txn_speaker import Producer, Speaker, ready

STEPS = 40
PARTITIONS = 2
INIT = (0, 1, 2, 3, 4, 5)
PRODUCE = (3, 7, 8, 9, 10, 11, 12, 12)
END = (0, 1, 2, 3, 4, 5, 5)
ADD = (0, 1, 2, 3)
COMMIT_OFFSET = (0, 1, 2, 3, 4, 5, 5)
ADD_OFFSETS = (0, 1, 2, 3, 4)


class Wanderer:
    """One transactional id, and the producers it was told to be so far."""

    def __init__(self, speaker: Speaker, chance: random.Random) -> None:
        self.speaker, self.chance = speaker, chance
        self.known: list[Producer] = []
        self.sequences: dict[tuple[Producer, int], int] = {}
        """The next, by producer and partition."""
        self.second = chance.random() < 0.5
        """Whether it is mostly of the second generation."""

    def version(self, versions: tuple[int, ...]) -> int:
        if self.chance.random() < 0.7:
            return versions[-1] if self.second else versions[-1] - 1
        return self.chance.choice(versions)

    def producer(self) -> Producer:
        """Mostly the present one; or an earlier one, one that is yet to be, or nobody."""
        if not self.known:
            return (4711, 0)
        producer_id, epoch = self.known[-1]
        match self.chance.choices(("now", "before", "epoch", "id"), (80, 8, 8, 4))[0]:
            case "before":
                return self.chance.choice(self.known)
            case "epoch":
                return (producer_id, max(0, epoch + self.chance.choice((-2, -1, 1, 2))))
            case "id":
                return (producer_id + 1_000_000, epoch)
        return (producer_id, epoch)

    def learn(self, producer: Producer) -> None:
        if producer[0] >= 0:
            self.known.append(producer)

    async def init(self) -> None:
        chance = self.chance
        version = chance.choice(INIT)
        who = self.producer() if self.known and version >= 3 and chance.random() < 0.5 else (-1, -1)
        self.learn(await self.speaker.init(who, version=version, timeout_ms=chance.choice((600_000, 900_000, 900_000, 900_001))))

    async def add(self) -> None:
        chance = self.chance
        partitions = chance.choice(((0,), (1,), (0, 1), (0, 1), (1, 7)))
        await self.speaker.add(self.producer(), *partitions, version=chance.choice(ADD))

    async def produce(self) -> None:
        chance, producer = self.chance, self.producer()
        partition, count = chance.randrange(PARTITIONS), chance.randint(1, 3)
        expected = self.sequences.get((producer, partition), 0)
        sequence = max(0, expected + chance.choices((0, -1, -2, 1, 5), (82, 6, 4, 4, 4))[0])
        code = await self.speaker.produce(
            producer,
            sequence,
            count,
            partition=partition,
            version=self.version(PRODUCE),
            transactional=chance.random() < 0.96,
        )
        if code == ErrorCode.NONE and sequence == expected:
            self.sequences[producer, partition] = sequence + count

    async def end(self) -> None:
        version = self.version(END)
        following = await self.speaker.end(self.producer(), self.chance.random() < 0.6, version=version)
        if version >= 5:
            self.learn(following)

    async def add_offsets(self) -> None:
        await self.speaker.add_offsets(self.producer(), version=self.chance.choice(ADD_OFFSETS))

    async def commit_offset(self) -> None:
        chance, version = self.chance, self.version(COMMIT_OFFSET)
        fields: dict[str, Any] = {}
        if version >= 3 and chance.random() < 0.15:
            fields = {"generation_id": chance.choice((-1, 0, 3)), "member_id": chance.choice(("", "m"))}
        if chance.random() < 0.05:
            fields["topic"] = "absent"
        await self.speaker.commit_offset(self.producer(), chance.randrange(1_000), version=version, **fields)

    async def look(self) -> None:
        chance, speaker = self.chance, self.speaker
        match chance.choice(("describe", "read", "committed", "producers")):
            case "describe":
                await speaker.describe()
            case "read":
                await speaker.read(chance.randrange(PARTITIONS))
            case "committed":
                await speaker.committed(stable=chance.random() < 0.7)
            case "producers":
                await speaker.producers(chance.randrange(PARTITIONS))


async def converse_at_random(connection: ClientConnection | Router, seed: int) -> list[str]:
    chance = random.Random(seed)
    said: list[str] = []
    topic, group = f"chance-{seed}", f"group-{seed}"
    names = [f"{topic}-{letter}" for letter in "ab"]
    wanderers = []
    for name in names:
        speaker = Speaker(connection, name, said)
        speaker.topic, speaker.group = topic, group
        # Kafka asks the coordinator for several producers at once, and finds the word for all of them by the version of one.
        speaker.alike = {ErrorCode.TRANSACTION_ABORTABLE: ErrorCode.INVALID_TXN_STATE}
        wanderers.append(Wanderer(speaker, chance))
    await ready(connection, topic, names, group, PARTITIONS)
    for _ in range(STEPS):
        one = chance.choice(wanderers)
        acts = (one.init, one.add, one.produce, one.end, one.add_offsets, one.commit_offset, one.look)
        act = chance.choices(acts, (10, 12, 34, 18, 6, 10, 10))[0]
        if not one.known and chance.random() < 0.7:
            act = one.init
        # Whether the markers are written already is not the question here.
        for each in wanderers:
            await each.speaker.settled()
        await act()
    for one in wanderers:
        await one.speaker.describe()
        await one.speaker.committed()
    for partition in range(PARTITIONS):
        await wanderers[0].speaker.read(partition)
        await wanderers[0].speaker.producers(partition)
    return said
