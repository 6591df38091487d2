from __future__ import annotations

from ottla.errors import ErrorCode
from ottla.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest, ScramCredentialUpsertion
from ottla.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from tests.kit.admin import MetadataBroker, on_broker


def test_sc04_mechanisms_and_iterations_of_users() -> None:
    async def test(broker: MetadataBroker) -> None:
        upsertions = [
            ScramCredentialUpsertion(name=name, mechanism=1, iterations=5000, salt=b"salt", salted_password=b"p" * 32)
            for name in ("bob", "alice")
        ]
        await broker.ask("alter_user_scram_credentials", 0, AlterUserScramCredentialsRequest(upsertions=upsertions))
        everybody = await broker.ask("describe_user_scram_credentials", 0, DescribeUserScramCredentialsRequest(users=None))
        assert [result.user for result in everybody.results] == ["alice", "bob"]
        everybody = await broker.ask("describe_user_scram_credentials", 0, DescribeUserScramCredentialsRequest(users=[]))
        assert [result.user for result in everybody.results] == ["alice", "bob"]
        names = [UserName(name=name) for name in ("alice", "nobody", "bob", "bob", "", "")]
        response = await broker.ask("describe_user_scram_credentials", 0, DescribeUserScramCredentialsRequest(users=names))
        found = {
            result.user: (result.error_code, [(info.mechanism, info.iterations) for info in result.credential_infos])
            for result in response.results
        }
        assert found == {
            "alice": (0, [(1, 5000)]),
            "nobody": (ErrorCode.RESOURCE_NOT_FOUND, []),
            "bob": (ErrorCode.DUPLICATE_RESOURCE, []),
            "": (ErrorCode.RESOURCE_NOT_FOUND, []),
        }

    on_broker(test)
