"""Reading for one Fetch request: what each partition has to give, and which partitions the response lists.

Owns the rules by which the bytes of a response are shared out. The handler waits and builds the response. The session decides
whether an unchanged partition is listed (`replication.fetch_session`).

1. The first partition with data gives at least one batch, however large. From then on the limits hold (W03).
2. An error or a divergence in any partition ends the wait. So does a segment that is complete: new records go behind it.
3. Consumers read up to the high watermark, read_committed ones up to the last stable offset, followers up to the log end.
4. A consumer is not given empty batches alone while records follow them: not every client gets past them (kafka-go).
5. A partition whose offset index is lost gives no records until a worker has rebuilt the index, which wakes the fetch. Other
   partitions do not wait for it (F15).
6. A follower's fetch offset is how far it has replicated. It counts once per request, and only if the follower's epoch is current
   and its position is on this log (R08, R10).
"""

from __future__ import annotations

from collections.abc import Container, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.broker.metadata.local_metadata import LocalMetadata
from ottla.broker.replicas import leading
from ottla.broker.replicas.index_rebuilder import IndexRebuilder
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.partitions import Partitions
from ottla.broker.replicas.traffic import TopicTraffic
from ottla.errors import ErrorCode, KafkaError
from ottla.ports import FileRange
from ottla.records.batch import RECORDS_AT
from ottla.replication.fetch_session import FetchContext, FetchPartition
from ottla.replication.leader import Leadership, closest_replica
from ottla.storage.segment import IndexLost
from ottla.storage.txn_index import AbortedTxn
from ottla.types import OffsetAndEpoch, TopicPartition

if TYPE_CHECKING:
    from ottla.protocol.messages.fetch import FetchRequest  # loaded with the first Fetch request

READ_COMMITTED: Final = 1
_ZSTD_FROM: Final = 10
_CLOSEST_FROM: Final = 11
"""The version in which a consumer may read from followers (KIP-392)."""
_TOPIC_IDS_FROM: Final = 13
_ZSTD: Final = 4
_FOLLOWER_FROM: Final = 0
_RESPONSE_BYTES: Final = 24
_PARTITION_BYTES: Final = 48
"""Sizes of a response and a partition in it without records; the topic of one partition included."""
_UNKNOWN_PARTITION: Final = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
_UNKNOWN_ID: Final = int(ErrorCode.UNKNOWN_TOPIC_ID)


@dataclass(eq=False)
class FetchSource:
    """What all fetches read from."""

    partitions: Partitions
    metadata: LocalMetadata
    index_rebuilder: IndexRebuilder
    bytes_max: int
    """`fetch.max.bytes`."""
    selects_replicas: bool
    """Whether consumers are sent to followers in their rack (KIP-392)."""


class PartitionRead:
    """What was read from one partition."""

    def __init__(self, wanted: FetchPartition, high_watermark: int, last_stable_offset: int, log_start_offset: int) -> None:
        self.wanted = wanted
        self.error_code = 0
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset
        self.divergence: OffsetAndEpoch | None = None
        self.preferred = -1
        """The replica that the consumer should read from instead."""
        self.aborted: list[AbortedTxn] | None = None
        """Aborted transactions that overlap the records. None: none do, or the reader is not read_committed."""
        self.records: FileRange | None = None
        self.size = 0
        """Bytes of the records."""
        self.traffic: TopicTraffic | None = None
        """Where to count the records, with metrics."""

    def lists_aborted(self, committed: bool) -> bool:
        """Whether the response has a list of aborted transactions, perhaps an empty one, or null. As Kafka does: a list for
        what it read for a read_committed consumer and for a partition it does not know, else null."""
        if self.error_code != 0:
            return self.error_code == _UNKNOWN_PARTITION or self.error_code == _UNKNOWN_ID
        return committed and self.divergence is None and self.preferred < 0


