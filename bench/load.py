"""Load generator: prepared frames over many connections on uvloop, so that the broker is the bottleneck and not the client.

A process of its own: `python -m bench.load produce|fetch|latency|handshakes '{json options}'`; it prints one line of JSON. Every
response is counted and its error code checked. A fetch counts whole batches by size: all batches of a benchmark topic are equal.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import ssl
import struct
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import uvloop

from bench import answer_help
from ottla.metrics import Counters
from ottla.runtime.network import RealNetwork
from tests.kit.raw import batch, fetch_frame, produce_frame, read_fetched, read_records


def values(count: int, size: int) -> list[bytes]:
    """Printable, not compressible to nothing, and the same in every run."""
    chance = random.Random(7)
    return [bytes(chance.choices(b"abcdefghijklmnopqrstuvwxyz0123456789", k=size)) for _ in range(count)]


def keyed(batches: int, batch_records: int, record_bytes: int) -> list[bytes]:
    """Equal in size: keys have 16 bytes."""
    same = values(batch_records, record_bytes)
    return [
        batch(same, keys=[b"key-%012d" % (number * batch_records + at) for at in range(batch_records)])
        for number in range(batches)
    ]


class Run:
    """Shared by the connections of one run: when to stop, what was counted."""

    def __init__(self, connections: int, requests: int, seconds: float) -> None:
        self.left = requests or sys.maxsize
        self.end = time.perf_counter() + seconds if seconds else float("inf")
        self.open = connections
        self.replies = self.bytes = 0
        self.done = asyncio.get_running_loop().create_future()
        self.latencies: list[float] = []

    def go_on(self) -> bool:
        if self.left <= 0 or time.perf_counter() >= self.end:
            return False
        self.left -= 1
        return True

    def closed(self, error: str | None = None) -> None:
        self.open -= 1
        if self.done.done():
            return
        if error:
            self.done.set_exception(RuntimeError(error))
        elif self.open == 0:
            self.done.set_result(None)


class ProduceConnection(asyncio.Protocol):
    """Keeps `in_flight` prepared requests on the way, in turn over its partitions."""

    def __init__(self, run: Run, frames: list[bytes], error_at: int, in_flight: int) -> None:
        self.run, self.frames, self.error_at, self.in_flight = run, frames, error_at, in_flight
        self.turn = self.waiting = 0
        self.rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        for _ in range(self.in_flight):
            self.send()
        if not self.waiting:
            transport.close()

    def send(self) -> None:
        if self.run.go_on():
            self.turn += 1
            self.waiting += 1
            self.transport.write(self.frames[self.turn % len(self.frames)])  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        if self.rest:
            data = self.rest + data
        at = 0
        while len(data) - at >= 4:
            size = int.from_bytes(data[at : at + 4], "big") + 4
            if len(data) - at < size:
                break
            if data[at + self.error_at] or data[at + self.error_at + 1]:
                self.run.closed(f"Produce: error {data[at + self.error_at + 1]}")
            at += size
            self.waiting -= 1
            self.run.replies += 1
            self.send()
        self.rest = data[at:]
        if not self.waiting:
            self.transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        self.run.closed(f"the broker closed a connection: {error}" if self.waiting else None)


@dataclass
class Layout:
    """Equal batches: bytes and records of one, batches in the partition."""

    batch_bytes: int
    batch_records: int
    batches: int

    @property
    def end_offset(self) -> int:
        return self.batch_records * self.batches


class FetchConnection(asyncio.BufferedProtocol):
    """Fetches one partition at a time: a partition in order to its end, or (`anywhere`) single batches at random places."""

    def __init__(
        self, run: Run, topic: str, partitions: list[int], layout: Layout, max_bytes: int, anywhere: random.Random | None
    ) -> None:
        self.run, self.layout, self.anywhere, self.partitions = run, layout, anywhere, partitions
        self.frame = bytearray(fetch_frame(topic, [(0, 0)], max_bytes=max_bytes, partition_bytes=max_bytes))
        # A frame ends with: partition 4, epoch 4, offset 8, log start 8, max bytes 4, forgotten 4, rack 2.
        self.partition_at = len(self.frame) - 34
        self.offset_at = len(self.frame) - 26
        self.head_size = 70 + len(topic)
        self.buffer = memoryview(bytearray(1 << 20))
        self.head = bytearray()
        self.missing = 0
        self.offset = 0
        self.waiting = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.next()

    def next(self) -> None:
        self.waiting = False
        if self.anywhere:
            partition = self.anywhere.choice(self.partitions)
            self.offset = self.anywhere.randrange(self.layout.end_offset)
        else:
            partition = self.partitions[0]
            if self.offset >= self.layout.end_offset:
                self.transport.close()
                return
        if not self.run.go_on():
            self.transport.close()
            return
        struct.pack_into(">i", self.frame, self.partition_at, partition)
        struct.pack_into(">q", self.frame, self.offset_at, self.offset)
        self.waiting = True
        self.transport.write(bytes(self.frame))  # type: ignore[attr-defined]

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.buffer

    def buffer_updated(self, count: int) -> None:
        at = 0
        if not self.missing:
            need = self.head_size - len(self.head)
            self.head += self.buffer[: min(need, count)]
            at = min(need, count)
            if len(self.head) < self.head_size:
                return
            size = int.from_bytes(self.head[:4], "big") + 4
            error = struct.unpack_from(">h", self.head, self.head_size - 42)[0]
            records = struct.unpack_from(">i", self.head, self.head_size - 4)[0]
            if error or records <= 0:
                self.run.closed(f"Fetch: error {error}, {records} bytes at offset {self.offset}")
                self.transport.close()
                return
            self.run.bytes += records
            self.offset += records // self.layout.batch_bytes * self.layout.batch_records
            self.missing = size - self.head_size
            self.head.clear()
        self.missing -= count - at
        if self.missing == 0:
            self.run.replies += 1
            self.next()

    def connection_lost(self, error: Exception | None) -> None:
        self.run.closed(f"the broker closed a connection: {error}" if self.waiting else None)


def client_context(authority: str, certificate: str = "") -> ssl.SSLContext:
    """`certificate`: the client's, with its key."""
    context = ssl.create_default_context(cafile=authority)
    if certificate:
        context.load_cert_chain(certificate)
    return context


