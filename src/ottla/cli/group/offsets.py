"""Requests that change the committed offsets of a group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.cli.connection import REQUEST_TIMEOUT_S, Connection, result_of, split_servers, while_coordinators_move
from ottla.cli.failure import Failure, explain
from ottla.cli.group.plan import Step
from ottla.cli.group.view import Group
from ottla.cli.positions import TopicIndex
from ottla.errors import ErrorCode


def has_members(group: Group, doing: str) -> Failure:
    count = len(group.members)
    who = sorted({f"{member.client_id} on {member.host}" for member in group.members})
    shown = f" ({', '.join(who[:3])}{', …' if len(who) > 3 else ''})" if who else ""
    return Failure(
        f"group {group.name} has {count or 'new'} member{'' if count == 1 else 's'}{shown}; {doing} only if it has none",
        f"stop its consumers first; list them with `ottla group members {group.name}`",
        code="NON_EMPTY_GROUP",
    )


@while_coordinators_move
def alter_offsets(connection: Connection, group: Group, steps: Sequence[Step]) -> None:
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

    offsets = [TopicPartition(step.topic, step.partition, step.new_offset) for step in steps]
    request = ConsumerGroupTopicPartitions(group.name, offsets)
    future = connection.admin.alter_consumer_group_offsets([request], request_timeout=REQUEST_TIMEOUT_S)[group.name]
    for each in result_of(future, f"group {group.name}").topic_partitions:
        error: Any = each.error
        if error is not None:
            # A coordinator answers UNKNOWN_MEMBER_ID to an admin client if the group is not empty.
            if error.name() in ("UNKNOWN_MEMBER_ID", "NON_EMPTY_GROUP"):
                raise has_members(group, "offsets can be set")
            raise explain(error, f"group {group.name}, {each.topic}-{each.partition}")


def delete_offsets(connection: Connection, group: Group, keys: Sequence[TopicIndex]) -> None:
    """Send OffsetDelete to the coordinator: librdkafka cannot."""
    from ottla.cli.plain_request import call
    from ottla.protocol.messages.offset_delete import (
        OffsetDeleteRequest,
        OffsetDeleteRequestPartition,
        OffsetDeleteRequestTopic,
        OffsetDeleteResponse,
    )

    topics: dict[str, OffsetDeleteRequestTopic] = {}
    for topic, index in keys:
        partition = OffsetDeleteRequestPartition(partition_index=index)
        topics.setdefault(topic, OffsetDeleteRequestTopic(name=topic)).partitions.append(partition)
    request = OffsetDeleteRequest(group_id=group.name, topics=list(topics.values()))
    (coordinator,) = split_servers(group.coordinator)
    response = call(connection, "offset_delete", 0, request, OffsetDeleteResponse, coordinator)
    _raise_if(response.error_code, group, f"group {group.name}")
    for answered in response.topics:
        for each in answered.partitions:
            _raise_if(each.error_code, group, f"group {group.name}, {answered.name}-{each.partition_index}", answered.name)


def _raise_if(code: int, group: Group, subject: str, topic: str | None = None) -> None:
    from ottla.cli.plain_request import raise_if_error

    if code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC:
        raise Failure(
            f"group {group.name} is subscribed to {topic}: its offsets cannot be deleted",
            f"stop its consumers, or remove {topic} from their subscription",
            code="GROUP_SUBSCRIBED_TO_TOPIC",
        )
    if code == ErrorCode.NON_EMPTY_GROUP:
        raise has_members(group, "its offsets can be deleted")
    raise_if_error(code, subject)
