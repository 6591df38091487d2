"""Assigns the replicas of new partitions to brokers, as Kafka does.

Without racks, the first replicas go round-robin over the brokers. Each further replica is a shift further on; the shift grows by
one with each round, so that the second replicas of one broker's partitions are spread too. With racks, the brokers are ordered so
that racks alternate, and no rack gets a second replica before each has one.

The replicas of a partition are on different brokers, and the first is the preferred leader. The same arguments give the same
assignment.
"""

from __future__ import annotations

from collections.abc import Mapping


def place(
    brokers: Mapping[int, str | None],
    partition_count: int,
    replication_factor: int,
    *,
    start: int,
    shift: int,
    first_partition: int = 0,
) -> list[tuple[int, ...]]:
    """Replicas for `partition_count` partitions, numbered from `first_partition`. `brokers`: the rack of each, by id."""
    assert 0 < replication_factor <= len(brokers), (replication_factor, len(brokers))
    racks = {broker: rack for broker, rack in brokers.items() if rack is not None}
    # If only some brokers have a rack, racks are ignored.
    aware = len(racks) == len(brokers)
    order = _alternate(racks) if aware else sorted(brokers)
    rack_count = len(set(racks.values())) if aware else 1
    placed: list[tuple[int, ...]] = []
    for partition in range(first_partition, first_partition + partition_count):
        if partition > 0 and partition % len(order) == 0:
            shift += 1
        first = (partition + start) % len(order)
        if aware:
            placed.append(_across_racks(order, racks, rack_count, first, shift, replication_factor))
        else:
            placed.append(tuple(order[_index(first, shift, n, len(order))] for n in range(replication_factor)))
    return placed


def _index(first: int, shift: int, nth: int, count: int) -> int:
    """The position of the nth replica, never that of the first."""
    if nth == 0:
        return first
    return (first + 1 + (shift + nth - 1) % (count - 1)) % count


def _across_racks(
    order: list[int], racks: Mapping[int, str], rack_count: int, first: int, shift: int, replication_factor: int
) -> tuple[int, ...]:
    replicas = [order[first]]
    used_racks = {racks[replicas[0]]}
    step = 0
    while len(replicas) < replication_factor:
        step += 1
        broker = order[_index(first, shift * rack_count, step, len(order))]
        rack_is_free = racks[broker] not in used_racks or len(used_racks) == rack_count
        if rack_is_free and broker not in replicas:
            replicas.append(broker)
            used_racks.add(racks[broker])
    return tuple(replicas)


def _alternate(racks: Mapping[int, str]) -> list[int]:
    """One broker of each rack in turn, racks and brokers in order."""
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker], []).append(broker)
    columns = [by_rack[rack] for rack in sorted(by_rack)]
    return [column[row] for row in range(max(map(len, columns))) for column in columns if row < len(column)]
