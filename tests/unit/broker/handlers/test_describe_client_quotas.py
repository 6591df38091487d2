from __future__ import annotations

from typing import Any

from ottla.errors import ErrorCode
from ottla.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from ottla.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from tests.kit.admin import MetadataBroker, on_broker
from tests.kit.handlers import every_version

EXACT, DEFAULT, ANY = 0, 1, 2


@every_version("describe_client_quotas")
def test_quotas_by_entity(version: int) -> None:
    async def test(broker: MetadataBroker) -> None:
        entries = [
            EntryData(
                entity=[EntityData(entity_type="user", entity_name=name)],
                ops=[OpData(key="producer_byte_rate", value=rate)],
            )
            for name, rate in (("alice", 1.0), (None, 2.0))
        ]
        await broker.ask("alter_client_quotas", 1, AlterClientQuotasRequest(entries=entries))

        async def described(match_type: int, match: str | None = None) -> list[tuple[Any, Any]]:
            component = ComponentData(entity_type="user", match_type=match_type, match=match)
            request = DescribeClientQuotasRequest(components=[component], strict=True)
            response = await broker.ask("describe_client_quotas", version, request)
            assert response.error_code == 0
            return [(found.entity[0].entity_name, found.values[0].value) for found in response.entries]

        assert await described(EXACT, "alice") == [("alice", 1.0)]
        assert await described(DEFAULT) == [(None, 2.0)]
        assert sorted(await described(ANY), key=str) == [("alice", 1.0), (None, 2.0)]
        assert await described(EXACT, "bob") == []

    on_broker(test)


def test_qu07_a_filter_that_is_refused_has_no_list_of_entries() -> None:
    async def test(broker: MetadataBroker) -> None:
        request = DescribeClientQuotasRequest(components=[ComponentData(entity_type="team", match_type=ANY, match=None)])
        response = await broker.ask("describe_client_quotas", 1, request)
        assert (response.error_code, response.entries) == (ErrorCode.UNSUPPORTED_VERSION, None)
        assert "team" in response.error_message

    on_broker(test)
