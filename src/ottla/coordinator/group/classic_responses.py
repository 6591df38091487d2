"""Responses that describe a classic group: JoinGroup, SyncGroup and DescribeGroups."""

from __future__ import annotations

from typing import Final

from ottla.coordinator.group.classic_group import ClassicGroup, State
from ottla.coordinator.group.classic_member import ClassicMember
from ottla.coordinator.group.group import Group
from ottla.errors import ErrorCode
from ottla.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from ottla.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from ottla.protocol.messages.sync_group import SyncGroupResponse

_NOT_FOUND_FROM: Final = 6
"""The version of DescribeGroups in which an unknown group is an error."""


def join_response(group: ClassicGroup, member: ClassicMember, *, with_members: bool = True) -> JoinGroupResponse:
    """The current generation; the leader gets the list of members."""
    members: list[JoinGroupResponseMember] = []
    if with_members and member.member_id == group.leader:
        members = [
            JoinGroupResponseMember(
                member_id=other.member_id,
                group_instance_id=other.instance_id,
                metadata=other.subscription(group.protocol_name),
            )
            for other in group.members.values()
        ]
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name or "",
        leader=group.leader or "",
        member_id=member.member_id,
        members=members,
    )


def sync_response(group: ClassicGroup, assignment: bytes) -> SyncGroupResponse:
    return SyncGroupResponse(protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=assignment)


def described_group(group_id: str, group: Group | None, version: int) -> DescribedGroup:
    """A group that is not classic is Dead here, as an unknown one."""
    if not isinstance(group, ClassicGroup):
        described = DescribedGroup(group_id=group_id, group_state=State.DEAD.value)
        if version >= _NOT_FOUND_FROM:
            described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            described.error_message = (
                f"group {group_id} does not exist" if group is None else f"group {group_id} is not a classic group"
            )
        return described
    protocol = group.protocol_name if group.state is State.STABLE else None
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state_name,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol or "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.subscription(protocol),
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )
