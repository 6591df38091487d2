"""Where partitions begin and end, and the offset a place in a log stands for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ottla.cli.connection import REQUEST_TIMEOUT_S, Connection, settled
from ottla.cli.failure import Failure
from ottla.cli.positions import Position


def _listed(connection: Connection, topic: str, partitions: Sequence[int], spec: Any, isolation: str) -> dict[int, int]:
    from ottla.cli.client import IsolationLevel, TopicPartition

    if not partitions:
        return {}
    level = IsolationLevel.READ_COMMITTED if isolation == "read_committed" else IsolationLevel.READ_UNCOMMITTED
    futures = connection.admin.list_offsets(
        {TopicPartition(topic, partition): spec for partition in partitions},
        isolation_level=level,
        request_timeout=REQUEST_TIMEOUT_S,
    )
    return {tp.partition: settled(future, f"{topic}-{tp.partition}").offset for tp, future in futures.items()}


def partition_bounds(
    connection: Connection, topic: str, partitions: Sequence[int], isolation: str = "read_uncommitted"
) -> dict[int, tuple[int, int]]:
    """Start and end offset of each partition; the end is exclusive."""
    from ottla.cli.client import OffsetSpec

    starts = _listed(connection, topic, partitions, OffsetSpec.earliest(), isolation)  # type: ignore[no-untyped-call]
    ends = _listed(connection, topic, partitions, OffsetSpec.latest(), isolation)  # type: ignore[no-untyped-call]
    return {partition: (starts[partition], ends[partition]) for partition in partitions}


def resolve(
    connection: Connection, topic: str, bounds: Mapping[int, tuple[int, int]], position: Position, *, clamp: bool = False
) -> dict[int, int]:
    """The offset the position stands for in each partition. An offset outside a partition is a Failure unless `clamp`."""
    if position.kind == "beginning":
        return {partition: start for partition, (start, _) in bounds.items()}
    if position.kind == "end":
        return {partition: end for partition, (_, end) in bounds.items()}
    if position.kind == "back":
        return {partition: max(start, end - position.value) for partition, (start, end) in bounds.items()}
    if position.kind == "offset":
        return {partition: _within(topic, partition, position.value, bound, clamp) for partition, bound in bounds.items()}
    from ottla.cli.client import OffsetSpec

    found = _listed(connection, topic, list(bounds), OffsetSpec.for_timestamp(position.value), "read_uncommitted")
    # No record is that young: the place is the end.
    return {partition: offset if offset >= 0 else bounds[partition][1] for partition, offset in found.items()}


def _within(topic: str, partition: int, offset: int, bound: tuple[int, int], clamp: bool) -> int:
    start, end = bound
    if clamp:
        return min(max(offset, start), end)
    if not start <= offset <= end:
        held = f"offsets {start} to {end - 1}" if end > start else f"nothing (the next offset is {end})"
        raise Failure(
            f"offset {offset} is outside of {topic}-{partition}, which holds {held}",
            "choose one inside, or --from beginning",
            code="OFFSET_OUT_OF_RANGE",
        )
    return offset
