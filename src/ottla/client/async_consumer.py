"""`AsyncConsumer`: confluent-kafka's consumer for asyncio, with interceptors.

confluent-kafka's own `aio` package loses a message where a waiting `poll` is cancelled. Here one thread per consumer waits in
librdkafka and does nothing else. Interceptors and futures run on the event loop.

1. Cancelling a wait loses no message: the next call returns it.
2. Offsets of records are stored when the next records are asked for, at a commit and at close. After a crash in between they are
   delivered again (at least once), also the last record of a loop that an exception left.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self, TypeVar

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from ottla.client.consumer import OnCommit, commit_target, hand_over
from ottla.client.interceptors import Chain, Interceptor

R = TypeVar("R")

_POLL_S = 0.1
"""How long the thread waits in librdkafka at a time: other calls of the consumer wait no longer for it."""
BATCH_RECORDS = 500


class AsyncConsumer:
    """Created inside a running event loop.

    async with AsyncConsumer(config) as consumer:
        await consumer.subscribe(["orders"])
        async for message in consumer:
            ...

    Rebalance callbacks given to `subscribe` are plain functions. They run in the consumer's thread with confluent-kafka's
    consumer as argument, as without asyncio.
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
        # librdkafka would store the offsets of a whole batch while most of it is still waiting here.
        config["enable.auto.offset.store"] = False
        self._own_on_commit: OnCommit | None = config.get("on_commit")
        if self._own_on_commit is not None or self._chain.sees_commits:
            config["on_commit"] = self._committed_elsewhere
        self._consumer = confluent_kafka.Consumer(config)
        self._thread = ThreadPoolExecutor(1, "ottla-consumer")
        self._fetching: asyncio.Future[list[Message]] | None = None
        self._ready: deque[Message] = deque()
        self._read: dict[tuple[str, int], int] = {}
        """The next offset of each partition, after the records that were returned: to be stored."""
        self._batch_ends: dict[tuple[str, int], int] = {}
        """The same after the whole batch, including records that interceptors dropped."""
        self._closed = False

    # Messages

    async def poll(self, timeout_s: float | None = None) -> Message | None:
        """The next message, or None after `timeout_s`. Check its `error()`, as without asyncio."""
        messages = await self.consume(1, timeout_s)
        return messages[0] if messages else None

    async def consume(self, num_messages: int = BATCH_RECORDS, timeout_s: float | None = None) -> list[Message]:
        """Up to `num_messages` messages as soon as there is one; an empty list after `timeout_s`."""
        until = None if timeout_s is None else self._loop.time() + timeout_s
        while not self._ready:
            if self._closed:
                return []
            if self._fetching is None:
                self._fetching = self._fetch()
            # `wait` does not cancel the fetch on cancellation or timeout: the next call goes on with it.
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
        """The next record. Errors are raised as KafkaException; iteration can continue after one."""
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
        """Pass fetched messages through the interceptors. Of two waiting tasks the first does it."""
        fetched = self._fetching
        if fetched is None or not fetched.done():
            return
        self._fetching = None
        messages = fetched.result()
        for message in messages:
            self._note(message, self._batch_ends)
        self._ready.extend(hand_over(self._chain, messages))

    # Offsets

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
                pass  # the partition was revoked

    async def commit(self, message: Message | None = None, offsets: list[TopicPartition] | None = None) -> list[TopicPartition]:
        """Commit, by default all records returned so far, and wait for the coordinator's reply."""
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
        """Auto-commit finished. Called in the thread."""

        def tell() -> None:
            self._chain.on_commit(offsets, error)
            if self._own_on_commit is not None:
                self._own_on_commit(error, offsets)

        self._loop.call_soon_threadsafe(tell)

    # Other methods of the consumer

    async def call(self, method: Callable[..., R], *args: Any, **kwargs: Any) -> R:
        """Call a method of `self.client` in the consumer's thread: `await consumer.call(consumer.client.committed, […])`."""
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
        """Drop messages that were fetched before a seek or a new assignment."""
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
        """Commit the returned records (with enable.auto.commit), leave the group and close. Closing again does nothing."""
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
            await asyncio.sleep(0)  # callbacks of the last commits run before this
            self._chain.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            await self.close()
        else:
            # Records that were being processed when it failed are delivered again.
            await self._close([])
