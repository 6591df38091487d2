"""Validation of ConsumerGroupHeartbeat requests."""

from __future__ import annotations

from typing import Final

from ottla.coordinator.group.assignors import Assignment, enabled
from ottla.coordinator.group.consumer_member import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    LEAVING_STATIC_EPOCH,
    ConsumerMember,
    Owned,
)
from ottla.coordinator.group.group import GroupConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

UNCHANGED: Final = -1
"""A rebalance timeout that the request leaves as it is."""
_MEMBER_ID_FROM: Final = 1
"""The version from which clients generate the member id (KIP-1082)."""


def check_request(request: ConsumerGroupHeartbeatRequest, version: int, config: GroupConfig) -> None:
    """Check the fields of a request. KafkaError if they are invalid."""
    config.require_consumer_protocol()
    epoch = request.member_epoch
    if version >= _MEMBER_ID_FROM or epoch > JOINING_EPOCH or epoch == LEAVING_EPOCH:
        _not_blank(request.member_id, "member id")
    _not_blank(request.group_id, "group id")
    _not_blank(request.instance_id, "instance id")
    _not_blank(request.rack_id, "rack id")
    if epoch == JOINING_EPOCH:
        if request.rebalance_timeout_ms == UNCHANGED:
            raise _invalid("a joining member must set the rebalance timeout")
        if request.topic_partitions is None or request.topic_partitions:
            raise _invalid("a joining member must send an empty list of owned partitions")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise _invalid("a joining member must subscribe to topic names or to a regular expression")
    elif epoch == LEAVING_STATIC_EPOCH:
        if request.instance_id is None:
            raise _invalid(f"member epoch {epoch} requires an instance id")
    elif epoch < LEAVING_STATIC_EPOCH:
        raise _invalid(f"member epoch {epoch} is invalid")
    assignors = enabled(config.consumer_assignors)
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"assignor {request.server_assignor} is not supported; supported: {', '.join(assignors)}",
        )


def check_epoch(member: ConsumerMember, epoch: int, owned: Assignment | None) -> None:
    """Check the member epoch: the current one, or the previous one if the member missed the last reply. KafkaError if not."""
    if epoch in (JOINING_EPOCH, member.epoch):
        return
    if epoch > member.epoch:
        raise _fenced("larger", epoch, member)
    if epoch != member.previous_epoch or not _is_part_of(owned, member.assigned):
        raise _fenced("smaller", epoch, member)


def _is_part_of(owned: Assignment | None, assigned: Owned) -> bool:
    if owned is None:
        return False
    return all(partitions <= assigned.get(topic, {}).keys() for topic, partitions in owned.items())


def _fenced(how: str, epoch: int, member: ConsumerMember) -> KafkaError:
    return KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"member epoch {epoch} is {how} than the coordinator's, {member.epoch}: the member must revoke its partitions and rejoin",
    )


def _invalid(detail: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, detail)


def _not_blank(text: str | None, name: str) -> None:
    if text is not None and not text.strip():
        raise _invalid(f"the {name} is blank")
