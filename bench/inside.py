"""CPU of one request inside the broker, without the kernel's sockets and the event loop.

    python -m bench.inside            # µs of CPU per request, by kind; the lowest of several runs
    python -m bench.inside fetch      # only kinds with "fetch" in their name
    python -m bench.inside quotas     # what quotas that nobody exceeds add to a request
    python -m bench.inside acls       # what an authorizer with 10,000 ACLs adds to a request
    python -m bench.inside profile    # the same under cProfile (functions compiled by mypyc do not show)

Broker, log and connections are real; the transport drops what is written to it.
"""

from __future__ import annotations

import asyncio
import cProfile
import pstats
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from bench import answer_help
from ottla.broker.app import Broker
from ottla.broker.network.connection import Connection
from ottla.broker.network.request_memory import HEAD_ROOM
from ottla.broker.network.socket_server import ListenerUse
from ottla.cluster.requests import NewTopic
from ottla.cluster.settings import BrokerSettings
from ottla.metrics import Counters
from ottla.protocol.headers import encode_request
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.registry import API_BY_KEY
from ottla.records.record import build_batch
from ottla.runtime.loop import ThreadWorkers, real_world, run
from ottla.security.acl import ALLOW, GROUP, PREFIXED, READ, TOPIC, WRITE, AclEntry, ResourcePattern
from ottla.security.quotas import FETCH, PRODUCE, REQUEST, Entity
from ottla.types import TopicPartition

CONNECTIONS = 100
PARTITIONS = 6
REQUESTS = 20_000
POLLS = 100
LOOKS = 5
_PRODUCE, _FETCH = 0, 1


class Sink:
    """A transport that drops what it is given."""

    def __init__(self) -> None:
        self.last = b""

    def write(self, data: Any) -> None:
        self.last = data

    def writelines(self, data: Any) -> None:
        self.last = b"".join(data)

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def get_extra_info(self, name: str) -> object:
        return ("127.0.0.1", 1)

    def pause_reading(self) -> None:
        pass

    def abort(self) -> None:
        self.last = b""


def produce_frame(
    partition: int, acks: int, version: int, topic_id: bytes = bytes(16), producer_id: int = -1, sequence: int = -1
) -> bytearray:
    batch = build_batch(
        [(None, b"v" * 100, [], int(time.time() * 1000))],
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=sequence,
    )
    topic = TopicProduceData(
        name="t", topic_id=topic_id, partition_data=[PartitionProduceData(index=partition, records=bytes(batch))]
    )
    request = ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[topic])
    return bytearray(b"".join(encode_request(API_BY_KEY[_PRODUCE], version, 7, "bench", request)))  # type: ignore[arg-type]


def fetch_frame(
    partition: int, version: int, offset: int = 0, max_wait_ms: int = 0, session_id: int = 0, session_epoch: int = -1
) -> bytearray:
    asked = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=100)
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[FetchTopic(topic="t", partitions=[asked])],
    )
    return bytearray(b"".join(encode_request(API_BY_KEY[_FETCH], version, 7, "bench", request)))  # type: ignore[arg-type]


