from __future__ import annotations

import logging
import math

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from tests.kit.admin import MetadataBroker, on_broker
from tests.kit.handlers import every_version

ALICE = (("user", "alice"),)


def entry(name: str, *ops: OpData, kind: str = "user") -> EntryData:
    return EntryData(entity=[EntityData(entity_type=kind, entity_name=name)], ops=list(ops))


@every_version("alter_client_quotas")
def test_quotas_are_set_and_removed(version: int) -> None:
    async def test(broker: MetadataBroker) -> None:
        for op, kept in (
            (OpData(key="producer_byte_rate", value=1024.0), {"producer_byte_rate": "1024"}),
            (OpData(key="producer_byte_rate", remove=True), {}),
        ):
            response = await broker.ask("alter_client_quotas", version, AlterClientQuotasRequest(entries=[entry("alice", op)]))
            assert [each.error_code for each in response.entries] == [0]
            assert dict(broker.controller.config_requests.clients.get(ALICE, {})) == kept

    on_broker(test)


def test_a_change_is_logged_with_all_its_digits(caplog: pytest.LogCaptureFixture) -> None:
    async def test(broker: MetadataBroker) -> None:
        ops = OpData(key="producer_byte_rate", value=1048576.0), OpData(key="request_percentage", value=12.5)
        await broker.ask("alter_client_quotas", 1, AlterClientQuotasRequest(entries=[entry("alice", *ops)]))

    with caplog.at_level(logging.INFO, "ottla.broker.handlers"):
        on_broker(test)
    assert "altered the quotas of user alice: producer_byte_rate=1048576, request_percentage=12.5" in caplog.text


@every_version("alter_client_quotas")
def test_qu07_one_refused_entry_does_not_affect_the_others(version: int) -> None:
    async def test(broker: MetadataBroker) -> None:
        rate = OpData(key="producer_byte_rate", value=7.0)
        entries = [
            entry("alice", rate),
            entry("alice", rate),
            entry("bob", OpData(key="producer_byte_rate", value=math.nan)),
            entry("x", rate, kind="team"),
        ]
        response = await broker.ask("alter_client_quotas", version, AlterClientQuotasRequest(entries=entries))
        codes = [each.error_code for each in response.entries]
        assert codes == [0, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST]
        assert list(broker.controller.config_requests.clients) == [ALICE]

    on_broker(test)


def test_validate_only_changes_nothing() -> None:
    async def test(broker: MetadataBroker) -> None:
        entries = [entry("alice", OpData(key="producer_byte_rate", value=7.0))]
        response = await broker.ask("alter_client_quotas", 1, AlterClientQuotasRequest(entries=entries, validate_only=True))
        assert [each.error_code for each in response.entries] == [0]
        assert not broker.controller.config_requests.clients

    on_broker(test)
