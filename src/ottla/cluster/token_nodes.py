"""Delegation tokens in the metadata tree, as Kafka writes them: the nodes of tokens, and the notifications of changes."""

from __future__ import annotations

import json
from typing import Any, Final
from urllib.parse import unquote

from ottla.cluster.znodes import node_name
from ottla.ports import StoreError
from ottla.security.delegation_token import DelegationToken
from ottla.security.principal import Principal

ROOT: Final = "/delegation_token"
TOKENS: Final = "/delegation_token/tokens"
CHANGES: Final = "/delegation_token/token_changes"
CHANGE_PREFIX: Final = "token_change_"
PATHS: Final = (ROOT, TOKENS, CHANGES)
_VERSION: Final = 3


def token_path(token_id: str) -> str:
    return f"{TOKENS}/{token_id}"


def encode_token(token: DelegationToken) -> bytes:
    fields = {
        "version": _VERSION,
        "owner": node_name(str(token.owner)),
        "tokenRequester": node_name(str(token.requester)),
        "renewers": [node_name(str(renewer)) for renewer in token.renewers],
        "issueTimestamp": token.issued_at_ms,
        "maxTimestamp": token.max_at_ms,
        "expiryTimestamp": token.expires_at_ms,
        "tokenId": token.id,
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_token(path: str, data: bytes) -> DelegationToken:
    """StoreError if it is none. Versions 1 and 2 have no requester: it is the owner."""
    try:
        fields: dict[str, Any] = json.loads(data)
        owner = _principal(fields["owner"])
        times = [fields[name] for name in ("issueTimestamp", "maxTimestamp", "expiryTimestamp")]
        if not all(isinstance(time, int) for time in times):
            raise ValueError("a time is not a whole number")
        return DelegationToken(
            str(fields["tokenId"]),
            owner,
            _principal(fields["tokenRequester"]) if "tokenRequester" in fields else owner,
            tuple(_principal(renewer) for renewer in fields["renewers"]),
            *times,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreError(f"{path} is not a delegation token: {type(error).__name__}") from error


def _principal(text: str) -> Principal:
    kind, colon, name = unquote(text).partition(":")
    if not colon or not kind or not name:
        raise ValueError("not a principal")
    return Principal(kind, name)
