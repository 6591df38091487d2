"""What was read for a fetch, as the message that answers it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ottla.broker.handlers.current_leaders import name_leaders
from ottla.broker.network.context import RequestContext
from ottla.broker.replicas.fetch_read import Found
from ottla.errors import ErrorCode
from ottla.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from ottla.types import TopicPartition

LEADERS_FROM: Final = 16
"""The version in which a refused partition names its leader (KIP-951)."""
_ASK_ANOTHER: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def names_leaders(told: Sequence[Found]) -> bool:
    return any(found.error_code in _ASK_ANOTHER for found in told)


def response_of(error: int, session_id: int, told: Sequence[Found], committed: bool, context: RequestContext) -> FetchResponse:
    topics: list[FetchableTopicResponse] = []
    current: FetchableTopicResponse | None = None
    current_key: bytes | str | None = None
    for found in told:
        wanted = found.wanted
        key = wanted.key[0]
        if current is None or key != current_key:
            current = FetchableTopicResponse(topic=wanted.topic or "", topic_id=wanted.topic_id)
            current_key = key
            topics.append(current)
        divergence = found.divergence
        current.partitions.append(
            PartitionData(
                partition_index=wanted.partition,
                error_code=found.error_code,
                high_watermark=found.high_watermark,
                last_stable_offset=found.last_stable_offset,
                log_start_offset=found.log_start_offset,
                diverging_epoch=EpochEndOffset(epoch=divergence.leader_epoch, end_offset=divergence.offset)
                if divergence is not None
                else None,
                aborted_transactions=[
                    AbortedTransaction(producer_id=txn.producer_id, first_offset=txn.first_offset) for txn in found.aborted or ()
                ]
                if found.lists_aborted(committed)
                else None,
                preferred_read_replica=found.preferred,
                records=found.records if found.records is not None else b"",
            )
        )
    response = FetchResponse(error_code=error, session_id=session_id, responses=topics)
    if context.version >= LEADERS_FROM and names_leaders(told):
        response.node_endpoints = name_leaders(
            context.broker.partitions,
            context.broker.metadata,
            context.listener_name,
            _refused(response, context),
            LeaderIdAndEpoch,
            NodeEndpoint,
        )
    return response


def _refused(response: FetchResponse, context: RequestContext) -> Iterator[tuple[TopicPartition, PartitionData]]:
    for topic in response.responses:
        name = context.broker.partitions.topic_name(bytes(topic.topic_id))
        for answer in topic.partitions:
            if name is not None and answer.error_code in _ASK_ANOTHER:
                yield TopicPartition(name, answer.partition_index), answer
