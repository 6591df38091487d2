"""Whom to ask instead: an answer to Produce or Fetch that refuses a partition names its leader, and where that is (KIP-951).

Owns what this broker knows of it: of its own replicas what it was ordered last, of others what the cluster was told. It saves the
client a round for metadata; one that does not know of it asks as ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ottla.broker.context import RequestContext
from ottla.cluster.endpoint import Endpoint
from ottla.types import TopicPartition


def leader_of(key: TopicPartition, context: RequestContext) -> tuple[int, int]:
    """(leader, leader epoch); -1 for what is not known, and for nobody."""
    broker = context.broker
    partition = broker.partitions.find(key)
    if partition is not None and not partition.is_offline:
        return partition.leader, partition.leader_epoch
    topic = broker.image.topics.get(key.topic)
    if topic is None or not 0 <= key.partition < len(topic.partitions):
        return -1, -1
    told = topic.partitions[key.partition]
    return told.leader, told.leader_epoch


def places_of(leaders: Iterable[int], context: RequestContext) -> Iterator[tuple[int, Endpoint, str | None]]:
    """(broker, address, rack) of those that run and have the client's listener."""
    brokers = context.broker.image.brokers
    for number in sorted(set(leaders)):
        broker = brokers.get(number)
        endpoint = broker.endpoint(context.listener_name) if broker is not None else None
        if broker is not None and endpoint is not None:
            yield number, endpoint, broker.rack
