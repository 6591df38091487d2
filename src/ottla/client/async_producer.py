"""`AsyncProducer`: confluent-kafka's producer for asyncio, with interceptors.

confluent-kafka's own `aio` package takes no headers when producing. Here one thread per producer waits in librdkafka and does
nothing else. Interceptors and futures run on the event loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Message

from ottla.client.interceptors import (
    PARTITION_BY_KEY,
    Chain,
    HeaderValue,
    Interceptor,
    ProducerRecord,
    RecordMetadata,
    header_pairs,
    metadata_of,
)
from ottla.client.producer import enqueue, refusal

R = TypeVar("R")

_POLL_S = 0.1
"""How long the thread waits in librdkafka at a time: closing waits no longer for it."""
_ROOM_S = 0.5


class AsyncProducer:
    """Created inside a running event loop: `async with AsyncProducer(config) as producer: await producer.send("t", b"1")`."""

    def __init__(self, config: Mapping[str, Any], *, interceptors: Sequence[Interceptor] = (), **more: Any) -> None:
        self._loop = asyncio.get_running_loop()
        self._chain = Chain(interceptors)
        self._producer = confluent_kafka.Producer({**config, **more})
        self._delivered: deque[tuple[asyncio.Future[RecordMetadata], ProducerRecord, KafkaError | None, Message]] = deque()
        """Filled by librdkafka's callbacks in the thread, drained on the loop: one wake-up for many deliveries."""
        self._order = asyncio.Lock()
        """Held by the first sender that found the queue full; later senders wait behind it."""
        self._room = asyncio.Event()
        self._closing = False
        self._stopped = False
        self._thread = threading.Thread(target=self._serve, name="ottla-producer", daemon=True)
        self._thread.start()

    async def send(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        *,
        headers: Mapping[str, HeaderValue] | Iterable[tuple[str, HeaderValue]] | None = None,
        partition: int = PARTITION_BY_KEY,
        timestamp_ms: int = 0,
    ) -> RecordMetadata:
        """Send a record and wait for its acknowledgement. KafkaException if it cannot be delivered.

        Waits while the producer's queue is full. Cancelling does not remove a record that is queued already.
        """
        record = self._chain.before_send(ProducerRecord(topic, value, key, header_pairs(headers), partition, timestamp_ms))
        return await (await self._enqueued(record))

    def post(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        *,
        headers: Mapping[str, HeaderValue] | Iterable[tuple[str, HeaderValue]] | None = None,
        partition: int = PARTITION_BY_KEY,
        timestamp_ms: int = 0,
    ) -> asyncio.Future[RecordMetadata]:
        """Queue a record and return a future of its acknowledgement. BufferError if the producer's queue is full."""
        record = self._chain.before_send(ProducerRecord(topic, value, key, header_pairs(headers), partition, timestamp_ms))
        try:
            return self._enqueue(record)
        except BufferError as exception:
            self._chain.on_acknowledgement(metadata_of(None, record), refusal(exception))
            raise

    async def _enqueued(self, record: ProducerRecord) -> asyncio.Future[RecordMetadata]:
        try:
            if not self._order.locked():
                try:
                    return self._enqueue(record)
                except BufferError:
                    pass
            async with self._order:
                while True:
                    self._room.clear()
                    try:
                        return self._enqueue(record)
                    except BufferError:
                        try:
                            await asyncio.wait_for(self._room.wait(), _ROOM_S)
                        except TimeoutError:
                            pass  # the limit may be in bytes: try again
        except asyncio.CancelledError:
            error = KafkaError(KafkaError._QUEUE_FULL, "the sender was cancelled while the queue was full")
            self._chain.on_acknowledgement(metadata_of(None, record), error)
            raise

    def _enqueue(self, record: ProducerRecord) -> asyncio.Future[RecordMetadata]:
        future: asyncio.Future[RecordMetadata] = self._loop.create_future()

        def delivered(error: KafkaError | None, message: Message) -> None:
            self._delivered.append((future, record, error, message))

        try:
            if self._closing:
                raise RuntimeError("the producer is closed")
            enqueue(self._producer, record, delivered)
        except BufferError:
            raise
        except Exception as exception:
            self._chain.on_acknowledgement(metadata_of(None, record), refusal(exception))
            raise
        return future

    def _serve(self) -> None:
        while not self._stopped and not self._loop.is_closed():
            self._producer.poll(_POLL_S)
            if not self._announce():
                return

    def _announce(self) -> bool:
        """Have the loop process deliveries. False: the loop is closed."""
        if self._delivered:
            try:
                self._loop.call_soon_threadsafe(self._acknowledge)
            except RuntimeError:
                return False
        return True

    def _acknowledge(self) -> None:
        while self._delivered:
            future, record, error, message = self._delivered.popleft()
            metadata = metadata_of(message, record)
            self._chain.on_acknowledgement(metadata, error)
            if future.done():
                continue  # the sender was cancelled
            if error is None:
                future.set_result(metadata)
            else:
                future.set_exception(KafkaException(error))
        self._room.set()

    async def flush(self, timeout_s: float = -1) -> int:
        """Wait until all queued records are acknowledged. Returns how many are not after `timeout_s`."""

        def flush() -> int:
            left = self._producer.flush(timeout_s)
            self._announce()
            return left

        left = await self._loop.run_in_executor(None, flush)
        self._acknowledge()
        return left

    async def call(self, method: Callable[..., R], *args: Any, **kwargs: Any) -> R:
        """Call a blocking method of `self.client` without blocking the loop: transactions, metadata."""
        return await self._loop.run_in_executor(None, lambda: method(*args, **kwargs))

    @property
    def client(self) -> confluent_kafka.Producer:
        return self._producer

    async def close(self) -> None:
        """Wait for all acknowledgements and close. Closing again does nothing."""
        if self._closing:
            return
        self._closing = True
        try:
            await self.flush()
        finally:
            self._stopped = True
            await self._loop.run_in_executor(None, self._thread.join)
            self._acknowledge()
            self._chain.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()
