"""The current leaders of partitions that a reply to Produce or Fetch refuses (KIP-951).

It saves the client a Metadata request. The leader of a replica of this broker is the one of the last LeaderAndIsr request, of
other partitions that of the image.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from ottla.broker.metadata.local_metadata import LocalMetadata
from ottla.broker.replicas.partitions import Partitions
from ottla.types import TopicPartition

E = TypeVar("E")


def name_leaders(
    partitions: Partitions,
    metadata: LocalMetadata,
    listener: str,
    refused: Iterable[tuple[TopicPartition, Any]],
    leader_class: type[Any],
    endpoint_class: type[E],
) -> list[E]:
    """Set `current_leader` in the result of each refused partition. Returns the endpoints of these leaders for the listener.

    Produce and Fetch have message classes of their own for both.
    """
    leaders: set[int] = set()
    for key, answer in refused:
        leader, epoch = _leader_of(partitions, metadata, key)
        answer.current_leader = leader_class(leader_id=leader, leader_epoch=epoch)
        leaders.add(leader)
    endpoints: list[E] = []
    for number in sorted(leaders):
        broker = metadata.image.brokers.get(number)
        endpoint = broker.endpoint(listener) if broker is not None else None
        if broker is not None and endpoint is not None:
            endpoints.append(endpoint_class(node_id=number, host=endpoint.host, port=endpoint.port, rack=broker.rack))  # type: ignore[call-arg]
    return endpoints


def _leader_of(partitions: Partitions, metadata: LocalMetadata, key: TopicPartition) -> tuple[int, int]:
    """(leader, leader epoch), -1 if there is none or it is not known."""
    partition = partitions.find(key)
    if partition is not None and not partition.is_offline:
        return partition.leader, partition.leader_epoch
    topic = metadata.image.topics.get(key.topic)
    if topic is None or not 0 <= key.partition < len(topic.partitions):
        return -1, -1
    known = topic.partitions[key.partition]
    return known.leader, known.leader_epoch
