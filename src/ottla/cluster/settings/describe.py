"""Describes settings for DescribeConfigs: value, source, and synonyms in Kafka's order, the effective one first."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import dropwhile
from typing import Final

from ottla.cluster.settings.broker import BROKER_SETTINGS, SYNONYMS, UNITS, BrokerSettings, setting_of
from ottla.cluster.settings.client_metrics import CLIENT_METRICS_SETTINGS, client_metrics_value
from ottla.cluster.settings.group import GROUP_SETTINGS, group_value
from ottla.cluster.settings.of_listener import OF_LISTENERS, parse_name
from ottla.cluster.settings.setting import Setting
from ottla.cluster.settings.topic import TOPIC_SETTINGS, TopicSettings

_IN_OTHER_UNITS: Final = {name: units for units in UNITS.values() for name, _ in units}
"""By each name."""


class ConfigSource(IntEnum):
    UNKNOWN = 0
    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


@dataclass(frozen=True, slots=True)
class Synonym:
    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class DescribedSetting:
    name: str
    value: str | None
    source: ConfigSource
    type: int
    doc: str
    read_only: bool
    sensitive: bool
    synonyms: tuple[Synonym, ...] = field(default=())


def describe_topic(broker: BrokerSettings, topic: TopicSettings, names: Collection[str] | None) -> list[DescribedSetting]:
    """The settings of a topic; all of them if `names` is None or empty."""
    described: list[DescribedSetting] = []
    for setting in _chosen(TOPIC_SETTINGS.values(), names):
        own = topic.overrides.get(setting.name)
        if setting.internal and own is None:
            continue
        synonyms: list[Synonym] = []
        if own is not None:
            synonyms.append(Synonym(setting.name, setting.render(topic.value(setting.name)), ConfigSource.TOPIC_CONFIG))
        if setting.server_default is not None:
            synonyms += _broker_synonyms(broker, BROKER_SETTINGS[setting.server_default])
        described.append(_described(setting, setting.render(topic.value(setting.name)), tuple(synonyms)))
    return described


def describe_group(broker: BrokerSettings, overrides: Mapping[str, str], names: Collection[str] | None) -> list[DescribedSetting]:
    """The settings of a group; all of them if `names` is None or empty."""
    described: list[DescribedSetting] = []
    for setting in _chosen(GROUP_SETTINGS.values(), names):
        synonyms: list[Synonym] = []
        value = setting.render(group_value(setting.name, overrides, broker))
        if setting.name in overrides:
            synonyms.append(Synonym(setting.name, value, ConfigSource.GROUP_CONFIG))
        if setting.server_default is not None:
            synonyms += _broker_synonyms(broker, BROKER_SETTINGS[setting.server_default])
        else:
            synonyms.append(Synonym(setting.name, setting.render(setting.default), ConfigSource.DEFAULT_CONFIG))
        described.append(_described(setting, value, tuple(synonyms)))
    return described


def describe_client_metrics(overrides: Mapping[str, str], names: Collection[str] | None) -> list[DescribedSetting]:
    """The settings of a client metrics subscription. As in Kafka, a default is no synonym."""
    described: list[DescribedSetting] = []
    for setting in _chosen(CLIENT_METRICS_SETTINGS.values(), names):
        value = setting.render(client_metrics_value(setting.name, overrides))
        own = (Synonym(setting.name, value, ConfigSource.CLIENT_METRICS_CONFIG),) if setting.name in overrides else ()
        described.append(_described(setting, value, own))
    return described


def describe_broker(broker: BrokerSettings, names: Collection[str] | None) -> list[DescribedSetting]:
    """The settings of this broker; all of them if `names` is None or empty."""
    described: list[DescribedSetting] = []
    given = {**broker.static, **broker.dynamic_default, **broker.dynamic_broker}
    of_listeners = (setting_of(name) for name in sorted(given.keys() - BROKER_SETTINGS.keys()))
    for setting in _chosen((*BROKER_SETTINGS.values(), *filter(None, of_listeners)), names):
        if setting.internal and setting.name not in given:
            continue
        synonyms = tuple(_broker_synonyms(broker, setting))
        value = broker.value(setting.name)
        if setting.name in UNITS and not synonyms:
            # As in Kafka, a setting whose value is set in another unit has no value.
            value = None
        described.append(_described(setting, setting.render(value), synonyms))
    return described


def describe_cluster_default(broker: BrokerSettings, names: Collection[str] | None) -> list[DescribedSetting]:
    """The cluster-wide dynamic configs, only those that are set."""
    described: list[DescribedSetting] = []
    for name, text in sorted(broker.dynamic_default.items()):
        setting = setting_of(name)
        if setting is None or (names and name not in names):
            continue
        synonym = Synonym(name, None if setting.sensitive else text, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
        described.append(_described(setting, synonym.value, (synonym,)))
    return described


def _described(setting: Setting, value: str | None, synonyms: tuple[Synonym, ...]) -> DescribedSetting:
    return DescribedSetting(
        setting.name,
        value,
        synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        setting.type,
        setting.doc,
        # Kafka lists the name with a listener's prefix as read-only, although it can be altered.
        read_only=setting.update_mode == "read-only" or parse_name(setting.name) is not None,
        sensitive=setting.sensitive,
        synonyms=synonyms,
    )


def _broker_synonyms(broker: BrokerSettings, setting: Setting) -> Iterator[Synonym]:
    """Synonyms come after the setting's own name; if it has no value, the list is empty."""
    name = setting.name
    if name in _IN_OTHER_UNITS:
        return dropwhile(lambda synonym: synonym.name != name, _synonyms_in_order(broker, name, _IN_OTHER_UNITS[name]))
    of_listener = parse_name(name)
    if of_listener is not None and of_listener.base not in OF_LISTENERS:
        return _synonyms_in_order(broker, name, ((name, 1), (of_listener.base, 1)), of_listener.base)
    return _synonyms_in_order(broker, name, SYNONYMS.get(name, ((name, 1),)))


def _synonyms_in_order(
    broker: BrokerSettings, name: str, names: Iterable[tuple[str, int]], default_of: str | None = None
) -> Iterator[Synonym]:
    known = [found for other, _ in names if (found := setting_of(other)) is not None]
    for source, given in (
        (ConfigSource.DYNAMIC_BROKER_CONFIG, broker.dynamic_broker),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, broker.dynamic_default),
        (ConfigSource.STATIC_BROKER_CONFIG, broker.static),
    ):
        for synonym in known:
            if synonym.name in given:
                yield Synonym(synonym.name, None if synonym.sensitive else given[synonym.name].strip(), source)
    for synonym in known:
        # Of two names for the same setting, only one shows a default.
        if synonym.default is not None and (synonym.name == (default_of or name) or name in _IN_OTHER_UNITS):
            yield Synonym(synonym.name, synonym.render(synonym.default), ConfigSource.DEFAULT_CONFIG)


def _chosen(settings: Iterable[Setting], names: Collection[str] | None) -> Iterator[Setting]:
    return (setting for setting in settings if not names or setting.name in names)
