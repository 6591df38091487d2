"""Alters the dynamic configs of topics, brokers, groups and client metrics subscriptions. Pure: a request and an image give the
configs after it.

The four operations of IncrementalAlterConfigs (SET, DELETE, APPEND, SUBTRACT), the replacement of AlterConfigs, and what is
refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from ottla.cluster import znodes
from ottla.cluster.image import ClusterImage
from ottla.cluster.requests import ConfigAlteration, ConfigChange, ConfigOperation, ResourceType, check_topic_name
from ottla.cluster.settings import BROKER_SETTINGS, TOPIC_SETTINGS, BrokerSettings, TopicSettings, topic_config_problems
from ottla.cluster.settings.broker import dynamic_problems
from ottla.cluster.settings.client_metrics import check_client_metrics
from ottla.cluster.settings.group import GROUP_SETTINGS, group_config_problems
from ottla.cluster.settings.setting import LIST, Setting, unknown_name
from ottla.errors import ErrorCode, KafkaError
from ottla.ports import Change, Create, Delete, SetData


def altered_config(image: ClusterImage, settings: BrokerSettings, requested: ConfigAlteration) -> dict[str, str]:
    """All dynamic configs of the resource after the request, or a KafkaError."""
    check_form(requested)
    if requested.resource_type == ResourceType.TOPIC:
        return _altered_topic_config(image, settings, requested)
    if requested.resource_type == ResourceType.BROKER:
        return _altered_broker_config(image, settings, requested)
    if requested.resource_type == ResourceType.GROUP:
        return _altered_group_config(image, settings, requested)
    if requested.resource_type == ResourceType.CLIENT_METRICS:
        return _altered_client_metrics(image, requested)
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"configs of resource type {requested.resource_type} cannot be altered")


def check_form(requested: ConfigAlteration) -> None:
    """KafkaError INVALID_REQUEST for a request that is invalid for every resource."""
    twice = [name for name, count in Counter(change.name for change in requested.changes).items() if count > 1]
    if twice:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"configs appear twice in the request: {', '.join(twice)}")
    for change in requested.changes:
        if change.operation not in ConfigOperation.__members__.values():
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"unknown config operation {change.operation}")
        if change.value is None and change.operation != ConfigOperation.DELETE:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{change.name} has no value; use DELETE to reset it")


def _altered_topic_config(image: ClusterImage, settings: BrokerSettings, requested: ConfigAlteration) -> dict[str, str]:
    if not requested.resource_name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the topic name is missing; there are no configs of all topics")
    check_topic_name(requested.resource_name)
    topic = image.topics.get(requested.resource_name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {requested.resource_name} does not exist")
    config = {} if requested.replace else dict(topic.config)
    effective = TopicSettings.resolve(settings, config)
    for change in requested.changes:
        setting = TOPIC_SETTINGS.get(change.name)
        present = setting.render(effective.value(change.name)) if setting is not None else None
        _apply(config, change, setting, present)
    problems = topic_config_problems(config, settings)
    if problems:
        raise KafkaError(ErrorCode.INVALID_CONFIG, "; ".join(problems))
    return config


def _altered_broker_config(image: ClusterImage, settings: BrokerSettings, requested: ConfigAlteration) -> dict[str, str]:
    name = requested.resource_name
    brokers = [str(broker) for broker in sorted(image.brokers)]
    if name and name not in brokers:
        known = ", ".join(brokers)
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"broker {name!r} does not exist; allowed: {known}, or no name for all brokers"
        )
    config = {} if requested.replace else dict(image.broker_configs.get(name, {}))
    for change in requested.changes:
        setting = BROKER_SETTINGS.get(change.name)
        present = setting.render(settings.value(change.name)) if setting is not None else None
        _apply(config, change, setting, present)
    changed = {change.name: config[change.name] for change in requested.changes if change.name in config}
    _refuse_fixed(requested)
    encrypted = frozenset(change.name for change in requested.changes if change.is_encrypted)
    problems = dynamic_problems(changed, per_broker=bool(name), encrypted=encrypted)
    if problems:
        raise KafkaError(ErrorCode.INVALID_CONFIG, "; ".join(problems))
    return config


def _altered_group_config(image: ClusterImage, settings: BrokerSettings, requested: ConfigAlteration) -> dict[str, str]:
    """The group need not exist."""
    if not requested.resource_name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the group id is missing; the defaults of all groups are broker configs")
    config = {} if requested.replace else dict(image.group_configs.get(requested.resource_name, {}))
    for change in requested.changes:
        _apply(config, change, GROUP_SETTINGS.get(change.name), config.get(change.name))
    problems = group_config_problems(config, settings)
    if problems:
        raise KafkaError(ErrorCode.INVALID_CONFIG, "; ".join(problems))
    return config


def _altered_client_metrics(image: ClusterImage, requested: ConfigAlteration) -> dict[str, str]:
    """The subscription need not exist. As in Kafka, its lists are set as a whole."""
    config = {} if requested.replace else dict(image.client_metrics.get(requested.resource_name, {}))
    for change in requested.changes:
        if change.operation in (ConfigOperation.APPEND, ConfigOperation.SUBTRACT):
            text = f"{change.name}: APPEND and SUBTRACT are not allowed for client metrics; set the whole list"
            raise KafkaError(ErrorCode.INVALID_CONFIG, text)
        _apply(config, change, None, None)
    check_client_metrics(requested.resource_name, config)
    return config


def _refuse_fixed(requested: ConfigAlteration) -> None:
    fixed = [
        change.name
        for change in requested.changes
        if change.name in BROKER_SETTINGS and BROKER_SETTINGS[change.name].update_mode == "read-only"
    ]
    if fixed:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"these configs cannot be changed dynamically, only in server.properties: {', '.join(fixed)}",
        )


def _apply(config: dict[str, str], change: ConfigChange, setting: Setting | None, present: str | None) -> None:
    if change.operation == ConfigOperation.DELETE:
        config.pop(change.name, None)
        return
    assert change.value is not None
    value = change.value.strip()
    if change.operation == ConfigOperation.SET:
        config[change.name] = value
        return
    if setting is None:
        known = (*TOPIC_SETTINGS, *BROKER_SETTINGS, *GROUP_SETTINGS)
        raise KafkaError(ErrorCode.INVALID_CONFIG, unknown_name(change.name, known))
    if setting.type is not LIST:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{change.name} is not a list: APPEND and SUBTRACT are not allowed")
    elements = _elements(config.get(change.name, present))
    given = _elements(value)
    if change.operation == ConfigOperation.APPEND:
        # An empty value is an element too, which few lists accept: appending nothing is an error.
        elements += [element for element in given or [""] if element not in elements]
    else:
        elements = [element for element in elements if element not in given]
    config[change.name] = ",".join(elements)


def _elements(text: str | None) -> list[str]:
    return [element.strip() for element in text.split(",")] if text else []


def config_path(requested: ConfigAlteration) -> str:
    if requested.resource_type == ResourceType.TOPIC:
        return znodes.topic_config_path(requested.resource_name)
    if requested.resource_type == ResourceType.GROUP:
        return znodes.group_config_path(requested.resource_name)
    if requested.resource_type == ResourceType.CLIENT_METRICS:
        return znodes.client_metrics_config_path(requested.resource_name)
    return znodes.broker_config_path(requested.resource_name)


def config_change(image: ClusterImage, requested: ConfigAlteration, config: Mapping[str, str]) -> Change | None:
    """The write of the configs of a resource; None if there is nothing to write."""
    path, data, name = config_path(requested), znodes.encode_config(config), requested.resource_name
    if requested.resource_type == ResourceType.TOPIC:
        return SetData(path, data)
    known = _known(image, requested.resource_type)
    if ends_without_configs(requested.resource_type) and not config:
        return Delete(path) if name in known else None
    return SetData(path, data) if name in known else Create(path, data)


def ends_without_configs(resource_type: int) -> bool:
    """Whether a resource without configs keeps no node: group ids come and go without end, a client metrics subscription is
    nothing else."""
    return resource_type in (ResourceType.GROUP, ResourceType.CLIENT_METRICS)


def with_config(image: ClusterImage, requested: ConfigAlteration, config: Mapping[str, str]) -> ClusterImage:
    """The image with these configs of the resource."""
    name = requested.resource_name
    if requested.resource_type == ResourceType.GROUP:
        return image.with_group_config(name, config)
    if requested.resource_type == ResourceType.CLIENT_METRICS:
        return image.with_client_metrics(name, config)
    if requested.resource_type != ResourceType.TOPIC:
        return image.with_broker_config(name, config)
    topic = image.topics.get(name)
    return image if topic is None else image.with_topics([replace(topic, config=config)])


def _known(image: ClusterImage, resource_type: int) -> Mapping[str, Mapping[str, str]]:
    if resource_type == ResourceType.GROUP:
        return image.group_configs
    return image.client_metrics if resource_type == ResourceType.CLIENT_METRICS else image.broker_configs
