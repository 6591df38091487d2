"""The options of format("ottla"): Spark's names, and one clear message for each value that cannot be (F78)."""

from __future__ import annotations

import logging
import pickle
from typing import Any

import pytest

from ottla.client.options import ClientOptions, InvalidOption, client_options, parse_servers
from ottla.pipelines.data_source.options import EARLIEST, LATEST, SourceOptions, check_batch, check_stream, source_options
from ottla.types import TopicPartition

BASE = {"kafka.bootstrap.servers": "broker:9092", "subscribe": "orders"}


def parsed(**options: Any) -> SourceOptions:
    return source_options({**BASE, **options})


def test_f78_names_are_found_whatever_their_case_as_spark_hands_them_over() -> None:
    found = source_options(
        {
            "kafka.bootstrap.servers": "one:1,two",
            "subscribepattern": "orders.*",
            "STARTINGOFFSETS": "Earliest",
            "maxoffsetspertrigger": "500",
            "failondataloss": "FALSE",
            "includeheaders": "true",
            "kafka.group.id": "billing",
            "kafka.isolation.level": "read_uncommitted",
            "kafka.client.id": "me",
            "kafka.request.timeout.ms": "1234",
            "minPartitions": "7",
        }
    )
    assert found.client.servers == (("one", 1), ("two", 9092))
    assert found.client.client_id == "me"
    assert found.client.request_timeout_ms == 1234
    assert found.pattern == "orders.*"
    assert found.starting is not None
    assert found.starting.everywhere == EARLIEST
    assert found.offsets_per_trigger_max == 500
    assert found.partitions_min == 7
    assert not found.fail_on_data_loss
    assert found.include_headers
    assert found.group_id == "billing"
    assert not found.read_committed
    assert pickle.loads(pickle.dumps(found)) == found


def test_f78_defaults() -> None:
    found = parsed(subscribe=" orders , payments,orders")
    assert found.topics == ("orders", "payments")
    assert found.read_committed
    assert found.fail_on_data_loss
    assert found.starting is None
    assert found.group_id is None
    assert found.client.security.protocol == "PLAINTEXT"


def test_f78_positions_by_partition() -> None:
    found = parsed(startingOffsets='{"orders":{"0":23,"1":-2,"2":-1}}', endingOffsetsByTimestamp='{"orders":{"0":1700000000000}}')
    assert found.starting is not None
    assert found.starting.offsets == {
        TopicPartition("orders", 0): 23,
        TopicPartition("orders", 1): EARLIEST,
        TopicPartition("orders", 2): LATEST,
    }
    assert found.ending is not None
    assert found.ending.timestamps_ms == {TopicPartition("orders", 0): 1_700_000_000_000}


def test_f78_a_time_comes_before_times_by_partition_and_these_before_offsets() -> None:
    every = {
        "startingTimestamp": "1",
        "startingOffsetsByTimestamp": '{"orders":{"0":2}}',
        "startingOffsets": '{"orders":{"0":3}}',
    }
    for name in every:
        found = parsed(**every).starting
        assert found is not None
        assert found.option == name
        every = {other: value for other, value in every.items() if other != name}


def test_f78_assigned_partitions() -> None:
    found = source_options({"kafka.bootstrap.servers": "x", "assign": '{"b":[1,0],"a":[2]}'})
    assert found.assigned == (TopicPartition("a", 2), TopicPartition("b", 0), TopicPartition("b", 1))


