"""The settings of one group (resource type GROUP, KIP-848): its own values, else the broker's.

The broker limits them (`group.consumer.min.session.timeout.ms` …). Settings of share and streams groups are stored and described
only: Ottla has no such groups.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from ottla.cluster.settings.broker import BROKER_SETTINGS, BrokerSettings
from ottla.cluster.settings.setting import BOOLEAN, STRING, Allowed, Setting, SettingType, Value, one_of, table_of, unknown_name

_DURATION: Final = r"by_duration:P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?"


@dataclass(frozen=True, slots=True)
class _OffsetReset:
    words: str = "earliest, latest, by_duration:<ISO 8601 duration>"

    def accepts(self, value: Value) -> bool:
        return value in ("earliest", "latest") or (isinstance(value, str) and re.fullmatch(_DURATION, value) is not None)


def _as_broker(name: str) -> Setting:
    """As the broker setting `group.<name>`, which is its default."""
    base = BROKER_SETTINGS[f"group.{name}"]
    return replace(base, name=name, scope="group", update_mode="cluster-wide", server_default=base.name, internal=False)


def _own(name: str, type: SettingType, default: Value, valid: Allowed | None, doc: str) -> Setting:
    return Setting(name, type, default, valid, "group", "cluster-wide", used=False, doc=doc)


GROUP_SETTINGS: Final[dict[str, Setting]] = table_of(
    (
        _as_broker("consumer.assignment.interval.ms"),
        _as_broker("consumer.heartbeat.interval.ms"),
        _as_broker("consumer.session.timeout.ms"),
        _as_broker("share.assignment.interval.ms"),
        _own("share.auto.offset.reset", STRING, "latest", _OffsetReset(), "Where a share group without offsets begins."),
        _as_broker("share.delivery.count.limit"),
        _as_broker("share.heartbeat.interval.ms"),
        _own(
            "share.isolation.level",
            STRING,
            "read_uncommitted",
            one_of("read_committed", "read_uncommitted"),
            "Whether a share group waits for the end of transactions.",
        ),
        _as_broker("share.partition.max.record.locks"),
        _as_broker("share.record.lock.duration.ms"),
        _own("share.renew.acknowledge.enable", BOOLEAN, True, None, "Whether members of a share group may keep records longer."),
        _as_broker("share.session.timeout.ms"),
        _as_broker("streams.assignment.interval.ms"),
        _as_broker("streams.heartbeat.interval.ms"),
        _as_broker("streams.initial.rebalance.delay.ms"),
        _as_broker("streams.num.standby.replicas"),
        _as_broker("streams.session.timeout.ms"),
    )
)


def group_config_problems(overrides: Mapping[str, str], broker: BrokerSettings) -> list[str]:
    """Why these values of a group are invalid, one sentence for each problem."""
    problems: list[str] = []
    for name, text in overrides.items():
        setting = GROUP_SETTINGS.get(name)
        if setting is None:
            problems.append(unknown_name(name, GROUP_SETTINGS, "group setting"))
            continue
        try:
            value = setting.parse(text)
        except ValueError as error:
            problems.append(str(error))
            continue
        problems += _beyond_limits(setting, value, broker)
    if not problems:
        problems += _check_together(overrides, broker)
    return problems


def _beyond_limits(setting: Setting, value: Value, broker: BrokerSettings) -> list[str]:
    kind, _, what = setting.name.partition(".")
    what = {"num.standby.replicas": "standby.replicas"}.get(what, what)
    problems = []
    for which, words in (("min", "below"), ("max", "above")):
        limit_name = f"group.{kind}.{which}.{what}"
        if limit_name not in BROKER_SETTINGS or not isinstance(value, int):
            continue
        limit = broker.int(limit_name)
        if value < limit if which == "min" else value > limit:
            problems.append(f"{setting.name}={value} is not allowed: it is {words} {limit_name}={limit}")
    return problems


def _check_together(overrides: Mapping[str, str], broker: BrokerSettings) -> list[str]:
    problems = []
    for kind in ("consumer", "share", "streams"):
        heartbeat, session = f"{kind}.heartbeat.interval.ms", f"{kind}.session.timeout.ms"
        if heartbeat not in overrides and session not in overrides:
            continue
        pause, timeout = (_number(name, overrides, broker) for name in (heartbeat, session))
        if pause >= timeout:
            problems.append(f"{heartbeat}={pause} must be less than {session}={timeout}")
    return problems


def _number(name: str, overrides: Mapping[str, str], broker: BrokerSettings) -> int:
    value = group_value(name, overrides, broker)
    assert isinstance(value, int)
    return value


def group_value(name: str, overrides: Mapping[str, str], broker: BrokerSettings) -> Value:
    """The group's own value, else the broker's. A stored value that cannot be parsed is ignored."""
    setting = GROUP_SETTINGS[name]
    text = overrides.get(name)
    if text is not None:
        try:
            return setting.parse(text)
        except ValueError:
            pass
    return broker.value(setting.server_default) if setting.server_default is not None else setting.default
