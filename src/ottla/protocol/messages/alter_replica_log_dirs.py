"""AlterReplicaLogDirs: move replicas of this broker to another of its directories.

Versions
    2       flexible
"""

from __future__ import annotations

from ottla.wire.schema import list_of, message, wire


@message()
class AlterReplicaLogDirTopic:
    name: str = wire("string")
    partitions: list[int] = wire("[]int32")


@message()
class AlterReplicaLogDir:
    path: str = wire("string")
    topics: list[AlterReplicaLogDirTopic] = wire(list_of(AlterReplicaLogDirTopic))


@message(versions="0-2", flexible="2+")
class AlterReplicaLogDirsRequest:
    dirs: list[AlterReplicaLogDir] = wire(list_of(AlterReplicaLogDir))


@message()
class AlterReplicaLogDirPartitionResult:
    partition_index: int = wire("int32")
    error_code: int = wire("int16")


@message()
class AlterReplicaLogDirTopicResult:
    topic_name: str = wire("string")
    partitions: list[AlterReplicaLogDirPartitionResult] = wire(list_of(AlterReplicaLogDirPartitionResult))


@message(versions="0-2", flexible="2+")
class AlterReplicaLogDirsResponse:
    throttle_time_ms: int = wire("int32")
    results: list[AlterReplicaLogDirTopicResult] = wire(list_of(AlterReplicaLogDirTopicResult))
