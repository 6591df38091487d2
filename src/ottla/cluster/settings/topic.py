"""The settings of one topic: its own values, else the broker's."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.cluster.settings.broker import BrokerSettings
from ottla.cluster.settings.problems import unknown_name
from ottla.cluster.settings.setting import Value
from ottla.cluster.settings.topic_table import TOPIC_SETTINGS
from ottla.cluster.settings.values import SettingValues

__all__ = ["TOPIC_SETTINGS", "TopicSettings", "topic_config_problems"]


class TopicSettings(SettingValues):
    """Typed values by name, immutable. Build one with `resolve`."""

    __slots__ = ("_values", "overrides")

    def __init__(self, values: Mapping[str, Value], overrides: Mapping[str, str]) -> None:
        self._values = values
        self.overrides = overrides

    @classmethod
    def resolve(cls, broker: BrokerSettings, overrides: Mapping[str, str]) -> TopicSettings:
        """The topic's own values, else the broker's, else the defaults.

        An override that cannot be parsed any more is ignored: the topic can still be opened.
        """
        values: dict[str, Value] = {}
        for name, setting in TOPIC_SETTINGS.items():
            text = overrides.get(name)
            if text is not None:
                try:
                    values[name] = setting.parse(text)
                    continue
                except ValueError:
                    pass
            value = broker.value(setting.server_default) if setting.server_default is not None else None
            values[name] = setting.default if value is None else value
        return cls(values, overrides)

    def value(self, name: str) -> Value:
        return self._values[name]


def topic_config_problems(overrides: Mapping[str, str | None], broker: BrokerSettings | None = None) -> list[str]:
    """Why these values of a topic are invalid, one sentence for each problem."""
    problems: list[str] = []
    values: dict[str, Value] = {}
    for name, text in overrides.items():
        setting = TOPIC_SETTINGS.get(name)
        if setting is None:
            problems.append(unknown_name(name, TOPIC_SETTINGS, "topic setting"))
        elif text is None:
            problems.append(f"{name} has no value; a topic setting cannot be null")
        else:
            try:
                values[name] = setting.parse(text)
            except ValueError as error:
                problems.append(str(error))
    if values.get("remote.storage.enable"):
        problems.append("remote.storage.enable=true is not allowed: this broker has no remote storage; allowed: false")
    problems += _check_lags(values, broker)
    return problems


def _check_lags(values: Mapping[str, Value], broker: BrokerSettings | None) -> list[str]:
    if "min.compaction.lag.ms" not in values and "max.compaction.lag.ms" not in values:
        return []
    lags: list[int] = []
    for name in ("min.compaction.lag.ms", "max.compaction.lag.ms"):
        value = values.get(name)
        setting = TOPIC_SETTINGS[name]
        if value is None and broker is not None and setting.server_default is not None:
            value = broker.value(setting.server_default)
        if value is None:
            value = setting.default
        assert isinstance(value, int)
        lags.append(value)
    if lags[0] > lags[1]:
        return [f"min.compaction.lag.ms={lags[0]} must not be above max.compaction.lag.ms={lags[1]}"]
    return []
