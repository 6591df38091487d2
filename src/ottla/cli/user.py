"""`ottla user`: the users of SCRAM logins. The password does not travel: the broker gets it salted (KIP-554)."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.connection import Connection
from ottla.cli.failure import EXIT_USAGE, Failure
from ottla.cli.options import DEFAULT_BOOTSTRAP_SERVERS, Bootstrap, CommandConfig, Commands, Json, Yes, confirm
from ottla.cli.output import note, print_document, print_table
from ottla.cli.passwords import PasswordFile, read_password

if TYPE_CHECKING:
    from ottla.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest

MECHANISMS = {"SCRAM-SHA-256": (1, "sha256"), "SCRAM-SHA-512": (2, "sha512")}
"""By name: the number in requests, and the hash."""
ITERATIONS = 8192
_SALT_BYTES = 32
MECHANISM_NAMES = {number: name for name, (number, _) in MECHANISMS.items()}

app = Commands(help="Users who log in with SCRAM: list, add, password, remove.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="USER", show_default=False)]
Mechanisms = Annotated[
    list[str] | None,
    typer.Option("--mechanism", "-m", metavar="MECHANISM", help="SCRAM-SHA-256 or SCRAM-SHA-512 (repeatable). Default: both."),
]
Iterations = Annotated[int, typer.Option("--iterations", min=4096, max=16384, help="How often the password is hashed.")]


@app.add("list")
def list_(
    names: Annotated[list[str] | None, typer.Argument(metavar="[USER]…", show_default=False)] = None,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """List users and the mechanisms they can log in with. Passwords are never shown: brokers do not know them."""
    found = described(Connection(bootstrap_servers, command_config), names or [])
    rows = [
        (user, MECHANISM_NAMES.get(mechanism, mechanism), iterations)
        for user, infos in found.items()
        for mechanism, iterations in infos
    ]
    if json_output:
        print_document([{"user": user, "mechanism": mechanism, "iterations": iterations} for user, mechanism, iterations in rows])
    elif rows:
        print_table(["USER", "MECHANISM", "ITERATIONS"], rows, right=["ITERATIONS"])
    else:
        note("no users yet; add one with `ottla user add NAME`")


@app.add("add", changes=True)
def add(
    name: Name,
    password_file: PasswordFile = None,
    mechanism: Mechanisms = None,
    iterations: Iterations = ITERATIONS,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
) -> None:
    """Add a user. The password comes from a prompt, a file or stdin."""
    connection = Connection(bootstrap_servers, command_config)
    chosen = mechanisms_of(mechanism)
    if known := [
        MECHANISM_NAMES[number]
        for number, _ in described(connection, [name], missing=True).get(name, [])
        if MECHANISM_NAMES[number] in chosen
    ]:
        raise Failure(
            f"user {name} exists already ({', '.join(known)})",
            f"change the password with `ottla user password {name}`",
            code="DUPLICATE_RESOURCE",
        )
    set_password(connection, name, read_password(password_file, name), chosen, iterations)
    note(f"user {name} can log in with {' and '.join(chosen)}")


@app.add("password", changes=True)
def password(
    name: Name,
    password_file: PasswordFile = None,
    iterations: Iterations = ITERATIONS,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
) -> None:
    """Change the password of a user, for all mechanisms it has. Open connections stay until they log in again."""
    connection = Connection(bootstrap_servers, command_config)
    chosen = [MECHANISM_NAMES[number] for number, _ in described(connection, [name])[name]]
    set_password(connection, name, read_password(password_file, name), chosen, iterations)
    note(f"the password of user {name} is changed")


@app.add("remove", changes=True)
def remove(
    name: Name,
    mechanism: Mechanisms = None,
    yes: Yes = False,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
) -> None:
    """Remove a user, or only some of its mechanisms. Its ACLs and open connections stay."""
    connection = Connection(bootstrap_servers, command_config)
    chosen = (
        mechanisms_of(mechanism) if mechanism else [MECHANISM_NAMES[number] for number, _ in described(connection, [name])[name]]
    )
    confirm(f"Remove user {name} ({', '.join(chosen)})?", yes)
    remove_user(connection, name, chosen)


def remove_user(connection: Connection, name: str, mechanisms: list[str]) -> None:
    from ottla.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest, ScramCredentialDeletion

    deletions = [ScramCredentialDeletion(name=name, mechanism=MECHANISMS[each][0]) for each in mechanisms]
    _alter(connection, AlterUserScramCredentialsRequest(deletions=deletions, upsertions=[]))


def described(connection: Connection, names: list[str], *, missing: bool = False) -> dict[str, list[tuple[int, int]]]:
    """(mechanism, iterations) of these users, or of all. A Failure for one that does not exist, unless it may be `missing`."""
    from ottla.cli.plain_request import call, raise_if_error
    from ottla.errors import ErrorCode
    from ottla.protocol.messages.describe_user_scram_credentials import (
        DescribeUserScramCredentialsRequest,
        DescribeUserScramCredentialsResponse,
        UserName,
    )

    request = DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in names] or None)
    api = "describe_user_scram_credentials"
    answer = call(connection, api, 0, request, DescribeUserScramCredentialsResponse)
    raise_if_error(answer.error_code, "users", answer.error_message)
    found: dict[str, list[tuple[int, int]]] = {}
    for result in answer.results:
        if result.error_code == ErrorCode.RESOURCE_NOT_FOUND:
            if missing:
                continue
            raise Failure(f"user {result.user} does not exist", "see `ottla user list`", code="RESOURCE_NOT_FOUND")
        raise_if_error(result.error_code, f"user {result.user}", result.error_message)
        found[result.user] = [(info.mechanism, info.iterations) for info in result.credential_infos]
    return found


def salted(password: str, mechanism: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(MECHANISMS[mechanism][1], password.encode(), salt, iterations)


def mechanisms_of(asked: list[str] | None) -> list[str]:
    chosen = list(dict.fromkeys(name.upper() for name in asked or MECHANISMS))
    for name in chosen:
        if name not in MECHANISMS:
            raise Failure(f"{name} is no SCRAM mechanism", f"known are {' and '.join(MECHANISMS)}", exit_code=EXIT_USAGE)
    return chosen


def set_password(connection: Connection, name: str, password: str, mechanisms: list[str], iterations: int) -> None:
    """Set the password. Adds the user, or the mechanism, if it is new. Only the salted password travels."""
    from ottla.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest, ScramCredentialUpsertion

    upsertions = []
    for mechanism in mechanisms:
        salt = os.urandom(_SALT_BYTES)
        upsertions.append(
            ScramCredentialUpsertion(
                name=name,
                mechanism=MECHANISMS[mechanism][0],
                iterations=iterations,
                salt=salt,
                salted_password=salted(password, mechanism, salt, iterations),
            )
        )
    _alter(connection, AlterUserScramCredentialsRequest(deletions=[], upsertions=upsertions))


def _alter(connection: Connection, request: AlterUserScramCredentialsRequest) -> None:
    from ottla.cli.cluster.view import ClusterView
    from ottla.cli.plain_request import raise_if_error
    from ottla.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsResponse

    view = ClusterView(connection)
    answer: Any = view.ask_controller("alter_user_scram_credentials", 0, request, AlterUserScramCredentialsResponse)
    for result in answer.results:
        raise_if_error(result.error_code, f"user {result.user}", result.error_message)
