"""A round of `ottla exporter` on many topics and groups: reading the cluster, writing the page, memory.

    python -m bench.exporter [--kafka] [--topics 1000] [--groups 2000] [--partitions 1] [--topics-per-group 5] [--rounds 10]

One broker, Ottla or (`--kafka`) Apache Kafka. The groups have no members and committed an offset in each partition of their
topics. The exporter runs in this process. Times are wall clock; the broker works on the same machine.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

from bench.servers import Kafka, Ottla
from ottla.client.brokers import Ask, Brokers
from ottla.errors import ErrorCode
from ottla.exporter.cluster_reader import ClusterReader
from ottla.exporter.service import Exporter
from ottla.metrics import Counters
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.runtime.loop import run
from ottla.runtime.network import RealNetwork
from tests.kit.wait import until_async

NEWLINE = b"\n"
NOT_READY = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kafka", action="store_true", help="Apache Kafka instead of Ottla")
    for name, default in (("topics", 1000), ("groups", 2000), ("partitions", 1), ("topics-per-group", 5), ("rounds", 10)):
        parser.add_argument(f"--{name}", type=int, default=default)
    return parser.parse_args()


async def fill(brokers: Brokers, options: argparse.Namespace) -> None:
    """Create the topics, and commit for the groups."""
    names = [f"topic-{number}" for number in range(options.topics)]
    topics = [CreatableTopic(name=name, num_partitions=options.partitions, replication_factor=1) for name in names]
    for start in range(0, len(topics), 100):
        request = CreateTopicsRequest(topics=topics[start : start + 100], timeout_ms=60_000)
        answer = await brokers.call_any("create_topics", request)
        assert not any(each.error_code for each in answer.topics), answer
    answer = await brokers.call_any("metadata", MetadataRequest(topics=[]), versions=(1, 9))
    node = answer.brokers[0]
    brokers.learn({node.node_id: (node.host, node.port)})
    await until_async(lambda: _coordinated(brokers), "the offsets topic is there")
    commits = [_commit(f"group-{number}", names, number, options) for number in range(options.groups)]
    for start in range(0, len(commits), 200):
        asks = [Ask(node.node_id, "offset_commit", commit, (8, 9)) for commit in commits[start : start + 200]]
        await until_async(lambda asks=asks: _committed(brokers, asks), "the groups have committed", every_s=0.5)


async def _coordinated(brokers: Brokers) -> bool:
    answer = await brokers.call_any("find_coordinator", FindCoordinatorRequest(key="group-0"), versions=(1, 3))
    return not answer.error_code


async def _committed(brokers: Brokers, asks: list[Ask]) -> bool:
    """Commit for these groups, and forget those that have. False if a coordinator is not ready."""
    failures: list[str] = []
    for ask, answer in await brokers.ask_all(asks, failures):
        errors = {part.error_code for topic in answer.topics for part in topic.partitions} - {ErrorCode.NONE}
        assert errors <= NOT_READY, answer
        if not errors:
            asks.remove(ask)
    assert not failures, failures
    return not asks


def _commit(group: str, names: list[str], number: int, options: argparse.Namespace) -> OffsetCommitRequest:
    partitions = [OffsetCommitRequestPartition(partition_index=index, committed_offset=0) for index in range(options.partitions)]
    chosen = [names[(number * 7 + each) % len(names)] for each in range(options.topics_per_group)]
    topics = [OffsetCommitRequestTopic(name=name, partitions=partitions) for name in chosen]
    return OffsetCommitRequest(group_id=group, topics=topics)


async def measure(servers: str, options: argparse.Namespace) -> None:
    host, _, port = servers.rpartition(":")
    brokers = Brokers(RealNetwork(Counters()), [(host, int(port))], timeout_s=120)
    await fill(brokers, options)
    reader = ClusterReader(brokers, time.time)
    exporter = Exporter(reader)
    reads, rounds, cpu = [], [], []
    for _ in range(options.rounds):
        began = time.perf_counter()
        reading = await reader.read()
        reads.append(time.perf_counter() - began)
        assert not reading.problems, reading.problems
        began, cpu_began = time.perf_counter(), time.process_time()
        await exporter.round()
        rounds.append(time.perf_counter() - began)
        cpu.append(time.process_time() - cpu_began)
    began = time.perf_counter()
    page = exporter.text()
    scrape_s = time.perf_counter() - began
    brokers.close()
    committed = sum(len(group.committed) for group in reading.groups)
    print(f"{len(reading.topics)} topics, {len(reading.groups)} groups, {committed} committed offsets")
    print(
        f"first round {rounds[0]:.3f} s; median {statistics.median(rounds):.3f} s, of it reading {statistics.median(reads):.3f} s"
    )
    print(f"page {len(page) / 1e6:.1f} MB, {page.count(NEWLINE):,} lines, taken in {scrape_s * 1000:.1f} ms")
    print(f"CPU of the exporter for a round: median {statistics.median(cpu):.3f} s; memory {rss_mb():.0f} MB")


def rss_mb() -> float:
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * 4096 / 1e6


def main() -> None:
    options = arguments()
    with (Kafka if options.kafka else Ottla)() as broker:
        run(measure(broker.bootstrap_servers, options))


if __name__ == "__main__":
    main()
