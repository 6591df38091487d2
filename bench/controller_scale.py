"""Time and messages of controller decisions by cluster size: a broker failure and a controller failover.

    python -m bench.controller_scale [brokers:partitions ...]

Runs the pure rules on a cluster image, without sockets or a metadata store. Times are CPU times.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TypeVar

from bench import answer_help
from ottla.broker.controller.controller_client import UpdateMetadataEncodings
from ottla.cluster.broker_changes import with_brokers, with_consecutive_epochs, with_elections
from ottla.cluster.control_requests import VERSIONS, ControlRequests, control_requests_between
from ottla.cluster.image import BrokerImage, ClusterImage, Endpoint, TopicImage
from ottla.cluster.placement import place
from ottla.cluster.topic_changes import first_state
from ottla.cluster.tree_changes import split_changes, state_changes
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest
from ottla.wire.codec import encode

PARTITIONS_PER_TOPIC = 100
MULTI_BYTES_MAX = 500_000
T = TypeVar("T")


def timed(work: Callable[[], T]) -> tuple[T, float]:
    start = time.process_time()
    result = work()
    return result, (time.process_time() - start) * 1000


def cluster(broker_count: int, partition_count: int) -> ClusterImage:
    brokers = {number: _broker(number) for number in range(broker_count)}
    racks: dict[int, str | None] = dict.fromkeys(brokers)
    topics = []
    for index in range(partition_count // PARTITIONS_PER_TOPIC):
        placed = place(racks, PARTITIONS_PER_TOPIC, 3, start=index * 7 % broker_count, shift=index % broker_count)
        topics.append(TopicImage(f"topic-{index}", index.to_bytes(16, "big"), tuple(map(first_state, placed))))
    return ClusterImage("scale", 0, brokers).with_topics(topics)


def _broker(number: int) -> BrokerImage:
    return BrokerImage(number, number, None, (Endpoint("PLAINTEXT", f"host{number}", 9092),))


def sent(requests: list[ControlRequests]) -> tuple[int, int]:
    """(requests, bytes)."""
    sizes, encodings = [], UpdateMetadataEncodings()
    for to_broker in requests:
        for name, request in to_broker.requests():
            version = VERSIONS[name]
            is_update = isinstance(request, UpdateMetadataRequest)
            sizes.append(len(encodings.encoded(request, version).body if is_update else encode(request, version)))  # type: ignore[arg-type]
    return len(sizes), sum(sizes)


def measure(broker_count: int, partition_count: int) -> str:
    image = cluster(broker_count, partition_count)
    rest = {number: broker for number, broker in image.brokers.items() if number != broker_count // 2}

    after, decide_ms = timed(lambda: with_consecutive_epochs(image, with_elections(with_brokers(image, rest), lambda _: False)))
    changes, changes_ms = timed(lambda: state_changes(image, after, 2))
    to_brokers, build_ms = timed(lambda: control_requests_between(image, after, controller_epoch=2, listener="PLAINTEXT"))
    (requests, size), encode_ms = timed(lambda: sent(to_brokers))
    writes = len(split_changes(changes, MULTI_BYTES_MAX))
    _, over_ms = timed(lambda: control_requests_between(ClusterImage("scale"), image, controller_epoch=3, listener="PLAINTEXT"))
    return (
        f"| {broker_count:,} | {partition_count:,} | {decide_ms:.0f} | {len(changes)} in {writes} | {changes_ms:.0f} "
        f"| {requests:,} ({size / 1e6:.1f} MB) | {build_ms:.0f} | {encode_ms:.0f} | {over_ms:,.0f} |"
    )


def main() -> None:
    answer_help(__doc__)
    sizes = sys.argv[1:] or ["10:2000", "100:20000", "300:60000", "1000:200000"]
    print("| brokers | partitions | elect, ms | states in writes | changes, ms ", end="")
    print("| requests | build requests, ms | encode, ms | failover, ms |")
    print("|---|---|---|---|---|---|---|---|---|")
    for size in sizes:
        brokers, _, partitions = size.partition(":")
        print(measure(int(brokers), int(partitions)), flush=True)


if __name__ == "__main__":
    main()
