"""DescribeConfigs: the settings of topics, brokers, groups, client metrics and loggers, with source and synonyms of each value.

A broker describes only itself, or (empty name) the dynamic defaults of the cluster: clients ask each broker. Without names, or
with an empty list, all settings are described; an unknown name is left out. Groups and client metrics subscriptions need not
exist. BROKER_LOGGER resources are the log levels of this broker.
"""

from __future__ import annotations

from ottla.broker.log_levels import log_levels
from ottla.broker.metadata.local_metadata import LocalMetadata
from ottla.broker.network.context import RequestContext
from ottla.cluster.requests import ResourceType, check_topic_name
from ottla.cluster.settings import (
    ConfigSource,
    DescribedSetting,
    SettingType,
    TopicSettings,
    describe_broker,
    describe_topic,
)
from ottla.cluster.settings.describe import describe_client_metrics, describe_cluster_default, describe_group
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


def handle(metadata: LocalMetadata, request: DescribeConfigsRequest, context: RequestContext) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=[_result(metadata, resource, request, context.version) for resource in request.resources]
    )


def _result(
    metadata: LocalMetadata, resource: DescribeConfigsResource, request: DescribeConfigsRequest, version: int
) -> DescribeConfigsResult:
    try:
        described = _describe(metadata, resource)
    except KafkaError as error:
        return _refused(resource, error)
    return DescribeConfigsResult(
        error_message="",  # as Kafka: no null here
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[_entry(setting, request, version) for setting in described],
    )


def _describe(metadata: LocalMetadata, resource: DescribeConfigsResource) -> list[DescribedSetting]:
    settings, name = metadata.settings, resource.resource_name
    names = set(resource.configuration_keys or ())
    if resource.resource_type == ResourceType.TOPIC:
        check_topic_name(name)
        topic = metadata.image.topics.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
        return describe_topic(settings, TopicSettings.resolve(settings, topic.config), names)
    if resource.resource_type == ResourceType.BROKER:
        if not name:
            return describe_cluster_default(settings, names)
        if name != str(metadata.broker_id):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"this is broker {metadata.broker_id}: it describes itself, or the cluster default (empty name), not {name!r}",
            )
        return describe_broker(settings, names)
    if resource.resource_type == ResourceType.BROKER_LOGGER:
        check_logger_resource(name, metadata.broker_id)
        return [_described_level(*found) for found in log_levels().items() if not names or found[0] in names]
    if resource.resource_type == ResourceType.GROUP:
        if not name:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "a group resource needs a group id; the defaults of all groups are broker settings"
            )
        return describe_group(settings, metadata.image.group_configs.get(name, {}), names)
    if resource.resource_type == ResourceType.CLIENT_METRICS:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a client metrics resource needs the name of a subscription")
        return describe_client_metrics(metadata.image.client_metrics.get(name, {}), names)
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"resource type {resource.resource_type} has no settings that can be described")


def check_logger_resource(name: str, broker_id: int) -> None:
    if name != str(broker_id):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"this broker has the loggers of broker {broker_id}, not of {name!r}")


def _described_level(name: str, level: str) -> DescribedSetting:
    source = ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG
    return DescribedSetting(name, level, source, SettingType.STRING, "", read_only=False, sensitive=False)


def _entry(setting: DescribedSetting, request: DescribeConfigsRequest, version: int) -> DescribeConfigsResourceResult:
    entry = DescribeConfigsResourceResult(
        name=setting.name,
        value=setting.value,
        read_only=setting.read_only,
        config_source=setting.source,
        is_sensitive=setting.sensitive,
        config_type=setting.type,
        documentation=setting.doc if request.include_documentation else None,
    )
    if version == 0:
        entry.is_default = setting.source is ConfigSource.DEFAULT_CONFIG
    if request.include_synonyms:
        entry.synonyms = [
            DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source) for synonym in setting.synonyms
        ]
    return entry


def refuse(request: DescribeConfigsRequest, error: KafkaError) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(results=[_refused(resource, error) for resource in request.resources])


def _refused(resource: DescribeConfigsResource, error: KafkaError) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=error.code,
        error_message=error.detail,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
