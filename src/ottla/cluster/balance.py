"""Which partitions should go back to their preferred leader (F54): those of brokers that lead too few of what they should.

Pure. A broker's imbalance is the share of partitions that prefer it and are led by another; up to the allowed percentage nothing
is done, above it all of those move that can.
"""

from __future__ import annotations

from collections import defaultdict

from ottla.cluster.elections import eligible, prefer
from ottla.cluster.image import ClusterImage, PartitionImage


def unbalanced(image: ClusterImage, percentage_max: int) -> list[tuple[str, int, PartitionImage]]:
    """(topic, partition, as it should be) of all that should move now."""
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
            moved = prefer(partition, eligible(image, partition))
            if moved is not None and moved is not partition and not partition.adding and not partition.removing:
                found.append((name, number, moved))
    return found
