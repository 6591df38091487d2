"""Reading for one fetch request: what its partitions have to give, and which of them the reply tells of.

Owns the rules of how a fetch's bytes are shared out. Waiting is the handler's; what must be told of an unchanged partition is the
session's (`replication.fetch_session`); how it is written, the handlers' (`fetch` and `fetch_quick`).

1. The first partition with data gives at least one batch, however large; from then on the limits hold (W03).
2. An error or a divergence in any partition means that there is nothing to wait for; so does a segment that is complete: what
   will be written comes behind it.
3. Consumers see what is below the high watermark, read_committed ones what is below the last stable offset; followers see all.
4. A consumer is not given empty batches alone while there are records behind them: not every client gets past them (kafka-go).
5. A partition whose records cannot be found before an index is built again gives none until a worker has done so, and then wakes
   whoever waits: others do not wait for it (F15).
6. Where a follower begins to read is how far it has come. That counts once for each request, and only if its epoch is the current
   one and its position is on this log (R08, R10).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Final

from ottla.broker.replicas import leading
from ottla.errors import ErrorCode, KafkaError
from ottla.ports import FileRange
from ottla.records.batch import RECORDS_AT
from ottla.replication.closest import closest_replica
from ottla.replication.fetch_session import FetchContext, FetchPartition
from ottla.storage.segment import IndexLost
from ottla.types import OffsetAndEpoch, TopicPartition

if TYPE_CHECKING:
    from ottla.broker.app import Broker
    from ottla.replication.leader import Leadership
    from ottla.storage.txn_index import AbortedTxn

READ_COMMITTED: Final = 1
_TOPIC_IDS_FROM: Final = 13
_ZSTD_FROM: Final = 10
_CLOSEST_FROM: Final = 11
"""The version in which a consumer may read from followers (KIP-392)."""
_ZSTD: Final = 4
_FOLLOWER_FROM: Final = 0
_UNKNOWN_PARTITION: Final = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
_UNKNOWN_ID: Final = int(ErrorCode.UNKNOWN_TOPIC_ID)


class Found:
    """What there is to say of one partition."""

    __slots__ = (
        "aborted",
        "divergence",
        "error_code",
        "high_watermark",
        "last_stable_offset",
        "log_start_offset",
        "preferred",
        "records",
        "size",
        "wanted",
    )

    def __init__(self, wanted: FetchPartition, high_watermark: int, last_stable_offset: int, log_start_offset: int) -> None:
        self.wanted = wanted
        self.error_code = 0
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset
        self.divergence: OffsetAndEpoch | None = None
        self.preferred = -1
        """The replica that a consumer shall read from instead."""
        self.aborted: list[AbortedTxn] | None = None
        """None: none that overlap the records, or nobody asked (`lists_aborted`)."""
        self.records: FileRange | None = None
        self.size = 0
        """Of the records, in bytes."""

    def lists_aborted(self, committed: bool) -> bool:
        """Whether the reply holds a list of aborted transactions, if an empty one, or null: as Kafka has it, which lists what it
        read for read_committed consumers, and what it did not even find, and nothing else."""
        if self.error_code != 0:
            return self.error_code == _UNKNOWN_PARTITION or self.error_code == _UNKNOWN_ID
        return committed and self.divergence is None and self.preferred < 0


class FetchRead:
    """One fetch request on its way."""

    __slots__ = (
        "_broker",
        "_context",
        "_found",
        "_max_bytes",
        "_min_bytes",
        "_rack",
        "_replica_epoch",
        "_replica_id",
        "_version",
        "committed",
        "keys",
        "must_answer",
        "size",
    )

    def __init__(
        self,
        broker: Broker,
        context: FetchContext,
        *,
        version: int,
        min_bytes: int,
        max_bytes: int,
        isolation_level: int,
        replica_id: int,
        replica_epoch: int = -1,
        rack: str = "",
    ) -> None:
        self._broker = broker
        self._context = context
        self._version = version
        self._min_bytes = min_bytes
        self._max_bytes = max_bytes
        self.committed = isolation_level == READ_COMMITTED and replica_id < _FOLLOWER_FROM
        self._replica_id = replica_id
        self._replica_epoch = replica_epoch
        self._rack = rack
        """Of a consumer, where the settings say that it may be sent to a replica near it."""
        self._found: list[Found] = []
        self.size = 0
        self.must_answer = False
        self.keys: list[Hashable] = []
        """What to wait for, if more is wanted of the partitions read."""

    def follower_progress(self) -> None:
        """Before the first `read` for a follower: note how far it has come, in every partition it asks for."""
        partitions = self._broker.partitions
        for wanted in self._context.partitions:
            topic = partitions.topic_name(wanted.topic_id) if self._version >= _TOPIC_IDS_FROM else wanted.topic
            partition = partitions.find(TopicPartition(topic, wanted.partition)) if topic is not None else None
            if partition is None:
                continue
            try:
                partition.check_leader(wanted.current_leader_epoch)
                leading.check_follower(partition, self._replica_id, self._replica_epoch)
                if wanted.last_fetched_epoch >= 0 and partition.divergence(wanted.last_fetched_epoch, wanted.fetch_offset):
                    continue
            except KafkaError:
                continue  # `read` says so
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
        """Of what was read last: there is nothing to wait for."""
        return self.size >= self._min_bytes or self.must_answer

    def read_enough(self) -> bool:
        self.read()
        return self.size >= self._min_bytes or self.must_answer

    def read(self) -> None:
        """Look at every partition, afresh."""
        context = self._context
        incremental = context.incremental
        committed = self.committed
        partitions = self._broker.partitions
        rack = self._rack
        version = self._version
        is_follower = self._replica_id >= _FOLLOWER_FROM
        from_followers = not is_follower and version >= _CLOSEST_FROM
        left = self._max_bytes
        found: list[Found] = []
        keys: list[Hashable] = []
        total = 0
        must_answer = False
        for wanted in context.partitions:
            try:
                if version >= _TOPIC_IDS_FROM:
                    wanted.topic = partitions.topic_name(wanted.topic_id)
                topic = wanted.topic
                if topic is None:
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
                partition = partitions.by_key.get((topic, wanted.partition))
                if partition is None:
                    partition = partitions.get(TopicPartition(topic, wanted.partition))
                log = partition.log
                if partition.is_leader or not from_followers:
                    partition.check_leader(wanted.current_leader_epoch)
                else:
                    partition.check_leader_or_follower(wanted.current_leader_epoch)
                    if wanted.fetch_offset > log.log_end_offset:
                        # The leader may have it; it will come.
                        raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
                high_watermark = log.high_watermark
                log_start_offset = log.log_start_offset
                stable_offset = log.last_stable_offset
                preferred: int | None = None
                if is_follower:
                    # Nobody becomes a follower by saying so (CVE-2018-1288).
                    leading.check_follower(partition, self._replica_id, self._replica_epoch)
                    keys.append(partition)
                    end_offset = log.log_end_offset
                    if partition.leader_throttled and leading.exceeds_leader_quota(partition, self._replica_id):
                        end_offset = wanted.fetch_offset
                else:
                    keys.append(partition.topic_partition)
                    end_offset = stable_offset if committed else high_watermark
                    if rack and partition.leadership is not None:
                        preferred = self._closest(partition.leadership, wanted.fetch_offset)
                        if preferred is not None:
                            must_answer = True
                            data = Found(wanted, high_watermark, stable_offset, log_start_offset)
                            data.preferred = preferred
                            found.append(data)
                            continue
                if wanted.last_fetched_epoch >= 0:
                    divergence = partition.divergence(wanted.last_fetched_epoch, wanted.fetch_offset)
                    if divergence is not None:
                        must_answer = True
                        data = Found(wanted, high_watermark, stable_offset, log_start_offset)
                        data.divergence = divergence
                        found.append(data)
                        continue
                if wanted.fetch_offset == end_offset:
                    # Up to date, as most partitions of most fetches are.
                    if (
                        incremental
                        and high_watermark == wanted.told_high_watermark
                        and log_start_offset == wanted.told_log_start_offset
                    ):
                        continue
                    found.append(Found(wanted, high_watermark, stable_offset, log_start_offset))
                    continue
                if version < _ZSTD_FROM and partition.rules.compression == _ZSTD:
                    raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
                max_bytes = wanted.max_bytes if wanted.max_bytes < left else left
                if max_bytes < 0:
                    max_bytes = 0
                info = partition.read(wanted.fetch_offset, max_bytes, end_offset, total == 0, False)
                if info.size % RECORDS_AT == 0 and info.size and not is_follower:
                    info = partition.read_past_empty(info, max_bytes, end_offset, total == 0)
                data = Found(wanted, high_watermark, stable_offset, log_start_offset)
                size = info.size
                if size:
                    total += size
                    left = left - size if left > size else 0
                    data.size = size
                    data.records = info.ranges[0]
                    if info.records_end_offset < end_offset and info.ranges[0].file is not log.active.file:
                        must_answer = True
                    if committed:
                        data.aborted = partition.aborted(wanted.fetch_offset, info.records_end_offset)
                found.append(data)
            except IndexLost as lost:
                assert partition is not None
                self._broker.index_rebuilder.build(partition, lost)
                found.append(Found(wanted, high_watermark, stable_offset, log_start_offset))
            except KafkaError as error:
                must_answer = True
                data = Found(wanted, -1, -1, -1)
                data.error_code = int(error.code)
                found.append(data)
        self._found = found
        self.keys = keys
        self.size = total
        self.must_answer = must_answer

    def _closest(self, leadership: Leadership, offset: int) -> int | None:
        brokers = self._broker.image.brokers

        def rack_of(broker_id: int) -> str | None:
            broker = brokers.get(broker_id)
            return broker.rack if broker is not None else None

        return closest_replica(leadership, self._rack, offset, rack_of)

    def finish(self) -> tuple[int, int, list[Found]]:
        """Of what was read last, once: the error of the reply as a whole, the session it names, and what it tells."""
        context = self._context
        incremental = context.incremental
        told: list[Found] = []
        for data in self._found:
            wanted, size = data.wanted, data.size
            changed = wanted.tell(
                data.high_watermark,
                data.log_start_offset,
                records_bytes=size,
                failed=data.error_code != 0,
                diverging=data.divergence is not None or data.preferred >= 0,
            )
            if incremental and not changed:
                continue
            if size:
                context.served(wanted)
                if self._replica_id >= _FOLLOWER_FROM:
                    partition = self._broker.partitions.find(TopicPartition(wanted.topic or "", wanted.partition))
                    if partition is not None:
                        leading.record_sent(partition, size)
            told.append(data)
        error, session_id = context.finish(int(self._broker.world.clock.monotonic() * 1000))
        return int(error), session_id, [] if error else told
