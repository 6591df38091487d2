"""ConsumerGroupDescribe: state, members, present and intended assignments of groups of the new protocol (KIP-848).

Versions
    0       flexible from the start
    1       type of each member: -1 unknown, 0 classic, 1 consumer (KIP-1099)
"""

from __future__ import annotations

from ottla.wire.schema import list_of, message, wire


@message(versions="0-1", flexible="0+")
class ConsumerGroupDescribeRequest:
    group_ids: list[str] = wire("[]string")
    include_authorized_operations: bool = wire("bool")


@message()
class TopicPartitions:
    topic_id: bytes = wire("uuid")
    topic_name: str = wire("string")
    partitions: list[int] = wire("[]int32")


@message()
class Assignment:
    topic_partitions: list[TopicPartitions] = wire(list_of(TopicPartitions))


@message()
class Member:
    member_id: str = wire("string")
    instance_id: str | None = wire("string", nullable="0+", default=None)
    rack_id: str | None = wire("string", nullable="0+", default=None)
    member_epoch: int = wire("int32")
    client_id: str = wire("string")
    client_host: str = wire("string")
    subscribed_topic_names: list[str] = wire("[]string")
    subscribed_topic_regex: str | None = wire("string", nullable="0+", default=None)
    assignment: Assignment = wire(Assignment)
    target_assignment: Assignment = wire(Assignment)
    member_type: int = wire("int8", "1+", default=-1, ignorable=True)


@message()
class DescribedGroup:
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable="0+", default=None)
    group_id: str = wire("string")
    group_state: str = wire("string")
    group_epoch: int = wire("int32")
    assignment_epoch: int = wire("int32")
    assignor_name: str = wire("string")
    members: list[Member] = wire(list_of(Member))
    authorized_operations: int = wire("int32", default=-2147483648)


@message(versions="0-1", flexible="0+")
class ConsumerGroupDescribeResponse:
    throttle_time_ms: int = wire("int32")
    groups: list[DescribedGroup] = wire(list_of(DescribedGroup))
