"""Chooses the partitions that move back to their preferred leader (F54, leader.imbalance.per.broker.percentage).

Pure. The imbalance of a broker is the share of the partitions preferring it that are led by another broker. Above the allowed
percentage, all of them move that can.
"""

from __future__ import annotations

from collections import defaultdict

from ottla.cluster.elections import elect_preferred, eligible_replicas
from ottla.cluster.image import ClusterImage, PartitionImage


def unbalanced(image: ClusterImage, percentage_max: int) -> list[tuple[str, int, PartitionImage]]:
    """(topic, partition, its new state) of all that should move now."""
    preferring: dict[int, int] = defaultdict(int)
    led_elsewhere: dict[int, list[tuple[str, int, PartitionImage]]] = defaultdict(list)
    for topic in image.topics.values():
        for number, partition in enumerate(topic.partitions):
            preferred = partition.replicas[0]
            preferring[preferred] += 1
            if partition.leader != preferred:
                led_elsewhere[preferred].append((topic.name, number, partition))
    found: list[tuple[str, int, PartitionImage]] = []
    for broker, partitions in led_elsewhere.items():
        if broker not in image.brokers or len(partitions) * 100 <= percentage_max * preferring[broker]:
            continue
        for name, number, partition in partitions:
            moved = elect_preferred(partition, eligible_replicas(image, partition))
            if moved is not None and moved is not partition and not partition.adding and not partition.removing:
                found.append((name, number, moved))
    return found
