"""`Producer`: confluent-kafka's producer with interceptors, otherwise unchanged.

Importing this module loads confluent-kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Message

from ottla.client.interceptors import (
    PARTITION_BY_KEY,
    Chain,
    HeaderValue,
    Interceptor,
    ProducerRecord,
    header_pairs,
    metadata_of,
)

OnDelivery = Callable[[KafkaError | None, Message], None]


def refusal(exception: BaseException) -> KafkaError:
    """The exception of a refused record as the error of its acknowledgement."""
    if isinstance(exception, KafkaException) and exception.args and isinstance(exception.args[0], KafkaError):
        return exception.args[0]
    code = KafkaError._QUEUE_FULL if isinstance(exception, BufferError) else KafkaError._INVALID_ARG
    return KafkaError(code, str(exception))


def enqueue(producer: confluent_kafka.Producer, record: ProducerRecord, on_delivery: OnDelivery | None) -> None:
    """Pass one record to confluent-kafka."""
    arguments: dict[str, Any] = {}
    if record.headers:
        arguments["headers"] = list(record.headers)
    if record.timestamp_ms:
        arguments["timestamp"] = record.timestamp_ms
    if on_delivery is not None:
        arguments["on_delivery"] = on_delivery
    confluent_kafka.Producer.produce(producer, record.topic, record.value, record.key, record.partition, **arguments)


class Producer(confluent_kafka.Producer):
    def __init__(self, config: Mapping[str, Any], *, interceptors: Sequence[Interceptor] = (), **more: Any) -> None:
        self._chain = Chain(interceptors)
        config = {**config, **more}
        self._on_delivery: OnDelivery | None = None
        if self._chain.sees_acknowledgements:
            # A callback of a record displaces the one for all of them; ours calls it.
            self._on_delivery = config.pop("on_delivery", None)
        super().__init__(config)

    def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        partition: int = PARTITION_BY_KEY,
        callback: OnDelivery | None = None,
        on_delivery: OnDelivery | None = None,
        timestamp: int = 0,
        headers: Mapping[str, HeaderValue] | Iterable[tuple[str, HeaderValue]] | None = None,
    ) -> None:
        record = ProducerRecord(topic, value, key, header_pairs(headers), partition, timestamp)
        on_delivery = on_delivery or callback
        if not self._chain.sees_records_out:
            enqueue(self, record, on_delivery)
            return
        self._send(self._chain.before_send(record), on_delivery or self._on_delivery)

    def _send(self, record: ProducerRecord, on_delivery: OnDelivery | None) -> None:
        chain = self._chain
        if not chain.sees_acknowledgements:
            enqueue(self, record, on_delivery)
            return

        def delivered(error: KafkaError | None, message: Message) -> None:
            chain.on_acknowledgement(metadata_of(message, record), error)
            if on_delivery is not None:
                on_delivery(error, message)

        try:
            enqueue(self, record, delivered)
        except Exception as exception:
            chain.on_acknowledgement(metadata_of(None, record), refusal(exception))
            raise

    def produce_batch(
        self,
        topic: str,
        messages: list[dict[str, Any]],
        partition: int = PARTITION_BY_KEY,
        callback: OnDelivery | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> int:
        """Returns how many were queued; the others have `_error` set. With interceptors records are queued one by one."""
        on_delivery = on_delivery or callback
        if not self._chain.sees_records_out:
            return super().produce_batch(topic, messages, partition, on_delivery=on_delivery)
        taken = 0
        for each in messages:
            own = each.get("on_delivery") or each.get("callback") or on_delivery
            where, timestamp_ms = each.get("partition", partition), each.get("timestamp", 0)
            try:
                self.produce(topic, each.get("value"), each.get("key"), where, on_delivery=own, timestamp=timestamp_ms)
            except (KafkaException, BufferError) as exception:
                each["_error"] = refusal(exception)
            else:
                taken += 1
        return taken

    def close(self) -> bool:
        try:
            return super().close()
        finally:
            self._chain.close()

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> bool | None:
        try:
            return super().__exit__(kind, error, traceback)
        finally:
            self._chain.close()
