from __future__ import annotations

from ottla.cluster.requests import NewTopic
from ottla.errors import ErrorCode
from ottla.protocol.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from tests.kit.admin import MetadataBroker, on_broker
from tests.kit.handlers import every_version


def resource(kind: int, name: str, **configs: str | None) -> AlterConfigsResource:
    return AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[AlterableConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )


@every_version("alter_configs")
def test_what_is_not_named_goes_back_to_its_default(version: int) -> None:
    async def test(broker: MetadataBroker) -> None:
        await broker.create(NewTopic("a", config={"retention.ms": "5", "segment.bytes": "100"}))
        request = AlterConfigsRequest(resources=[resource(2, "a", retention_ms="6"), resource(2, "missing", retention_ms="6")])
        response = await broker.ask("alter_configs", version, request)
        assert [(result.resource_name, result.error_code) for result in response.responses] == [
            ("a", 0),
            ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        assert broker.image.topics["a"].config == {"retention.ms": "6"}

    on_broker(test)


@every_version("alter_configs")
def test_bad_values_and_validate_only_change_nothing(version: int) -> None:
    async def test(broker: MetadataBroker) -> None:
        await broker.create(NewTopic("a", config={"retention.ms": "5"}))
        resources = [resource(2, "a", retention_ms="x"), resource(4, "1", broker_id="5"), resource(8, "1", root="DEBUG")]
        response = await broker.ask("alter_configs", version, AlterConfigsRequest(resources=resources))
        assert [result.error_code for result in response.responses] == [
            ErrorCode.INVALID_CONFIG,
            ErrorCode.INVALID_REQUEST,
            ErrorCode.INVALID_REQUEST,
        ]
        assert all(result.error_message for result in response.responses)
        request = AlterConfigsRequest(resources=[resource(2, "a", retention_ms="6")], validate_only=True)
        assert (await broker.ask("alter_configs", version, request)).responses[0].error_code == 0
        assert broker.image.topics["a"].config == {"retention.ms": "5"}

    on_broker(test)
