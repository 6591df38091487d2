"""Reads and validates JSON Web Tokens (RFC 7515, 7519) against a set of keys (JWKS, RFC 7517), as Kafka does (KIP-768).

1. The signature is checked first, with a key of the issuer and an asymmetric algorithm. `none` and HMAC are never accepted.
2. A claim counts only with the type that it must have; `exp`, `iat` and the principal's claim are required.
3. Nothing of a token appears in an error, except its key id.

Needs the package `cryptography` (`ottla[security]`). Unsecured tokens, for tests, are `validate_unsecured`.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    PublicKey = RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey

KEY_ID_MAX: Final = 1000
"""Characters of a key id. Longer ones are not looked for at the issuer."""
_RSA_BITS_MIN: Final = 2048
_RSA_BITS_MAX: Final = 16_384
_KEYS_MAX: Final = 1000
_CURVES: Final = {"P-256": 32, "P-384": 48, "P-521": 66}
_EC_ALGORITHMS: Final = {"ES256": ("P-256", "SHA256"), "ES384": ("P-384", "SHA384"), "ES512": ("P-521", "SHA512")}
_RSA_ALGORITHMS: Final = {"RS256": "SHA256", "RS384": "SHA384", "RS512": "SHA512"}
_PSS_ALGORITHMS: Final = {"PS256": "SHA256", "PS384": "SHA384", "PS512": "SHA512"}
_ED_ALGORITHM: Final = "EdDSA"
_BASE64URL: Final = re.compile(rb"[A-Za-z0-9_-]*")
_SECONDS_MAX: Final = 1 << 40


class BadToken(Exception):
    """The token is not accepted. The text is for the log of the broker."""


class UnknownKey(BadToken):
    """The issuer may have new keys: the token names one that is not known."""

    def __init__(self, key_id: str) -> None:
        super().__init__(f"no key {key_id[:40]!r}")
        self.key_id = key_id


class BadKeys(ValueError):
    """A JWKS document that cannot be read."""


@dataclass(frozen=True, slots=True)
class TokenRules:
    """What is expected of tokens."""

    principal_claim: str = "sub"
    scope_claim: str = "scope"
    audiences: tuple[str, ...] = ()
    """Any of them; empty: not checked."""
    issuer: str | None = None
    clock_skew_ms: int = 30_000


@dataclass(frozen=True, slots=True)
class ValidToken:
    principal_name: str
    expires_at_ms: int
    scope: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Key:
    key: PublicKey
    kind: str
    """RSA, the name of an elliptic curve, or Ed25519."""
    algorithm: str | None


@dataclass(frozen=True, slots=True)
class KeySet:
    """The public keys of an issuer, by key id; those without one under None."""

    keys: Mapping[str | None, tuple[Key, ...]]

    def matching(self, key_id: str | None, algorithm: str) -> Key:
        kind = _kind_of(algorithm)
        if key_id is None:
            # Without a key id only one key may come into question.
            found = [
                key for keys in self.keys.values() for key in keys if key.kind == kind and key.algorithm in (None, algorithm)
            ]
            if len(found) != 1:
                raise BadToken(f"the token names no key, and {len(found)} keys come into question")
            return found[0]
        if key_id not in self.keys:
            raise UnknownKey(key_id)
        for key in self.keys[key_id]:
            if key.kind == kind and key.algorithm in (None, algorithm):
                return key
        raise BadToken(f"key {key_id[:40]!r} is not for {algorithm}")


NO_KEYS: Final = KeySet({})


# JWKS


def parse_keys(document: bytes) -> KeySet:
    """The keys of a JWKS document that can verify signatures; others are left out, as the RFC says."""
    try:
        parsed = _json(document)
    except BadToken as error:
        raise BadKeys(f"not a JSON object: {error}") from None
    entries = parsed.get("keys")
    if not isinstance(entries, list) or len(entries) > _KEYS_MAX:
        raise BadKeys(f"it has no list of keys, or more than {_KEYS_MAX}")
    found: dict[str | None, list[Key]] = {}
    for entry in entries:
        if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
            continue
        key_id, algorithm = entry.get("kid"), entry.get("alg")
        if not isinstance(key_id, str | None) or not isinstance(algorithm, str | None):
            continue
        try:
            key, kind = _public_key(entry)
        except (BadToken, ValueError):
            continue
        found.setdefault(key_id, []).append(Key(key, kind, algorithm))
    return KeySet({key_id: tuple(keys) for key_id, keys in found.items()})


def _public_key(entry: Mapping[str, Any]) -> tuple[PublicKey, str]:
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    match entry.get("kty"):
        case "RSA":
            modulus, exponent = _number(entry, "n"), _number(entry, "e")
            if not _RSA_BITS_MIN <= modulus.bit_length() <= _RSA_BITS_MAX or exponent.bit_length() > 64:
                raise BadToken("an RSA key of unusual size")
            return rsa.RSAPublicNumbers(exponent, modulus).public_key(), "RSA"
        case "EC":
            curve = entry.get("crv")
            curves: dict[object, ec.EllipticCurve] = {"P-256": ec.SECP256R1(), "P-384": ec.SECP384R1(), "P-521": ec.SECP521R1()}
            if curve not in curves:
                raise BadToken("an unknown curve")
            numbers = ec.EllipticCurvePublicNumbers(_number(entry, "x"), _number(entry, "y"), curves[curve])
            return numbers.public_key(), str(curve)
        case "OKP" if entry.get("crv") == "Ed25519":
            return ed25519.Ed25519PublicKey.from_public_bytes(_bytes(entry, "x")), "Ed25519"
        case _:
            raise BadToken("an unknown type of key")


def _bytes(entry: Mapping[str, Any], name: str) -> bytes:
    value = entry.get(name)
    if not isinstance(value, str):
        raise BadToken(f"{name} is missing")
    return _unbase64(value.encode())


def _number(entry: Mapping[str, Any], name: str) -> int:
    return int.from_bytes(_bytes(entry, name), "big")


# Tokens


def validate(token: str, keys: KeySet, rules: TokenRules, now_ms: int) -> ValidToken:
    """BadToken unless the token is signed by one of the keys and its claims are as expected."""
    signed, header, payload, signature = _parts(token)
    if "crit" in header:
        raise BadToken("the token requires extensions that are not known")
    algorithm = header.get("alg")
    if not isinstance(algorithm, str) or _kind_of(algorithm) is None:
        raise BadToken(f"the algorithm {str(algorithm)[:20]!r} is not allowed")
    key_id = header.get("kid")
    if not isinstance(key_id, str | None):
        raise BadToken("the key id is not a string")
    _verify(keys.matching(key_id, algorithm), algorithm, signed, signature)
    claims = _json(payload)
    valid = _validate_claims(claims, rules, now_ms, issued_at_required=True)
    if rules.audiences:
        audience = claims.get("aud")
        found = [audience] if isinstance(audience, str) else audience if isinstance(audience, list) else []
        if not any(each in rules.audiences for each in found if isinstance(each, str)):
            raise BadToken("the audience is not one of those expected (sasl.oauthbearer.expected.audience)")
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise BadToken("the issuer is not the one expected (sasl.oauthbearer.expected.issuer)")
    return valid


def validate_unsecured(token: str, rules: TokenRules, required_scope: tuple[str, ...], now_ms: int) -> ValidToken:
    """For a token without a signature. Anybody can make one: for tests only."""
    _, header, payload, signature = _parts(token)
    if header.get("alg") != "none" or signature:
        raise BadToken("the token is not an unsecured one")
    valid = _validate_claims(_json(payload), rules, now_ms, issued_at_required=False)
    if not set(required_scope) <= set(valid.scope):
        raise BadToken("the token lacks a required scope")
    return valid


def key_id_of(token: str) -> str | None:
    """The key id that a token names, unverified."""
    try:
        key_id = _parts(token)[1].get("kid")
    except BadToken:
        return None
    return key_id if isinstance(key_id, str) else None


def _validate_claims(claims: Mapping[str, Any], rules: TokenRules, now_ms: int, *, issued_at_required: bool) -> ValidToken:
    expires_at_ms = _time_ms(claims, "exp")
    if expires_at_ms is None:
        raise BadToken("the token has no exp")
    issued_at_ms = _time_ms(claims, "iat")
    if issued_at_ms is None and issued_at_required:
        raise BadToken("the token has no iat")
    not_before_ms = _time_ms(claims, "nbf")
    if now_ms - rules.clock_skew_ms >= expires_at_ms:
        raise BadToken("the token has expired")
    for starts_at_ms in (issued_at_ms, not_before_ms):
        if starts_at_ms is not None and expires_at_ms < starts_at_ms:
            raise BadToken("the token expires before it begins")
    if not_before_ms is not None and now_ms + rules.clock_skew_ms < not_before_ms:
        raise BadToken("the token is not valid yet")
    name = claims.get(rules.principal_claim)
    if not isinstance(name, str) or not name.strip():
        raise BadToken(f"the token has no {rules.principal_claim} (sasl.oauthbearer.sub.claim.name)")
    return ValidToken(name, expires_at_ms, _scope(claims.get(rules.scope_claim)))


def _scope(value: object) -> tuple[str, ...]:
    """A string is one scope, as in Kafka: it is not split."""
    found = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return tuple(each.strip() for each in found if isinstance(each, str) and each.strip())


def _time_ms(claims: Mapping[str, Any], name: str) -> int | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _SECONDS_MAX:
        raise BadToken(f"{name} is not a time")
    return int(value * 1000)


def _parts(token: str) -> tuple[bytes, dict[str, Any], bytes, bytes]:
    """(what is signed, header, payload, signature)"""
    try:
        raw = token.encode("ascii")
    except UnicodeEncodeError:
        raise BadToken("the token is not base64url") from None
    parts = raw.split(b".")
    if len(parts) != 3:
        raise BadToken(f"the token has {len(parts)} parts instead of 3")
    header, payload, signature = (_unbase64(part) for part in parts)
    return raw.rpartition(b".")[0], _json(header), payload, signature


def _unbase64(text: bytes) -> bytes:
    text = text.rstrip(b"=")
    if not _BASE64URL.fullmatch(text) or len(text) % 4 == 1:
        raise BadToken("the token is not base64url")
    return base64.urlsafe_b64decode(text + b"=" * (-len(text) % 4))


def _json(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data, object_pairs_hook=_object, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise BadToken("not valid JSON") from None
    if not isinstance(value, dict):
        raise BadToken("not a JSON object")
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name appears twice")
    return found


def _no_constant(name: str) -> object:
    raise ValueError(name)


# Signatures


def _kind_of(algorithm: str) -> str | None:
    if algorithm in _RSA_ALGORITHMS or algorithm in _PSS_ALGORITHMS:
        return "RSA"
    if algorithm in _EC_ALGORITHMS:
        return _EC_ALGORITHMS[algorithm][0]
    return "Ed25519" if algorithm == _ED_ALGORITHM else None


def _verify(key: Key, algorithm: str, signed: bytes, signature: bytes) -> None:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa, utils

    public = key.key
    try:
        if isinstance(public, rsa.RSAPublicKey):
            digest = getattr(hashes, (_RSA_ALGORITHMS | _PSS_ALGORITHMS)[algorithm])()
            pss = algorithm in _PSS_ALGORITHMS
            scheme = padding.PSS(padding.MGF1(digest), digest.digest_size) if pss else padding.PKCS1v15()
            public.verify(signature, signed, scheme, digest)
        elif isinstance(public, ec.EllipticCurvePublicKey):
            curve, name = _EC_ALGORITHMS[algorithm]
            size = _CURVES[curve]
            if len(signature) != 2 * size:
                raise BadToken("the signature is wrong")
            pair = int.from_bytes(signature[:size], "big"), int.from_bytes(signature[size:], "big")
            public.verify(utils.encode_dss_signature(*pair), signed, ec.ECDSA(getattr(hashes, name)()))
        else:
            assert isinstance(public, ed25519.Ed25519PublicKey)
            public.verify(signature, signed)
    except InvalidSignature:
        raise BadToken("the signature is wrong") from None
