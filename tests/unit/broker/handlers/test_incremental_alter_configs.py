from __future__ import annotations

import logging

from ottla.cluster.requests import NewTopic
from ottla.errors import ErrorCode
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.kit.admin import MetadataBroker, on_broker
from tests.kit.handlers import every_version

SET, DELETE, APPEND, SUBTRACT = range(4)


def resource(kind: int, name: str, *changes: tuple[int, str, str | None]) -> AlterConfigsResource:
    configs = [AlterableConfig(name=key, config_operation=operation, value=value) for operation, key, value in changes]
    return AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)


@every_version("incremental_alter_configs")
def test_the_four_operations(version: int) -> None:
    async def test(broker: MetadataBroker) -> None:
        await broker.create(NewTopic("a", config={"retention.ms": "5", "segment.bytes": "100", "cleanup.policy": "compact"}))
        asked = resource(2, "a", (SET, "flush.ms", "7"), (DELETE, "retention.ms", None), (APPEND, "cleanup.policy", "delete"))
        response = await broker.ask("incremental_alter_configs", version, IncrementalAlterConfigsRequest(resources=[asked]))
        assert [(result.resource_type, result.resource_name, result.error_code) for result in response.responses] == [(2, "a", 0)]
        assert broker.image.topics["a"].config == {
            "segment.bytes": "100",
            "cleanup.policy": "compact,delete",
            "flush.ms": "7",
        }
        asked = resource(2, "a", (SUBTRACT, "cleanup.policy", "compact"))
        await broker.ask("incremental_alter_configs", version, IncrementalAlterConfigsRequest(resources=[asked]))
        assert broker.image.topics["a"].config["cleanup.policy"] == "delete"

    on_broker(test)


@every_version("incremental_alter_configs")
def test_each_resource_has_its_own_error(version: int) -> None:
    async def test(broker: MetadataBroker) -> None:
        await broker.create(NewTopic("a"), NewTopic("b"))
        request = IncrementalAlterConfigsRequest(
            resources=[
                resource(2, "a", (APPEND, "retention.ms", "1")),
                resource(2, "b", (SET, "retention.ms", "1")),
                resource(4, "1", (SET, "message.max.bytes", "many")),
                resource(4, "", (SET, "message.max.bytes", "9")),
            ]
        )
        response = await broker.ask("incremental_alter_configs", version, request)
        assert [result.error_code for result in response.responses] == [
            ErrorCode.INVALID_CONFIG,
            0,
            ErrorCode.INVALID_CONFIG,
            0,
        ]
        assert broker.image.topics["b"].config == {"retention.ms": "1"}
        assert broker.settings.int("message.max.bytes") == 9

    on_broker(test)


@every_version("incremental_alter_configs")
def test_validate_only_changes_nothing(version: int) -> None:
    async def test(broker: MetadataBroker) -> None:
        await broker.create(NewTopic("a"))
        request = IncrementalAlterConfigsRequest(resources=[resource(2, "a", (SET, "retention.ms", "1"))], validate_only=True)
        response = await broker.ask("incremental_alter_configs", version, request)
        assert response.responses[0].error_code == 0
        assert broker.image.topics["a"].config == {}

    on_broker(test)


@every_version("incremental_alter_configs")
def test_levels_of_the_brokers_loggers_change_at_once(version: int) -> None:
    async def test(broker: MetadataBroker) -> None:
        logger = logging.getLogger("ottla.broker.test_levels")
        logger.setLevel(logging.INFO)

        async def ask(*resources: AlterConfigsResource, validate_only: bool = False) -> list[int]:
            request = IncrementalAlterConfigsRequest(resources=list(resources), validate_only=validate_only)
            response = await broker.ask("incremental_alter_configs", version, request)
            return [result.error_code for result in response.responses]

        name = "ottla.broker.test_levels"
        assert await ask(resource(8, "1", (SET, name, "DEBUG")), validate_only=True) == [0]
        assert logger.level == logging.INFO
        await broker.create(NewTopic("a"))
        assert await ask(resource(2, "a", (SET, "flush.ms", "7")), resource(8, "1", (SET, name, "DEBUG"))) == [0, 0]
        assert logger.level == logging.DEBUG
        assert await ask(resource(8, "1", (DELETE, name, None))) == [0]
        assert logger.level == logging.NOTSET
        module = logging.getLogger("ottla.broker.test_package.module")
        assert await ask(resource(8, "1", (SET, "ottla.broker.test_package", "ERROR"))) == [0], (
            "a package has no logger of its own"
        )
        assert module.getEffectiveLevel() == logging.ERROR
        for asked, code in (
            (resource(8, "2", (SET, name, "INFO")), ErrorCode.INVALID_REQUEST),
            (resource(8, "1", (SET, name, "LOUD")), ErrorCode.INVALID_CONFIG),
            (resource(8, "1", (SET, name, "debug")), ErrorCode.INVALID_CONFIG),
            (resource(8, "1", (SET, name, None)), ErrorCode.INVALID_REQUEST),
            (resource(8, "1", (SET, "kafka.server", "INFO")), ErrorCode.INVALID_CONFIG),
            (resource(8, "1", (APPEND, name, "INFO")), ErrorCode.INVALID_REQUEST),
            (resource(8, "1", (DELETE, "root", None)), ErrorCode.INVALID_REQUEST),
        ):
            assert await ask(asked) == [code]
        twice = resource(8, "1", (SET, name, "INFO"))
        assert await ask(twice, twice) == [ErrorCode.INVALID_REQUEST] * 2
        assert logger.level == logging.NOTSET

    on_broker(test)
