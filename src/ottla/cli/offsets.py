"""Start and end offsets of partitions, and the offset that a position means."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ottla.cli.connection import REQUEST_TIMEOUT_S, Connection, result_of
from ottla.cli.failure import Failure
from ottla.cli.positions import Position, TopicIndex


def listed_offsets(
    connection: Connection, keys: Iterable[TopicIndex], spec: Any, isolation: str = "read_uncommitted"
) -> dict[TopicIndex, int]:
    """The offset that ListOffsets returns for each partition."""
    from confluent_kafka import IsolationLevel, TopicPartition

    asked = {TopicPartition(*key): spec for key in keys}
    if not asked:
        return {}
    level = IsolationLevel.READ_COMMITTED if isolation == "read_committed" else IsolationLevel.READ_UNCOMMITTED
    futures = connection.admin.list_offsets(asked, isolation_level=level, request_timeout=REQUEST_TIMEOUT_S)
    return {
        (each.topic, each.partition): result_of(future, f"{each.topic}-{each.partition}").offset
        for each, future in futures.items()
    }


def log_bounds(
    connection: Connection, keys: Collection[TopicIndex], isolation: str = "read_uncommitted"
) -> dict[TopicIndex, tuple[int, int]]:
    """Start and end offset of each partition; the end is exclusive."""
    from confluent_kafka.admin import OffsetSpec

    starts = listed_offsets(connection, keys, OffsetSpec.earliest(), isolation)  # type: ignore[no-untyped-call]
    ends = listed_offsets(connection, keys, OffsetSpec.latest(), isolation)  # type: ignore[no-untyped-call]
    return {key: (starts[key], ends[key]) for key in keys}


def at_time(connection: Connection, bounds: Mapping[TopicIndex, tuple[int, int]], time_ms: int) -> dict[TopicIndex, int]:
    """The offset of the first record since that time in each partition; the end if there is none."""
    from confluent_kafka.admin import OffsetSpec

    found = listed_offsets(connection, bounds, OffsetSpec.for_timestamp(time_ms))
    return {key: offset if offset >= 0 else bounds[key][1] for key, offset in found.items()}


def resolve(
    connection: Connection,
    bounds: Mapping[TopicIndex, tuple[int, int]],
    position: Position,
    *,
    clamp: bool = False,
    isolation: str = "read_committed",
) -> dict[TopicIndex, int]:
    """The offset that the position means in each partition. An offset outside the log is a Failure unless `clamp`.

    `isolation` says which are the last records, if the position counts them."""
    if position.kind == "beginning":
        return {key: start for key, (start, _) in bounds.items()}
    if position.kind == "end":
        return {key: end for key, (_, end) in bounds.items()}
    if position.kind == "back":
        from ottla.cli.last_records import last_records

        return last_records(connection, bounds, position.value, isolation)
    if position.kind == "offset":
        return {key: _within(key, position.value, bound, clamp) for key, bound in bounds.items()}
    return at_time(connection, bounds, position.value)


def _within(key: TopicIndex, offset: int, bound: tuple[int, int], clamp: bool) -> int:
    start, end = bound
    if clamp:
        return min(max(offset, start), end)
    if not start <= offset <= end:
        held = f"offsets {start} to {end - 1}" if end > start else f"no records (the next offset is {end})"
        raise Failure(
            f"offset {offset} is outside {key[0]}-{key[1]}, which holds {held}",
            "choose an offset inside, or --from beginning",
            code="OFFSET_OUT_OF_RANGE",
        )
    return offset
