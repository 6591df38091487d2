"""AlterReplicaLogDirs: move replicas of this broker to another of its data directories (F6).

The reply says that the move has started. While it runs, DescribeLogDirs lists the replica twice, the second time as a future
replica. A partition without a replica here gets an error, and the directory is remembered for when the replica is created:
tools send this request before they reassign.
"""

from __future__ import annotations

import asyncio
import logging
from posixpath import abspath

from ottla.broker.network.context import RequestContext
from ottla.broker.replicas.partitions import Partitions
from ottla.broker.replicas.replica_moves import ReplicaMoves
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

logger = logging.getLogger(__name__)


async def handle(
    partitions: Partitions, moves: ReplicaMoves, request: AlterReplicaLogDirsRequest, context: RequestContext
) -> AlterReplicaLogDirsResponse:
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    for asked in request.dirs:
        for topic in asked.topics:
            result = results.setdefault(topic.name, AlterReplicaLogDirTopicResult(topic_name=topic.name))
            for index in topic.partitions:
                try:
                    await _move(partitions, moves, TopicPartition(topic.name, index), asked.path)
                    code = ErrorCode.NONE
                except KafkaError as error:
                    code = error.code
                    logger.info("Not moving replica %s-%d to %s: %s", topic.name, index, asked.path, error.detail)
                result.partitions.append(AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code))
                await asyncio.sleep(0)  # each move creates files, and a request may ask for thousands
    return AlterReplicaLogDirsResponse(results=list(results.values()))


async def _move(partitions: Partitions, moves: ReplicaMoves, key: TopicPartition, path: str) -> None:
    try:
        future_dir(key, ZERO_UUID)
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, str(error)) from None
    target = _directory(path, partitions)
    if partitions.find(key) is None and key not in partitions.logs.missing:
        partitions.logs.request_dir(key, target)
    try:
        partition = partitions.get(key)
    except KafkaError as error:
        if error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            raise KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE, error.detail) from None
        raise
    if partition.is_offline:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the data directory of {key} is offline")
    await moves.move(partition, target)


def _directory(path: str, partitions: Partitions) -> DataDir:
    for data_dir in partitions.data_dirs.online():
        if path in (data_dir.path, abspath(data_dir.path)):
            return data_dir
    if any(path in (offline, abspath(offline)) for offline in partitions.data_dirs.offline_paths()):
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the data directory {path} is offline")
    raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is not one of log.dirs")


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
