"""The async face: `AsyncProducer` and `AsyncConsumer`, confluent-kafka without blocking the event loop, with interceptors.

confluent-kafka's own `aio` package takes no headers when producing, and a message is lost where a waiting `poll` is cancelled;
so each client here has one thread of its own that waits in the library, and nothing else. Interceptors, futures and callbacks
all run on the loop.

Invariants of the consumer:
1. No message is lost by cancelling a wait: it is handed over by the next one.
2. Records count as read when the next are asked for, or at a commit or a close: a crash in between gives them again (at least
   once), a loop that is left by an exception has its last record given again too.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self, TypeVar

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from ottla.client.consumer import OnCommit, commit_target, hand_over
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
"""How long a thread waits in the library at a time: other calls of a consumer, the end of a producer, wait no longer for it."""
_ROOM_S = 0.5
BATCH_RECORDS = 500


class AsyncProducer:
    """Made inside a running event loop. `async with AsyncProducer(config) as producer: await producer.send("orders", b"…")`."""

    def __init__(self, config: Mapping[str, Any], *, interceptors: Sequence[Interceptor] = (), **more: Any) -> None:
        self._loop = asyncio.get_running_loop()
        self._chain = Chain(interceptors)
        self._producer = confluent_kafka.Producer({**config, **more})
        self._delivered: deque[tuple[asyncio.Future[RecordMetadata], ProducerRecord, KafkaError | None, Message]] = deque()
        """Filled by the library's callbacks in the thread, emptied on the loop: one wake-up for all that came together."""
        self._order = asyncio.Lock()
        """Held by the first sender that found the queue full; whoever comes meanwhile waits behind it."""
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
        """Where the record stands, when the broker has acknowledged it; KafkaException if it will not be written.

        Waits where the client's queue is full. Cancelling does not take a record back that is in the queue already.
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
        """Queue a record now and look after its acknowledgement later; BufferError if the client's queue is full."""
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
                            pass  # the limit may be one in bytes of others: look again
        except asyncio.CancelledError:
            error = KafkaError(KafkaError._QUEUE_FULL, "the sender did not wait for room in the queue")
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
        """Have the loop look at what was delivered; whether there still is a loop."""
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
                continue  # whoever waited was cancelled
            if error is None:
                future.set_result(metadata)
            else:
                future.set_exception(KafkaException(error))
        self._room.set()

    async def flush(self, timeout_s: float = -1) -> int:
        """Wait until everything queued is acknowledged; how many records are not, after `timeout_s`."""

        def flush() -> int:
            left = self._producer.flush(timeout_s)
            self._announce()
            return left

        left = await self._loop.run_in_executor(None, flush)
        self._acknowledge()
        return left

    async def call(self, method: Callable[..., R], *args: Any, **kwargs: Any) -> R:
        """Any blocking method of `self.client` without blocking the loop: transactions, metadata."""
        return await self._loop.run_in_executor(None, lambda: method(*args, **kwargs))

    @property
    def client(self) -> confluent_kafka.Producer:
        return self._producer

    async def close(self) -> None:
        """Wait for all acknowledgements, then end. Harmless when closed already."""
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


