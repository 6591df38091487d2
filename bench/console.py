"""The console on a large cluster: start, lists, search, memory.

    python -m bench console [--kafka] [--topics 2000] [--groups 10000] [--records 1000000] [--size 1000]

One broker, Ottla or (`--kafka`) Apache Kafka, filled as `bench.exporter` does it, and a topic of records compressed by lz4, of
which four have the text that is looked for. The console is a process as users start it. Times are wall clock, as a client of its
HTTP interface sees them; broker, console and client are on one machine.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from bench.exporter import fill
from bench.servers import Kafka, Ottla
from ottla.client.brokers import Brokers
from ottla.metrics import Counters
from ottla.runtime.loop import run
from ottla.runtime.network import RealNetwork
from tests.console.running import running_console
from tests.kit.wait import until

NEEDLES = 4
TOPIC = "searched"


def arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kafka", action="store_true", help="Apache Kafka instead of Ottla")
    for name, default in (("topics", 2000), ("groups", 10_000), ("records", 1_000_000), ("size", 1000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    found = parser.parse_args(words)
    found.partitions, found.topics_per_group = 1, 2
    return found


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=120) as answer:
        return json.load(answer)


def events(url: str) -> Iterator[tuple[str, Any]]:
    with urllib.request.urlopen(url, timeout=120) as answer:
        name = ""
        for raw in answer:
            line = raw.decode().rstrip()
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                yield name, json.loads(line[6:])


def produce(servers: str, options: argparse.Namespace) -> None:
    """Records of JSON with random words, and needles spread over them."""
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "linger.ms": 50,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 200_000,
            "compression.type": "lz4",
        }
    )
    chance = random.Random(1)
    words = [format(chance.getrandbits(64), "x") for _ in range(5000)]
    for n in range(options.records):
        name = "needle" if n % (options.records // NEEDLES) == 7 else "customer"
        text = " ".join(chance.choices(words, k=options.size // 17 + 1))
        value = json.dumps({"id": n, "name": name, "text": text[: max(options.size - 50, 0)]})
        while True:
            try:
                producer.produce(TOPIC, value, key=f"k{n % 10_007}")
                break
            except BufferError:
                producer.poll(0.05)
        producer.poll(0)
    assert producer.flush(120) == 0


def high_water_mb(pid: int) -> float:
    found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) / 1024


def search(url: str, what: str) -> dict[str, Any]:
    began = time.perf_counter()
    first_s: float | None = None
    end: dict[str, Any] = {}
    for name, document in events(f"{url}/api/topics/{TOPIC}/records?budget_bytes=0&{what}"):
        if name == "records" and first_s is None:
            first_s = time.perf_counter() - began
        if name == "end":
            end = document
    return {
        "first_s": first_s,
        "whole_s": time.perf_counter() - began,
        **{name: end[name] for name in ("found", "records", "bytes")},
    }


def measure(servers: str) -> None:
    began = time.perf_counter()
    with running_console(servers) as console:
        started_s = time.perf_counter() - began
        began = time.perf_counter()
        first = get(f"{console.url}/api/topics?limit=60")
        rows_s = time.perf_counter() - began
        began = time.perf_counter()
        until(lambda: get(f"{console.url}/api/groups?sort=-lag&limit=60")["complete"], "lag is known", every_s=0.05)
        lag_s = time.perf_counter() - began
        pid = console.process.pid
        print(
            f"started in {started_s:.2f} s; the first of {first['total']} topics after {rows_s:.2f} s,"
            f" groups by lag after {lag_s:.2f} s"
        )
        print(f"memory {high_water_mb(pid):.0f} MB after the lists")
        for what in ("search=needle", "search=NEEDLE&ignore_case=1", "where=value.name==%22needle%22", "key=k77"):
            found = search(console.url, what)
            first_s = "-" if found["first_s"] is None else f"{found['first_s']:.2f} s"
            print(
                f"{what}: {found['found']} of {found['records']:,} records ({found['bytes'] / 1e6:.0f} MB),"
                f" first {first_s}, whole {found['whole_s']:.2f} s"
            )
        print(f"memory {high_water_mb(pid):.0f} MB at most")


def main(words: list[str]) -> None:
    options = arguments(words)
    with (Kafka if options.kafka else Ottla)() as broker:
        host, _, port = broker.bootstrap_servers.rpartition(":")

        async def filled() -> None:
            brokers = Brokers(RealNetwork(Counters()), [(host, int(port))], timeout_s=120.0)
            await fill(brokers, options)
            brokers.close()

        run(filled())
        produce(broker.bootstrap_servers, options)
        measure(broker.bootstrap_servers)
