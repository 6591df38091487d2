"""The transactions of one partition of `__transaction_state`.

Owns the decisions about each request, as Kafka 4.3 takes them. A KafkaError means that nothing has changed.

1. A transactional id has one producer id and epoch. Requests with others are refused with PRODUCER_FENCED (T03); handlers map it
   for older clients.
2. A transaction is decided when PREPARE_* is committed: EndTxn is answered and the markers are pending. COMPLETE_* follows when
   all markers are written. Until then the producer's next request gets CONCURRENT_TRANSACTIONS. This is checked before the
   producer id and epoch, which may be about to change; `verify_partitions`, and EndTxn of clients before KIP-890, check those
   first.
3. Fencing aborts the open transaction and bumps the epoch. The new producer retries and gets the epoch after (T03, T05).
4. The state is that of the log, without the previous epoch: as in Kafka, a retry of InitProducerId across a failover is fenced.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.coordinator.shard import CoordinatorRecord, Decision, Now, TimerKey, Token, replied
from ottla.coordinator.txn.pending_markers import Marker, PendingMarkers, marker_of
from ottla.coordinator.txn.transaction_metadata import (
    EPOCH_MAX,
    IDLE,
    PREPARED,
    VERSION_1,
    VERSION_2,
    State,
    TransactionMetadata,
    from_value,
    is_exhausted,
)
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.internal.txn_records import decode_record, encode_key
from ottla.protocol.messages.describe_transactions import TopicData, TransactionState
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition

_MARKERS: Final = "markers"

ProducerIds = Callable[[], int]
"""Returns a new producer id. Called only if a request needs one; its exceptions pass through, and nothing has changed."""


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """The broker's settings of transactions. Defaults are Kafka's."""

    timeout_max_ms: int = 900_000
    id_expiration_ms: int = 604_800_000


class TransactionShard:
    def __init__(self, config: TransactionConfig, partition: int) -> None:
        self.config = config
        self.partition = partition
        self.transactions: dict[str, TransactionMetadata] = {}
        self.pending_markers = PendingMarkers()

    # The host's calls

    def replay(self, key: bytes, value: bytes | None, producer_id: int = NO_PRODUCER_ID) -> None:
        record = decode_record(key, value)
        if record is None:
            return
        transactional_id, decoded = record
        if decoded is None:
            self.transactions.pop(transactional_id, None)
            self.pending_markers.remove(transactional_id)
            return
        self._put(from_value(transactional_id, decoded))

    def replay_message(self, message: object, producer_id: int = NO_PRODUCER_ID) -> None:
        assert isinstance(message, TransactionMetadata)
        self._put(message)

    def _put(self, transaction: TransactionMetadata) -> None:
        transactional_id = transaction.transactional_id
        self.transactions[transactional_id] = transaction
        if transaction.state in PREPARED:
            self.pending_markers.add(transaction)
        else:
            self.pending_markers.remove(transactional_id)

    def replay_end_transaction_marker(self, producer_id: int, *, commit: bool) -> None:
        """Never called: no producer writes to `__transaction_state` in a transaction."""

    def on_loaded(self, now: Now) -> Decision:
        """Deliver the pending markers of the previous coordinator (T06). Open transactions stay open."""
        return Decision(effects=list(self.pending_markers))

    def on_timer(self, key: TimerKey, now: Now) -> Decision:
        marker = self.pending_markers.get(key[1])
        return Decision() if marker is None else Decision(effects=[marker])

    def settings_changed(self, config: TransactionConfig) -> None:
        self.config = config

    # Who a producer is

    def init_producer_id(
        self, request: InitProducerIdRequest, new_producer_id: ProducerIds, token: Token, wall_ms: int
    ) -> Decision:
        transactional_id, timeout_ms = request.transactional_id, request.transaction_timeout_ms
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a transactional id cannot be empty")
        if not 0 < timeout_ms <= self.config.timeout_max_ms:
            raise KafkaError(
                ErrorCode.INVALID_TRANSACTION_TIMEOUT,
                f"transaction.timeout.ms={timeout_ms} must be above 0 and not above {self.config.timeout_max_ms} "
                "(transaction.max.timeout.ms)",
            )
        expected_epoch = None if request.producer_id == NO_PRODUCER_ID else request.producer_epoch
        found = self.transactions.get(transactional_id)
        if found is None:
            found = TransactionMetadata(transactional_id, new_producer_id(), NO_PRODUCER_EPOCH, timeout_ms, State.EMPTY)
        elif found.state in PREPARED:
            raise _ending(found)
        elif expected_epoch is not None and not (
            request.producer_id == found.producer_id
            # The response with its new id may be lost.
            or (request.producer_id == found.previous_producer_id and is_exhausted(expected_epoch))
        ):
            raise KafkaError(
                ErrorCode.PRODUCER_FENCED,
                f"the producer id of {transactional_id} is {found.producer_id}, not {request.producer_id}",
            )
        if found.state == State.ONGOING:
            # The client retries and gets the epoch after the one that fenced its predecessor.
            answer = InitProducerIdResponse(
                error_code=ErrorCode.CONCURRENT_TRANSACTIONS, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH
            )
            return self._fence(found, new_producer_id, wall_ms).reply(token, answer)
        if found.is_exhausted and expected_epoch in (None, found.producer_epoch):
            next_one = found.rotated(new_producer_id(), timeout_ms, wall_ms, same_producer=expected_epoch is not None)
        else:
            next_one = found.initialised(expected_epoch, timeout_ms, wall_ms)
        answer = InitProducerIdResponse(producer_id=next_one.producer_id, producer_epoch=next_one.producer_epoch)
        return self._write(next_one).reply(token, answer)

    def _fence(self, transaction: TransactionMetadata, new_producer_id: ProducerIds, wall_ms: int) -> Decision:
        """Abort the open transaction with a new epoch, which fences its producer."""
        _, decision = self._end(transaction, False, VERSION_2, new_producer_id, wall_ms)
        return decision

    # Partitions

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        client_version: int,
        token: Token,
        wall_ms: int,
    ) -> Decision:
        """Add partitions to the transaction of a producer. The response is ErrorCode.NONE."""
        transaction = self._get(transactional_id)
        if transaction.state in PREPARED:
            raise _ending(transaction)
        _check_producer(transaction, producer_id, producer_epoch)
        if transaction.state == State.ONGOING and transaction.partitions.issuperset(partitions):
            return replied(token, ErrorCode.NONE)
        return self._write(transaction.with_partitions(partitions, client_version, wall_ms)).reply(token, ErrorCode.NONE)

    def verify_partitions(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Whether the partitions are part of the transaction (T10)."""
        transaction = self._get(transactional_id)
        _check_producer(transaction, producer_id, producer_epoch)
        if transaction.state in PREPARED:
            raise _ending(transaction)
        return {
            partition: ErrorCode.NONE if partition in transaction.partitions else ErrorCode.TRANSACTION_ABORTABLE
            for partition in partitions
        }

    def _get(self, transactional_id: str) -> TransactionMetadata:
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a transactional id cannot be empty")
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"transactional id {transactional_id} is not initialized")
        return transaction

    # EndTxn

    def end_txn(
        self, request: EndTxnRequest, client_version: int, new_producer_id: ProducerIds, token: Token, wall_ms: int
    ) -> Decision:
        transaction = self._get(request.transactional_id)
        if client_version >= VERSION_2:
            return self._end_v2(transaction, request, new_producer_id, token, wall_ms)
        return self._end_v1(transaction, request, token, wall_ms)

    def _end_v1(self, transaction: TransactionMetadata, request: EndTxnRequest, token: Token, wall_ms: int) -> Decision:
        """Clients before KIP-890 (T07): a retry with the same result succeeds."""
        _check_producer(transaction, request.producer_id, request.producer_epoch)
        commit = request.committed
        if transaction.state == State.ONGOING:
            _, decision = self._end(transaction, commit, VERSION_1, _no_producer_id, wall_ms)
            return decision.reply(token, EndTxnResponse())
        if transaction.state in PREPARED:
            raise _ending(transaction)
        if transaction.state == _completed(commit):
            return replied(token, EndTxnResponse())
        raise _not_now(transaction, commit)

    def _end_v2(
        self, transaction: TransactionMetadata, request: EndTxnRequest, new_producer_id: ProducerIds, token: Token, wall_ms: int
    ) -> Decision:
        """With KIP-890 the epoch tells a retry (one below the current epoch) from the next transaction (the current epoch).

        A producer may abort without an open transaction: its first write may have been lost.
        """
        commit, epoch, state = request.committed, request.producer_epoch, transaction.state
        if state in PREPARED:
            raise _ending(transaction)
        overflowed = (
            transaction.previous_producer_id == request.producer_id and epoch == EPOCH_MAX - 1 and transaction.producer_epoch == 0
        )
        repeated = transaction.producer_epoch == epoch + 1 or overflowed
        if transaction.producer_id != request.producer_id and not overflowed:
            raise _not_its_producer(transaction, request.producer_id)
        if state in (State.ONGOING, State.EMPTY):
            valid = epoch == transaction.producer_epoch
        else:
            valid = repeated or epoch == transaction.producer_epoch
        if not valid:
            raise _fenced(transaction, epoch)
        if state == State.ONGOING or not (commit or repeated):
            ended, decision = self._end(transaction, commit, VERSION_2, new_producer_id, wall_ms)
            goes_on = ended.completed(wall_ms)
            answer = EndTxnResponse(producer_id=goes_on.producer_id, producer_epoch=goes_on.producer_epoch)
            return decision.reply(token, answer)
        if repeated and state == _completed(commit):
            return replied(token, EndTxnResponse(producer_id=transaction.producer_id, producer_epoch=transaction.producer_epoch))
        raise _not_now(transaction, commit)

    def _end(
        self, transaction: TransactionMetadata, commit: bool, client_version: int, new_producer_id: ProducerIds, wall_ms: int
    ) -> tuple[TransactionMetadata, Decision]:
        next_producer_id = NO_PRODUCER_ID
        if client_version >= VERSION_2 and transaction.is_exhausted:
            next_producer_id = new_producer_id()
        ended = transaction.ended(
            commit=commit, client_version=client_version, next_producer_id=next_producer_id, wall_ms=wall_ms
        )
        decision = self._write(ended)
        decision.effects.append(marker_of(ended))
        return ended, decision

    def markers_written(self, marker: Marker, partitions: Collection[TopicPartition], wall_ms: int) -> Decision:
        """Partitions have their markers, or are deleted. The last of them completes the transaction."""
        if not self.pending_markers.written(marker, partitions):
            return Decision()
        return self._write(self.transactions[marker.transactional_id].completed(wall_ms))

    def retry_markers(self, marker: Marker, now: Now) -> Decision:
        """Retry after a backoff: some markers, or the record of the completion, could not be written."""
        decision = Decision()
        decision.set_timer((_MARKERS, marker.transactional_id), now.ms + self.pending_markers.backoff_ms(marker.transactional_id))
        return decision

    # Timeouts

    def timed_out(self, wall_ms: int) -> list[TransactionMetadata]:
        """Transactions that are open for longer than their `transaction.timeout.ms` (T05)."""
        return [
            transaction
            for transaction in self.transactions.values()
            if transaction.state == State.ONGOING and transaction.start_ms + transaction.timeout_ms < wall_ms
        ]

    def abort_timed_out(self, transactional_id: str, new_producer_id: ProducerIds, wall_ms: int) -> Decision:
        return self._fence(self.transactions[transactional_id], new_producer_id, wall_ms)

    def expire_ids(self, wall_ms: int) -> Decision:
        """Delete ids that were unused for transactional.id.expiration.ms."""
        oldest_ms = wall_ms - self.config.id_expiration_ms
        return Decision(
            [
                CoordinatorRecord(encode_key(transaction.transactional_id), None)
                for transaction in self.transactions.values()
                if transaction.state in IDLE and transaction.last_update_ms <= oldest_ms
            ],
            pure=True,
        )

    # Administration

    def describe(self, transactional_id: str) -> TransactionState:
        if not transactional_id:
            return TransactionState(transactional_id=transactional_id, error_code=ErrorCode.INVALID_REQUEST)
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            return TransactionState(transactional_id=transactional_id, error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        marker = self.pending_markers.get(transactional_id)
        # As in Kafka, partitions with their marker are left out.
        partitions = transaction.partitions if marker is None else marker.partitions
        topics: dict[str, TopicData] = {}
        for topic, partition in sorted(partitions):
            topics.setdefault(topic, TopicData(topic=topic)).partitions.append(partition)
        return TransactionState(
            transactional_id=transactional_id,
            transaction_state=transaction.state.title,
            transaction_timeout_ms=transaction.timeout_ms,
            transaction_start_time_ms=transaction.start_ms,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            topics=list(topics.values()),
        )

    def select(
        self, states: Collection[State], producer_ids: Collection[int], older_than_ms: int, wall_ms: int
    ) -> Sequence[TransactionMetadata]:
        """Transactions in one of the states and of one of the producers (empty: any), open for longer than `older_than_ms`."""
        return [
            transaction
            for transaction in self.transactions.values()
            if (not states or transaction.state in states)
            and (not producer_ids or transaction.producer_id in producer_ids)
            and (older_than_ms < 0 or wall_ms - transaction.start_ms > older_than_ms)
        ]

    # Records

    def _write(self, transaction: TransactionMetadata) -> Decision:
        key = encode_key(transaction.transactional_id)
        return Decision([CoordinatorRecord(key, transaction.encoded(), transaction)], pure=True)


def _completed(commit: bool) -> State:
    return State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT


def _no_producer_id() -> int:
    raise AssertionError("a client before KIP-890 gets no new producer id from EndTxn")


def _check_producer(transaction: TransactionMetadata, producer_id: int, producer_epoch: int) -> None:
    if transaction.producer_id != producer_id:
        raise _not_its_producer(transaction, producer_id)
    if transaction.producer_epoch != producer_epoch:
        raise _fenced(transaction, producer_epoch)


def _not_its_producer(transaction: TransactionMetadata, producer_id: int) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        f"the producer id of {transaction.transactional_id} is {transaction.producer_id}, not {producer_id}",
    )


def _fenced(transaction: TransactionMetadata, producer_epoch: int) -> KafkaError:
    return KafkaError(
        ErrorCode.PRODUCER_FENCED,
        f"producer is fenced: the epoch of {transaction.transactional_id} is {transaction.producer_epoch}, not {producer_epoch}",
    )


def _ending(transaction: TransactionMetadata) -> KafkaError:
    return KafkaError(
        ErrorCode.CONCURRENT_TRANSACTIONS,
        f"the markers of {transaction.transactional_id}'s last transaction are still being written",
    )


def _not_now(transaction: TransactionMetadata, commit: bool) -> KafkaError:
    what = "committed" if commit else "aborted"
    return KafkaError(
        ErrorCode.INVALID_TXN_STATE,
        f"the transaction of {transaction.transactional_id} is in state {transaction.state.title} and cannot be {what}",
    )
