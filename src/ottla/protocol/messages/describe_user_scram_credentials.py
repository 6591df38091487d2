"""DescribeUserScramCredentials: which SCRAM mechanisms users have a credential for, and its iterations (KIP-554).

Users absent (None) or none at all means all. Never tells salt or key. Flexible from the start.
"""

from __future__ import annotations

from ottla.wire.schema import list_of, message, wire


@message()
class UserName:
    name: str = wire("string")


@message(versions="0", flexible="0+")
class DescribeUserScramCredentialsRequest:
    users: list[UserName] | None = wire(list_of(UserName), nullable="0+")


@message()
class CredentialInfo:
    mechanism: int = wire("int8")
    iterations: int = wire("int32")


@message()
class DescribeUserScramCredentialsResult:
    user: str = wire("string")
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable="0+", default=None)
    credential_infos: list[CredentialInfo] = wire(list_of(CredentialInfo))


@message(versions="0", flexible="0+")
class DescribeUserScramCredentialsResponse:
    throttle_time_ms: int = wire("int32")
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable="0+", default=None)
    results: list[DescribeUserScramCredentialsResult] = wire(list_of(DescribeUserScramCredentialsResult))
