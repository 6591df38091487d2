"""DescribeConfigs: the settings of topics and of this broker, with where each value comes from and what it hides.

Resources: a topic; a broker by its number (only this one: clients ask each broker itself); a broker without a name, which stands
for what is set for all brokers. No names of settings, or an empty list, means all of them; a name nobody knows is left out.
A group (which need not exist) has settings too, and the levels of this broker's loggers are a resource (BROKER_LOGGER). Not here:
settings of client metrics, of which there are none.
"""

from __future__ import annotations

from ottla.broker.log_levels import log_levels
from ottla.broker.network.context import RequestContext
from ottla.cluster.requests import ResourceType
from ottla.cluster.settings import ConfigSource, DescribedSetting, SettingType, TopicSettings, describe_broker, describe_topic
from ottla.cluster.settings.describe import describe_cluster_default, describe_group
from ottla.cluster.topic_names import check_topic_name
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

VERSIONS = (0, 4)


def handle(request: DescribeConfigsRequest, context: RequestContext) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(results=[_result(resource, request, context) for resource in request.resources])


def _result(resource: DescribeConfigsResource, request: DescribeConfigsRequest, context: RequestContext) -> DescribeConfigsResult:
    try:
        described = _describe(resource, context)
    except KafkaError as error:
        return _refused(resource, error)
    return DescribeConfigsResult(
        error_message="",  # as Kafka: no null here
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[_entry(setting, request, context.version) for setting in described],
    )


def _describe(resource: DescribeConfigsResource, context: RequestContext) -> list[DescribedSetting]:
    settings = context.broker.controller.settings
    name = resource.resource_name
    names = set(resource.configuration_keys or ())
    if resource.resource_type == ResourceType.TOPIC:
        check_topic_name(name)
        topic = context.broker.image.topics.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
        return describe_topic(settings, TopicSettings.resolve(settings, topic.config), names)
    if resource.resource_type == ResourceType.BROKER:
        if not name:
            return describe_cluster_default(settings, names)
        if name != str(context.broker.broker_id):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"this is broker {context.broker.broker_id}: it can be asked for itself, or (no name) for all, not for {name!r}",
            )
        return describe_broker(settings, names)
    if resource.resource_type == ResourceType.BROKER_LOGGER:
        check_logger_resource(name, context)
        return [_described_level(*found) for found in log_levels().items() if not names or found[0] in names]
    if resource.resource_type == ResourceType.GROUP:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a group must be named; what all groups have is set for brokers")
        return describe_group(settings, context.broker.image.group_configs.get(name, {}), names)
    if resource.resource_type == ResourceType.CLIENT_METRICS and name:
        return []
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"settings of resource type {resource.resource_type} cannot be described here")


def check_logger_resource(name: str, context: RequestContext) -> None:
    if name != str(context.broker.broker_id):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"the loggers here are those of broker {context.broker.broker_id}, not of {name!r}"
        )


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
