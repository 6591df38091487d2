"""The description of a consumer group for ConsumerGroupDescribe."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ottla.coordinator.group.consumer_group import ConsumerGroup
from ottla.coordinator.group.consumer_member import ConsumerMember
from ottla.coordinator.group.group import Topics
from ottla.protocol.messages.consumer_group_describe import Assignment, DescribedGroup, Member, TopicPartitions

_CLASSIC_MEMBER: Final = 0
_CONSUMER_MEMBER: Final = 1


def described(group: ConsumerGroup, topics: Topics, default_assignor: str) -> DescribedGroup:
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor(default_assignor),
        members=[_member(group, member, topics) for member in group.members.values()],
    )


def _member(group: ConsumerGroup, member: ConsumerMember, topics: Topics) -> Member:
    # Partitions that it is revoking are still its own.
    has = {
        topic_id: [*member.assigned.get(topic_id, ()), *member.pending_revocation.get(topic_id, ())]
        for topic_id in member.assigned.keys() | member.pending_revocation.keys()
    }
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.pattern,
        assignment=_named(has, topics),
        target_assignment=_named(group.target_of(member.member_id), topics),
        member_type=_CONSUMER_MEMBER if member.classic is None else _CLASSIC_MEMBER,
    )


def _named(partitions: Mapping[bytes, Iterable[int]], topics: Topics) -> Assignment:
    """Deleted topics are left out."""
    names = topics.topic_names
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=names[topic_id], partitions=sorted(numbers))
            for topic_id, numbers in sorted(partitions.items())
            if topic_id in names
        ]
    )
