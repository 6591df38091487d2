from __future__ import annotations

from ottla.errors import ErrorCode
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from tests.kit.admin import MetadataBroker, on_broker

SHA_256, SHA_512 = 1, 2


def upsertion(name: str, mechanism: int = SHA_256, iterations: int = 4096) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=b"p" * (32 * mechanism)
    )


async def alter(broker: MetadataBroker, *changes: ScramCredentialUpsertion | ScramCredentialDeletion) -> dict[str, int]:
    request = AlterUserScramCredentialsRequest(
        deletions=[each for each in changes if isinstance(each, ScramCredentialDeletion)],
        upsertions=[each for each in changes if isinstance(each, ScramCredentialUpsertion)],
    )
    response = await broker.ask("alter_user_scram_credentials", 0, request)
    return {result.user: result.error_code for result in response.results}


def test_credentials_are_set_and_deleted() -> None:
    async def test(broker: MetadataBroker) -> None:
        assert await alter(broker, upsertion("alice"), upsertion("alice", SHA_512)) == {"alice": 0}
        assert set(broker.controller.config_requests.clients[(("user", "alice"),)]) == {"SCRAM-SHA-256", "SCRAM-SHA-512"}
        assert await alter(broker, ScramCredentialDeletion(name="alice", mechanism=SHA_256)) == {"alice": 0}
        assert set(broker.controller.config_requests.clients[(("user", "alice"),)]) == {"SCRAM-SHA-512"}

    on_broker(test)


def test_one_refused_change_of_a_user_refuses_all_of_that_user_only() -> None:
    async def test(broker: MetadataBroker) -> None:
        codes = await alter(
            broker,
            upsertion("alice"),
            upsertion("alice", SHA_512, iterations=1),
            upsertion("bob"),
            upsertion("carol"),
            upsertion("carol"),
        )
        assert codes == {
            "alice": ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "bob": 0,
            "carol": ErrorCode.DUPLICATE_RESOURCE,
        }
        assert list(broker.controller.config_requests.clients) == [(("user", "bob"),)]

    on_broker(test)


def test_sc05_what_kafka_refuses() -> None:
    async def test(broker: MetadataBroker) -> None:
        async def code(*changes: ScramCredentialUpsertion | ScramCredentialDeletion) -> list[int]:
            return list((await alter(broker, *changes)).values())

        for iterations in (-1, 0, 4095, 16385, 2**31 - 1):
            assert await code(upsertion("ada", iterations=iterations)) == [ErrorCode.UNACCEPTABLE_CREDENTIAL]
        for mechanism in (0, 3, -1):
            assert await code(upsertion("ada", mechanism)) == [ErrorCode.UNSUPPORTED_SASL_MECHANISM]
            assert await code(ScramCredentialDeletion(name="ada", mechanism=mechanism)) == [ErrorCode.UNSUPPORTED_SASL_MECHANISM]
        assert await code(upsertion("")) == [ErrorCode.UNACCEPTABLE_CREDENTIAL]
        assert await code(ScramCredentialDeletion(name="", mechanism=9)) == [ErrorCode.UNACCEPTABLE_CREDENTIAL]
        deletion = ScramCredentialDeletion(name="ada", mechanism=SHA_256)
        assert await code(upsertion("ada"), deletion) == [ErrorCode.DUPLICATE_RESOURCE]
        assert await code(upsertion("ada", SHA_512), deletion) == [ErrorCode.RESOURCE_NOT_FOUND]
        assert not broker.controller.config_requests.clients
        assert await code(upsertion("ada", iterations=4096), upsertion("ada", SHA_512, iterations=16384)) == [0]

    on_broker(test)


def test_sc03_credentials_and_quotas_of_a_user_share_a_node() -> None:
    async def test(broker: MetadataBroker) -> None:
        requests, ada = broker.controller.config_requests, (("user", "ada"),)
        await requests.alter_client(ada, lambda config: dict(config) | {"producer_byte_rate": "7"})
        assert await alter(broker, upsertion("ada")) == {"ada": 0}
        await requests.alter_client(ada, lambda config: dict(config) | {"consumer_byte_rate": "8"})
        assert set(requests.clients[ada]) == {"producer_byte_rate", "consumer_byte_rate", "SCRAM-SHA-256"}
        assert await alter(broker, ScramCredentialDeletion(name="ada", mechanism=SHA_256)) == {"ada": 0}
        assert requests.clients[ada] == {"producer_byte_rate": "7", "consumer_byte_rate": "8"}

    on_broker(test)


def test_what_does_not_exist_cannot_be_deleted() -> None:
    async def test(broker: MetadataBroker) -> None:
        deletion = ScramCredentialDeletion(name="nobody", mechanism=SHA_256)
        assert await alter(broker, deletion) == {"nobody": ErrorCode.RESOURCE_NOT_FOUND}

    on_broker(test)
