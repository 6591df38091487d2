"""On which brokers the replicas of new partitions stand.

Owns: Kafka's two ways. Without racks, first replicas go round the brokers, and each further replica of a partition stands a shift
further on, the shift growing by one each time round, so that the second replicas of one broker's partitions are spread too. With
racks, the brokers are first put in an order that alternates racks, and no rack gets a second replica before each has one.

Invariants: the replicas of a partition stand on different brokers; the first is the preferred leader; the same arguments give the
same answer (where to begin comes in as `start` and `shift`).
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
    # A cluster in which only some brokers name their rack is treated as one without racks.
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
    """Where the nth replica stands, counted from the first one's place; never on the first's place again."""
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
    """Brokers so that neighbours stand in different racks: one of each rack in turn, racks and brokers in order."""
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker], []).append(broker)
    columns = [by_rack[rack] for rack in sorted(by_rack)]
    return [column[row] for row in range(max(map(len, columns))) for column in columns if row < len(column)]
