"""What metrics cost a broker.

    python -m bench.metrics                # all three: scrape, requests, instructions
    python -m bench.metrics scrape         # 1,000 partitions and 200 groups: time of a scrape, longest stall of the loop
    python -m bench.metrics requests       # requests per second: without metrics, and with them and a scrape each second
    python -m bench.metrics instructions   # CPU instructions of a request without and with metrics (bench.instructions)

`scrape` runs a broker in this process, `requests` two brokers as processes whose clients take turns. Instructions do not depend
on what else the machine does, CPU time hardly.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import time
import urllib.request
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench import answer_help
from bench.inside import PARTITIONS, produce_frame, started
from bench.instructions import measured as counted
from ottla.client.connection import ClientConnection
from ottla.cluster.requests import NewTopic
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.records import compiled
from ottla.runtime.free_ports import free_port
from ottla.runtime.loop import run
from ottla.testing import Broker

ON = {"metrics.listener": "127.0.0.1:0"}
SCRAPE_PARTITIONS = 1000
GROUPS = 200
SCRAPES = 10
ROUNDS = 8
ROUND_S = 3.0
CONNECTIONS = 64
KINDS = ["produce", "fetch"]


# Scrape


async def scrape() -> None:
    async with started(1, ON) as inside:
        broker = inside.broker
        await broker.controller.topic_requests.create([NewTopic("many", SCRAPE_PARTITIONS, 1)])
        client = await ClientConnection.open(broker.world.network, "127.0.0.1", next(iter(broker.bound_ports.values())))
        await commit_offsets(client)
        inside.spend([produce_frame(0, 1, 9)])
        assert broker.monitor is not None
        address = broker.monitor.address
        took: list[float] = []
        stalls: list[float] = []
        lines = 0
        for _ in range(SCRAPES):
            begun = time.perf_counter()
            # Another process: a thread of this one would take the interpreter from the loop.
            curl = await asyncio.create_subprocess_exec("curl", "-s", f"http://{address}/metrics", stdout=asyncio.subprocess.PIPE)
            stalled = asyncio.ensure_future(longest_turn())
            assert curl.stdout is not None
            lines = (await curl.stdout.read()).count(b"\n")
            await curl.wait()
            took.append(time.perf_counter() - begun)
            stalled.cancel()
            stalls.append(await stalled)
        client.close()
    print(f"scrape: {lines} lines, {median(took) * 1000:.0f} ms (longest {max(took) * 1000:.0f} ms), curl's own start included")
    print(f"longest turn of the loop while scraped: {median(stalls) * 1000:.1f} ms of CPU (largest {max(stalls) * 1000:.1f} ms)")


async def commit_offsets(client: ClientConnection) -> None:
    while (await client.call("find_coordinator", 3, FindCoordinatorRequest(key="g"))).error_code:
        await asyncio.sleep(0.1)
    partitions = [OffsetCommitRequestPartition(partition_index=number, committed_offset=0) for number in range(5)]
    for number in range(GROUPS):
        request = OffsetCommitRequest(
            group_id=f"g{number}", topics=[OffsetCommitRequestTopic(name="many", partitions=partitions)]
        )
        while (await client.call("offset_commit", 8, request)).topics[0].partitions[0].error_code:
            await asyncio.sleep(0.1)


async def longest_turn() -> float:
    """In seconds of CPU, until it is cancelled."""
    longest, last = 0.0, time.thread_time()
    while True:
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            return longest
        now = time.thread_time()
        longest, last = max(longest, now - last), now


def lines_of(address: str) -> int:
    with urllib.request.urlopen(f"http://{address}/metrics") as response:
        return int(response.read().count(b"\n"))


# Requests


def requests() -> None:
    address = f"127.0.0.1:{free_port()}"
    with Broker() as without, Broker({"metrics.listener": address}) as measured:
        for broker in (without, measured):
            broker.create_topic("t", PARTITIONS)
            produced(broker, None)
        rounds: dict[str, list[Produced]] = {"without": [], "with": []}
        for _ in range(ROUNDS):
            rounds["without"].append(produced(without, None))
            rounds["with"].append(produced(measured, address))
    base = [median(column) for column in zip(*rounds["without"], strict=True)]
    for name, values in rounds.items():
        second, cpu_second, load = (median(column) for column in zip(*values, strict=True))
        more, more_of_cpu = 100 * (second - base[0]) / base[0], 100 * (cpu_second - base[1]) / base[1]
        print(
            f"{name:8} metrics: {second:8.0f} requests per second {more:+5.1f} %, "
            f"{cpu_second:8.0f} per second of CPU {more_of_cpu:+5.1f} %, broker at {load:.0%} of a core"
        )


def produced(broker: Broker, address: str | None) -> Produced:
    """Produce requests on many connections, one on its way on each, so that the broker always has the next one."""
    host, _, port = broker.bootstrap_servers.partition(":")
    sockets = [socket.create_connection((host, int(port))) for _ in range(CONNECTIONS)]
    frames = [bytes(produce_frame(at % PARTITIONS, 1, 9)) for at in range(CONNECTIONS)]
    for connection, frame in zip(sockets, frames, strict=True):
        connection.sendall(frame)
    sizes = [4 + int.from_bytes(each.recv(4, socket.MSG_WAITALL | socket.MSG_PEEK), "big") for each in sockets]
    done, begun, begun_cpu = 0, time.monotonic(), cpu_s(broker)
    scrape_at = begun
    while time.monotonic() < begun + ROUND_S:
        for connection, frame, size in zip(sockets, frames, sizes, strict=True):
            connection.recv(size, socket.MSG_WAITALL)
            connection.sendall(frame)
        done += CONNECTIONS
        if address is not None and time.monotonic() >= scrape_at:
            scrape_at += 1.0
            lines_of(address)
    took_s, spent_s = time.monotonic() - begun, cpu_s(broker) - begun_cpu
    for connection in sockets:
        connection.close()
    return Produced(done / took_s, done / spent_s, spent_s / took_s)


class Produced(NamedTuple):
    per_second: float
    per_cpu_second: float
    load: float
    """CPU seconds of the broker per second."""


def cpu_s(broker: Broker) -> float:
    """The time that the threads of a broker ran."""
    assert broker.process is not None
    return sum(int(each.read_text().split()[0]) for each in Path(f"/proc/{broker.process.pid}/task").glob("*/schedstat")) / 1e9


# Instructions


def instructions() -> None:
    off = counted(Path.cwd(), KINDS)
    on = counted(Path.cwd(), KINDS, ["metrics"])
    for kind in KINDS:
        added = on[kind] - off[kind]
        share = 100 * added / off[kind]
        print(f"{kind:10} {off[kind]:8.0f} instructions without metrics, {added:6.0f} more with ({share:.1f} %)")


def main(words: list[str]) -> None:
    if not compiled():
        print("The hot modules are not compiled: figures are of interpreted code")
    wanted = words[:1]
    if wanted in ([], ["scrape"]):
        run(scrape())
    if wanted in ([], ["requests"]):
        requests()
    if wanted in ([], ["instructions"]):
        instructions()


if __name__ == "__main__":
    answer_help(__doc__)
    main(sys.argv[1:])
