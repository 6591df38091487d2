"""Interceptors: code that sees every record a client sends and receives.

Owns the `Interceptor` base class, the record that it sees before sending, and the chain that calls several in order. An
interceptor cannot lose a record: if it raises or returns something unusable, this is logged, the record is passed on unchanged
and the next interceptors are called.

1. Interceptors are called in the order of the list, for sent and received records alike.
2. Each `before_send` is followed by exactly one `on_acknowledgement`, also if the client refuses the record.
3. Unchanged means: a record before sending is immutable, and changes in place of a received message are undone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, TopicPartition

logger = logging.getLogger("ottla.client.interceptors")

HeaderValue = str | bytes | None
Headers = tuple[tuple[str, HeaderValue], ...]

PARTITION_BY_KEY = -1


class ProducerRecord(NamedTuple):
    """A record before it is sent. To change it return `record._replace(value=…)` or `record.with_header(…)`."""

    topic: str
    value: str | bytes | None = None
    """None is a tombstone."""
    key: str | bytes | None = None
    headers: Headers = ()
    partition: int = PARTITION_BY_KEY
    timestamp_ms: int = 0
    """0: the time of the send."""

    def with_header(self, name: str, value: HeaderValue) -> ProducerRecord:
        return self._replace(headers=(*self.headers, (name, value)))

    def header(self, name: str) -> HeaderValue:
        """The last header of this name."""
        return next((value for found, value in reversed(self.headers) if found == name), None)


class RecordMetadata(NamedTuple):
    """Where a record was written. Partition and offset may be -1 if it failed."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    """-1 if the broker sends none."""


class Interceptor:
    """Base class: override what you need.

    All calls come from the thread that uses the client: `on_acknowledgement` and the `on_commit` of asynchronous commits out of
    its `poll`, `flush` or `close`. With the async clients all of them come from the event loop.
    """

    def before_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record to send; topic, partition, key, value, headers and timestamp may differ."""
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: KafkaError | None) -> None:
        """The record was written (error None), or failed."""

    def before_handover(self, messages: list[Message]) -> list[Message]:
        """Return the messages for the program; messages may be dropped, added, or changed by their `set_…` methods."""
        return messages

    def on_commit(self, offsets: list[TopicPartition], error: KafkaError | None) -> None:
        """A commit succeeded or failed; single partitions may have failed (`offset.error`)."""

    def close(self) -> None:
        """The client was closed."""


def header_pairs(headers: Mapping[str, HeaderValue] | Iterable[tuple[str, HeaderValue]] | None) -> Headers:
    """Headers in any form that the client takes, as pairs."""
    if not headers:
        return ()
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return tuple((name, value) for name, value in pairs)


def metadata_of(message: Message | None, record: ProducerRecord) -> RecordMetadata:
    if message is None:
        return RecordMetadata(record.topic, record.partition, -1, -1)
    kind, timestamp_ms = message.timestamp()
    partition, offset = message.partition(), message.offset()
    return RecordMetadata(
        message.topic() or record.topic,
        -1 if partition is None else partition,
        -1 if offset is None or offset < 0 else offset,
        timestamp_ms if kind else -1,
    )


class _Contents:
    """The mutable parts of a message, to undo the changes of an interceptor that failed."""

    __slots__ = ("_headers", "_key", "_message", "_value")

    def __init__(self, message: Message) -> None:
        self._message = message
        self._key = message.key()
        self._value = message.value()
        headers = message.headers()
        self._headers = None if headers is None else list(headers.items() if isinstance(headers, dict) else headers)

    def put_back(self) -> None:
        self._message.set_key(self._key)
        self._message.set_value(self._value)
        self._message.set_headers(self._headers)  # type: ignore[arg-type]


class Chain:
    """Interceptors in order. A call that none of them overrides costs nothing."""

    def __init__(self, interceptors: Sequence[Interceptor] = ()) -> None:
        self._before_send = self._overriding(interceptors, "before_send")
        self._on_acknowledgement = self._overriding(interceptors, "on_acknowledgement")
        self._before_handover = self._overriding(interceptors, "before_handover")
        self._on_commit = self._overriding(interceptors, "on_commit")
        self._close = self._overriding(interceptors, "close")
        self._failures: dict[tuple[int, str], int] = {}

    @staticmethod
    def _overriding(interceptors: Sequence[Interceptor], name: str) -> list[Callable[..., Any]]:
        methods = [getattr(interceptor, name, None) for interceptor in interceptors]
        return [
            method
            for method in methods
            if method is not None and getattr(method, "__func__", method) is not getattr(Interceptor, name)
        ]

    @property
    def sees_records_out(self) -> bool:
        return bool(self._before_send or self._on_acknowledgement)

    @property
    def sees_acknowledgements(self) -> bool:
        return bool(self._on_acknowledgement)

    @property
    def sees_records_in(self) -> bool:
        return bool(self._before_handover)

    @property
    def sees_commits(self) -> bool:
        return bool(self._on_commit)

    def before_send(self, record: ProducerRecord) -> ProducerRecord:
        for method in self._before_send:
            try:
                changed = method(record)
                if not isinstance(changed, ProducerRecord):
                    raise TypeError(f"before_send returned {type(changed).__name__} instead of a ProducerRecord")
            except Exception:
                self._failed(method, "the record is sent as it was before")
            else:
                record = changed
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: KafkaError | None) -> None:
        for method in self._on_acknowledgement:
            try:
                method(metadata, error)
            except Exception:
                self._failed(method, "the acknowledgement goes on to the others")

    def before_handover(self, messages: list[Message]) -> list[Message]:
        for method in self._before_handover:
            before = [_Contents(message) for message in messages]
            try:
                changed = list(method(list(messages)))
            except Exception:
                for contents in before:
                    contents.put_back()
                self._failed(method, "the messages are handed over as they were before")
            else:
                messages = changed
        return messages

    def on_commit(self, offsets: list[TopicPartition], error: KafkaError | None) -> None:
        for method in self._on_commit:
            try:
                method(offsets, error)
            except Exception:
                self._failed(method, "the commit is not affected")

    def close(self) -> None:
        """Close each interceptor once."""
        methods, self._close = self._close, []
        for method in methods:
            try:
                method()
            except Exception:
                self._failed(method, "the others are closed")

    def _failed(self, method: Callable[..., Any], consequence: str) -> None:
        """Log with the traceback the first, second, fourth, … time, so that a failure on every record does not fill the disk."""
        owner = getattr(method, "__self__", method)
        name = getattr(method, "__name__", "call")
        times = self._failures.get((id(owner), name), 0) + 1
        self._failures[id(owner), name] = times
        if times & (times - 1) == 0:
            logger.exception("Interceptor %s failed in %s (%d times so far); %s", type(owner).__name__, name, times, consequence)
