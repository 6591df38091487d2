"""Records and the progress of their source in one Kafka transaction.

1. The progress is the committed offsets of a group, in the cluster that is written to. A transaction commits both or neither.
2. A transfer that was killed leaves an open transaction. The next one with the same id aborts it, before it reads the progress.
3. Of two transfers with the same id the older one fails with its next transaction: the broker fences it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ottla.cli.connection import Connection, while_coordinators_move
from ottla.cli.failure import Failure, explain
from ottla.cli.formats import Headers
from ottla.cli.positions import TopicIndex

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message, Producer

_ATTEMPT_S = 5.0
_PATIENCE_S = 60.0
_TRANSACTION_TIMEOUT_MS = 60_000
_RECORD_BYTES_MAX = 1_000_000_000
"""librdkafka's limit. The broker's `max.message.bytes` decides."""


@dataclass(frozen=True, slots=True)
class Committed:
    offset: int
    metadata: str = ""


class Transfer:
    def __init__(self, connection: Connection, name: str, *, compression: str = "none") -> None:
        """`name` is the group and the transactional id."""
        self.name = name
        self._connection = connection
        self._producer: Producer = connection.producer(
            **{
                "transactional.id": name,
                "transaction.timeout.ms": _TRANSACTION_TIMEOUT_MS,
                "compression.type": compression,
                "message.max.bytes": _RECORD_BYTES_MAX,
                "linger.ms": 20,
                "batch.num.messages": 10_000,
            }
        )
        self._consumer = connection.consumer(**{"group.id": name, "isolation.level": "read_committed"})
        self._is_open = False

    def begin(self) -> None:
        """Fence an earlier transfer with the same id, and abort what it left open."""
        self._persist(self._producer.init_transactions)

    def committed(self, keys: Collection[TopicIndex]) -> dict[TopicIndex, Committed]:
        """The progress, of the partitions that have any."""
        return _committed(self._consumer, self.name, keys)

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        delivered: Callable[[Any, Message], None] | None = None,
    ) -> None:
        """Write a record in the open transaction; the first one opens it. Without a partition its key's hash chooses one."""
        self._open()
        named: Any = headers
        more: dict[str, Any] = {} if partition is None else {"partition": partition}
        if timestamp_ms is not None:
            more["timestamp"] = timestamp_ms
        if delivered is not None:
            more["on_delivery"] = delivered
        with self._explained():
            while True:
                try:
                    self._producer.produce(topic, value=value, key=key, headers=named, **more)
                except BufferError:
                    self._producer.poll(0.1)
                    continue
                self._producer.poll(0)
                return

    def flush(self) -> None:
        """Wait until the broker has all records of the open transaction."""
        with self._explained():
            left = self._producer.flush(_PATIENCE_S)
        if left:
            raise Failure(
                f"{self.name}: records were not written in {_PATIENCE_S:g} s", "run it again: it continues behind its last commit"
            )

    def commit(self, progress: Mapping[TopicIndex, Committed]) -> None:
        """End the transaction: its records become visible, and the progress becomes theirs."""
        from confluent_kafka import TopicPartition

        self._open()
        offsets = [TopicPartition(*key, each.offset, metadata=each.metadata) for key, each in progress.items()]
        group = self._consumer.consumer_group_metadata()
        self._persist(lambda timeout_s: self._producer.send_offsets_to_transaction(offsets, group, timeout_s))
        self._persist(self._producer.commit_transaction)
        self._is_open = False

    def abort(self) -> None:
        """End the transaction without its records."""
        if self._is_open:
            self._persist(self._producer.abort_transaction)
            self._is_open = False

    def _open(self) -> None:
        if not self._is_open:
            with self._explained():
                self._producer.begin_transaction()
            self._is_open = True

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Errors of the producer become failures of this transfer."""
        from confluent_kafka import KafkaException

        try:
            yield
        except KafkaException as exception:
            raise self._failure(exception.args[0]) from None

    def _persist(self, call: Callable[[float], object]) -> None:
        from confluent_kafka import KafkaException

        until = time.monotonic() + _PATIENCE_S
        while True:
            try:
                call(_ATTEMPT_S)
            except KafkaException as exception:
                error = exception.args[0]
                if not error.retriable() or time.monotonic() > until:
                    raise self._failure(error) from None
            else:
                return

    def _failure(self, error: Any) -> Failure:
        from confluent_kafka import KafkaError

        if error.code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH):
            return Failure(
                f"another run of {self.name} has begun: this one ends, and wrote nothing twice",
                "let only one of them run",
                code="PRODUCER_FENCED",
            )
        failure = explain(error, self.name)
        failure.hint = failure.hint or "run it again: it continues behind its last commit"
        return failure

    def close(self) -> None:
        """Abort what is open, so that readers need not wait for its timeout."""
        from confluent_kafka import KafkaException

        if self._is_open:
            try:
                self._producer.abort_transaction(_ATTEMPT_S)
            except KafkaException:
                pass  # the next transfer or the timeout aborts it
        self._consumer.close()


def committed_offsets(connection: Connection, group: str, keys: Collection[TopicIndex]) -> dict[TopicIndex, Committed]:
    """The committed offsets of a group, with their metadata. Waits for the end of transactions that change them."""
    consumer = connection.consumer(**{"group.id": group, "isolation.level": "read_committed"})
    try:
        return _committed(consumer, group, keys)
    finally:
        consumer.close()


@while_coordinators_move
def _committed(consumer: Consumer, group: str, keys: Collection[TopicIndex]) -> dict[TopicIndex, Committed]:
    from confluent_kafka import KafkaException, TopicPartition

    if not keys:
        return {}
    try:
        found = consumer.committed([TopicPartition(*key) for key in sorted(keys)], _PATIENCE_S)
    except KafkaException as exception:
        raise explain(exception.args[0], f"group {group}") from None
    for each in found:
        if each.error is not None:  # taken for nothing committed, records would be copied again
            raise explain(each.error, f"group {group}, partition {each.partition} of {each.topic}")
    return {(each.topic, each.partition): Committed(each.offset, each.metadata or "") for each in found if each.offset >= 0}


def headers_of(message: Message) -> Headers:
    found: Any = message.headers() or []
    return list(found)


def timestamp_of(message: Message) -> int | None:
    kind, timestamp_ms = message.timestamp()
    return timestamp_ms if kind else None
