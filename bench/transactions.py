"""Load generator for transactions and idempotent producers, and a reader of transactional data.

A process of its own: `python -m bench.transactions transactions|fill|produce|fetch '{json options}'`. It prints `begin` when its
set-up is done, waits for a line, and prints one line of JSON after each measured load.
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys
import time
from dataclasses import dataclass
from typing import TypeVar

import uvloop

from bench import answer_help
from bench import transaction_frames as frames
from bench.groups import Connection, begin, done
from bench.load import values
from tests.kit.raw import batch, fetch_frame

PAUSE_S = 0.02  # what Java's producer waits before it asks again whether the transaction before has ended
SEQUENCES = 1 << 31
MARKER_BYTES = 61 + 17
"""A control batch: its header, and one record with a key of 4 and a value of 6 bytes."""


T = TypeVar("T")


def in_turn(number: int, one: T, other: T) -> tuple[T, T]:
    """Who is first alternates: what comes later on a busy machine must not always be the same."""
    return (one, other) if number % 2 == 0 else (other, one)


class Refused(RuntimeError):
    """By the broker, with an error that a client would not try again."""


class Transactional:
    """One producer with a transactional id: transactions one after the other, each to one partition."""

    def __init__(self, connection: Connection, name: str, topic: str, partition: int, records: bytearray, version: int) -> None:
        self.connection, self.name, self.topic, self.partition = connection, name, topic, partition
        self.records = records
        self.count = int.from_bytes(records[57:61], "big")
        self.one = self._one_v2 if version == 2 else self._one_v1
        self.producer = frames.NO_PRODUCER
        self.sequence = 0
        self.waits = 0

    async def begin(self) -> None:
        await self.connection.call(frames.find_coordinator(self.name))
        while True:
            error, self.producer = frames.read_init(await self.connection.call(frames.init_producer_id(self.name)))
            if not error:
                return
            await self._not_yet("InitProducerId", error)
            await self.connection.call(frames.find_coordinator(self.name))

    async def _not_yet(self, what: str, error: int) -> None:
        if error not in frames.NOT_YET:
            raise Refused(f"{what} of {self.name}: error {error}")
        self.waits += 1
        await asyncio.sleep(PAUSE_S)

    def _batch(self) -> bytearray:
        return frames.stamped(self.records, self.producer, self.sequence, transactional=True)

    async def _one_v1(self, commit: bool) -> None:
        call = self.connection.call
        while error := frames.read_added(
            await call(frames.add_partitions(self.name, self.producer, self.topic, self.partition)), self.topic
        ):
            await self._not_yet("AddPartitionsToTxn", error)
        records = self._batch()
        while error := frames.read_produced(
            await call(frames.produce(self.name, self.topic, self.partition, records)), self.topic
        ):
            await self._not_yet("Produce", error)
        self.sequence = (self.sequence + self.count) % SEQUENCES
        while error := frames.read_ended(await call(frames.end(self.name, self.producer, commit=commit))):
            await self._not_yet("EndTxn", error)

    async def _one_v2(self, commit: bool) -> None:
        call = self.connection.call
        records = self._batch()
        while error := frames.read_produced_v2(
            await call(frames.produce_v2(self.name, self.topic, self.partition, records)), self.topic
        ):
            await self._not_yet("Produce", error)
        while True:
            error, producer = frames.read_ended_v2(await call(frames.end_v2(self.name, self.producer, commit=commit)))
            if not error:
                break
            await self._not_yet("EndTxn", error)
        self.producer, self.sequence = producer, 0


async def transactions(
    bootstrap: str,
    topic: str,
    *,
    producers: int,
    partitions: int,
    record_bytes: int,
    records: int,
    count: int,
    warm_up: int,
    versions: list[int],
) -> None:
    """`count` transactions of `records` records, by `producers` at once, in each generation of the protocol in turn."""
    template = batch(values(records, record_bytes))
    for version in versions:
        team = [
            Transactional(
                await Connection.open(bootstrap), f"bench-{version}-{number}", topic, number % partitions, bytearray(template),
                version,
            )
            for number in range(producers)
        ]  # fmt: skip
        await team[0].begin()  # the topic of transactions is made once
        await asyncio.gather(*(each.begin() for each in team[1:]))

        async def run(total: int, team: list[Transactional] = team) -> None:
            left = total

            async def go(each: Transactional) -> None:
                nonlocal left
                while left > 0:
                    left -= 1
                    await each.one(True)

            await asyncio.gather(*(go(each) for each in team))

        await run(warm_up)
        waits = sum(each.waits for each in team)
        await begin(version=version)
        started = time.perf_counter()
        await run(count)
        done(count=count, seconds=time.perf_counter() - started, waits=sum(each.waits for each in team) - waits)
        for each in team:
            each.connection.writer.close()


async def fill(bootstrap: str, topic: str, *, partitions: int, record_bytes: int, records: int, count: int, abort: int) -> None:
    """A topic of transactions, `count` to each partition, one producer for each; every `abort`-th is aborted."""
    template = batch(values(records, record_bytes))

    async def write(partition: int) -> None:
        producer = Transactional(
            await Connection.open(bootstrap), f"fill-{topic}-{partition}", topic, partition, bytearray(template), 1
        )
        await producer.begin()
        for number in range(count):
            await producer.one((number + 1) % abort != 0)

    await begin()
    await asyncio.gather(*(write(partition) for partition in range(partitions)))
    done(batch_bytes=len(template), batch_records=records)


async def produce(
    bootstrap: str, topic: str, *, partitions: int, connections: int, record_bytes: int, records: int, requests: int, rounds: int
) -> None:
    """The same produce requests without a producer id and with one, in turn; each connection waits for its answer."""
    template = batch(values(records, record_bytes))
    openings = [await Connection.open(bootstrap) for _ in range(connections)]
    producers = []
    for opening in openings:
        while True:
            error, producer = frames.read_init(await opening.call(frames.init_producer_id(None)))
            if not error:
                break
            await asyncio.sleep(PAUSE_S)
        producers.append(producer)
    sequences = [0] * connections

    async def run(idempotent: bool, total: int) -> None:
        left = total

        async def go(number: int) -> None:
            nonlocal left
            mine, call = bytearray(template), openings[number].call
            partition = number % partitions
            while left > 0:
                left -= 1
                # Also without an id the CRC is made anew: the generator does the same work for both.
                if idempotent:
                    frames.stamped(mine, producers[number], sequences[number])
                    sequences[number] += records
                else:
                    frames.stamped(mine, frames.NO_PRODUCER, -1)
                error = frames.read_produced(await call(frames.produce(None, topic, partition, mine)), topic)
                if error:
                    raise Refused(f"Produce: error {error}")

        await asyncio.gather(*(go(number) for number in range(connections)))

    for idempotent in (False, True):
        await run(idempotent, requests // 4)
    for number in range(rounds):
        for idempotent in in_turn(number, False, True):
            await begin()
            started = time.perf_counter()
            await run(idempotent, requests)
            done(idempotent=idempotent, requests=requests, seconds=time.perf_counter() - started)


class Reader(asyncio.BufferedProtocol):
    """Reads one partition of what `fill` wrote, from its beginning to its end, in fetches of 1 MB; looks at the heads only."""

    def __init__(self, topic: str, partition: int, isolation: int, layout: Layout) -> None:
        self.layout = layout
        self.frame = bytearray(fetch_frame(topic, [(partition, 0)], max_bytes=1 << 20))
        # A frame ends with: isolation 1, session 8, topics 4, name, partitions 4, partition 4, epoch 4, offset 8, log start 8,
        # max bytes 4, forgotten 4, rack 2.
        self.offset_at = len(self.frame) - 26
        self.frame[len(self.frame) - 34 - 4 - (2 + len(topic)) - 4 - 8 - 1] = isolation
        self.partition_at = 4 + 4 + 4 + 2 + 4 + 4 + 2 + len(topic) + 4  # in the answer, with its length
        self.buffer = memoryview(bytearray(1 << 20))
        self.head = bytearray()
        self.missing = self.position = 0
        self.done: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.next()

    def next(self) -> None:
        layout = self.layout
        if self.position >= layout.count * layout.unit_bytes:
            self.done.set_result(self.position)
            self.transport.close()
            return
        units, rest = divmod(self.position, layout.unit_bytes)
        offset = units * (layout.batch_records + 1) + (layout.batch_records if rest else 0)
        struct.pack_into(">q", self.frame, self.offset_at, offset)
        self.transport.write(bytes(self.frame))  # type: ignore[attr-defined]

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.buffer

    def buffer_updated(self, count: int) -> None:
        if self.missing:
            self.missing -= count
        else:
            self.head += self.buffer[:count]
            if not self._has_head():
                return
        if self.missing == 0:
            self.next()

    def _has_head(self) -> bool:
        at, head = self.partition_at, self.head
        if len(head) < at + 34:
            return False
        aborted = max(struct.unpack_from(">i", head, at + 30)[0], 0)
        records_at = at + 34 + 16 * aborted + 4
        if len(head) < records_at + 4:
            return False
        error, size = struct.unpack_from(">h", head, at + 4)[0], struct.unpack_from(">i", head, records_at)[0]
        if error or size <= 0:
            self.done.set_exception(Refused(f"Fetch: error {error}, {size} bytes at {self.position}"))
            self.transport.close()
            return False
        # A reply may end with part of a batch: what is whole counts.
        layout = self.layout
        units, rest = divmod(self.position + size, layout.unit_bytes)
        self.position = units * layout.unit_bytes + (layout.batch_bytes if rest >= layout.batch_bytes else 0)
        self.missing = int.from_bytes(head[:4], "big") + 4 - len(head)
        head.clear()
        return True

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(Refused(f"the broker closed a connection: {error}"))


@dataclass(frozen=True, slots=True)
class Layout:
    """Of a partition: `count` transactions, each one batch and its marker."""

    batch_bytes: int
    batch_records: int
    count: int

    @property
    def unit_bytes(self) -> int:
        return self.batch_bytes + MARKER_BYTES


async def fetch(
    bootstrap: str, topic: str, *, partitions: int, batch_bytes: int, batch_records: int, count: int, rounds: int, times: int
) -> None:
    """All that `fill` wrote, `times` times, one connection a partition; uncommitted and committed in turn."""
    host, port = bootstrap.rsplit(":", 1)
    loop = asyncio.get_running_loop()
    layout = Layout(batch_bytes, batch_records, count)

    async def read(partition: int, isolation: int) -> int:
        _, reader = await loop.create_connection(lambda: Reader(topic, partition, isolation, layout), host, int(port))
        return await reader.done

    for number in range(rounds):
        for isolation in in_turn(number, 0, 1):
            await begin()
            started = time.perf_counter()
            read_bytes = 0
            for _ in range(times):
                read_bytes += sum(await asyncio.gather(*(read(partition, isolation) for partition in range(partitions))))
            done(isolation=isolation, bytes=read_bytes, seconds=time.perf_counter() - started)


def main() -> None:
    answer_help(__doc__)
    kind, options = sys.argv[1], json.loads(sys.argv[2])
    uvloop.run({"transactions": transactions, "fill": fill, "produce": produce, "fetch": fetch}[kind](**options))  # type: ignore[operator]


if __name__ == "__main__":
    main()
