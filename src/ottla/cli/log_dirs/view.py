"""The data directories of brokers, the replicas in them, and moves between them. Never prints.

librdkafka has neither request. Each broker knows only its own directories, so every one is asked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from ottla.cli.cluster.view import ClusterView
from ottla.cli.connection import Connection, unknown_broker
from ottla.cli.failure import Failure
from ottla.cli.plain_request import call, raise_if_error
from ottla.cli.positions import TopicIndex
from ottla.errors import ErrorCode, error_name
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from ottla.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)


@dataclass(frozen=True, slots=True)
class Replica:
    topic: str
    partition: int
    size_bytes: int
    offset_lag: int
    """Offsets behind the high watermark; of a future replica, behind the present one."""
    is_future: bool
    """Whether it is the copy of a running move, which takes the place of the present replica at its end."""

    def document(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "partition": self.partition,
            "size_bytes": self.size_bytes,
            "offset_lag": self.offset_lag,
            "future": self.is_future,
        }


@dataclass(frozen=True, slots=True)
class Directory:
    path: str
    error: str | None
    """The name of the error if the directory is offline."""
    total_bytes: int | None
    usable_bytes: int | None
    """Of the volume. None: an older broker does not say."""
    is_cordoned: bool
    replicas: list[Replica]

    @property
    def size_bytes(self) -> int:
        return sum(replica.size_bytes for replica in self.replicas)

    @property
    def state(self) -> str:
        if self.error is not None:
            return "offline" if self.error == "KAFKA_STORAGE_ERROR" else self.error
        return "cordoned" if self.is_cordoned else "online"

    def document(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "state": self.state,
            "error": self.error,
            "size_bytes": self.size_bytes,
            "total_bytes": self.total_bytes,
            "usable_bytes": self.usable_bytes,
            "replicas": [replica.document() for replica in self.replicas],
        }


class LogDirs:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.view = ClusterView(connection)

    def require_broker(self, broker: int) -> None:
        if broker not in self.view.brokers:
            raise unknown_broker(broker, self.view.brokers)

    def of(self, broker: int, topics: Collection[str] | None = None) -> list[Directory]:
        """The directories of a broker, with the replicas of these topics or of all."""
        wanted = None
        if topics is not None:
            by_name = {topic: DescribableLogDirTopic(topic=topic) for topic in topics}
            for each in self.view.of(topics):
                by_name[each.topic].partitions.append(each.index)
            wanted = list(by_name.values())
        request = DescribeLogDirsRequest(topics=wanted)
        address = self.view.brokers[broker].address
        answer = call(self._connection, "describe_log_dirs", None, request, DescribeLogDirsResponse, address)
        raise_if_error(answer.error_code, f"broker {broker} does not describe its log dirs")
        if not answer.results:
            # Before version 3 there is no error for the whole response.
            raise Failure(f"broker {broker} describes no log dirs", "it needs DESCRIBE on the cluster", code="NO_LOG_DIRS")
        return sorted(map(_directory, answer.results), key=lambda each: each.path)

    def require_movable(self, broker: int, keys: Iterable[TopicIndex], path: str) -> None:
        """Failure unless the directory is one of the broker's, online, and the broker has these replicas."""
        directories = self.of(broker)
        found = next((each for each in directories if each.path.rstrip("/") == path.rstrip("/")), None)
        if found is None:
            known = ", ".join(each.path for each in directories)
            raise Failure(f"{path} is no data directory of broker {broker}", f"it has {known}", code="LOG_DIR_NOT_FOUND")
        if found.error is not None:
            raise Failure(f"{path} of broker {broker} is offline ({found.error})", code=found.error)
        for topic, index in keys:
            if broker not in self.view.partitions[topic, index].replicas:
                brokers = ", ".join(map(str, self.view.partitions[topic, index].replicas))
                raise Failure(
                    f"broker {broker} holds no replica of {topic}-{index}",
                    f"its replicas are on {brokers}; `ottla reassign` moves them to other brokers",
                    code="REPLICA_NOT_AVAILABLE",
                )

    def move(self, broker: int, keys: Iterable[TopicIndex], path: str) -> None:
        """Start to move replicas of a broker to one of its directories."""
        topics: dict[str, AlterReplicaLogDirTopic] = {}
        for topic, index in keys:
            topics.setdefault(topic, AlterReplicaLogDirTopic(name=topic)).partitions.append(index)
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=list(topics.values()))])
        address = self.view.brokers[broker].address
        answer = call(self._connection, "alter_replica_log_dirs", None, request, AlterReplicaLogDirsResponse, address)
        refused = [
            f"{topic.topic_name}-{partition.partition_index}: {error_name(partition.error_code)}"
            for topic in answer.results
            for partition in topic.partitions
            if partition.error_code
        ]
        if refused:
            more = f", and {len(refused) - 3} more" if len(refused) > 3 else ""
            raise Failure(f"broker {broker} does not move {'; '.join(refused[:3])}{more}", code=refused[0].rpartition(" ")[2])

    def not_in(self, broker: int, keys: Iterable[TopicIndex], path: str) -> dict[TopicIndex, Replica | None]:
        """The replicas that are not (yet) in the directory, each with its future replica there if it is moving."""
        wanted = set(keys)
        left: dict[TopicIndex, Replica | None] = {}
        for directory in self.of(broker, sorted({topic for topic, _ in wanted})):
            here = directory.path.rstrip("/") == path.rstrip("/")
            for replica in directory.replicas:
                key = (replica.topic, replica.partition)
                if key not in wanted:
                    continue
                if here and replica.is_future:
                    left[key] = replica
                elif not here and not replica.is_future:
                    left.setdefault(key, None)
        return left


def _directory(result: DescribeLogDirsResult) -> Directory:
    replicas = [
        Replica(topic.name, each.partition_index, each.partition_size, each.offset_lag, each.is_future_key)
        for topic in result.topics
        for each in topic.partitions
    ]
    return Directory(
        result.log_dir,
        error_name(result.error_code) if result.error_code != ErrorCode.NONE else None,
        result.total_bytes if result.total_bytes >= 0 else None,
        result.usable_bytes if result.usable_bytes >= 0 else None,
        result.is_cordoned,
        sorted(replicas, key=lambda each: (each.topic, each.partition, each.is_future)),
    )
