"""Value types and "unknown" constants that every package uses. No behaviour."""

from __future__ import annotations

from typing import Final, NamedTuple

Buffer = bytes | bytearray | memoryview

NO_OFFSET: Final = -1
NO_TIMESTAMP: Final = -1
NO_LEADER_EPOCH: Final = -1
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1

ZERO_UUID: Final = bytes(16)


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OffsetAndEpoch(NamedTuple):
    offset: int
    leader_epoch: int


class TimestampAndOffset(NamedTuple):
    timestamp_ms: int
    offset: int


class ProducerIdAndEpoch(NamedTuple):
    producer_id: int
    producer_epoch: int
