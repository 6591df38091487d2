from __future__ import annotations

import pytest

from ottla.cluster.settings import (
    BROKER_SETTINGS,
    TOPIC_SETTINGS,
    BrokerSettings,
    ConfigSource,
    TopicSettings,
    describe_broker,
    describe_topic,
    topic_config_problems,
)
from ottla.cluster.settings.describe import DescribedSetting, describe_cluster_default


def test_every_fallback_names_a_broker_setting_of_the_same_kind() -> None:
    for setting in TOPIC_SETTINGS.values():
        if setting.server_default is not None:
            fallback = BROKER_SETTINGS[setting.server_default]
            assert fallback.type is setting.type, setting.name


def test_the_defaults_of_a_topic_are_those_it_would_get_from_a_default_broker() -> None:
    broker = BrokerSettings.parse({})
    topic = TopicSettings.resolve(broker, {})
    for setting in TOPIC_SETTINGS.values():
        assert topic.value(setting.name) == setting.default, setting.name


def test_topic_before_broker_before_default() -> None:
    broker = BrokerSettings.parse({"log.retention.minutes": "2", "message.max.bytes": "500"})
    topic = TopicSettings.resolve(broker, {"max.message.bytes": "600"})
    assert topic.int("max.message.bytes") == 600
    assert topic.int("retention.ms") == 120_000
    assert topic.int("segment.bytes") == 1 << 30


def test_an_override_that_is_no_longer_understood_counts_as_not_set() -> None:
    topic = TopicSettings.resolve(BrokerSettings.parse({}), {"segment.bytes": "many", "gone": "1"})
    assert topic.int("segment.bytes") == 1 << 30


@pytest.mark.parametrize(
    ("overrides", "word"),
    [
        ({"retention.msec": "1"}, "unknown topic setting retention.msec; did you mean retention.ms?"),
        ({"retention.ms": "-2"}, "allowed: -1 or more"),
        ({"retention.ms": None}, "cannot be null"),
        ({"cleanup.policy": "remove"}, "compact, delete"),
        ({"message.timestamp.type": "createtime"}, "CreateTime, LogAppendTime"),
        ({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"}, "must not be above"),
        ({"remote.storage.enable": "true"}, "no remote storage"),
        ({"leader.replication.throttled.replicas": "1-2"}, "partition:broker"),
    ],
)
def test_bad_topic_settings_are_told(overrides: dict[str, str | None], word: str) -> None:
    (problem,) = topic_config_problems(overrides, BrokerSettings.parse({}))
    assert word in problem


def test_lags_are_compared_with_the_brokers_where_the_topic_has_only_one() -> None:
    broker = BrokerSettings.parse({"log.cleaner.max.compaction.lag.ms": "10"})
    assert topic_config_problems({"min.compaction.lag.ms": "11"}, broker)
    assert not topic_config_problems({"min.compaction.lag.ms": "10"}, broker)


def _only(described: list[DescribedSetting]) -> DescribedSetting:
    (entry,) = described
    return entry


def _sources(entry: DescribedSetting) -> list[tuple[str, str | None, ConfigSource]]:
    return [(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms]


def test_describing_a_topic_lists_all_sources_the_strongest_first() -> None:
    broker = BrokerSettings.parse({"log.segment.bytes": "200"}).with_dynamic(
        {"log.segment.bytes": "400"}, {"log.segment.bytes": "300"}
    )
    topic = TopicSettings.resolve(broker, {"segment.bytes": "100"})
    entry = _only(describe_topic(broker, topic, {"segment.bytes"}))
    assert (entry.value, entry.source, entry.read_only) == ("100", ConfigSource.TOPIC_CONFIG, False)
    assert _sources(entry) == [
        ("segment.bytes", "100", ConfigSource.TOPIC_CONFIG),
        ("log.segment.bytes", "400", ConfigSource.DYNAMIC_BROKER_CONFIG),
        ("log.segment.bytes", "300", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        ("log.segment.bytes", "200", ConfigSource.STATIC_BROKER_CONFIG),
        ("log.segment.bytes", "1073741824", ConfigSource.DEFAULT_CONFIG),
    ]


STATIC, DEFAULT = ConfigSource.STATIC_BROKER_CONFIG, ConfigSource.DEFAULT_CONFIG


@pytest.mark.parametrize(
    ("given", "value", "sources"),
    [
        ({}, "604800000", []),
        ({"log.retention.hours": "2"}, "7200000", []),
        ({"log.retention.minutes": "3", "log.retention.hours": "2"}, "180000", []),
        (
            {"log.retention.ms": "5000", "log.retention.hours": "2"},
            "5000",
            [("log.retention.ms", "5000", STATIC), ("log.retention.hours", "2", STATIC), ("log.retention.hours", "168", DEFAULT)],
        ),
    ],
)
def test_a_topics_value_that_comes_from_hours_does_not_say_so(
    given: dict[str, str], value: str, sources: list[tuple[str, str, ConfigSource]]
) -> None:
    """As Kafka 4.3 has it: the list begins with the setting of the same unit, or there is none."""
    broker = BrokerSettings.parse(given)
    entry = _only(describe_topic(broker, TopicSettings.resolve(broker, {}), {"retention.ms"}))
    assert (entry.value, entry.source, _sources(entry)) == (value, sources[0][2] if sources else DEFAULT, sources)


def test_the_same_of_a_broker() -> None:
    broker = BrokerSettings.parse({"log.retention.minutes": "3", "log.retention.hours": "2"})
    hours = [("log.retention.hours", "2", STATIC), ("log.retention.hours", "168", DEFAULT)]
    shown = describe_broker(broker, {f"log.retention.{unit}" for unit in ("ms", "minutes", "hours")})
    told = {entry.name: (entry.value, entry.source, _sources(entry)) for entry in shown}
    assert told == {
        "log.retention.ms": (None, DEFAULT, []),
        "log.retention.minutes": ("3", STATIC, [("log.retention.minutes", "3", STATIC), *hours]),
        "log.retention.hours": ("2", STATIC, hours),
    }


def test_describing_nothing_in_particular_lists_everything_that_is_not_internal() -> None:
    broker = BrokerSettings.parse({})
    topic = describe_topic(broker, TopicSettings.resolve(broker, {}), None)
    assert {entry.name for entry in topic} == {name for name, setting in TOPIC_SETTINGS.items() if not setting.internal}
    assert len(describe_broker(broker, set())) > 300
    assert describe_broker(broker, {"no.such.setting"}) == []


def test_describing_a_broker() -> None:
    broker = BrokerSettings.parse({"num.partitions": "3", "ssl.key.password": "hunter2"})
    entry = _only(describe_broker(broker, {"num.partitions"}))
    assert (entry.value, entry.source, entry.read_only) == ("3", ConfigSource.STATIC_BROKER_CONFIG, True)
    secret = _only(describe_broker(broker, {"ssl.key.password"}))
    assert (secret.value, secret.sensitive) == (None, True)
    assert [synonym.value for synonym in secret.synonyms] == [None]
    changeable = _only(describe_broker(broker, {"message.max.bytes"}))
    assert (changeable.read_only, changeable.source) == (False, ConfigSource.DEFAULT_CONFIG)


def test_describing_the_whole_cluster_lists_only_what_is_set_there() -> None:
    broker = BrokerSettings.parse({"message.max.bytes": "5"}).with_dynamic(
        {"log.segment.bytes": "50"}, {"message.max.bytes": "6"}
    )
    entry = _only(describe_cluster_default(broker, None))
    assert (entry.name, entry.value, entry.source) == (
        "message.max.bytes",
        "6",
        ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
    )
