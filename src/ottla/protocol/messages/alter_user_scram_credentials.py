"""AlterUserScramCredentials: set or remove SCRAM credentials of users (KIP-554).

The password does not travel: the client sends it salted. Flexible from the start.
"""

from __future__ import annotations

from ottla.types import Buffer
from ottla.wire.schema import list_of, message, wire


@message()
class ScramCredentialDeletion:
    name: str = wire("string")
    mechanism: int = wire("int8")


@message()
class ScramCredentialUpsertion:
    name: str = wire("string")
    mechanism: int = wire("int8")
    iterations: int = wire("int32")
    salt: Buffer = wire("bytes")
    salted_password: Buffer = wire("bytes")


@message(versions="0", flexible="0+")
class AlterUserScramCredentialsRequest:
    deletions: list[ScramCredentialDeletion] = wire(list_of(ScramCredentialDeletion))
    upsertions: list[ScramCredentialUpsertion] = wire(list_of(ScramCredentialUpsertion))


@message()
class AlterUserScramCredentialsResult:
    user: str = wire("string")
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable="0+", default=None)


@message(versions="0", flexible="0+")
class AlterUserScramCredentialsResponse:
    throttle_time_ms: int = wire("int32")
    results: list[AlterUserScramCredentialsResult] = wire(list_of(AlterUserScramCredentialsResult))
