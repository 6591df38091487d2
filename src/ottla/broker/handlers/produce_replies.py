"""When a Produce request is answered, and with which leaders.

acks=0 gets no reply; an error closes the connection, the only way to tell the producer (W01). acks=1 is answered after the
append, acks=all when the high watermark has passed the records or the timeout is over (F27, `commit_wait`). An answer names the
leaders of partitions that other brokers lead (KIP-951).
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from typing import Final

from ottla.broker.handlers.current_leaders import name_leaders
from ottla.broker.metadata.local_metadata import LocalMetadata
from ottla.broker.network.context import CloseConnection, RequestContext
from ottla.broker.network.purgatory import Purgatory
from ottla.broker.replicas.commit_wait import CommitWait, wait_for_commits
from ottla.broker.replicas.partition import ACKS_ALL, Partition
from ottla.broker.replicas.partitions import Partitions
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.types import TopicPartition

_LEADERS_FROM: Final = 10
_TOPIC_IDS_FROM: Final = 13

Reply = ProduceResponse | Awaitable[ProduceResponse | None] | None
Wait = tuple[CommitWait, PartitionProduceResponse]
"""Appended records that are not committed yet, and their place in the response."""


class ProduceReplies:
    def __init__(self, partitions: Partitions, purgatory: Purgatory, metadata: LocalMetadata) -> None:
        self._partitions = partitions
        self._purgatory = purgatory
        self._metadata = metadata

    def wait(self, partition: Partition, acks: int, end_offset: int) -> CommitWait:
        # After an ISR shrink nothing commits before enough replicas are back (R12, R13): the producer retries.
        return CommitWait(self._partitions, partition, end_offset, acks, ends_under_min_isr=acks == ACKS_ALL)

    def reply(
        self,
        request: ProduceRequest,
        context: RequestContext,
        topics: list[TopicProduceResponse],
        waits: list[Wait] | None,
        error: KafkaError | None,
    ) -> Reply:
        """The response, at once or when all `waits` are done. `error`: the first of those in `topics`."""
        if request.acks == 0:
            if error is not None:
                raise CloseConnection(f"an acks=0 Produce request failed: {error}")
            return None
        response = ProduceResponse(responses=topics)
        if waits is not None:
            return self._when_committed(request, context, response, waits)
        if error is not None:
            self.name_leaders(response, context)
        return response

    def _when_committed(
        self, request: ProduceRequest, context: RequestContext, response: ProduceResponse, waits: list[Wait]
    ) -> Reply:
        commits = [wait for wait, _ in waits]
        return wait_for_commits(self._purgatory, commits, request.timeout_ms, lambda: self._committed(context, response, waits))

    def _committed(self, context: RequestContext, response: ProduceResponse, waits: list[Wait]) -> ProduceResponse:
        """The response once every wait is done."""
        for wait, answer in waits:
            answer.error_code = int(wait.error.code) if wait.error is not None else 0
        if any(answer.error_code for topic in response.responses for answer in topic.partition_responses):
            self.name_leaders(response, context)
        return response

    def name_leaders(self, response: ProduceResponse, context: RequestContext) -> None:
        """Name the leaders of partitions that other brokers lead."""
        if context.version >= _LEADERS_FROM:
            response.node_endpoints = name_leaders(
                self._partitions,
                self._metadata,
                context.listener_name,
                self._led_elsewhere(response, context.version),
                LeaderIdAndEpoch,
                NodeEndpoint,
            )

    def _led_elsewhere(
        self, response: ProduceResponse, version: int
    ) -> Iterator[tuple[TopicPartition, PartitionProduceResponse]]:
        for topic in response.responses:
            name = self._partitions.topic_name(topic.topic_id) if version >= _TOPIC_IDS_FROM else topic.name
            for answer in topic.partition_responses:
                if name is not None and answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    yield TopicPartition(name, answer.index), answer
