"""Reads every replica of a partition and compares it with the leader's. Never prints.

A follower is read by a Fetch to its broker with replica id -2, Kafka's debugging consumer, up to the high watermark it knows.
Brokers since Kafka 2.4 let any consumer read followers (Fetch version 11); older ones only this one.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ottla.cli.cluster.view import ClusterView, PartitionState
from ottla.cli.connection import Connection
from ottla.cli.failure import Failure
from ottla.cli.verify_replicas.compare import Batch, Difference, batches_of, damaged, differences
from ottla.client.channel import Channel
from ottla.errors import ErrorCode, KafkaError, MalformedInput, error_name
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.registry import API_BY_NAME

_DEBUGGING_CONSUMER = -2
_WITH_TOPIC_NAMES = 12
_CHUNK_BYTES = 1 << 20
_TIMEOUT_S = 30.0
_WAIT_MS = 500
_PATIENCE_S = 10.0
"""A follower learns the high watermark with its next fetch; until then it gives nothing."""
DIFFERENCES_MAX = 20
"""Differences kept of a partition. One torn log would fill the memory."""


class Unreadable(Exception):
    """A replica that cannot be read, and why."""


class _Moved(Exception):
    """The offset is outside the log of a replica: most likely retention was faster."""

    def __init__(self, broker: int) -> None:
        super().__init__(broker)
        self.broker = broker


@dataclass(slots=True)
class Verified:
    """What was found in one partition."""

    topic: str
    partition: int
    leader: int
    replicas: list[int]
    start_offset: int = 0
    end_offset: int = 0
    batches: int = 0
    size_bytes: int = 0
    lag: dict[int, int | None] = field(default_factory=dict)
    """Offsets that each replica lacks up to the leader's log end. None: its broker does not say."""
    differences: list[Difference] = field(default_factory=list)
    unreadable: dict[int, str] = field(default_factory=dict)

    @property
    def is_same(self) -> bool:
        return not self.differences and not self.unreadable

    def add(self, found: list[Difference]) -> None:
        self.differences += found[: DIFFERENCES_MAX - len(self.differences)]

    def document(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "partition": self.partition,
            "leader": self.leader,
            "replicas": self.replicas,
            "start_offset": self.start_offset,
            "end_offset": self.end_offset,
            "batches": self.batches,
            "size_bytes": self.size_bytes,
            "lag": {str(broker): lag for broker, lag in self.lag.items()},
            "same": self.is_same,
            "differences": [{"offset": each.offset, "replica": each.replica, "what": each.what} for each in self.differences],
            "unreadable": {str(broker): why for broker, why in self.unreadable.items()},
        }


class ReplicaReader:
    """Connections to the brokers, each opened with its first fetch."""

    def __init__(self, connection: Connection, view: ClusterView) -> None:
        self._connection = connection
        self._view = view
        self._channels: dict[int, Channel] = {}

    def read(self, broker: int, topic: str, partition: int, offset: int) -> tuple[list[Batch], int]:
        """The batches from this offset on, and their size. None are there if the broker knows of no committed ones yet."""
        channel = self._channel(broker)
        asked = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=_CHUNK_BYTES)
        request = FetchRequest(
            replica_id=_DEBUGGING_CONSUMER,
            max_wait_ms=_WAIT_MS,
            min_bytes=1,
            max_bytes=_CHUNK_BYTES,
            session_epoch=-1,
            topics=[FetchTopic(topic=topic, partitions=[asked])],
        )
        api = API_BY_NAME["fetch"]
        try:
            answer = channel.exchange(api, channel.version_of(api, _WITH_TOPIC_NAMES), request, _TIMEOUT_S)
        except (OSError, KafkaError) as error:
            del self._channels[broker]
            raise Unreadable(f"broker {broker} does not answer: {error}") from None
        if answer.error_code:
            raise Unreadable(error_name(answer.error_code))
        (read,) = answer.responses[0].partitions
        if read.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise _Moved(broker)
        if read.error_code == ErrorCode.OFFSET_NOT_AVAILABLE:
            return [], 0
        if read.error_code:
            raise Unreadable(f"{error_name(read.error_code)} at offset {offset}")
        records = b"" if read.records is None else bytes(read.records)
        try:
            return batches_of(records), len(records)
        except MalformedInput as error:
            raise Unreadable(f"offset {offset}: {error}") from None

    def _channel(self, broker: int) -> Channel:
        if broker not in self._channels:
            state = self._view.brokers.get(broker)
            if state is None or state.address is None:
                raise Unreadable(f"broker {broker} is not in the cluster now")
            try:
                self._channels[broker] = self._connection.channel(*state.address)
            except (OSError, Failure) as error:
                raise Unreadable(f"broker {broker} does not answer: {error}") from None
        return self._channels[broker]

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()


