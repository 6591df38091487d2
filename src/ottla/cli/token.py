"""`ottla token`: delegation tokens (KIP-48), with which others act as their owner for a time."""

from __future__ import annotations

import base64
import binascii
import sys
from datetime import datetime
from typing import Annotated, Any

import typer

from ottla.cli.connection import Connection
from ottla.cli.failure import EXIT_USAGE, Failure
from ottla.cli.options import DEFAULT_BOOTSTRAP_SERVERS, Bootstrap, CommandConfig, Commands, Json
from ottla.cli.output import note, print_document, print_table
from ottla.filters.times import duration_ms

app = Commands(help="Delegation tokens: create, renew, expire, list.", no_args_is_help=True)

_HINTS = {
    "DELEGATION_TOKEN_AUTH_DISABLED": "the brokers need delegation.token.secret.key",
    "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED": "log in with SASL, or with a certificate, and not with a token",
    "DELEGATION_TOKEN_NOT_FOUND": "no token has this HMAC, or it has expired: see `ottla token list`",
    "DELEGATION_TOKEN_OWNER_MISMATCH": "only its owner and its renewers may change a token",
}
Hmac = Annotated[str, typer.Argument(metavar="HMAC", help="As `create` printed it; - reads it from stdin.", show_default=False)]


@app.add("create", changes=True)
def create(
    renewer: Annotated[
        list[str] | None, typer.Option("--renewer", metavar="USER", help="Who may renew it besides its owner (repeatable).")
    ] = None,
    lifetime: Annotated[
        str | None,
        typer.Option("--max-lifetime", metavar="DURATION", help="Longest life of the token: 12h, 7d. Default: the brokers'."),
    ] = None,
    owner: Annotated[str | None, typer.Option("--owner", metavar="USER", help="Another owner, with the right to it.")] = None,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """Create a token. Its id and HMAC are a user name and a password for SCRAM, with tokenauth=true."""
    from ottla.protocol.messages.create_delegation_token import (
        CreatableRenewers,
        CreateDelegationTokenRequest,
        CreateDelegationTokenResponse,
    )

    kind, name = _principal(owner) if owner else (None, None)
    request = CreateDelegationTokenRequest(
        owner_principal_type=kind,
        owner_principal_name=name,
        renewers=[CreatableRenewers(principal_type=kind, principal_name=name) for kind, name in map(_principal, renewer or [])],
        max_lifetime_ms=_milliseconds(lifetime, "--max-lifetime"),
    )
    answer = _ask(bootstrap_servers, command_config, "create_delegation_token", 3, request, CreateDelegationTokenResponse)
    document = {
        "token_id": answer.token_id,
        "hmac": base64.b64encode(bytes(answer.hmac)).decode(),
        "owner": f"{answer.principal_type}:{answer.principal_name}",
        "expires": _time(answer.expiry_timestamp_ms),
        "max_expires": _time(answer.max_timestamp_ms),
    }
    if json_output:
        print_document(document)
    else:
        print_table(["TOKEN-ID", "HMAC", "OWNER", "EXPIRES", "MAX-EXPIRES"], [document.values()])


@app.add("renew", changes=True)
def renew(
    hmac: Hmac,
    period: Annotated[
        str | None, typer.Option("--for", metavar="DURATION", help="How long from now: 6h. Default: the brokers' setting.")
    ] = None,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
) -> None:
    """Let a token live longer, up to its maximum."""
    from ottla.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse

    request = RenewDelegationTokenRequest(hmac=_hmac(hmac), renew_period_ms=_milliseconds(period, "--for"))
    answer = _ask(bootstrap_servers, command_config, "renew_delegation_token", 2, request, RenewDelegationTokenResponse)
    note(f"the token expires {_time(answer.expiry_timestamp_ms)}")


@app.add("expire", changes=True)
def expire(
    hmac: Hmac,
    period: Annotated[str | None, typer.Option("--in", metavar="DURATION", help="When: 10m. Default: now.")] = None,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
) -> None:
    """End a token, now or after some time."""
    from ottla.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse

    request = ExpireDelegationTokenRequest(hmac=_hmac(hmac), expiry_time_period_ms=_milliseconds(period, "--in"))
    answer = _ask(bootstrap_servers, command_config, "expire_delegation_token", 2, request, ExpireDelegationTokenResponse)
    note(f"the token expires {_time(answer.expiry_timestamp_ms)}" if period else "the token is removed")


@app.add("list")
def list_(
    owner: Annotated[
        list[str] | None, typer.Option("--owner", metavar="USER", help="Only tokens of this owner (repeatable).")
    ] = None,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """List the tokens that you may see. Their HMACs are not shown."""
    from ottla.protocol.messages.describe_delegation_token import (
        DescribeDelegationTokenOwner,
        DescribeDelegationTokenRequest,
        DescribeDelegationTokenResponse,
    )

    owners = [
        DescribeDelegationTokenOwner(principal_type=kind, principal_name=name) for kind, name in map(_principal, owner or [])
    ]
    request = DescribeDelegationTokenRequest(owners=owners or None)
    answer = _ask(bootstrap_servers, command_config, "describe_delegation_token", 3, request, DescribeDelegationTokenResponse)
    documents = [
        {
            "token_id": token.token_id,
            "owner": f"{token.principal_type}:{token.principal_name}",
            "renewers": [f"{renewer.principal_type}:{renewer.principal_name}" for renewer in token.renewers],
            "issued": _time(token.issue_timestamp),
            "expires": _time(token.expiry_timestamp),
            "max_expires": _time(token.max_timestamp),
        }
        for token in answer.tokens
    ]
    if json_output:
        print_document(documents)
    elif documents:
        rows = [{**document, "renewers": " ".join(document["renewers"]) or None}.values() for document in documents]
        print_table(["TOKEN-ID", "OWNER", "RENEWERS", "ISSUED", "EXPIRES", "MAX-EXPIRES"], rows, none="-")
    else:
        note("no tokens that you may see")


def _ask(bootstrap_servers: str, command_config: Any, api_name: str, version: int, request: object, response: type[Any]) -> Any:
    from ottla.cli.plain_request import call
    from ottla.errors import error_name

    answer = call(Connection(bootstrap_servers, command_config), api_name, version, request, response)
    if answer.error_code:
        name = error_name(answer.error_code)
        raise Failure(f"the broker refuses: {name}", _HINTS.get(name), code=name)
    return answer


def _principal(text: str) -> tuple[str, str]:
    kind, colon, name = text.partition(":")
    return (kind, name) if colon else ("User", text)


def _hmac(text: str) -> bytes:
    try:
        return base64.b64decode(sys.stdin.readline().strip() if text == "-" else text, validate=True)
    except binascii.Error:
        raise Failure("the HMAC is not base64", "it is what `ottla token create` printed", exit_code=EXIT_USAGE) from None


def _milliseconds(text: str | None, option: str) -> int:
    """-1 if it is left to the broker."""
    if text is None:
        return -1
    found = duration_ms(text)
    if found is None:
        raise Failure(f"{option} {text!r} is not a duration", "write 90s, 12h or 7d", exit_code=EXIT_USAGE)
    return found


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000).astimezone().isoformat(timespec="seconds")
