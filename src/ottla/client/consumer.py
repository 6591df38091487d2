"""`Consumer`: confluent-kafka's consumer with interceptors, otherwise unchanged.

Interceptors do not see messages that stand for an error or the end of a partition. Importing this module loads confluent-kafka.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from ottla.client.interceptors import Chain, Interceptor

FOREVER_S = -1.0

OnCommit = Callable[[KafkaError | None, list[TopicPartition]], None]


def hand_over(chain: Chain, messages: list[Message]) -> list[Message]:
    """The messages as the program gets them; errors come after the records."""
    if not chain.sees_records_in:
        return messages
    records = [message for message in messages if message.error() is None]
    errors = [message for message in messages if message.error() is not None]
    return (chain.before_handover(records) if records else []) + errors


def commit_target(message: Message | None, offsets: list[TopicPartition] | None) -> list[TopicPartition]:
    """The partitions of a failed commit, where the client does not name them."""
    if offsets is not None:
        return offsets
    if message is None:
        return []
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    return [TopicPartition(topic, partition, offset + 1)]


class Consumer(confluent_kafka.Consumer):
    def __init__(self, config: Mapping[str, Any], *, interceptors: Sequence[Interceptor] = (), **more: Any) -> None:
        self._chain = chain = Chain(interceptors)
        self._held: deque[Message] = deque()
        """Messages that interceptors added and `poll` has not returned yet."""
        config = {**config, **more}
        if chain.sees_commits:
            own: OnCommit | None = config.get("on_commit")

            def on_commit(error: KafkaError | None, offsets: list[TopicPartition]) -> None:
                chain.on_commit(offsets, error)
                if own is not None:
                    own(error, offsets)

            config["on_commit"] = on_commit
        super().__init__(config)

    def poll(self, timeout: float = FOREVER_S) -> Message | None:
        if not self._chain.sees_records_in:
            return super().poll(timeout)
        until = None if timeout < 0 else time.monotonic() + timeout
        while not self._held:
            message = super().poll(timeout if until is None else max(0.0, until - time.monotonic()))
            if message is None:
                return None
            # All of it may be filtered away: then it is as if the message had not come.
            self._held.extend(hand_over(self._chain, [message]))
        return self._held.popleft()

    def consume(self, num_messages: int = 1, timeout: float = FOREVER_S) -> list[Message]:
        if not self._chain.sees_records_in:
            return super().consume(num_messages, timeout)
        until = None if timeout < 0 else time.monotonic() + timeout
        while len(self._held) < num_messages:
            left_s = timeout if until is None else max(0.0, until - time.monotonic())
            messages = super().consume(num_messages - len(self._held), left_s)
            self._held.extend(hand_over(self._chain, messages))
            if until is not None and time.monotonic() >= until:
                break
        return [self._held.popleft() for _ in range(min(num_messages, len(self._held)))]

    def commit(  # type: ignore[override]
        self,
        message: Message | None = None,
        offsets: list[TopicPartition] | None = None,
        asynchronous: bool = True,
    ) -> list[TopicPartition] | None:
        arguments: dict[str, Any] = {"asynchronous": asynchronous}
        if message is not None:
            arguments["message"] = message
        if offsets is not None:
            arguments["offsets"] = offsets
        if asynchronous or not self._chain.sees_commits:
            done: list[TopicPartition] | None = super().commit(**arguments)
            return done
        # A synchronous commit answers to its caller alone: the client calls no on_commit for it.
        try:
            done = super().commit(**arguments)
        except KafkaException as exception:
            self._chain.on_commit(commit_target(message, offsets), exception.args[0])
            raise
        self._chain.on_commit(done or [], None)
        return done

    def close(self) -> None:
        try:
            super().close()
        finally:
            self._held.clear()
            self._chain.close()

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> bool | None:
        self.close()
        return None
