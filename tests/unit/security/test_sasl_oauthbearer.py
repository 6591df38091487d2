"""OAUTHBEARER, server side (OA01, OA02)."""

from __future__ import annotations

import pytest

from ottla.security.jwt import BadToken, ValidToken
from ottla.security.principal import Principal
from ottla.security.sasl import Challenge, SaslFailure, Success
from ottla.security.sasl_oauthbearer import OAuthBearerServer, parse_client_message


def validate(token: str, now_ms: int) -> ValidToken:
    if token != "planted-good":
        raise BadToken("the signature is wrong")
    return ValidToken("ada", 5000)


def message(token: str = "planted-good", header: str = "n,,", more: str = "") -> bytes:
    return f"{header}\x01auth=Bearer {token}\x01{more}\x01".encode()


@pytest.mark.parametrize(
    "said",
    [
        message(),
        message(header="n,a=ada,"),
        message(more="traceId=123\x01other=a b\x01"),
        b"n,,\x01traceId=1\x01auth=bEARER  planted-good\x01\x01",
    ],
)
def test_oa01_a_token_logs_its_principal_in_until_it_expires(said: bytes) -> None:
    assert OAuthBearerServer(validate).step(said, 0) == Success(Principal("User", "ada"), b"", 5000)


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer planted-good\x01",
        b"n,,\x01auth=Basic planted-good\x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"y,,\x01auth=Bearer planted-good\x01\x01",
        b"p=x,,\x01auth=Bearer planted-good\x01\x01",
        message(more="trace1=x\x01"),
        message(more="trace=\x01"),
        message(more="auth=Bearer planted-good\x01"),
        message(more="a=x\x01a=y\x01"),
        message("planted-g\xf6\xf6d"),
        message(header="n,a=bob,"),
        message("x") + b"\0",
    ],
)
def test_oa01_anything_else_fails(said: bytes) -> None:
    with pytest.raises(SaslFailure) as failure:
        OAuthBearerServer(validate).step(said, 0)
    assert "planted" not in f"{failure.value} {failure.value.told}"


@pytest.mark.parametrize("acknowledgement", [b"\x01", b"", message()])
def test_oa02_a_bad_token_is_answered_and_fails_with_the_next_message(acknowledgement: bytes) -> None:
    server = OAuthBearerServer(validate)
    assert server.step(message("planted-bad"), 0) == Challenge(b'{"status":"invalid_token"}')
    with pytest.raises(SaslFailure) as failure:
        server.step(acknowledgement, 0)
    assert failure.value.reason == "OAUTHBEARER: the signature is wrong"
    assert (failure.value.told == '{"status":"invalid_token"}') == (acknowledgement == b"\x01")


def test_oa01_a_message_is_not_printed_with_its_token() -> None:
    parsed = parse_client_message(message(more="traceId=planted\x01"))
    assert parsed.extensions == {"traceId": "planted"}
    assert "planted" not in repr(parsed)
