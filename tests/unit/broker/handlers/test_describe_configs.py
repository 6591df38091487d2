from __future__ import annotations

import logging

import pytest

from ottla.cluster.requests import ConfigAlteration, ConfigChange, NewTopic
from ottla.cluster.settings import BROKER_SETTINGS, TOPIC_SETTINGS, ConfigSource, SettingType
from ottla.errors import ErrorCode
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tests.kit.admin import MetadataBroker, on_broker
from tests.kit.handlers import every_version

TOPIC, BROKER, CLIENT_METRICS = 2, 4, 16


def ask_for(kind: int, name: str, *keys: str, **fields: bool) -> DescribeConfigsRequest:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=list(keys) or None)
    return DescribeConfigsRequest(resources=[resource], **fields)


@every_version("describe_configs")
def test_a_topic_with_all_its_defaults(version: int) -> None:
    """Another young broker showed no defaults."""

    async def test(broker: MetadataBroker) -> None:
        await broker.create(NewTopic("a", config={"retention.ms": "5"}))
        response = await broker.ask("describe_configs", version, ask_for(TOPIC, "a"))
        (result,) = response.results
        assert (result.error_code, result.resource_type, result.resource_name) == (0, TOPIC, "a")
        configs = {config.name: config for config in result.configs}
        assert set(configs) == {name for name, setting in TOPIC_SETTINGS.items() if not setting.internal}
        own, default = configs["retention.ms"], configs["cleanup.policy"]
        assert (own.value, own.read_only, own.is_sensitive) == ("5", False, False)
        assert default.value == "delete"
        if version == 0:
            assert (own.is_default, default.is_default) == (False, True)
        else:
            assert (own.config_source, default.config_source) == (ConfigSource.TOPIC_CONFIG, ConfigSource.DEFAULT_CONFIG)
            assert own.synonyms == [], "not asked for"
        if version >= 3:
            assert (own.config_type, default.config_type) == (SettingType.LONG, SettingType.LIST)
            assert own.documentation is None, "not asked for"

    on_broker(test)


@pytest.mark.parametrize("version", range(1, 5))
def test_synonyms_and_documentation_on_request(version: int) -> None:
    async def test(broker: MetadataBroker) -> None:
        await broker.create(NewTopic("a", config={"segment.bytes": "100"}))
        request = ask_for(TOPIC, "a", "segment.bytes", include_synonyms=True, include_documentation=version >= 3)
        response = await broker.ask("describe_configs", version, request)
        (config,) = response.results[0].configs
        assert [(synonym.name, synonym.value, synonym.source) for synonym in config.synonyms] == [
            ("segment.bytes", "100", ConfigSource.TOPIC_CONFIG),
            ("log.segment.bytes", "200", ConfigSource.STATIC_BROKER_CONFIG),
            ("log.segment.bytes", "1073741824", ConfigSource.DEFAULT_CONFIG),
        ]
        if version >= 3:
            assert config.documentation == TOPIC_SETTINGS["segment.bytes"].doc

    on_broker(test, {"log.segment.bytes": "200"})


@every_version("describe_configs")
def test_this_broker(version: int) -> None:
    async def test(broker: MetadataBroker) -> None:
        response = await broker.ask("describe_configs", version, ask_for(BROKER, "1"))
        configs = {config.name: config for config in response.results[0].configs}
        assert set(configs) == {name for name, setting in BROKER_SETTINGS.items() if not setting.internal}
        assert (configs["num.partitions"].value, configs["num.partitions"].read_only) == ("3", True)
        assert configs["message.max.bytes"].read_only is False
        password = configs["ssl.key.password"]
        assert (password.value, password.is_sensitive) == (None, True)

    on_broker(test, {"num.partitions": "3", "ssl.key.password": "hunter2"})


def test_only_the_settings_named_and_those_nobody_knows_are_left_out() -> None:
    async def test(broker: MetadataBroker) -> None:
        response = await broker.ask("describe_configs", 4, ask_for(BROKER, "1", "num.partitions", "nonsense"))
        assert [config.name for config in response.results[0].configs] == ["num.partitions"]
        empty = DescribeConfigsRequest(
            resources=[DescribeConfigsResource(resource_type=BROKER, resource_name="1", configuration_keys=[])]
        )
        assert len((await broker.ask("describe_configs", 4, empty)).results[0].configs) > 300, "an empty list means all"

    on_broker(test)


