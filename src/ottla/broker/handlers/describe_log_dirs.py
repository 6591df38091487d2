"""DescribeLogDirs: the data directories, the replicas in each and their sizes, and the room that is left.

A directory that is offline is listed with KAFKA_STORAGE_ERROR and nothing in it.
"""

from __future__ import annotations

from ottla.broker.context import RequestContext
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
        results.append(DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=path))
    for data_dir, partitions in broker.partitions.by_data_dir():
        topics: dict[str, DescribeLogDirsTopic] = {}
        for partition in partitions:
            if asked is not None and partition.topic_partition not in asked:
                continue
            name, index = partition.topic_partition
            if name not in topics:
                topics[name] = DescribeLogDirsTopic(name=name)
            topics[name].partitions.append(
                DescribeLogDirsPartition(
                    partition_index=index,
                    partition_size=partition.log.size_bytes,
                    offset_lag=max(partition.log.high_watermark - partition.log.log_end_offset, 0),
                )
            )
        try:
            total_bytes, usable_bytes = broker.world.disk.usage(data_dir.path)
        except OSError:
            total_bytes = usable_bytes = -1
        results.append(
            DescribeLogDirsResult(
                log_dir=data_dir.path, topics=list(topics.values()), total_bytes=total_bytes, usable_bytes=usable_bytes
            )
        )
    return DescribeLogDirsResponse(results=results)
