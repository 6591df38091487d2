"""Whom to ask instead: an answer to Produce or Fetch that refuses a partition names its leader, and where that is (KIP-951).

Owns what this broker knows of it: of its own replicas what it was ordered last, of others what the cluster was told. It saves the
client a round for metadata; one that does not know of it asks as ever.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from ottla.broker.network.context import RequestContext
from ottla.types import TopicPartition

E = TypeVar("E")


def name_leaders(
    refused: Iterable[tuple[TopicPartition, Any]], leader_class: type[Any], endpoint_class: type[E], context: RequestContext
) -> list[E]:
    """Write its leader into the answer of each partition; returns where those are that run and have the client's listener. Both
    APIs have classes of their own for that."""
    leaders: set[int] = set()
    for key, answer in refused:
        leader, epoch = _leader_of(key, context)
        answer.current_leader = leader_class(leader_id=leader, leader_epoch=epoch)
        leaders.add(leader)
    brokers = context.broker.image.brokers
    places: list[E] = []
    for number in sorted(leaders):
        broker = brokers.get(number)
        place = broker.endpoint(context.listener_name) if broker is not None else None
        if broker is not None and place is not None:
            places.append(endpoint_class(node_id=number, host=place.host, port=place.port, rack=broker.rack))  # type: ignore[call-arg]
    return places


def _leader_of(key: TopicPartition, context: RequestContext) -> tuple[int, int]:
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
