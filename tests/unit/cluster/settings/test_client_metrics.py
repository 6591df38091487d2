"""Subscriptions of client metrics: the codes are those of Apache Kafka 4.3, asked one by one."""

from __future__ import annotations

import pytest

from ottla.cluster.config_changes import altered_config, config_change
from ottla.cluster.image import ClusterImage
from ottla.cluster.requests import ConfigAlteration, ConfigChange, ResourceType
from ottla.cluster.settings import BrokerSettings
from ottla.cluster.settings.client_metrics import subscription_of
from ottla.errors import ErrorCode, KafkaError
from ottla.ports import Create, Delete, SetData

SET, DELETE, APPEND, SUBTRACT = range(4)
SETTINGS = BrokerSettings.parse({})


def alteration(*changes: tuple[int, str, str | None], name: str = "s", replace: bool = False) -> ConfigAlteration:
    return ConfigAlteration(ResourceType.CLIENT_METRICS, name, [ConfigChange(*change) for change in changes], replace)


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("interval.ms", "50", ErrorCode.INVALID_REQUEST),
        ("interval.ms", "3600001", ErrorCode.INVALID_REQUEST),
        ("interval.ms", "soon", ErrorCode.INVALID_CONFIG),
        ("foo", "x", ErrorCode.INVALID_REQUEST),
        ("match", "client_id=[", ErrorCode.INVALID_CONFIG),
        ("match", "foo=bar", ErrorCode.INVALID_CONFIG),
        ("match", "client_id=a=b", ErrorCode.INVALID_CONFIG),
        ("match", "client_id", ErrorCode.INVALID_CONFIG),
        ("match", "client_id=a,", ErrorCode.INVALID_CONFIG),
        ("interval.ms", None, ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_is_invalid_has_the_codes_of_kafka(name: str, value: str | None, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as caught:
        altered_config(ClusterImage(""), SETTINGS, alteration((SET, name, value)))
    assert caught.value.code == code


def test_lists_are_set_as_a_whole_and_a_name_is_required() -> None:
    for operation in (APPEND, SUBTRACT):
        with pytest.raises(KafkaError) as caught:
            altered_config(ClusterImage(""), SETTINGS, alteration((operation, "metrics", "a")))
        assert caught.value.code == ErrorCode.INVALID_CONFIG
    with pytest.raises(KafkaError) as caught:
        altered_config(ClusterImage(""), SETTINGS, alteration((SET, "metrics", "a"), name=""))
    assert caught.value.code == ErrorCode.INVALID_REQUEST


def test_a_subscription_without_settings_keeps_no_node() -> None:
    image = ClusterImage("")
    first = alteration((SET, "metrics", "a,b"), (SET, "match", ""))
    config = altered_config(image, SETTINGS, first)
    change = config_change(image, first, config)
    assert isinstance(change, Create)
    assert change.path == "/config/client-metrics/s"
    image = image.with_client_metrics("s", config)
    second = alteration((SET, "interval.ms", "100"))
    assert isinstance(config_change(image, second, altered_config(image, SETTINGS, second)), SetData)
    last = alteration((DELETE, "metrics", None), (DELETE, "match", None))
    assert isinstance(config_change(image, last, altered_config(image, SETTINGS, last)), Delete)
    assert isinstance(config_change(image, alteration(replace=True), {}), Delete)
    assert image.with_client_metrics("s", {}).client_metrics == {}


def test_a_subscription_from_stored_values() -> None:
    found = subscription_of({"metrics": "a, b", "match": "client_id = x ,client_id=y=,client_source_port=1"})
    assert found is not None
    assert (found.metrics, found.interval_ms) == (("a", "b"), 300_000)
    assert found.selectors == (("client_id", "y"), ("client_source_port", "1"))
    assert subscription_of({"interval.ms": "soon"}) is None
