"""Builders for the records of a consumer group. `consumer_group` replays them."""

from __future__ import annotations

from typing import Final

from ottla.coordinator.group.assignors import Assignment
from ottla.coordinator.group.consumer_member import ConsumerMember, Owned
from ottla.coordinator.shard import CoordinatorRecord
from ottla.protocol.internal.group_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    CurrentTopicPartitions,
    TargetTopicPartitions,
    encode_key,
    encode_value,
    record_type_of,
)

_VERSION: Final = 0


def _record(key: object, value: object | None) -> CoordinatorRecord:
    encoded = None if value is None else encode_value(value, _VERSION)
    return CoordinatorRecord(encode_key(key), encoded, (record_type_of(key), key, value))


def epoch(group_id: str, group_epoch: int, metadata_hash: int) -> CoordinatorRecord:
    value = ConsumerGroupMetadataValue(epoch=group_epoch, metadata_hash=metadata_hash)
    return _record(ConsumerGroupMetadataKey(group_id=group_id), value)


def no_group(group_id: str) -> CoordinatorRecord:
    return _record(ConsumerGroupMetadataKey(group_id=group_id), None)


def no_partition_metadata(group_id: str) -> CoordinatorRecord:
    return _record(ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def member(group_id: str, is_: ConsumerMember) -> CoordinatorRecord:
    classic = is_.classic
    value = ConsumerGroupMemberMetadataValue(
        instance_id=is_.instance_id,
        rack_id=is_.rack_id,
        client_id=is_.client_id,
        client_host=is_.client_host,
        subscribed_topic_names=sorted(is_.topic_names),
        subscribed_topic_regex=is_.pattern,
        rebalance_timeout_ms=is_.rebalance_timeout_ms,
        server_assignor=is_.server_assignor,
        classic_member_metadata=None
        if classic is None
        else ClassicMemberMetadata(
            session_timeout_ms=classic.session_timeout_ms,
            supported_protocols=[ClassicProtocol(name=name, metadata=metadata) for name, metadata in classic.protocols],
        ),
    )
    return _record(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=is_.member_id), value)


def no_member(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """The tombstones of a member."""
    return [
        _record(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        _record(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        _record(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def target_epoch(group_id: str, assignment_epoch: int, wall_ms: int) -> CoordinatorRecord:
    value = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=assignment_epoch, assignment_timestamp=wall_ms)
    return _record(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def no_target_epoch(group_id: str) -> CoordinatorRecord:
    return _record(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None)


def target(group_id: str, member_id: str, assignment: Assignment) -> CoordinatorRecord:
    value = ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[
            TargetTopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in sorted(assignment.items())
        ]
    )
    return _record(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value)


def current(group_id: str, is_: ConsumerMember) -> CoordinatorRecord:
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=is_.epoch,
        previous_member_epoch=is_.previous_epoch,
        state=is_.state,
        assigned_partitions=_with_epochs(is_.assigned),
        partitions_pending_revocation=_with_epochs(is_.pending_revocation),
    )
    return _record(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=is_.member_id), value)


def _with_epochs(owned: Owned) -> list[CurrentTopicPartitions]:
    return [
        CurrentTopicPartitions(
            topic_id=topic_id,
            partitions=sorted(partitions),
            assignment_epochs=[partitions[partition] for partition in sorted(partitions)],
        )
        for topic_id, partitions in sorted(owned.items())
    ]


def pattern(group_id: str, expression: str, topics: frozenset[str], wall_ms: int) -> CoordinatorRecord:
    # The version is Kafka's, of its metadata. Kafka finds this one old and resolves the pattern anew.
    value = ConsumerGroupRegularExpressionValue(topics=sorted(topics), version=0, timestamp=wall_ms)
    return _record(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=expression), value)


def no_pattern(group_id: str, expression: str) -> CoordinatorRecord:
    return _record(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=expression), None)
