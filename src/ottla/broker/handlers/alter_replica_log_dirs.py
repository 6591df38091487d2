"""AlterReplicaLogDirs: move replicas of this broker to another of its data directories (F6).

The reply says that the move has begun. Whether it is done DescribeLogDirs tells: while it lasts, the replica is listed a second
time, as a future one. A partition that has no replica here yet is answered with an error, and the wish is kept for the day it
gets one: tools ask before they create.
"""

from __future__ import annotations

import asyncio
import logging
from posixpath import abspath

from ottla.broker.network.context import RequestContext
from ottla.broker.replicas.partitions import Partitions
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from ottla.storage.data_dir import DataDir
from ottla.storage.names import future_dir
from ottla.types import ZERO_UUID, TopicPartition

VERSIONS = (0, 2)

logger = logging.getLogger(__name__)


async def handle(request: AlterReplicaLogDirsRequest, context: RequestContext) -> AlterReplicaLogDirsResponse:
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    for asked in request.dirs:
        for topic in asked.topics:
            result = results.setdefault(topic.name, AlterReplicaLogDirTopicResult(topic_name=topic.name))
            for index in topic.partitions:
                try:
                    await _move(TopicPartition(topic.name, index), asked.path, context)
                    code = ErrorCode.NONE
                except KafkaError as error:
                    code = error.code
                    logger.info("%s-%d is not moved to %s: %s", topic.name, index, asked.path, error.detail)
                result.partitions.append(AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code))
                await asyncio.sleep(0)  # each one makes files, and there may be thousands
    return AlterReplicaLogDirsResponse(results=list(results.values()))


async def _move(key: TopicPartition, path: str, context: RequestContext) -> None:
    broker = context.broker
    try:
        future_dir(key, ZERO_UUID)
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, str(error)) from None
    target = _directory(path, broker.partitions)
    partition = broker.partitions.find(key)
    if partition is None:
        if not broker.partitions.is_missing(key):
            broker.partitions.wish(key, target)
        try:
            broker.partitions.get(key)
        except KafkaError as error:
            if error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                raise KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE, error.detail) from None
            raise
        return
    if partition.is_offline:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the data directory of {key} is offline")
    await broker.moves.move(partition, target)


def _directory(path: str, partitions: Partitions) -> DataDir:
    for data_dir in partitions.online_dirs():
        if path in (data_dir.path, abspath(data_dir.path)):
            return data_dir
    if any(path in (offline, abspath(offline)) for offline in partitions.offline_paths()):
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the data directory {path} is offline")
    raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is none of log.dirs")


def refuse(request: AlterReplicaLogDirsRequest, error: KafkaError) -> AlterReplicaLogDirsResponse:
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error.code) for index in topic.partitions
                ],
            )
            for asked in request.dirs
            for topic in asked.topics
        ]
    )
