"""Latency of produce and fetch during the compaction of two million keys. Takes about 90 seconds.

    python -m bench.compaction_load [--keys 2000000] [--versions 4] [--broker ottla|kafka] [--ottla-src DIR]

Fills one partition with several versions of each key. Then one connection appends and another fetches from random offsets, each
200 times a second and each waiting for its reply: first on an idle log, then while it is compacted. Prints p50, p99 and maximum
of both, the duration of the compaction and the peak memory of the broker. Exits with 1 unless each key is left once with its
newest value, in offset order, below the active segment.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from bench.measure import Server, create
from bench.measure_compaction import compact, look_often
from bench.servers import Kafka, Ottla, memory_bytes, usage
from tests.kit.raw import RawConnection, batch, fetch_frame, produce_frame, read_fetched, read_produced

TOPIC = "two-million"
SEGMENT_BYTES = 64 << 20
PROBE_KEY = b"probe"
PROBES_PER_S = 200
QUIET_S = 10
STEP = 1_000_003
"""Keys come in an order that jumps: a prime that no number of keys here has as a factor."""
TIMEOUT_S = 150


def fill(server: Server, keys: int, versions: int) -> None:
    producer = Producer(
        {
            "bootstrap.servers": server.bootstrap_servers,
            "linger.ms": 20,
            "batch.size": 500_000,
            "queue.buffering.max.messages": 500_000,
        }
    )
    for version in range(1, versions + 1):
        value = bytes([version]) + b"v" * 80
        for number in range(keys):
            key = b"%08d" % (number * STEP % keys)
            while True:
                try:
                    producer.produce(TOPIC, value, key, 0)
                    break
                except BufferError:
                    producer.poll(0.05)
            if number % 10_000 == 0:
                producer.poll(0)
    if producer.flush(120):
        raise RuntimeError("not everything was acknowledged")


class Probes:
    """Both go on until told to stop; what they measured is taken out in between."""

    def __init__(self, bootstrap: str, end_offset: int) -> None:
        self._bootstrap = bootstrap
        self._end_offset = end_offset
        self._stop = threading.Event()
        self._taken: dict[str, list[float]] = {"produce": [], "fetch": []}
        self.error: str = ""
        self._threads = [threading.Thread(target=self._run, args=(name,), daemon=True) for name in self._taken]
        for thread in self._threads:
            thread.start()

    def take(self) -> dict[str, list[float]]:
        """In ms, since the last time."""
        taken, self._taken = self._taken, {"produce": [], "fetch": []}
        return taken

    def close(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)

    def _run(self, name: str) -> None:
        chance = random.Random(name)
        append = produce_frame(TOPIC, 0, batch([b"p" * 80], keys=[PROBE_KEY]))
        with RawConnection(self._bootstrap) as connection:
            due = time.perf_counter()
            while not self._stop.is_set():
                due = max(due + 1 / PROBES_PER_S, time.perf_counter())
                time.sleep(max(due - time.perf_counter(), 0))
                place = chance.randrange(self._end_offset)
                request = append if name == "produce" else fetch_frame(TOPIC, [(0, place)], max_wait_ms=0, partition_bytes=65_536)
                started = time.perf_counter()
                reply = connection.call(request)
                self._taken[name].append((time.perf_counter() - started) * 1000)
                error = read_produced(reply).error if name == "produce" else read_fetched(reply)[0].error
                if error:
                    self.error = f"{name}: error {error}"


def check(server: Server, keys: int, versions: int, goal: int) -> tuple[int, int]:
    """Reads all of it; how many records there are below `goal`, and how much is wrong."""
    consumer = Consumer({"bootstrap.servers": server.bootstrap_servers, "group.id": "check", "enable.auto.commit": False})
    end = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=30)[1]
    consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
    newest, once = bytearray(keys), bytearray(keys)
    last = -1
    below = wrong = probes = 0
    deadline = time.monotonic() + TIMEOUT_S
    while last < end - 1:
        if time.monotonic() > deadline:
            raise RuntimeError(f"read until {last} of {end}")
        for message in consumer.consume(10_000, 1.0):
            if message.error() is not None:
                raise RuntimeError(str(message.error()))
            offset, key, value = message.offset(), message.key(), message.value()
            assert offset is not None
            assert isinstance(key, bytes)
            assert isinstance(value, bytes)
            wrong += offset <= last
            last = offset
            below += offset < goal
            if key == PROBE_KEY:
                probes += offset < goal
                continue
            number, version = int(key), value[0]
            wrong += version <= newest[number]  # not in the order they were sent
            newest[number] = version
            if offset < goal:
                wrong += once[number]  # twice, though clean
                once[number] = 1
    consumer.close()
    wrong += sum(version != versions for version in newest) + max(probes - 1, 0)
    return below, wrong


def line(name: str, found: list[float]) -> str:
    ordered = sorted(found)

    def at(share: float) -> float:
        return ordered[min(int(len(ordered) * share), len(ordered) - 1)]

    return f"  {name:8} p50 {at(0.5):7.2f} ms   p99 {at(0.99):7.2f} ms   worst {ordered[-1]:7.2f} ms   ({len(ordered)} requests)"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.compaction_load", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("--keys", type=int, default=2_000_000)
    parser.add_argument("--versions", type=int, default=4)
    parser.add_argument("--broker", choices=("ottla", "kafka"), default="ottla")
    parser.add_argument("--ottla-src", type=Path, help="run Ottla from this source tree instead of the installed one")
    options = parser.parse_args()
    keys, versions = options.keys, options.versions
    server: Server = Kafka() if options.broker == "kafka" else Ottla(options.ottla_src)
    try:
        server.start()
        look_often(server)
        create(server, TOPIC, 1, segment_bytes=str(SEGMENT_BYTES), min_cleanable_dirty_ratio="0.01")
        started = time.perf_counter()
        fill(server, keys, versions)
        segments = sorted((server.data_dir / f"{TOPIC}-0").glob("*.log"))
        goal = int(segments[-1].stem)
        dirty_bytes = sum(path.stat().st_size for path in segments[:-1])
        print(
            f"{keys:,} keys, {versions} times each, {len(segments)} segments: filled in {time.perf_counter() - started:.0f} s",
            flush=True,
        )
        probes = Probes(server.bootstrap_servers, keys * versions)
        time.sleep(1)
        probes.take()
        time.sleep(QUIET_S)
        quiet = probes.take()
        rss_before = usage(server.pid).rss_bytes
        Path(f"/proc/{server.pid}/clear_refs").write_text("5")  # the peak of memory begins anew
        before = usage(server.pid).cpu_s
        seconds = compact(server, TOPIC, goal, TIMEOUT_S)
        busy = probes.take()
        spent = usage(server.pid).cpu_s - before
        peak_bytes = memory_bytes(server.pid, "VmHWM")
        probes.close()
        print("without compaction")
        for name, found in quiet.items():
            print(line(name, found))
        print(f"while {dirty_bytes / 1e6:.0f} MB are compacted, in {seconds:.1f} s ({dirty_bytes / seconds / 1e6:.0f} MB/s)")
        for name, found in busy.items():
            print(line(name, found))
        print(
            f"memory {rss_before / 1e6:.0f} MB before, at most {peak_bytes / 1e6:.0f} MB meanwhile; broker CPU {spent:.1f} s",
            flush=True,
        )
        below, wrong = check(server, keys, versions, goal)
        print(f"read whole: {below:,} records below the active segment, wrong: {wrong}; probes: {probes.error or 'no errors'}")
    finally:
        server.close()
    if wrong or probes.error:
        sys.exit(1)


if __name__ == "__main__":
    main()
