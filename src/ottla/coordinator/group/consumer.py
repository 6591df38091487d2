"""Groups of the new protocol (KIP-848). Not served yet: no such group exists."""

from __future__ import annotations

from typing import Any, Final

from ottla.coordinator.group.group import Caller, Group, Groups, GroupType
from ottla.coordinator.shard import Decision, TimerKey, Token
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.consumer_group_describe import DescribedGroup
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest
from ottla.protocol.messages.leave_group import LeaveGroupRequest
from ottla.protocol.messages.sync_group import SyncGroupRequest


class Consumer:
    name: Final[GroupType] = "consumer"
    record_types: Final = frozenset({3, 4, 5, 6, 7, 8, 16})

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    # The new protocol

    def heartbeat(self, request: ConsumerGroupHeartbeatRequest, caller: Caller, token: Token, now_ms: int) -> Decision:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "this broker has no consumer groups of the new protocol yet")

    def describe(self, group_id: str) -> DescribedGroup:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")

    # Requests of the classic protocol to a group of this kind that has members

    def join_group(self, group: Group, request: JoinGroupRequest, caller: Caller, token: Token, now_ms: int) -> Decision:
        raise NotImplementedError

    def sync_group(self, group: Group, request: SyncGroupRequest, token: Token, now_ms: int) -> Decision:
        raise NotImplementedError

    def classic_heartbeat(self, group: Group, request: HeartbeatRequest, token: Token, now_ms: int) -> Decision:
        raise NotImplementedError

    def leave_group(self, group: Group, request: LeaveGroupRequest, token: Token, now_ms: int) -> Decision:
        raise NotImplementedError

    # The shard's calls

    def replay(self, record_type: int, key: Any, value: Any) -> None:
        """Nothing of these is kept yet."""

    def on_loaded(self, now_ms: int) -> Decision:
        return Decision()

    def on_timer(self, key: TimerKey, now_ms: int) -> Decision:
        return Decision()

    def topics_changed(self, now_ms: int) -> Decision:
        return Decision()
