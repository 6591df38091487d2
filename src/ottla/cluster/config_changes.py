"""Changing the dynamic settings of topics and brokers: a request and an image give the settings as they would be.

Owns: the four operations (SET, DELETE, APPEND, SUBTRACT), the old way (replace everything), and what is refused. Never writes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from ottla.cluster import znodes
from ottla.cluster.image import ClusterImage
from ottla.cluster.requests import ConfigAlteration, ConfigChange, ConfigOperation, ResourceType
from ottla.cluster.settings import BROKER_SETTINGS, TOPIC_SETTINGS, BrokerSettings, TopicSettings, topic_config_problems
from ottla.cluster.settings.broker import dynamic_problems
from ottla.cluster.settings.group import GROUP_SETTINGS, group_config_problems
from ottla.cluster.settings.problems import unknown_name
from ottla.cluster.settings.setting import LIST, Setting
from ottla.cluster.topic_names import check_topic_name
from ottla.errors import ErrorCode, KafkaError
from ottla.ports import Change, Create, Delete, SetData


def altered_config(image: ClusterImage, settings: BrokerSettings, asked: ConfigAlteration) -> dict[str, str]:
    """All dynamic settings the resource would have, or a KafkaError that says why not."""
    check_form(asked)
    if asked.resource_type == ResourceType.TOPIC:
        return _plan_topic_config(image, settings, asked)
    if asked.resource_type == ResourceType.BROKER:
        return _plan_broker_config(image, settings, asked)
    if asked.resource_type == ResourceType.GROUP:
        return _plan_group_config(image, settings, asked)
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"settings of resource type {asked.resource_type} cannot be changed here")


def check_form(asked: ConfigAlteration) -> None:
    """INVALID_REQUEST for what makes no sense whatever the resource is."""
    twice = [name for name, count in Counter(change.name for change in asked.changes).items() if count > 1]
    if twice:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"settings stand twice in the request: {', '.join(twice)}")
    for change in asked.changes:
        if change.operation not in ConfigOperation.__members__.values():
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no operation {change.operation} on a setting")
        if change.value is None and change.operation != ConfigOperation.DELETE:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{change.name} has no value; to unset it, delete it")


def _plan_topic_config(image: ClusterImage, settings: BrokerSettings, asked: ConfigAlteration) -> dict[str, str]:
    if not asked.resource_name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a topic must be named; there are no settings of all topics")
    check_topic_name(asked.resource_name)
    topic = image.topics.get(asked.resource_name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {asked.resource_name}")
    config = {} if asked.replace else dict(topic.config)
    effective = TopicSettings.resolve(settings, config)
    for change in asked.changes:
        setting = TOPIC_SETTINGS.get(change.name)
        present = setting.render(effective.value(change.name)) if setting is not None else None
        _apply(config, change, setting, present)
    problems = topic_config_problems(config, settings)
    if problems:
        raise KafkaError(ErrorCode.INVALID_CONFIG, "; ".join(problems))
    return config


def _plan_broker_config(image: ClusterImage, settings: BrokerSettings, asked: ConfigAlteration) -> dict[str, str]:
    name = asked.resource_name
    brokers = [str(broker) for broker in sorted(image.brokers)]
    if name and name not in brokers:
        known = ", ".join(brokers)
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no broker {name!r}; there: {known}, or no name for all brokers")
    config = {} if asked.replace else dict(image.broker_configs.get(name, {}))
    for change in asked.changes:
        setting = BROKER_SETTINGS.get(change.name)
        present = setting.render(settings.value(change.name)) if setting is not None else None
        _apply(config, change, setting, present)
    changed = {change.name: config[change.name] for change in asked.changes if change.name in config}
    _refuse_fixed(asked)
    problems = dynamic_problems(changed, per_broker=bool(name))
    if problems:
        raise KafkaError(ErrorCode.INVALID_CONFIG, "; ".join(problems))
    return config


def _plan_group_config(image: ClusterImage, settings: BrokerSettings, asked: ConfigAlteration) -> dict[str, str]:
    """Of a group that need not exist (yet)."""
    if not asked.resource_name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a group must be named; what all groups have is set for brokers")
    config = {} if asked.replace else dict(image.group_configs.get(asked.resource_name, {}))
    for change in asked.changes:
        _apply(config, change, GROUP_SETTINGS.get(change.name), config.get(change.name))
    problems = group_config_problems(config, settings)
    if problems:
        raise KafkaError(ErrorCode.INVALID_CONFIG, "; ".join(problems))
    return config


def _refuse_fixed(asked: ConfigAlteration) -> None:
    fixed = [
        change.name
        for change in asked.changes
        if change.name in BROKER_SETTINGS and BROKER_SETTINGS[change.name].update_mode == "read-only"
    ]
    if fixed:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"these settings cannot be changed while the broker runs, only in server.properties: {', '.join(fixed)}",
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
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"{change.name} is no list: it can be set, but nothing can be added or taken away"
        )
    elements = _elements(config.get(change.name, present))
    given = _elements(value)
    if change.operation == ConfigOperation.APPEND:
        # What is empty is an element too, and few lists take such: nobody shall believe to have added something.
        elements += [element for element in given or [""] if element not in elements]
    else:
        elements = [element for element in elements if element not in given]
    config[change.name] = ",".join(elements)


def _elements(text: str | None) -> list[str]:
    return [element.strip() for element in text.split(",")] if text else []


def config_change(image: ClusterImage, asked: ConfigAlteration, config: Mapping[str, str]) -> Change | None:
    """How the settings of a resource are written down. None: there is nothing to write."""
    data = znodes.encode_config(config)
    if asked.resource_type == ResourceType.GROUP:
        path = znodes.group_config_path(asked.resource_name)
        # Without settings there is nothing to keep: group ids come and go without end.
        if asked.resource_name in image.group_configs:
            return SetData(path, data) if config else Delete(path)
        return Create(path, data) if config else None
    if asked.resource_type == ResourceType.TOPIC:
        return SetData(znodes.topic_config_path(asked.resource_name), data)
    path = znodes.broker_config_path(asked.resource_name)
    return SetData(path, data) if asked.resource_name in image.broker_configs else Create(path, data)
