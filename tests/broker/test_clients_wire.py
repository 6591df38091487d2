"""Quotas and SCRAM credentials by the usual admin calls, on one broker (KIP-546, KIP-554); they outlive a restart."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from ottla.cli.connection import Connection
from ottla.cli.plain_request import call
from ottla.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from ottla.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from ottla.testing.broker import Broker

WAIT_S = 60.0


def test_users_and_quotas_by_the_usual_calls_outlive_a_restart(tmp_path: Path) -> None:
    place = {"log.dirs": str(tmp_path / "data")}
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 5000)
    with Broker(place) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        upsertion = UserScramCredentialUpsertion("quota-user", info, b"secret")
        admin.alter_user_scram_credentials([upsertion])["quota-user"].result(WAIT_S)
        described = admin.describe_user_scram_credentials(["quota-user"])["quota-user"].result(WAIT_S)  # type: ignore[index]
        assert [(each.mechanism, each.iterations) for each in described.scram_credential_infos] == [
            (ScramMechanism.SCRAM_SHA_512, 5000)
        ]
        with pytest.raises(Exception, match=r"RESOURCE_NOT_FOUND|no credential"):
            admin.describe_user_scram_credentials(["nobody"])["nobody"].result(WAIT_S)  # type: ignore[index]
        entity = [EntityData(entity_type="user", entity_name="quota-user")]
        entries = [
            EntryData(entity=entity, ops=[OpData(key="producer_byte_rate", value=1024.0)]),
            EntryData(entity=[EntityData(entity_type="team", entity_name="a")], ops=[]),
        ]
        response = call(
            Connection(broker.bootstrap_servers),
            "alter_client_quotas",
            1,
            AlterClientQuotasRequest(entries=entries),
            AlterClientQuotasResponse,
        )
        assert [entry.error_code for entry in response.entries] == [0, 42]
    with Broker(place) as broker:
        asked = DescribeClientQuotasRequest(components=[ComponentData(entity_type="user", match_type=0, match="quota-user")])
        found = call(Connection(broker.bootstrap_servers), "describe_client_quotas", 1, asked, DescribeClientQuotasResponse)
        assert [(value.key, value.value) for entry in found.entries or () for value in entry.values] == [
            ("producer_byte_rate", 1024.0)
        ]
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        asked_for_all = admin.describe_user_scram_credentials()
        assert isinstance(asked_for_all, Future)
        assert set(asked_for_all.result(WAIT_S)) == {"quota-user"}
        deletion = UserScramCredentialDeletion("quota-user", ScramMechanism.SCRAM_SHA_512)
        admin.alter_user_scram_credentials([deletion])["quota-user"].result(WAIT_S)
        asked_again = admin.describe_user_scram_credentials()
        assert isinstance(asked_again, Future)
        assert asked_again.result(WAIT_S) == {}