class AsyncConsumer:
    """Made inside a running event loop.

    async with AsyncConsumer(config) as consumer:
        await consumer.subscribe(["orders"])
        async for message in consumer:
            ...

    Rebalance callbacks given to `subscribe` are plain functions and run in the consumer's thread, with confluent-kafka's
    consumer as their argument, as they do without asyncio.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        interceptors: Sequence[Interceptor] = (),
        batch_records: int = BATCH_RECORDS,
        **more: Any,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._chain = Chain(interceptors)
        self._batch_records = batch_records
        config = {**config, **more}
        stores = config.get("enable.auto.offset.store", True)
        self._stores = stores not in (False, "false")
        # The library would count a whole batch as read while most of it still waits here.
        config["enable.auto.offset.store"] = False
        self._own_on_commit: OnCommit | None = config.get("on_commit")
        if self._own_on_commit is not None or self._chain.sees_commits:
            config["on_commit"] = self._committed_elsewhere
        self._consumer = confluent_kafka.Consumer(config)
        self._thread = ThreadPoolExecutor(1, "ottla-consumer")
        self._fetching: asyncio.Future[list[Message]] | None = None
        self._ready: deque[Message] = deque()
        self._read: dict[tuple[str, int], int] = {}
        """The next offset of each partition, by what was handed over: to be stored."""
        self._batch_ends: dict[tuple[str, int], int] = {}
        """The same for the whole batch, with what interceptors left out."""
        self._closed = False

    # --- messages ---------------------------------------------------------------------------------------------------------

    async def poll(self, timeout_s: float | None = None) -> Message | None:
        """The next message; None if there is none within `timeout_s`. Its `error()` has to be looked at, as without asyncio."""
        messages = await self.consume(1, timeout_s)
        return messages[0] if messages else None

    async def consume(self, num_messages: int = BATCH_RECORDS, timeout_s: float | None = None) -> list[Message]:
        """Up to so many messages as soon as there is one; none after `timeout_s`."""
        until = None if timeout_s is None else self._loop.time() + timeout_s
        while not self._ready:
            if self._closed:
                return []
            if self._fetching is None:
                self._fetching = self._fetch()
            # `wait` leaves the fetch alone when we are cancelled or out of time: the next call finds it.
            left_s = None if until is None else max(0.0, until - self._loop.time())
            done, _ = await asyncio.wait({self._fetching}, timeout=left_s)
            if not done or self._closed:
                return []
            self._take()
            if not self._ready and until is not None and self._loop.time() >= until:
                return []
        messages = [self._ready.popleft() for _ in range(min(num_messages, len(self._ready)))]
        for message in messages:
            self._note(message, self._read)
        return messages

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        """The next record. An error of the consumer is raised as KafkaException; iterating may go on after it."""
        while True:
            if self._ready:
                message = self._ready.popleft()
                self._note(message, self._read)
            else:
                found = await self.poll()
                if found is None:
                    raise StopAsyncIteration
                message = found
            error = message.error()
            if error is None:
                return message
            if error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)

    def _fetch(self) -> asyncio.Future[list[Message]]:
        offsets = self._take_read(whole_batch=True)

        def fetch() -> list[Message]:
            self._store(offsets)
            first = self._consumer.poll(_POLL_S)
            if first is None:
                return []
            return [first, *self._consumer.consume(self._batch_records - 1, 0)] if self._batch_records > 1 else [first]

        return self._loop.run_in_executor(self._thread, fetch)

    def _take(self) -> None:
        """What was fetched, through the interceptors, into what is ready. Two waiting tasks may both come: the first does it."""
        fetched = self._fetching
        if fetched is None or not fetched.done():
            return
        self._fetching = None
        messages = fetched.result()
        for message in messages:
            self._note(message, self._batch_ends)
        self._ready.extend(hand_over(self._chain, messages))

    # --- offsets ----------------------------------------------------------------------------------------------------------

    @staticmethod
    def _note(message: Message, ends: dict[tuple[str, int], int]) -> None:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        if message.error() is None and topic is not None and partition is not None and offset is not None:
            ends[topic, partition] = offset + 1

    def _take_read(self, *, whole_batch: bool = False) -> list[TopicPartition]:
        ends, self._read = self._read, {}
        if whole_batch:
            ends |= self._batch_ends
            self._batch_ends = {}
        return [TopicPartition(topic, partition, offset) for (topic, partition), offset in ends.items()] if self._stores else []

    def _store(self, offsets: list[TopicPartition]) -> None:
        for each in offsets:
            try:
                self._consumer.store_offsets(offsets=[each])
            except KafkaException:
                pass  # the partition went to another member: its offset is not ours to say

    async def commit(self, message: Message | None = None, offsets: list[TopicPartition] | None = None) -> list[TopicPartition]:
        """Commit, by default all that was handed over so far, and wait for the coordinator's answer."""
        read = self._take_read() if message is None and offsets is None else []
        arguments: dict[str, Any] = {"asynchronous": False}
        if message is not None:
            arguments["message"] = message
        if offsets is not None:
            arguments["offsets"] = offsets

        def commit() -> list[TopicPartition]:
            self._store(read)
            return self._consumer.commit(**arguments) or []

        try:
            done = await self.call(commit)
        except KafkaException as exception:
            self._chain.on_commit(commit_target(message, offsets), exception.args[0])
            raise
        self._chain.on_commit(done, None)
        return done

    def _committed_elsewhere(self, error: KafkaError | None, offsets: list[TopicPartition]) -> None:
        """In the thread: the library committed by itself."""

        def tell() -> None:
            self._chain.on_commit(offsets, error)
            if self._own_on_commit is not None:
                self._own_on_commit(error, offsets)

        self._loop.call_soon_threadsafe(tell)

    # --- the rest ---------------------------------------------------------------------------------------------------------

    async def call(self, method: Callable[..., R], *args: Any, **kwargs: Any) -> R:
        """Any method of `self.client`, in the consumer's thread: `await consumer.call(consumer.client.committed, […])`."""
        if self._closed:
            raise RuntimeError("the consumer is closed")
        return await self._loop.run_in_executor(self._thread, lambda: method(*args, **kwargs))

    @property
    def client(self) -> confluent_kafka.Consumer:
        return self._consumer

    async def subscribe(self, topics: Sequence[str], **callbacks: Callable[..., None]) -> None:
        await self.call(self._consumer.subscribe, list(topics), **callbacks)

    async def unsubscribe(self) -> None:
        await self.call(self._consumer.unsubscribe)
        await self._forget()

    async def assign(self, partitions: Sequence[TopicPartition]) -> None:
        await self.call(self._consumer.assign, list(partitions))
        await self._forget()

    async def assignment(self) -> list[TopicPartition]:
        return await self.call(self._consumer.assignment)

    async def seek(self, partition: TopicPartition) -> None:
        await self.call(self._consumer.seek, partition)
        await self._forget((partition.topic, partition.partition))

    async def committed(self, partitions: Sequence[TopicPartition], timeout_s: float = -1) -> list[TopicPartition]:
        return await self.call(self._consumer.committed, list(partitions), timeout_s)

    async def _forget(self, only: tuple[str, int] | None = None) -> None:
        """Messages from before a seek or a new assignment are not what is wanted now."""
        if self._fetching is not None:
            await asyncio.wait({self._fetching})
            self._take()
        self._ready = deque(
            message for message in self._ready if only is not None and (message.topic(), message.partition()) != only
        )
        for ends in (self._read, self._batch_ends):
            for key in [key for key in ends if only in (None, key)]:
                del ends[key]

    async def close(self) -> None:
        """Commit what was handed over (with enable.auto.commit), leave the group, end. Harmless when closed already."""
        await self._close(self._take_read())

    async def _close(self, offsets: list[TopicPartition]) -> None:
        if self._closed:
            return
        self._closed = True

        def close() -> None:
            self._store(offsets)
            self._consumer.close()

        try:
            await self._loop.run_in_executor(self._thread, close)
        finally:
            self._thread.shutdown(wait=False)
            self._ready.clear()
            await asyncio.sleep(0)  # the last commits are told to the loop before this
            self._chain.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            await self.close()
        else:
            # What was being worked on when it failed shall come again.
            await self._close([])
