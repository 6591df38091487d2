"""Records and bytes by topic (`kafka.server:type=BrokerTopicMetrics`).

Only with `metrics.listener`; else no partition has a `TopicTraffic`. As in Kafka, what coordinators append to internal topics
counts too, the counts of a topic end with its last replica on this broker, and those of the broker go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.errors import ErrorCode, KafkaError
from ottla.records.validate import NO_KEY, WRONG_CRC, WRONG_MAGIC, WRONG_OFFSET, RecordsRefused
from ottla.storage.results import AppendInfo

if TYPE_CHECKING:
    from mypy_extensions import i64

_EXPECTED_OF_PRODUCE: Final = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    )
)
_EXPECTED_OF_FETCH: Final = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    )
)
"""Errors that are part of a client's life: Kafka does not count them as failures of the broker."""


class TopicTraffic:
    def __init__(self) -> None:
        self.messages_in: i64 = 0
        self.bytes_in: i64 = 0
        self.bytes_out: i64 = 0
        """To consumers."""
        self.bytes_rejected: i64 = 0
        self.replication_bytes_in: i64 = 0
        self.replication_bytes_out: i64 = 0
        self.reassignment_bytes_in: i64 = 0
        self.reassignment_bytes_out: i64 = 0
        self.produce_requests: i64 = 0
        """One for each partition of a request, as are the next three."""
        self.fetch_requests: i64 = 0
        self.failed_produce_requests: i64 = 0
        self.failed_fetch_requests: i64 = 0
        self.wrong_crc: i64 = 0
        self.wrong_magic: i64 = 0
        self.wrong_offset: i64 = 0
        self.without_key: i64 = 0

    def appended(self, info: AppendInfo) -> None:
        self.produce_requests += 1
        if not info.duplicate:
            self.messages_in += info.last_offset - info.first_offset + 1
            self.bytes_in += info.size_bytes

    def replicated_in(self, size_bytes: int, *, added: bool) -> None:
        """`added`: a reassignment adds the replica, also for the next one."""
        self.replication_bytes_in += size_bytes
        if added:
            self.reassignment_bytes_in += size_bytes

    def replicated_out(self, size_bytes: int, *, added: bool) -> None:
        self.replication_bytes_out += size_bytes
        if added:
            self.reassignment_bytes_out += size_bytes

    def append_failed(self, error: KafkaError, size_bytes: int) -> None:
        self.produce_requests += 1
        if error.code not in _EXPECTED_OF_PRODUCE:
            self.failed_produce_requests += 1
        if error.code == ErrorCode.MESSAGE_TOO_LARGE:
            self.bytes_rejected += size_bytes
        if isinstance(error, RecordsRefused):
            fault = error.fault
            if fault == WRONG_CRC:
                self.wrong_crc += 1
            elif fault == WRONG_MAGIC:
                self.wrong_magic += 1
            elif fault == WRONG_OFFSET:
                self.wrong_offset += 1
            elif fault == NO_KEY:
                self.without_key += len(error.record_errors)

    def read_failed(self, error: KafkaError) -> None:
        if error.code not in _EXPECTED_OF_FETCH:
            self.failed_fetch_requests += 1

    def add(self, other: TopicTraffic) -> None:
        self.messages_in += other.messages_in
        self.bytes_in += other.bytes_in
        self.bytes_out += other.bytes_out
        self.bytes_rejected += other.bytes_rejected
        self.replication_bytes_in += other.replication_bytes_in
        self.replication_bytes_out += other.replication_bytes_out
        self.reassignment_bytes_in += other.reassignment_bytes_in
        self.reassignment_bytes_out += other.reassignment_bytes_out
        self.produce_requests += other.produce_requests
        self.fetch_requests += other.fetch_requests
        self.failed_produce_requests += other.failed_produce_requests
        self.failed_fetch_requests += other.failed_fetch_requests
        self.wrong_crc += other.wrong_crc
        self.wrong_magic += other.wrong_magic
        self.wrong_offset += other.wrong_offset
        self.without_key += other.without_key


class Traffic:
    """The traffic of all topics with a replica on this broker."""

    def __init__(self) -> None:
        self.by_topic: dict[str, TopicTraffic] = {}
        self._gone = TopicTraffic()
        """Of topics that are no longer here."""

    def of(self, topic: str) -> TopicTraffic:
        found = self.by_topic.get(topic)
        if found is None:
            found = self.by_topic[topic] = TopicTraffic()
        return found

    def keep_only(self, topics: set[str]) -> None:
        """Forget the topics that have no replica here any more."""
        for topic in [topic for topic in self.by_topic if topic not in topics]:
            self._gone.add(self.by_topic.pop(topic))

    def total(self) -> TopicTraffic:
        total = TopicTraffic()
        total.add(self._gone)
        for traffic in self.by_topic.values():
            total.add(traffic)
        return total
