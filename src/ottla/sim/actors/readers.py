"""Readers of both isolation levels, and of committed offsets.

Owns: what a consumer does with a fetch: it drops aborted records by the list of aborted transactions and the markers. Reads
batches with the checkers' code, not with the product's.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.records.batch import CONTROL_BIT, TRANSACTIONAL_BIT, read_batch_header
from ottla.records.record import read_records
from ottla.sim.actors.play import GROUP_KEY, Actor, Address, NoAnswer
from ottla.sim.models.history import Committed, Place, Poll, Seek
from ottla.sim.models.log_files import FoundBatch, scan
from ottla.sim.violation import require

FETCH_VERSIONS: Final = (4, 7, 11, 12, 13, 17)
CLOSEST_VERSIONS: Final = (11, 12, 13, 17)
EPOCH_FROM: Final = 9
"""The version of Fetch in which a consumer names the leader epoch that it knows (KIP-320)."""
ABORT: Final = 0


@dataclass(slots=True)
class Position:
    """Where a reader is in a partition."""

    place: Place
    offset: int
    committed: bool
    leader_epoch: int = -1
    """The leader epoch that the last successful fetch named; -1: none."""
    at_end: bool = False
    high_watermark: int = -1
    aborted: set[int] = field(default_factory=set)
    """Producers whose current transaction is aborted."""


async def poll(
    reader: Actor, position: Position, *, max_bytes: int = 100_000, note: bool = True
) -> list[tuple[int, bytes]] | None:
    """One fetch; what an application would get is noted. None: no answer, or an error."""
    play, place = reader.play, position.place
    start = play.now()
    answer = await _fetch(reader, position, max_bytes)
    if answer is None:
        return None
    batches, end = scan(bytes(answer.records or b""))
    name = f"{place[0]}-{place[1]}"
    require(end == len(answer.records or b""), "read", f"{name}: a fetch at {position.offset} gave bytes that are no batch")
    bound = answer.last_stable_offset if position.committed else answer.high_watermark
    limit = "last stable offset" if position.committed else "high watermark"
    asked = position.offset
    records: list[tuple[int, bytes]] = []
    waiting = (
        sorted((each.first_offset, each.producer_id) for each in answer.aborted_transactions or ()) if position.committed else []
    )
    for batch in batches:
        require(
            batch.last_offset < bound,
            "read-bound",
            f"{name}: offset {batch.last_offset} is read, the {limit} is {bound}",
        )
        while waiting and waiting[0][0] <= batch.last_offset:
            position.aborted.add(waiting.pop(0)[1])
        records += [each for each in _given(batch, position) if each[0] >= position.offset]
        position.offset = max(position.offset, batch.last_offset + 1)
    position.at_end = position.offset >= bound and not batches
    position.high_watermark = answer.high_watermark
    if note:
        at_end = position.at_end and asked >= answer.high_watermark and play.ends_are_told
        play.events.append(Poll(reader.name, place, tuple(records), start, play.now(), position.committed, at_end))
    if records:
        reader.note(f"read {name} {records[0][0]}..{records[-1][0]}: {len(records)}")
    return records


def _given(batch: FoundBatch, position: Position) -> list[tuple[int, bytes]]:
    """The records of a batch that an application gets."""
    info = read_batch_header(batch.data, 0)
    if info.attributes & CONTROL_BIT:
        found = read_records(batch.data, info)
        if found and found[0].key is not None and found[0].key[3] == ABORT:
            position.aborted.discard(info.producer_id)
        return []
    if position.committed and info.attributes & TRANSACTIONAL_BIT and info.producer_id in position.aborted:
        return []
    return [(record.offset, record.value or b"") for record in read_records(batch.data, info)]


async def _fetch(reader: Actor, position: Position, max_bytes: int) -> Any:
    name, index = position.place
    topic = reader.play.topics[name]
    request = FetchRequest(
        max_wait_ms=reader.rng.choice((0, 100, 500)),
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=int(position.committed),
        session_epoch=-1,
        topics=[FetchTopic(topic=name, topic_id=topic.topic_id, partitions=[])],
    )
    address = await reader.leader_of(position.place)
    near = reader.near.get(position.place) if isinstance(reader, Reader) else None
    versions: Sequence[int] = FETCH_VERSIONS
    if isinstance(reader, Reader) and reader.rack:
        request.rack_id, versions = reader.rack, CLOSEST_VERSIONS
    # Nothing of an earlier, abandoned fetch may stay in the set of aborted producers.
    position.aborted = set()
    version = reader.rng.choice(versions)
    epoch = reader.leader_epochs[position.place] if version >= EPOCH_FROM else -1
    asked = FetchPartition(
        partition=index, fetch_offset=position.offset, partition_max_bytes=max_bytes, current_leader_epoch=epoch
    )
    request.topics[0].partitions.append(asked)
    led_epoch = reader.play.led_epoch(position.place, address)
    try:
        response = await reader.call(near or address, "fetch", version, request)
    except NoAnswer:
        reader.forget_leader(position.place)
        await reader.backoff()
        return None
    if not response.responses:
        reader.expect(response.error_code, f"fetch {name}-{index}")
        reader.forget_leader(position.place)
        return None
    answer = response.responses[0].partitions[0]
    # A new leader may not know the high watermark yet, and answers as if the log ended there.
    code = reader.expect(answer.error_code, f"fetch {name}-{index} at {position.offset}", ErrorCode.OFFSET_OUT_OF_RANGE)
    if code:
        # The leader has what was read before; so has a broker that leads in the epoch the request named. A replaced leader that
        # does not know it yet may lack it, and so may a follower that truncated: consumers of Kafka get this error there too.
        is_led = led_epoch is not None and led_epoch == reader.play.led_epoch(position.place, address)
        has_it = near is None and (is_led or (epoch >= 0 and position.leader_epoch >= 0))
        require(
            code != ErrorCode.OFFSET_OUT_OF_RANGE or not has_it or reader.play.offsets_may_shrink,
            "read-bound",
            f"{reader.name}: offset {position.offset} of {name}-{index} is out of range, and was in the log",
        )
        reader.forget_leader(position.place)
        await reader.backoff()
        return None
    if answer.preferred_read_replica >= 0:
        assert isinstance(reader, Reader)
        require(near is None, "closest", f"{reader.name}: {near} does not lead, and names a preferred read replica (R19)")
        reader.go_near(position.place, answer.preferred_read_replica)
        return None
    position.leader_epoch = epoch
    return answer


async def fetch_committed_offsets(
    reader: Actor, group: str, places: Sequence[Place], *, barrier: Place | None = None
) -> dict[Place, int | None]:
    """Fetch the stable committed offsets of a group, and note them.

    `barrier`: commit an offset for this partition first, at the same coordinator. A replaced coordinator that does not know it
    would answer from memory, but cannot commit.
    """
    play = reader.play
    topics: dict[str, list[int]] = {}
    for topic, index in places:
        topics.setdefault(topic, []).append(index)
    request = OffsetFetchRequest(
        require_stable=True,
        groups=[
            OffsetFetchRequestGroup(
                group_id=group,
                topics=[OffsetFetchRequestTopics(name=name, partition_indexes=found) for name, found in topics.items()],
            )
        ],
    )
    while True:
        start = play.now()
        if barrier is not None and not await commit_offset(reader, group, barrier, play.now()):
            await reader.backoff()
            continue
        try:
            response = await reader.ask_coordinator(GROUP_KEY, group, "offset_fetch", reader.rng.choice((8, 9)), request)
        except NoAnswer:
            await reader.backoff()
            continue
        answer = response.groups[0]
        code = reader.expect(answer.error_code, f"fetch the offsets of {group}")
        found: dict[Place, int | None] = {}
        for topic in answer.topics:
            for partition in topic.partitions:
                code = code or reader.expect(partition.error_code, f"fetch the offsets of {group}")
                offset = partition.committed_offset
                found[topic.name, partition.partition_index] = offset if offset >= 0 else None
        if code:
            reader.look_again(GROUP_KEY, group, code)
            await reader.backoff()
            continue
        for place, committed in found.items():
            play.events.append(Committed(group, place, committed, start, play.now()))
        reader.note(f"{group} is at {sorted(found.items())}")
        return found


async def commit_offset(reader: Actor, group: str, place: Place, offset: int) -> bool:
    name, index = place
    partition = OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="")
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[OffsetCommitRequestTopic(name=name, partitions=[partition])],
    )
    try:
        response = await reader.ask_coordinator(GROUP_KEY, group, "offset_commit", 8, request)
    except NoAnswer:
        return False
    code = reader.expect(response.topics[0].partitions[0].error_code, f"commit for {group}")
    reader.look_again(GROUP_KEY, group, code)
    return code == 0


class Watcher(Actor):
    """Fetches the committed offsets of groups now and then."""

    groups: dict[str, list[Place]]

    async def run(self) -> None:
        while True:
            group = self.rng.choice(sorted(self.groups))
            await fetch_committed_offsets(self, group, self.groups[group])
            await asyncio.sleep(self.rng.random())


class Reader(Actor):
    """Reads all partitions from their start."""

    def __init__(self, name: str, *rest: Any, committed: bool) -> None:
        super().__init__(name, *rest)
        self.committed = committed
        self.positions: dict[Place, Position] = {}
        self.read: dict[Place, list[tuple[int, bytes]]] = {}
        self.rack = ""
        """Its `client.rack`; empty: it reads from leaders."""
        self.near: dict[Place, Address] = {}
        """Preferred read replicas that leaders named (KIP-392)."""

    def go_near(self, place: Place, broker_id: int) -> None:
        self.near[place] = next(address for address in self.play.brokers if self.play.ids[address] == broker_id)
        self.note(f"reads {place[0]}-{place[1]} from broker {broker_id}, which is near")

    def forget_leader(self, place: Place) -> None:
        super().forget_leader(place)
        self.near.pop(place, None)

    def position(self, place: Place) -> Position:
        found = self.positions.get(place)
        if found is None:
            found = self.positions[place] = Position(place, 0, self.committed)
            self.play.events.append(Seek(self.name, place, 0))
        return found

    async def run(self) -> None:
        rng: random.Random = self.rng
        while True:
            await self.step()
            place = rng.choice(self.play.places())
            await poll(self, self.position(place), max_bytes=rng.choice((1, 300, 2000, 100_000)))
            await asyncio.sleep(rng.random() * 0.4)

    async def read_all(self, places: Sequence[Place], ends: Mapping[Place, int], *, note: bool = True) -> None:
        """Read each partition to its end."""
        for place in places:
            position = self.position(place) if note else Position(place, 0, self.committed)
            gathered = self.read.setdefault(place, [])
            while position.offset < ends[place]:
                gathered += await poll(self, position, note=note) or ()
