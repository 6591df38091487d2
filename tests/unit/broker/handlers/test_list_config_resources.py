from __future__ import annotations

from ottla.cluster.requests import ConfigAlteration, ConfigChange, NewTopic
from ottla.errors import ErrorCode
from ottla.protocol.messages.list_config_resources import ListConfigResourcesRequest
from tests.kit.admin import MetadataBroker, on_broker


def test_version_0_asks_for_client_metrics() -> None:
    async def test(broker: MetadataBroker) -> None:
        async def listed() -> list[str]:
            response = await broker.ask("list_config_resources", 0, ListConfigResourcesRequest())
            return [resource.resource_name for resource in response.config_resources]

        async def alter(name: str, operation: int, value: str | None) -> None:
            requested = ConfigAlteration(16, name, [ConfigChange(operation, "interval.ms", value)])
            assert await broker.controller.config_requests.alter([requested]) == [None]

        await broker.create(NewTopic("a"))
        assert await listed() == []
        await alter("any name / is good", 0, "1000")
        await alter("other", 0, "1000")
        assert sorted(await listed()) == ["any name / is good", "other"]
        await alter("other", 1, None)
        assert await listed() == ["any name / is good"], "without settings it is none"

    on_broker(test)


def test_version_1_lists_the_types_it_is_asked_for_or_all() -> None:
    async def test(broker: MetadataBroker) -> None:
        await broker.create(NewTopic("a"), NewTopic("b"))

        async def listed(*types: int) -> list[tuple[int, str]]:
            response = await broker.ask("list_config_resources", 1, ListConfigResourcesRequest(resource_types=list(types)))
            assert response.error_code == 0
            return [(found.resource_type, found.resource_name) for found in response.config_resources]

        assert await listed(2) == [(2, "a"), (2, "b")]
        assert await listed(4) == [(4, "1")]
        assert await listed(16, 32) == []
        assert set(await listed()) == {(2, "a"), (2, "b"), (4, "1"), (8, "1")}

    on_broker(test)


def test_a_type_nobody_knows() -> None:
    async def test(broker: MetadataBroker) -> None:
        response = await broker.ask("list_config_resources", 1, ListConfigResourcesRequest(resource_types=[2, 3]))
        assert (response.error_code, response.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, [])

    on_broker(test)
