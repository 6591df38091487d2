"""DescribeLogDirs: the data directories, their replicas with sizes, and the free space.

A directory that is offline is listed with KAFKA_STORAGE_ERROR and without replicas. A replica that moves to another directory is
listed in both: in the target as a future replica, with its lag. Directories are listed by their absolute paths.
"""

from __future__ import annotations

from posixpath import abspath

from ottla.broker.network.context import RequestContext
from ottla.broker.replicas.partitions import Partitions
from ottla.broker.replicas.replica_moves import ReplicaMoves
from ottla.errors import ErrorCode
from ottla.ports import Disk
from ottla.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


def handle(
    partitions: Partitions, moves: ReplicaMoves, disk: Disk, request: DescribeLogDirsRequest, context: RequestContext
) -> DescribeLogDirsResponse:
    asked: set[tuple[str, int]] | None = None
    if request.topics is not None:
        asked = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    results: list[DescribeLogDirsResult] = []
    for path in partitions.data_dirs.offline_paths():
        results.append(DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=abspath(path)))
    for data_dir, replicas in partitions.by_data_dir():
        found = [
            (each.topic_partition, each.log.size_bytes, max(each.log.high_watermark - each.log.log_end_offset, 0), False)
            for each in replicas
        ]
        found += [(key, size, lag, True) for key, size, lag in moves.futures(data_dir)]
        topics: dict[str, DescribeLogDirsTopic] = {}
        for key, size, lag, is_future in found:
            if asked is not None and key not in asked:
                continue
            topics.setdefault(key.topic, DescribeLogDirsTopic(name=key.topic)).partitions.append(
                DescribeLogDirsPartition(
                    partition_index=key.partition, partition_size=size, offset_lag=lag, is_future_key=is_future
                )
            )
        try:
            total_bytes, usable_bytes = disk.usage(data_dir.path)
        except OSError:
            total_bytes = usable_bytes = -1
        results.append(
            DescribeLogDirsResult(
                log_dir=abspath(data_dir.path),
                topics=list(topics.values()),
                total_bytes=total_bytes,
                usable_bytes=usable_bytes,
            )
        )
    return DescribeLogDirsResponse(results=results)