class Inside:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.sinks = [Sink() for _ in range(CONNECTIONS)]
        self.connections = []
        use = ListenerUse("bench")
        for sink in [*self.sinks, Sink()]:
            connection = Connection(broker.server, use)
            connection.connection_made(sink)  # type: ignore[arg-type]
            self.connections.append(connection)
        self.spare = self.connections.pop()

    def spend(self, frames: list[bytearray]) -> float:
        """Send them in turn; the CPU of one in µs. What it costs to put a request into the buffer is taken off."""
        requests = REQUESTS
        connections, shared = self.connections, self.broker.server.memory.shared
        numbers = [(connections[at % CONNECTIONS], frames[at % len(frames)], len(frames[0])) for at in range(requests)]
        begun = time.thread_time_ns()
        for _, frame, size in numbers:
            shared[HEAD_ROOM : HEAD_ROOM + size] = frame
        between = time.thread_time_ns()
        for connection, frame, size in numbers:
            connection.get_buffer(65536)
            shared[HEAD_ROOM : HEAD_ROOM + size] = frame
            connection.buffer_updated(size)
        return (time.thread_time_ns() - between - (between - begun)) / requests / 1000

    def send(self, connection: Connection, frame: bytearray) -> None:
        size, shared = len(frame), self.broker.server.memory.shared
        connection.get_buffer(65536)
        shared[HEAD_ROOM : HEAD_ROOM + size] = frame
        connection.buffer_updated(size)

    async def poll(self, *, session: bool) -> float:
        """Consumers who wait at the end of a log, and get the record that comes: the CPU of one such fetch in µs, the record's
        own (one for seventeen fetches) and the turns of the loop included."""
        ends = [self.broker.partitions.get(TopicPartition("t", at)).log.log_end_offset for at in range(PARTITIONS)]
        ids = [0] * CONNECTIONS
        for at, connection in enumerate(self.connections) if session else ():
            self.send(connection, fetch_frame(at % PARTITIONS, 12, ends[at % PARTITIONS], session_epoch=0))
            ids[at] = int.from_bytes(self.sinks[at].last[15:19], "big")
        produces = [produce_frame(at, 1, 9) for at in range(PARTITIONS)]
        rounds = [
            [
                fetch_frame(at % PARTITIONS, 12, ends[at % PARTITIONS] + turn, 60_000, ids[at], turn + 1 if session else -1)
                for at in range(CONNECTIONS)
            ]
            for turn in range(POLLS)
        ]
        begun = time.thread_time_ns()
        for frames in rounds:
            for connection, frame in zip(self.connections, frames, strict=True):
                self.send(connection, frame)
            assert not self.connections[0].idle
            for produce in produces:
                self.send(self.spare, produce)
            while not self.connections[-1].idle:
                await asyncio.sleep(0)
        return (time.thread_time_ns() - begun) / POLLS / CONNECTIONS / 1000


class Idempotent:
    """Producers, one for each partition, that go on counting."""

    def __init__(self) -> None:
        self.sent = 0

    def frames(self, count: int) -> list[bytearray]:
        begun, self.sent = self.sent, self.sent + count
        return [
            produce_frame(at % PARTITIONS, -1, 9, producer_id=1000 + at % PARTITIONS, sequence=at // PARTITIONS)
            for at in range(begun, self.sent)
        ]


@asynccontextmanager
async def started(partitions: int, settings: Mapping[str, str] | None = None) -> AsyncIterator[Inside]:
    """A broker in a directory of its own, with a topic `t`."""
    with tempfile.TemporaryDirectory(prefix="ottla-inside-") as directory:
        given = {"log.dirs": directory, "listeners": "PLAINTEXT://127.0.0.1:0", "broker.id": "1"}
        parsed = BrokerSettings.parse(given | dict(settings or {}))
        world = real_world(Counters(), parsed)
        broker = Broker(parsed, world)
        await broker.start()
        try:
            await broker.controller.topic_requests.create([NewTopic("t", partitions, 1)])
            yield Inside(broker)
        finally:
            await broker.stop()
            if isinstance(world.workers, ThreadWorkers):
                world.workers.close()


QUOTAS: dict[str, dict[Entity, dict[str, float]]] = {
    "no quotas": {},
    "of other clients": {(("client-id", "other"),): {PRODUCE: 1e12, FETCH: 1e12, REQUEST: 1e9}},
    "bytes": {(("user", None),): {PRODUCE: 1e12, FETCH: 1e12}},
    "request time": {(("user", None),): {REQUEST: 1e9}},
    "of every user": {(("user", None),): {PRODUCE: 1e12, FETCH: 1e12, REQUEST: 1e9}},
    "bytes and time": {(("user", "ANONYMOUS"), ("client-id", "bench")): {PRODUCE: 1e12, FETCH: 1e12, REQUEST: 1e9}},
}


AUTHORIZER = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}


def set_acls(broker: Broker) -> None:
    """10,000 ACLs of others, and those that allow everybody to use the topic and the groups."""
    authorizer = broker.metadata.authorizer
    assert authorizer is not None
    entries = {
        ResourcePattern(TOPIC, f"topic-{number}"): frozenset({AclEntry(f"User:u{number}", "*", READ, ALLOW)})
        for number in range(10_000)
    }
    everyone = frozenset({AclEntry("User:*", "*", operation, ALLOW) for operation in (READ, WRITE)})
    allowed = {ResourcePattern(TOPIC, "t", PREFIXED): everyone, ResourcePattern(GROUP, "group-", PREFIXED): everyone}
    authorizer.replace_all({**entries, **allowed})