def test_what_is_set_for_all_brokers_and_for_this_one() -> None:
    async def test(broker: MetadataBroker) -> None:
        for name, value in (("", "6"), ("1", "7")):
            change = ConfigAlteration(BROKER, name, [ConfigChange(0, "message.max.bytes", value)])
            assert await broker.controller.config_requests.alter([change]) == [None]
        response = await broker.ask("describe_configs", 4, ask_for(BROKER, "", include_synonyms=True))
        (config,) = response.results[0].configs
        assert (config.name, config.value) == ("message.max.bytes", "6")
        assert config.config_source == ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
        response = await broker.ask("describe_configs", 4, ask_for(BROKER, "1", "message.max.bytes", include_synonyms=True))
        (config,) = response.results[0].configs
        assert (config.value, config.config_source) == ("7", ConfigSource.DYNAMIC_BROKER_CONFIG)
        assert [synonym.value for synonym in config.synonyms] == ["7", "6", "1048588"]

    on_broker(test)


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (8, "2", ErrorCode.INVALID_REQUEST),
        (8, "", ErrorCode.INVALID_REQUEST),
        (0, "x", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
    ],
)
@pytest.mark.parametrize("version", [0, 4])
def test_what_cannot_be_described(version: int, kind: int, name: str, code: ErrorCode) -> None:
    async def test(broker: MetadataBroker) -> None:
        response = await broker.ask("describe_configs", version, ask_for(kind, name))
        (result,) = response.results
        assert (result.error_code, result.resource_type, result.resource_name, result.configs) == (code, kind, name, [])
        assert result.error_message

    on_broker(test)


@every_version("describe_configs")
def test_levels_of_the_brokers_loggers(version: int) -> None:
    async def test(broker: MetadataBroker) -> None:
        logging.getLogger("ottla.broker.test_levels").setLevel(logging.WARNING)
        response = await broker.ask("describe_configs", version, ask_for(8, "1"))
        (result,) = response.results
        levels = {config.name: config for config in result.configs}
        assert result.error_code == 0
        assert levels["ottla.broker.test_levels"].value == "WARN"
        assert "root" in levels
        assert all(name in ("root", "kafka.authorizer.logger") or name.startswith("ottla") for name in levels)
        if version >= 1:
            assert levels["root"].config_source == ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG
        only = await broker.ask("describe_configs", version, ask_for(8, "1", "root"))
        assert [config.name for config in only.results[0].configs] == ["root"]

    on_broker(test)


def test_a_client_metrics_subscription_need_not_exist() -> None:
    async def test(broker: MetadataBroker) -> None:
        changes = [ConfigChange(0, "interval.ms", "1000"), ConfigChange(0, "match", " client_id = a.* , client_software_name=b")]
        assert await broker.controller.config_requests.alter([ConfigAlteration(CLIENT_METRICS, "s", changes)]) == [None]
        response = await broker.ask("describe_configs", 4, ask_for(CLIENT_METRICS, "s", include_synonyms=True))
        own, default = ConfigSource.CLIENT_METRICS_CONFIG, ConfigSource.DEFAULT_CONFIG
        assert [(config.name, config.value, config.config_source, config.config_type, len(config.synonyms))
                for config in response.results[0].configs] == [
            ("interval.ms", "1000", own, SettingType.INT, 1),
            ("match", "client_id = a.*,client_software_name=b", own, SettingType.LIST, 1),
            ("metrics", "", default, SettingType.LIST, 0),
        ]  # fmt: skip
        response = await broker.ask("describe_configs", 4, ask_for(CLIENT_METRICS, "unknown", "interval.ms", "nonsense"))
        assert [(config.name, config.value) for config in response.results[0].configs] == [("interval.ms", "300000")]
        response = await broker.ask("describe_configs", 4, ask_for(CLIENT_METRICS, ""))
        assert response.results[0].error_code == ErrorCode.INVALID_REQUEST

    on_broker(test)
