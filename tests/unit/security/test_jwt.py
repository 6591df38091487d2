"""Tokens and the keys that sign them (OA03, OA05)."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from typing import Any

import pytest

from ottla.security.jwt import (
    NO_KEYS,
    BadKeys,
    BadToken,
    TokenRules,
    UnknownKey,
    ValidToken,
    key_id_of,
    parse_keys,
    validate,
    validate_unsecured,
)
from tests.kit.tokens import Issuer, encoded, unsecured

ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
ISSUER = Issuer()
KEYS = parse_keys(ISSUER.jwks())
RULES = TokenRules()
SECONDS = int(time.time())


def now_ms() -> int:
    """The time of all tests here."""
    return SECONDS * 1000


def accepted(token: str, rules: TokenRules = RULES, keys: Any = KEYS) -> ValidToken:
    return validate(token, keys, rules, now_ms())


def refused(token: str, rules: TokenRules = RULES, keys: Any = KEYS) -> str:
    with pytest.raises(BadToken) as error:
        accepted(token, rules, keys)
    return str(error.value)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_oa03_a_signed_token_is_accepted(algorithm: str) -> None:
    issuer = Issuer(algorithm)
    valid = accepted(issuer.token(sub="bob", exp=2_000_000_000, scope="read write"), keys=parse_keys(issuer.jwks()))
    assert valid == ValidToken("bob", 2_000_000_000_000, ("read write",))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_oa03_a_changed_token_is_refused(algorithm: str) -> None:
    issuer, other = Issuer(algorithm), Issuer(algorithm, key=None if algorithm[0] == "E" else Issuer("RS256").key)
    keys = parse_keys(issuer.jwks())
    header, payload, signature = issuer.token().split(".")
    assert refused(f"{header}.{encoded({'sub': 'admin', 'iat': 1, 'exp': 2_000_000_000})}.{signature}", keys=keys)
    assert refused(f"{header}.{payload}.{signature[:-8]}", keys=keys)
    assert refused(f"{header}.{payload}.", keys=keys)
    if algorithm[0] == "E":
        assert refused(other.token(), keys=keys) == "the signature is wrong"


def test_oa03_none_and_symmetric_algorithms_are_refused() -> None:
    for name in ("none", "None", "NONE", "HS256", "HS512", "", None, 7, "A256KW", "dir"):
        assert "is not allowed" in refused(ISSUER.token({"alg": name}))
    assert "is not allowed" in refused(unsecured())
    # The public key as the secret of an HMAC.
    signed = f"{encoded({'alg': 'HS256', 'kid': 'key-1'})}.{encoded({'sub': 'ada', 'iat': 1, 'exp': 2_000_000_000})}"
    secret = ISSUER.jwks()
    assert refused(f"{signed}.{encoded(hmac.digest(secret, signed.encode(), hashlib.sha256))}")


def test_oa03_the_key_must_be_for_the_algorithm() -> None:
    curve = Issuer("ES256", key_id="key-2")
    keys = parse_keys(ISSUER.jwks(curve))
    assert "is not for ES256" in refused(curve.token({"kid": "key-1"}), keys=keys)
    assert "is not for RS256" in refused(ISSUER.token({"kid": "key-2"}), keys=keys)
    only_512 = parse_keys(json.dumps({"keys": [ISSUER.jwk(alg="RS512")]}).encode())
    assert "is not for RS256" in refused(ISSUER.token(), keys=only_512)


def test_oa03_a_token_without_a_key_id_needs_a_single_key() -> None:
    assert accepted(ISSUER.token({"kid": None})).principal_name == "ada"
    two = parse_keys(ISSUER.jwks(Issuer(key_id="key-2")))
    assert "2 keys come into question" in refused(ISSUER.token({"kid": None}), keys=two)
    assert "0 keys come into question" in refused(ISSUER.token({"kid": None}), keys=NO_KEYS)
    assert "not a string" in refused(ISSUER.token({"kid": 7}))


def test_oa04_an_unknown_key_is_named() -> None:
    with pytest.raises(UnknownKey) as error:
        accepted(Issuer(key_id="new").token())
    assert error.value.key_id == "new"
    assert key_id_of(Issuer(key_id="new").token()) == "new"
    assert key_id_of("x") is None
    assert len(str(UnknownKey("x" * 10_000))) < 100


def test_oa05_without_keys_every_token_is_refused() -> None:
    assert refused(ISSUER.token(), keys=NO_KEYS)


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"exp": None}, "has no exp"),
        ({"iat": None}, "has no iat"),
        ({"exp": SECONDS - 31}, "has expired"),
        ({"exp": "2000000000"}, "exp is not a time"),
        ({"exp": True}, "exp is not a time"),
        ({"exp": -1}, "exp is not a time"),
        ({"exp": 1e300}, "exp is not a time"),
        ({"nbf": SECONDS + 600}, "is not valid yet"),
        ({"iat": SECONDS + 7200}, "expires before it begins"),
        ({"sub": None}, "has no sub"),
        ({"sub": ""}, "has no sub"),
        ({"sub": "  "}, "has no sub"),
        ({"sub": 7}, "has no sub"),
        ({"sub": ["ada"]}, "has no sub"),
    ],
)
def test_oa03_claims_that_are_refused(claims: dict[str, Any], reason: str) -> None:
    assert reason in refused(ISSUER.token(**claims))


def test_oa03_claims_that_are_accepted() -> None:
    assert accepted(ISSUER.token(exp=SECONDS - 20, iat=SECONDS - 100)), "within the skew"
    assert accepted(ISSUER.token(nbf=SECONDS + 20))
    assert accepted(ISSUER.token(exp=SECONDS + 10.5, iat=1)).expires_at_ms == SECONDS * 1000 + 10_500
    assert accepted(ISSUER.token(scope=["read", "", " write "])).scope == ("read", "write")
    assert accepted(ISSUER.token(scope=7)).scope == ()
    assert accepted(ISSUER.token(client_id="bob"), TokenRules("client_id")).principal_name == "bob"


def test_oa03_audience_and_issuer() -> None:
    rules = TokenRules(audiences=("kafka", "other"), issuer="https://issuer")
    for audience in ("kafka", ["x", "other"]):
        assert accepted(ISSUER.token(aud=audience, iss="https://issuer"), rules)
    for wrong in ("x", [], ["x"], None, 7, {"kafka": 1}):
        assert "expected.audience" in refused(ISSUER.token(aud=wrong, iss="https://issuer"), rules)
    for wrong_issuer in ("https://other", None, ["https://issuer"]):
        assert "expected.issuer" in refused(ISSUER.token(aud="kafka", iss=wrong_issuer), rules)


@pytest.mark.parametrize(
    "token",
    [
        "",
        ".",
        "..",
        "a.b.c",
        "a.b.c.d.e",
        "é.e.e",
        encoded(b"[]") + "..",
        encoded(b'"x"') + "..",
        encoded(b"\xff") + "..",
        encoded(b"{" * 100_000) + "..",
        encoded(b'{"a":' * 100_000) + "..",
        encoded(b'{"alg":"RS256","alg":"none"}') + "..",
        encoded(b'{"alg":NaN}') + "..",
        encoded(b'{"alg":' + b"9" * 10_000 + b"}") + "..",
        encoded({"alg": "RS256", "crit": ["b64"], "b64": False}) + "..",
        " " + ISSUER.token(),
    ],
)
def test_oa03_a_malformed_token_is_refused(token: str) -> None:
    refused(token)


def test_oa04_only_usable_keys_of_a_document_count() -> None:
    small = {"kty": "RSA", "kid": "small", "n": encoded(b"\xff" * 64), "e": "AQAB"}
    others: list[Any] = [
        small,
        {"kty": "oct", "kid": "oct", "k": "AAAA"},
        {"kty": "EC", "crv": "P-256", "kid": "off", "x": "AAAA", "y": "AAAA"},
        {"kty": "EC", "crv": "secp256k1", "kid": "curve", "x": "AAAA", "y": "AAAA"},
        {"kty": "RSA", "kid": "cut"},
        ISSUER.jwk(kid="enc", use="enc"),
        ISSUER.jwk(kid=7),
        "x",
        None,
    ]
    keys = parse_keys(json.dumps({"keys": [*others, ISSUER.jwk()]}).encode())
    assert list(keys.keys) == ["key-1"]
    for wrong in (b"", b"[]", b"{}", b'{"keys":{}}', b'{"keys":[' + b"1," * 2000 + b"1]}"):
        with pytest.raises(BadKeys):
            parse_keys(wrong)


def test_oa05_unsecured_tokens_have_rules_of_their_own() -> None:
    assert validate_unsecured(unsecured(scope="a"), RULES, (), now_ms()).principal_name == "ada"
    for token, scope in (
        (ISSUER.token(), ()),
        (unsecured() + "AAAA", ()),
        (unsecured(exp=None), ()),
        (unsecured(sub=None), ()),
        (unsecured(scope="a"), ("b",)),
    ):
        with pytest.raises(BadToken):
            validate_unsecured(token, RULES, scope, now_ms())