@pytest.mark.parametrize(
    ("options", "named", "says"),
    [
        ({"subscribe": ""}, "subscribe", "topics"),
        ({"subscribePattern": "["}, "subscribePattern", "exactly one of"),
        ({"startingOffsets": "newest"}, "startingOffsets", "earliest, latest, or JSON"),
        ({"startingOffsets": '{"orders":{"0":-3}}'}, "startingOffsets", "-2 is earliest"),
        ({"startingOffsets": '{"orders":[1]}'}, "startingOffsets", "JSON"),
        ({"startingOffsets": "{}"}, "startingOffsets", "JSON"),
        ({"startingOffsetsByTimestamp": '{"orders":{"0":-1}}'}, "startingOffsetsByTimestamp", "JSON"),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp", "milliseconds since 1970"),
        ({"startingOffsetsByTimestampStrategy": "maybe"}, "startingOffsetsByTimestampStrategy", "error, latest"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger", "above 0"),
        ({"maxOffsetsPerTrigger": "many"}, "maxOffsetsPerTrigger", "whole number"),
        ({"minPartitions": "-1"}, "minPartitions", "above 0"),
        ({"failOnDataLoss": "no"}, "failOnDataLoss", "true or false"),
        ({"maxTriggerDelay": "a while"}, "maxTriggerDelay", "like 500ms"),
        ({"kafka.isolation.level": "snapshot"}, "kafka.isolation.level", "read_committed, read_uncommitted"),
        ({"kafka.auto.offset.reset": "latest"}, "kafka.auto.offset.reset", "startingOffsets"),
        ({"kafka.value.deserializer": "x"}, "kafka.value.deserializer", "bytes"),
        ({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers", "host:port"),
        ({"kafka.bootstrap.servers": "host:port"}, "kafka.bootstrap.servers", "host:port"),
        ({"kafka.security.protocol": "TLS"}, "kafka.security.protocol", "PLAINTEXT, SSL"),
        ({"kafka.security.protocol": "SASL_SSL"}, "kafka.sasl.jaas.config", "username"),
        ({"kafka.request.timeout.ms": "soon"}, "kafka.request.timeout.ms", "milliseconds above 0"),
        ({"kafka.security.protocol": "SSL", "kafka.ssl.truststore.type": "BKS"}, "kafka.ssl.truststore.type", "PEM, JKS, PKCS12"),
        ({"kafka.ssl.keystore.key": "…"}, "kafka.ssl.keystore.certificate.chain", "together"),
        ({"startingOffset": "earliest"}, "startingOffset", "did you mean startingOffsets?"),
        ({"colour": "red"}, "colour", "no such option"),
    ],
)
def test_f78_an_option_that_cannot_be_is_named_with_what_is_allowed(options: dict[str, str], named: str, says: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        source_options({**BASE, **options})
    assert named in str(refused.value)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("assign", ["orders", "[1]", '{"orders":0}', '{"orders":[-1]}', '{"orders":["0"]}', "{}"])
def test_f78_an_assignment_that_is_none(assign: str) -> None:
    with pytest.raises(InvalidOption, match="assign"):
        source_options({"kafka.bootstrap.servers": "x", "assign": assign})


def test_f78_no_topics_at_all() -> None:
    with pytest.raises(InvalidOption, match="exactly one of subscribe"):
        source_options({"kafka.bootstrap.servers": "x"})
    with pytest.raises(InvalidOption, match="regular expression"):
        source_options({"kafka.bootstrap.servers": "x", "subscribePattern": "("})


def test_f78_a_stream_has_no_end_and_a_batch_no_triggers() -> None:
    with pytest.raises(InvalidOption, match="endingOffsets"):
        check_stream(parsed(endingOffsets="latest"))
    with pytest.raises(InvalidOption, match="minOffsetsPerTrigger"):
        check_stream(parsed(minOffsetsPerTrigger="9", maxOffsetsPerTrigger="8"))
    with pytest.raises(InvalidOption, match="maxOffsetsPerTrigger"):
        check_batch(parsed(maxOffsetsPerTrigger="9"))
    with pytest.raises(InvalidOption, match="startingOffsets"):
        check_batch(parsed(startingOffsets="latest"))
    with pytest.raises(InvalidOption, match="startingOffsets"):
        check_batch(parsed(startingOffsets='{"orders":{"0":-1}}'))
    with pytest.raises(InvalidOption, match="endingOffsets"):
        check_batch(parsed(endingOffsets="earliest"))
    assert check_batch(parsed(startingOffsets="earliest", endingOffsets="latest")).ending is not None
    assert check_stream(parsed(maxTriggerDelay="2m")).trigger_delay_max_ms == 120_000


def test_unknown_settings_of_the_client_are_warned_about_and_ignored(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "ottla.client"):
        assert client_options({"kafka.bootstrap.servers": "x", "kafka.no.such": "1", "other": "2"}) == ClientOptions(
            (("x", 9092),)
        )
    assert "kafka.no.such" in caplog.text
    assert "other" not in caplog.text


def test_a_login_from_javas_setting_or_librdkafkas() -> None:
    java = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="al\\"ice" password="s3 cret";'
    base = {"kafka.bootstrap.servers": "x", "kafka.security.protocol": "sasl_plaintext"}
    found = client_options({**base, "kafka.sasl.jaas.config": java}).security
    assert (found.username, found.password) == ('al"ice', "s3 cret")
    assert "s3 cret" not in repr(found)
    found = client_options({**base, "kafka.sasl.username": "bob", "kafka.sasl.password": "pw"}).security
    assert (found.username, found.password) == ("bob", "pw")
    assert found.authenticates
    assert not found.encrypted
    bare = "org.apache.kafka.common.security.scram.ScramLoginModule required username=carol password='p w';"
    found = client_options({**base, "kafka.sasl.mechanism": "SCRAM-SHA-512", "kafka.sasl.jaas.config": bare}).security
    assert (found.mechanism, found.username, found.password) == ("SCRAM-SHA-512", "carol", "p w")
    with pytest.raises(InvalidOption) as refused:
        client_options({**base, "kafka.sasl.jaas.config": 'x required password="hush";'})
    assert "hush" not in str(refused.value)
    with pytest.raises(InvalidOption, match="it is one of PLAIN"):
        client_options({**base, "kafka.sasl.mechanism": "DIGEST-MD5", "kafka.sasl.username": "a"})


def test_addresses() -> None:
    assert parse_servers("a:1, b ,[::1]:3,PLAINTEXT://c:4,fe80::1") == (
        ("a", 1),
        ("b", 9092),
        ("::1", 3),
        ("c", 4),
        ("fe80::1", 9092),
    )
    for wrong in ("a:x", ":1", "a:70000"):
        with pytest.raises(ValueError, match=wrong):
            parse_servers(wrong)


def test_options_of_a_registry() -> None:
    found = parsed(**{"registry.url": "http://r", "Registry.Basic.Auth.User.Info": "a:b"}).registry
    assert found is not None
    assert (found.subject, found.key_subject, found.version, found.fails) == ("orders-value", None, "latest", True)
    assert found.settings == (("basic.auth.user.info", "a:b"), ("url", "http://r"))
    assert "a:b" not in repr(found)
    assert parsed().registry is None
    only_keys = source_options({**BASE, "subscribe": "a,b", "registry.url": "http://r", "registry.key.subject": "k"}).registry
    assert only_keys is not None
    assert (only_keys.subject, only_keys.key_subject) == (None, "k")


@pytest.mark.parametrize(
    "options",
    [
        {"registry.subject": "s"},
        {"registry.url": "http://r", "subscribe": "a,b"},
        {"registry.url": "http://r", "registry.version": "0"},
        {"registry.url": "http://r", "registry.mode": "DROPMALFORMED"},
    ],
)
def test_options_of_a_registry_that_cannot_be(options: dict[str, str]) -> None:
    with pytest.raises(InvalidOption):
        source_options({**BASE, **options})