async def run_connections(
    bootstrap: str, run: Run, connections: list[asyncio.BaseProtocol], authority: str = "", certificate: str = ""
) -> float:
    """With an authority (a file) over TLS, by Ottla's transport: it costs the client less than uvloop's."""
    host, port = bootstrap.rsplit(":", 1)
    network = RealNetwork(Counters())
    context = client_context(authority, certificate) if authority else None
    started = time.perf_counter()
    for connection in connections:
        await network.connect(lambda each=connection: each, host, int(port), context)  # type: ignore[misc]
    await run.done
    return time.perf_counter() - started


async def produce(
    bootstrap: str,
    topic: str,
    *,
    partitions: int,
    record_bytes: int,
    batch_records: int,
    acks: int = 1,
    connections: int = 1,
    in_flight: int = 1,
    requests: int = 0,
    seconds: float = 0,
    keyed_batches: int = 0,
    authority: str = "",
    certificate: str = "",
) -> dict[str, Any]:
    """With `keyed_batches` that many different batches are sent again and again, and every record of one has a key of its own."""
    records = batch(values(batch_records, record_bytes))
    if keyed_batches:
        different = keyed(keyed_batches, batch_records, record_bytes)
        frames = [produce_frame(topic, partition, each, acks) for each in different for partition in range(partitions)]
        records = different[0]
    else:
        frames = [produce_frame(topic, partition, records, acks) for partition in range(partitions)]
    error_at = 22 + len(topic)
    run = Run(connections, requests, seconds)
    shares = [frames[index % len(frames) :: connections] or [frames[index % len(frames)]] for index in range(connections)]
    producers: list[asyncio.BaseProtocol] = [ProduceConnection(run, share, error_at, in_flight) for share in shares]
    elapsed = await run_connections(bootstrap, run, producers, authority, certificate)
    return {"requests": run.replies, "bytes": run.replies * len(records), "seconds": elapsed, "batch_bytes": len(records)}