class FetchRead:
    """One Fetch request, while it is answered."""

    def __init__(
        self,
        source: FetchSource,
        context: FetchContext,
        request: FetchRequest,
        version: int,
        replica_id: int,
        replica_epoch: int,
        denied_topics: Container[str] | None = None,
    ) -> None:
        """Partitions of `denied_topics` get TOPIC_AUTHORIZATION_FAILED."""
        self.source = source
        self._context = context
        self._version = version
        self._max_bytes = request.max_bytes if request.max_bytes < source.bytes_max else source.bytes_max
        self._min_bytes = request.min_bytes if request.min_bytes < self._max_bytes else self._max_bytes
        self._is_follower = replica_id >= _FOLLOWER_FROM
        self.committed = request.isolation_level == READ_COMMITTED and not self._is_follower
        self._denied_topics = denied_topics
        self._replica_id = replica_id
        self._replica_epoch = replica_epoch
        self._rack = request.rack_id if source.selects_replicas and not self._is_follower else ""
        """The consumer's rack, if it may be sent to a replica near it."""
        self._reads: list[PartitionRead] = []
        self._left = 0
        """Bytes that the response may still take."""
        self.size = 0
        """Bytes of all records read."""
        self.must_answer = False
        self._counted = False
        """Read before: a waiting request counts once for each partition."""
        self.keys: list[Hashable] = []
        """What the purgatory watches, if more is wanted from the partitions read."""

    def follower_progress(self) -> None:
        """Note how far a follower has come in every partition it asks for. Called once, before the first `read`."""
        for wanted in self._context.partitions:
            try:
                partition = self._partition(wanted)
                partition.check_leader(wanted.current_leader_epoch)
                leading.check_follower(partition, self._replica_id, self._replica_epoch)
                if wanted.last_fetched_epoch >= 0 and partition.divergence(wanted.last_fetched_epoch, wanted.fetch_offset):
                    continue
            except KafkaError:
                continue  # `read` reports it
            log = partition.log
            if log.log_start_offset <= wanted.fetch_offset <= log.log_end_offset:
                leading.follower_fetched(
                    partition,
                    self._replica_id,
                    wanted.fetch_offset,
                    wanted.follower_log_start_offset,
                    self._replica_epoch,
                )

    def enough(self) -> bool:
        """Whether what was read last can be sent without waiting."""
        return self.size >= self._min_bytes or self.must_answer

    def read_enough(self) -> bool:
        self.read()
        return self.size >= self._min_bytes or self.must_answer

    def read(self) -> None:
        """Read every partition from the start."""
        self._reads = []
        self.keys = []
        self.size = 0
        self.must_answer = False
        self._left = self._max_bytes
        for wanted in self._context.partitions:
            try:
                partition = self._partition(wanted)
                read = self._read_partition(partition, wanted)
            except IndexLost as lost:
                self.source.index_rebuilder.build(partition, lost)
                read = _watermarks(partition, wanted)
            except KafkaError as error:
                self.must_answer = True
                self._count_failure(wanted, error)
                read = PartitionRead(wanted, -1, -1, -1)
                read.error_code = int(error.code)
            if read is not None:
                self._reads.append(read)
        self._counted = True

    def _count_failure(self, wanted: FetchPartition, error: KafkaError) -> None:
        partition = self.source.partitions.by_key.get((wanted.topic or "", wanted.partition))
        if partition is not None and partition.traffic is not None:
            partition.traffic.read_failed(error)

    def _partition(self, wanted: FetchPartition) -> Partition:
        partitions = self.source.partitions
        if self._version >= _TOPIC_IDS_FROM:
            wanted.topic = partitions.topic_name(wanted.topic_id)
        topic = wanted.topic
        if self._denied_topics is not None and (topic or "") in self._denied_topics:
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        partition = partitions.by_key.get((topic, wanted.partition))
        return partition if partition is not None else partitions.get(TopicPartition(topic, wanted.partition))

    def _read_partition(self, partition: Partition, wanted: FetchPartition) -> PartitionRead | None:
        """None: an incremental response has nothing to say about the partition."""
        if partition.traffic is not None and not self._counted:
            partition.traffic.fetch_requests += 1
        self._check(partition, wanted)
        end_offset = self._end_offset(partition, wanted)
        if self._rack and partition.leadership is not None:
            preferred = self._closest(partition.leadership, wanted.fetch_offset)
            if preferred is not None:
                self.must_answer = True
                read = _watermarks(partition, wanted)
                read.preferred = preferred
                return read
        if wanted.last_fetched_epoch >= 0:
            divergence = partition.divergence(wanted.last_fetched_epoch, wanted.fetch_offset)
            if divergence is not None:
                self.must_answer = True
                read = _watermarks(partition, wanted)
                read.divergence = divergence
                return read
        if wanted.fetch_offset == end_offset:
            # Up to date, as most partitions of most fetches are.
            log = partition.log
            if (
                self._context.incremental
                and log.high_watermark == wanted.told_high_watermark
                and log.log_start_offset == wanted.told_log_start_offset
            ):
                return None
            return _watermarks(partition, wanted)
        return self._read_records(partition, wanted, end_offset)

    def _check(self, partition: Partition, wanted: FetchPartition) -> None:
        """Require that this reader may read the partition here, in the leader epoch it names."""
        if partition.is_leader or self._is_follower or self._version < _CLOSEST_FROM:
            partition.check_leader(wanted.current_leader_epoch)
            if self._is_follower:
                # A replica id alone makes nobody a follower (CVE-2018-1288).
                leading.check_follower(partition, self._replica_id, self._replica_epoch)
            return
        partition.check_leader_or_follower(wanted.current_leader_epoch)
        if wanted.fetch_offset > partition.log.log_end_offset:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)  # the leader may have it, and this follower later

    def _end_offset(self, partition: Partition, wanted: FetchPartition) -> int:
        """How far this reader may read. Notes what the purgatory has to watch for more."""
        log = partition.log
        if not self._is_follower:
            self.keys.append(partition.topic_partition)
            return log.last_stable_offset if self.committed else log.high_watermark
        self.keys.append(partition)
        if partition.leader_throttled and leading.exceeds_leader_quota(partition, self._replica_id):
            return wanted.fetch_offset
        return log.log_end_offset

    def _read_records(self, partition: Partition, wanted: FetchPartition, end_offset: int) -> PartitionRead:
        if self._version < _ZSTD_FROM and partition.rules.compression == _ZSTD:
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        max_bytes = wanted.max_bytes if wanted.max_bytes < self._left else self._left
        if max_bytes < 0:
            max_bytes = 0
        is_first = self.size == 0
        info = partition.read(wanted.fetch_offset, max_bytes, end_offset, is_first, False)
        if info.size % RECORDS_AT == 0 and info.size and not self._is_follower:
            info = partition.read_past_empty(info, max_bytes, end_offset, is_first)
        read = _watermarks(partition, wanted)
        size = info.size
        if size:
            read.traffic = partition.traffic
            self.size += size
            self._left = self._left - size if self._left > size else 0
            read.size = size
            records = info.ranges[0]
            read.records = records
            if info.records_end_offset < end_offset and records.file is not partition.log.active.file:
                self.must_answer = True
            if self.committed:
                read.aborted = partition.aborted(wanted.fetch_offset, info.records_end_offset)
        return read

    def _closest(self, leadership: Leadership, offset: int) -> int | None:
        brokers = self.source.metadata.image.brokers

        def rack_of(broker_id: int) -> str | None:
            broker = brokers.get(broker_id)
            return broker.rack if broker is not None else None

        return closest_replica(leadership, self._rack, offset, rack_of)

    def response_bytes(self) -> int:
        """The size of the response, near enough for a quota."""
        return self.size + _RESPONSE_BYTES + len(self._reads) * _PARTITION_BYTES

    def finish_throttled(self) -> tuple[int, int]:
        """(error, session id) of an empty response in place of what was read. No session begins, and one that exists knows that
        nothing was told."""
        error, session_id = self._context.finish_throttled()
        return int(error), session_id

    def finish(self, now_ms: int) -> tuple[int, int, list[PartitionRead]]:
        """(error of the whole response, session id, partitions it lists), of what was read last. Called once."""
        context = self._context
        listed: list[PartitionRead] = []
        for read in self._reads:
            wanted, size = read.wanted, read.size
            changed = wanted.tell(
                read.high_watermark,
                read.log_start_offset,
                records_bytes=size,
                failed=read.error_code != 0,
                diverging=read.divergence is not None or read.preferred >= 0,
            )
            if context.incremental and not changed:
                continue
            if size:
                context.served(wanted)
                if self._is_follower:
                    partition = self.source.partitions.find(TopicPartition(wanted.topic or "", wanted.partition))
                    if partition is not None:
                        leading.record_sent(partition, self._replica_id, size)
                elif read.traffic is not None:
                    read.traffic.bytes_out += size
            listed.append(read)
        error, session_id = context.finish(now_ms)
        return int(error), session_id, [] if error else listed


def _watermarks(partition: Partition, wanted: FetchPartition) -> PartitionRead:
    """A read without records."""
    log = partition.log
    return PartitionRead(wanted, log.high_watermark, log.last_stable_offset, log.log_start_offset)
