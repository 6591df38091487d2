"""The settings of a client metrics subscription (resource type CLIENT_METRICS, KIP-714): which clients push which metrics, and
how often.

`match` selects clients by regular expressions, `client_id=app.*,client_software_name=…`; all of them must match. They are RE2
instead of Java's expressions: no lookaround, no back references.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ottla.cluster.settings.setting import INT, LIST, Setting, SettingType, Value, between, table_of, unknown_name
from ottla.errors import ErrorCode, KafkaError
from ottla.patterns import check_pattern

INTERVAL_MS_DEFAULT: Final = 300_000
ALL_METRICS: Final = "*"
SELECTORS: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)


def _setting(name: str, type: SettingType, default: Value, doc: str) -> Setting:
    valid = between(100, 3_600_000) if type is INT else None
    return Setting(name, type, default, valid, "client-metrics", "cluster-wide", used=True, doc=doc)


CLIENT_METRICS_SETTINGS: Final[dict[str, Setting]] = table_of(
    (
        _setting("interval.ms", INT, INTERVAL_MS_DEFAULT, "How often clients push their metrics."),
        _setting("match", LIST, (), "Selectors of clients, name=regular expression; without any, all clients."),
        _setting("metrics", LIST, (), "Prefixes of the names of metrics; * for all."),
    )
)


@dataclass(frozen=True, slots=True)
class MetricsSubscription:
    metrics: tuple[str, ...]
    interval_ms: int
    selectors: tuple[tuple[str, str], ...]
    """(name, regular expression)."""


def check_client_metrics(name: str, overrides: Mapping[str, str]) -> None:
    """KafkaError, with Kafka's codes, if a subscription of this name and these values is invalid."""
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the name of the client metrics subscription is missing")
    for key in overrides:
        if key not in CLIENT_METRICS_SETTINGS:
            text = unknown_name(key, CLIENT_METRICS_SETTINGS, "client metrics setting")
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    for key, text in overrides.items():
        try:
            CLIENT_METRICS_SETTINGS[key].parse(text)
        except ValueError as error:
            out_of_range = text.strip().lstrip("+-").isdecimal()
            raise KafkaError(ErrorCode.INVALID_REQUEST if out_of_range else ErrorCode.INVALID_CONFIG, str(error)) from None
    for selector, pattern in _subscription(overrides).selectors:
        try:
            check_pattern(pattern)
        except KafkaError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"match={selector}=…: {error.detail}") from None


def subscription_of(overrides: Mapping[str, str]) -> MetricsSubscription | None:
    """None for stored values that are invalid: nobody is subscribed by them."""
    try:
        return _subscription(overrides)
    except (KafkaError, ValueError):
        return None


def client_metrics_value(name: str, overrides: Mapping[str, str]) -> Value:
    """The subscription's own value, else the default. A stored value that cannot be parsed is ignored."""
    setting = CLIENT_METRICS_SETTINGS[name]
    try:
        return setting.parse(overrides[name]) if name in overrides else setting.default
    except ValueError:
        return setting.default


def _subscription(overrides: Mapping[str, str]) -> MetricsSubscription:
    values = {
        name: setting.parse(overrides[name]) if name in overrides else setting.default
        for name, setting in CLIENT_METRICS_SETTINGS.items()
    }
    interval_ms, match, metrics = values["interval.ms"], values["match"], values["metrics"]
    assert isinstance(interval_ms, int)
    assert isinstance(match, tuple)
    assert isinstance(metrics, tuple)
    # As in Kafka, the last of two selectors of a name counts.
    return MetricsSubscription(metrics, interval_ms, tuple(dict(_selector(text) for text in match).items()))


def _selector(text: str) -> tuple[str, str]:
    name, _, pattern = (part.strip() for part in text.rstrip("=").partition("="))
    if name not in SELECTORS or not pattern or "=" in pattern:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"match: {text!r} is not a selector; write name=regular expression, where the names are {', '.join(SELECTORS)}",
        )
    return name, pattern