async def quotas() -> None:
    """The kinds of quotas in turn, many times over: the machine is as busy for each."""
    async with started(PARTITIONS) as inside:
        broker = inside.broker
        frames = {
            "produce v9 acks=1": [produce_frame(at, 1, 9) for at in range(PARTITIONS)],
            "fetch v12": [fetch_frame(at, 12) for at in range(PARTITIONS)],
        }
        costs: dict[tuple[str, str], list[float]] = {(kind, name): [] for kind in frames for name in QUOTAS}
        for _ in range(5 * LOOKS):
            for name, limits in QUOTAS.items():
                broker.quotas.configure(limits)
                broker.dispatcher.forget_routes()
                for connection in inside.connections:
                    connection.header_cache = None
                for kind, sent in frames.items():
                    costs[kind, name].append(inside.spend(sent))
        for kind in frames:
            base = min(costs[kind, "no quotas"])
            for name in QUOTAS:
                least = min(costs[kind, name])
                print(f"{kind:20} {name:20} {least:6.2f} µs  {100 * (least - base) / base:+5.1f} %")


async def acls() -> None:
    """With and without an authorizer in turn. It has 10,000 ACLs; clients repeat themselves, as clients do."""
    async with started(PARTITIONS, AUTHORIZER) as inside:
        broker = inside.broker
        set_acls(broker)
        dispatcher: Any = broker.dispatcher
        kinds = {"no authorizer": None, "ACLs": dispatcher._authorize}
        frames = {
            "produce v9 acks=1": [produce_frame(at, 1, 9) for at in range(PARTITIONS)],
            "fetch v12": [fetch_frame(at, 12) for at in range(PARTITIONS)],
        }
        costs: dict[tuple[str, str], list[float]] = {(kind, name): [] for kind in frames for name in kinds}
        for _ in range(5 * LOOKS):
            for name, authorize in kinds.items():
                dispatcher._authorize = authorize
                dispatcher.forget_routes()
                for connection in inside.connections:
                    connection.header_cache = None
                for kind, sent in frames.items():
                    costs[kind, name].append(inside.spend(sent))
        for kind in frames:
            base = min(costs[kind, "no authorizer"])
            for name in kinds:
                least = min(costs[kind, name])
                print(f"{kind:20} {name:20} {least:6.2f} µs  {100 * (least - base) / base:+5.1f} %")


async def main(wanted: str) -> None:
    if wanted == "acls":
        await acls()
        return
    if wanted == "quotas":
        await quotas()
        return
    async with started(PARTITIONS) as inside:
        topic_id = inside.broker.image.topics["t"].topic_id
        parts = range(PARTITIONS)
        kinds: dict[str, Callable[[], list[bytearray]]] = {
            "produce v7 acks=1": lambda: [produce_frame(at, 1, 7) for at in parts],
            "produce v9 acks=1": lambda: [produce_frame(at, 1, 9) for at in parts],
            "produce v9 acks=all": lambda: [produce_frame(at, -1, 9) for at in parts],
            "produce v13 acks=all": lambda: [produce_frame(at, -1, 13, topic_id) for at in parts],
            "idempotent v9 acks=all": partial(Idempotent().frames, REQUESTS),
            "fetch v12": lambda: [fetch_frame(at, 12) for at in parts],
        }
        for kind, made in kinds.items():
            if wanted not in ("", "profile") and wanted not in kind:
                continue
            if wanted == "profile":
                profile = cProfile.Profile(time.thread_time)
                frames = made()
                profile.runcall(inside.spend, frames)
                print(kind)
                pstats.Stats(profile).sort_stats("tottime").print_stats(25)
            else:
                least = min(inside.spend(made()) for _ in range(LOOKS))
                print(f"{kind:24} {least:6.2f} µs   ({len(inside.sinks[0].last)} bytes back)")
        for session in (False, True) if "waits".startswith(wanted) or wanted == "fetch" else ():
            costs = [await inside.poll(session=session) for _ in range(LOOKS)]
            print(f"{'fetch v12 that waits':24} {min(costs):6.2f} µs   ({'in a session' if session else 'without session'})")


if __name__ == "__main__":
    answer_help(__doc__)
    run(main(sys.argv[1] if len(sys.argv) > 1 else ""))
