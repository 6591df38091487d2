"""Writes records. One producer for each connection to the cluster, for as long as somebody has the connection: the first record
of a producer takes half a second."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from ottla.cli.connection import REQUEST_TIMEOUT_S, Connection, unknown_partition
from ottla.cli.failure import Failure, explain
from ottla.cli.formats import Outgoing

if TYPE_CHECKING:
    from confluent_kafka import Producer

_POLL_S = 0.05
_RECORD_BYTES_MAX = 1_000_000_000
"""librdkafka's limit. The broker's `max.message.bytes` decides."""


class Writers:
    def __init__(self) -> None:
        self._producers: WeakKeyDictionary[Connection, Producer] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def write(self, connection: Connection, topic: str, records: Sequence[Outgoing]) -> list[dict[str, Any]]:
        """Produce records, acknowledged by all replicas in sync. Failure if one is refused; others may be written."""
        known = connection.topic(topic)
        for each in records:
            if each.partition is not None and each.partition not in known.partitions:
                raise unknown_partition(topic, each.partition, len(known.partitions))
        producer = self._producer(connection)
        delivery = _Delivery(len(records))
        for number, each in enumerate(records):
            more: dict[str, Any] = {"headers": each.headers, "on_delivery": delivery.of(number)}
            if each.partition is not None:
                more["partition"] = each.partition
            if each.timestamp_ms is not None:
                more["timestamp"] = each.timestamp_ms
            _produce(producer, topic, each, more)
        until_s = time.monotonic() + REQUEST_TIMEOUT_S
        while delivery.left and time.monotonic() < until_s:
            producer.poll(_POLL_S)
        if delivery.errors:
            raise explain(delivery.errors[0], f"topic {topic}")
        if delivery.left:
            raise Failure(
                f"topic {topic}: {delivery.left} records are not acknowledged yet", "they may still be written", code="_TIMED_OUT"
            )
        return [each for each in delivery.places if each is not None]

    def _producer(self, connection: Connection) -> Producer:
        with self._lock:
            found = self._producers.get(connection)
            if found is None:
                properties = {"acks": "all", "enable.idempotence": True, "message.max.bytes": _RECORD_BYTES_MAX, "linger.ms": 1}
                found = self._producers[connection] = connection.producer(**properties)
            return found


def _produce(producer: Producer, topic: str, record: Outgoing, more: dict[str, Any]) -> None:
    while True:
        try:
            producer.produce(topic, value=record.value, key=record.key, **more)
        except BufferError:
            producer.poll(_POLL_S)
        else:
            producer.poll(0)
            return


class _Delivery:
    """Where the records of one call are."""

    def __init__(self, count: int) -> None:
        self.left = count
        self.places: list[dict[str, Any] | None] = [None] * count
        self.errors: list[Any] = []

    def of(self, number: int) -> Callable[[Any, Any], None]:
        def tell(error: Any, message: Any) -> None:
            self.left -= 1
            if error is not None:
                self.errors.append(error)
                return
            kind, timestamp = message.timestamp()
            self.places[number] = {
                "partition": message.partition(),
                "offset": message.offset(),
                "timestamp": timestamp if kind else None,
            }

        return tell
