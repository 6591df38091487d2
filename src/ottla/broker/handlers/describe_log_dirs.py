"""DescribeLogDirs: the data directories, the replicas in each and their sizes, and the room that is left.

A directory that is offline is listed with KAFKA_STORAGE_ERROR and nothing in it. A replica on its way to another directory is
listed in both: in the one it comes to as a future replica, with the records it still lacks as its lag.

Whoever asks does not know where the broker was started: a directory is named by its absolute path, however `log.dirs` names it.
"""

from __future__ import annotations

from posixpath import abspath

from ottla.broker.network.context import RequestContext
from ottla.errors import ErrorCode
from ottla.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

VERSIONS = (0, 5)


def handle(request: DescribeLogDirsRequest, context: RequestContext) -> DescribeLogDirsResponse:
    broker = context.broker
    asked: set[tuple[str, int]] | None = None
    if request.topics is not None:
        asked = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    results: list[DescribeLogDirsResult] = []
    for path in broker.partitions.offline_paths():
        results.append(DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=abspath(path)))
    for data_dir, partitions in broker.partitions.by_data_dir():
        found = [
            (each.topic_partition, each.log.size_bytes, max(each.log.high_watermark - each.log.log_end_offset, 0), False)
            for each in partitions
        ]
        found += [(key, size, lag, True) for key, size, lag in broker.moves.futures(data_dir)]
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
            total_bytes, usable_bytes = broker.world.disk.usage(data_dir.path)
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