class Verification:
    def __init__(self, reader: ReplicaReader, view: ClusterView, compacted: Mapping[str, bool]) -> None:
        self._reader = reader
        self._view = view
        self._compacted = compacted

    def verify(self, state: PartitionState, start_offset: int) -> Verified:
        """Compare the replicas from `start_offset` to the present high watermark. The view has read the offsets of `state`."""
        found = Verified(state.topic, state.index, state.leader, list(state.replicas))
        end = state.log_end_offsets.get(state.leader)
        found.lag = {
            broker: None if end is None or broker not in state.log_end_offsets else max(0, end - state.log_end_offsets[broker])
            for broker in state.replicas
        }
        found.unreadable = {
            broker: "its broker does not answer" for broker in state.replicas if broker not in state.log_end_offsets
        }
        if state.is_offline or state.high_watermark is None:
            found.unreadable.setdefault(state.leader, "the partition has no leader")
            return found
        self._view.read_starts([state])
        found.start_offset = offset = max(start_offset, *state.log_start_offsets.values())
        found.end_offset = max(state.high_watermark, offset)
        while offset < found.end_offset:
            try:
                offset = self._chunk(state, found, offset)
            except Unreadable as error:
                found.unreadable[state.leader] = str(error)
                break
            except _Moved as moved:
                self._view.read_starts([state])
                start = max(state.log_start_offsets.values())
                if start <= offset:
                    found.unreadable[moved.broker] = f"OFFSET_OUT_OF_RANGE at offset {offset}"
                    break
                offset = start
        return found

    def _chunk(self, state: PartitionState, found: Verified, offset: int) -> int:
        """Compare what the leader gives at this offset with the followers. Returns the next offset."""
        read, size = self._read(state, state.leader, offset)
        reference = [batch for batch in read if batch.base_offset < found.end_offset]
        if not reference:
            return found.end_offset  # compaction has removed what was left
        found.add(damaged(state.leader, reference))
        next_offset = reference[-1].last_offset + 1
        found.batches += len(reference)
        found.size_bytes += size
        for broker in state.replicas:
            end = min(next_offset, found.end_offset, state.log_end_offsets.get(broker, 0))
            if broker == state.leader or broker in found.unreadable or end <= offset:
                continue
            try:
                batches = self._until(state, broker, offset, end)
            except Unreadable as error:
                found.unreadable[broker] = str(error)
                continue
            compacted = self._compacted[state.topic]
            found.add(differences(state.leader, reference, broker, batches, end, compacted=compacted))
        return next_offset

    def _until(self, state: PartitionState, broker: int, offset: int, end: int) -> list[Batch]:
        found: list[Batch] = []
        while offset < end:
            batches, _ = self._read(state, broker, offset)
            found += batches
            offset = batches[-1].last_offset + 1
        return found

    def _read(self, state: PartitionState, broker: int, offset: int) -> tuple[list[Batch], int]:
        """At least one batch."""
        until = time.monotonic() + _PATIENCE_S
        while True:
            batches, size = self._reader.read(broker, state.topic, state.index, offset)
            if batches:
                return batches, size
            if time.monotonic() > until:
                raise Unreadable(f"gives no records at offset {offset}, which the high watermark has passed")
