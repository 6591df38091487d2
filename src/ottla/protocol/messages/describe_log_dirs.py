"""DescribeLogDirs: the broker's directories and the size of each replica in them.

Topics absent (None) means all.

Versions
    2       flexible
    3       an error for the whole response
    4       total and usable bytes of the volume (KIP-827)
    5       whether a directory takes no new replicas (KIP-1066)
"""

from __future__ import annotations

from ottla.wire.schema import list_of, message, wire


@message()
class DescribableLogDirTopic:
    topic: str = wire("string")
    partitions: list[int] = wire("[]int32")


@message(versions="0-5", flexible="2+")
class DescribeLogDirsRequest:
    topics: list[DescribableLogDirTopic] | None = wire(list_of(DescribableLogDirTopic), nullable="0+")


@message()
class DescribeLogDirsPartition:
    partition_index: int = wire("int32")
    partition_size: int = wire("int64")
    offset_lag: int = wire("int64")
    is_future_key: bool = wire("bool")


@message()
class DescribeLogDirsTopic:
    name: str = wire("string")
    partitions: list[DescribeLogDirsPartition] = wire(list_of(DescribeLogDirsPartition))


@message()
class DescribeLogDirsResult:
    error_code: int = wire("int16")
    log_dir: str = wire("string")
    topics: list[DescribeLogDirsTopic] = wire(list_of(DescribeLogDirsTopic))
    total_bytes: int = wire("int64", "4+", default=-1, ignorable=True)
    usable_bytes: int = wire("int64", "4+", default=-1, ignorable=True)
    is_cordoned: bool = wire("bool", "5+", ignorable=True)


@message(versions="0-5", flexible="2+")
class DescribeLogDirsResponse:
    throttle_time_ms: int = wire("int32")
    error_code: int = wire("int16", "3+", ignorable=True)
    results: list[DescribeLogDirsResult] = wire(list_of(DescribeLogDirsResult))