async def fetch(
    bootstrap: str,
    topic: str,
    *,
    partitions: int,
    layout: dict[str, int],
    connections: int = 1,
    max_bytes: int = 1 << 20,
    anywhere: bool = False,
    requests: int = 0,
    authority: str = "",
    certificate: str = "",
) -> dict[str, Any]:
    run = Run(connections, requests, 0)
    readers = []
    for index in range(connections):
        mine = list(range(partitions)) if anywhere else [index]
        chance = random.Random(index) if anywhere else None
        readers.append(FetchConnection(run, topic, mine, Layout(**layout), max_bytes, chance))
    elapsed = await run_connections(bootstrap, run, readers, authority, certificate)  # type: ignore[arg-type]
    return {"requests": run.replies, "bytes": run.bytes, "seconds": elapsed}


async def latency(bootstrap: str, topic: str, *, per_s: int, seconds: float, record_bytes: int = 100) -> dict[str, Any]:
    """One record each 1/per_s s, acks=1, to an empty partition; a second connection waits for it: from sent to received."""
    host, port = bootstrap.rsplit(":", 1)
    loop = asyncio.get_running_loop()
    sent: list[float] = []
    latencies: list[float] = []
    frame = produce_frame(topic, 0, batch(values(1, record_bytes)), 1)
    total = int(per_s * seconds)
    reader, fetch_writer = await asyncio.open_connection(host, int(port), limit=1 << 22)
    answers, producer = await asyncio.open_connection(host, int(port))

    async def consume() -> None:
        offset = 0
        while offset < total:
            fetch_writer.write(fetch_frame(topic, [(0, offset)], max_wait_ms=500))
            size = int.from_bytes(await reader.readexactly(4), "big")
            reply = await reader.readexactly(size)
            now = time.perf_counter()
            (found,) = read_fetched(reply)
            assert found.error == 0, found.error
            for got, _ in read_records(found.records):
                if got == offset:
                    latencies.append(now - sent[got])
                    offset += 1

    async def drain() -> None:
        while await answers.read(1 << 16):
            pass

    async def write() -> None:
        start = loop.time()
        for number in range(total):
            wait = start + number / per_s - loop.time()
            if wait > 0:
                await asyncio.sleep(wait)
            sent.append(time.perf_counter())
            producer.write(frame)

    drainer = asyncio.create_task(drain())
    await asyncio.wait_for(asyncio.gather(consume(), write()), seconds * 3 + 30)
    drainer.cancel()
    latencies = sorted(latencies[total // 10 :])  # the first tenth warms up both sides
    return {"p50_ms": 1000 * latencies[len(latencies) // 2], "p99_ms": 1000 * latencies[len(latencies) * 99 // 100]}


async def handshakes(bootstrap: str, *, connections: int, seconds: float, authority: str) -> dict[str, Any]:
    """Full handshakes, one after the other on each of several threads. OpenSSL releases the interpreter."""
    host, port = bootstrap.rsplit(":", 1)
    end = time.perf_counter() + seconds
    context = client_context(authority)

    def shake() -> int:
        count = 0
        while time.perf_counter() < end:
            with socket.create_connection((host, int(port))) as sock, context.wrap_socket(sock, server_hostname=host):
                count += 1
        return count

    loop = asyncio.get_running_loop()
    started = time.perf_counter()
    with ThreadPoolExecutor(connections) as threads:
        counts = await asyncio.gather(*(loop.run_in_executor(threads, shake) for _ in range(connections)))
    return {"handshakes": sum(counts), "seconds": time.perf_counter() - started}


def main() -> None:
    answer_help(__doc__)
    kind, options = sys.argv[1], json.loads(sys.argv[2])
    kinds: dict[str, Any] = {"produce": produce, "fetch": fetch, "latency": latency, "handshakes": handshakes}
    print(json.dumps(uvloop.run(kinds[kind](**options))))


if __name__ == "__main__":
    main()
