"""CreateTopics: make topics, by counts of partitions and replicas or by an explicit assignment.

Versions
    1       `validate_only`; an error message for each topic
    2       throttle time
    4       -1 as count of partitions or replicas takes the broker's default (KIP-464)
    5       flexible; the response tells partitions, replicas and configs of the new topic (KIP-525)
    6       THROTTLING_QUOTA_EXCEEDED (KIP-599)
    7       id of the new topic
"""

from __future__ import annotations

from ottla.wire.schema import list_of, message, wire


@message()
class CreatableReplicaAssignment:
    partition_index: int = wire("int32")
    broker_ids: list[int] = wire("[]int32")


@message()
class CreatableTopicConfig:
    name: str = wire("string")
    value: str | None = wire("string", nullable="0+")


@message()
class CreatableTopic:
    name: str = wire("string")
    num_partitions: int = wire("int32")
    replication_factor: int = wire("int16")
    assignments: list[CreatableReplicaAssignment] = wire(list_of(CreatableReplicaAssignment))
    configs: list[CreatableTopicConfig] = wire(list_of(CreatableTopicConfig))


@message(versions="0-7", flexible="5+")
class CreateTopicsRequest:
    topics: list[CreatableTopic] = wire(list_of(CreatableTopic))
    timeout_ms: int = wire("int32", default=60_000)
    validate_only: bool = wire("bool", "1+")


@message()
class CreatableTopicConfigs:
    name: str = wire("string", "5+")
    value: str | None = wire("string", "5+", nullable="5+")
    read_only: bool = wire("bool", "5+")
    config_source: int = wire("int8", "5+", default=-1, ignorable=True)
    is_sensitive: bool = wire("bool", "5+")


@message()
class CreatableTopicResult:
    name: str = wire("string")
    topic_id: bytes = wire("uuid", "7+", ignorable=True)
    error_code: int = wire("int16")
    error_message: str | None = wire("string", "1+", nullable="1+", default=None, ignorable=True)
    topic_config_error_code: int = wire("int16", "5+", tag=0, ignorable=True)
    num_partitions: int = wire("int32", "5+", default=-1, ignorable=True)
    replication_factor: int = wire("int16", "5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = wire(list_of(CreatableTopicConfigs), "5+", nullable="5+", ignorable=True)


@message(versions="0-7", flexible="5+")
class CreateTopicsResponse:
    throttle_time_ms: int = wire("int32", "2+", ignorable=True)
    topics: list[CreatableTopicResult] = wire(list_of(CreatableTopicResult))
