"""ConsumerGroupHeartbeat: everything a member of the new group protocol says and hears (KIP-848).

It joins with epoch 0, leaves with -1 (or -2, a static member that will be back), and in between names only what has changed; None
means unchanged. The response brings the next assignment when there is one.

Versions
    0       flexible from the start
    1       subscription by regular expression; the member makes its own id (KIP-1082)
"""

from __future__ import annotations

from ottla.wire.schema import list_of, message, wire


@message()
class RequestTopicPartitions:
    topic_id: bytes = wire("uuid")
    partitions: list[int] = wire("[]int32")


@message(versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatRequest:
    group_id: str = wire("string")
    member_id: str = wire("string")
    member_epoch: int = wire("int32")
    instance_id: str | None = wire("string", nullable="0+", default=None)
    rack_id: str | None = wire("string", nullable="0+", default=None)
    rebalance_timeout_ms: int = wire("int32", default=-1)
    subscribed_topic_names: list[str] | None = wire("[]string", nullable="0+", default=None)
    subscribed_topic_regex: str | None = wire("string", "1+", nullable="1+", default=None)
    server_assignor: str | None = wire("string", nullable="0+", default=None)
    topic_partitions: list[RequestTopicPartitions] | None = wire(list_of(RequestTopicPartitions), nullable="0+", default=None)


@message()
class ResponseTopicPartitions:
    topic_id: bytes = wire("uuid")
    partitions: list[int] = wire("[]int32")


@message()
class Assignment:
    topic_partitions: list[ResponseTopicPartitions] = wire(list_of(ResponseTopicPartitions))


@message(versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatResponse:
    throttle_time_ms: int = wire("int32")
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable="0+", default=None)
    member_id: str | None = wire("string", nullable="0+", default=None)
    member_epoch: int = wire("int32")
    heartbeat_interval_ms: int = wire("int32")
    assignment: Assignment | None = wire(Assignment, nullable="0+", default=None)
