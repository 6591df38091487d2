"""Topics over the blocking client: creation, and the values of their settings."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Final

from ottla.client.blocking import Client
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.messages.metadata import MetadataRequest

_TOPIC: Final = 2
"""Type of a config resource."""
_BROKERS_DEFAULT: Final = -1
_CREATE_VERSION_MAX: Final = 4
"""From 5 on the response has an error if the client may not describe the configs. 4 knows the brokers' defaults (KIP-464)."""


def create_topic(
    client: Client,
    name: str,
    *,
    partitions: int | None = None,
    replicas_max: int | None = None,
    config: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Create a topic, by the brokers' defaults for what is not given. Returns too if it exists already.

    `replicas_max` asks for as many replicas, or as many as there are brokers.
    """

    def attempt(until: float) -> None:
        cluster = client.call_any(MetadataRequest(topics=[]))
        new = CreatableTopic(
            name=name,
            num_partitions=_BROKERS_DEFAULT if partitions is None else partitions,
            replication_factor=_BROKERS_DEFAULT if replicas_max is None else min(replicas_max, len(cluster.brokers)),
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in config.items()],
        )
        request = CreateTopicsRequest(topics=[new], timeout_ms=client.options.request_timeout_ms)
        # Kafka on ZooKeeper creates topics only at the controller.
        client.ask_node(cluster.controller_id, request, until, max_version=_CREATE_VERSION_MAX)

    try:
        client.persist(attempt, 0)
    except KafkaError as error:
        if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise


def topic_config(client: Client, name: str, keys: Collection[str]) -> dict[str, str | None]:
    """The effective values of these settings of a topic. An unknown one has no entry."""
    resource = DescribeConfigsResource(resource_type=_TOPIC, resource_name=name, configuration_keys=list(keys))
    answer = client.call_any(DescribeConfigsRequest(resources=[resource]))
    return {each.name: each.value for each in answer.results[0].configs}
