"""`ottla console`: the web console, in a process of its own. The work is in `ottla.console`.

The console stands above the commands and uses them, so this one only starts its process.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from ottla.cli.connection import Connection
from ottla.cli.console.settings import DEFAULT_AUDIT_TOPIC, DEFAULT_LISTEN, ConsoleSettings, Role, is_loopback
from ottla.cli.failure import EXIT_USAGE, Failure
from ottla.cli.options import DEFAULT_BOOTSTRAP_SERVERS, Bootstrap, CommandConfig, Properties, parse_pairs, read_text
from ottla.cli.schema.place import registry_settings

_ROLES = tuple(role.word for role in Role)


def console(
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where to serve the console.")] = DEFAULT_LISTEN,
    read_only: Annotated[bool, typer.Option("--read-only", help="Refuse every change.")] = False,
    tokens: Annotated[
        Path | None,
        typer.Option(
            "--tokens",
            metavar="FILE",
            help="Log in with a token: lines of ROLE TOKEN (viewer, editor, admin).",
            rich_help_panel="Access",
        ),
    ] = None,
    login: Annotated[
        bool, typer.Option("--login", help="Log in as a user of the cluster (SCRAM).", rich_help_panel="Access")
    ] = False,
    role: Annotated[
        list[str] | None,
        typer.Option(
            "--role",
            metavar="USER=ROLE",
            help="The role of a user of the cluster (repeatable); *=ROLE of all others, which is viewer by default.",
            rich_help_panel="Access",
        ),
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option(
            "--name", metavar="HOST", help="A further host name under which browsers come (repeatable).", rich_help_panel="Access"
        ),
    ] = None,
    mask: Annotated[
        list[str] | None,
        typer.Option(
            "--mask",
            metavar="[TOPIC:]FIELD",
            help="Never show this field: value.card, headers.token, people*:value.email (repeatable).",
            rich_help_panel="Access",
        ),
    ] = None,
    export: Annotated[
        bool, typer.Option("--export/--no-export", help="Whether records may be exported.", rich_help_panel="Access")
    ] = True,
    tls_cert: Annotated[
        Path | None,
        typer.Option("--tls-cert", metavar="FILE", help="Serve HTTPS with this certificate (PEM).", rich_help_panel="Access"),
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", metavar="FILE", help="The key of --tls-cert (PEM).", rich_help_panel="Access")
    ] = None,
    pipeline: Annotated[
        list[Path] | None,
        typer.Option(
            "--pipeline",
            metavar="FILE",
            help="The file of a pipeline that admins may run and reset here, on this machine (repeatable).",
            rich_help_panel="Access",
        ),
    ] = None,
    audit_topic: Annotated[
        str, typer.Option("--audit-topic", metavar="TOPIC", help="Where changes are written down; empty: only the log.")
    ] = DEFAULT_AUDIT_TOPIC,
    registry: Annotated[
        str | None,
        typer.Option(
            "--registry",
            metavar="URL",
            envvar="OTTLA_REGISTRY",
            help="The schema registry. (default: schema.registry.url of the profile, else none)",
            rich_help_panel="Connection",
        ),
    ] = None,
    properties: Properties = None,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
) -> None:
    """Serve the web console until SIGTERM or Ctrl-C.

    Works with any Kafka. It listens on this machine only; on another address it wants --tokens or --login.
    """
    from ottla.cli.profile.chosen import in_use_now

    connection = Connection(bootstrap_servers, command_config, parse_pairs(properties, "-X"))
    host, port = listen_address(listen)
    roles = _roles(role)
    profile = in_use_now().profile
    settings = ConsoleSettings(
        bootstrap_servers=connection.bootstrap_servers,
        properties={key: str(value) for key, value in connection.properties.items()},
        host=host,
        port=port,
        tokens=_tokens(tokens),
        scram_login=login,
        default_role=roles.pop("*", "viewer"),
        user_roles=roles,
        read_only=read_only,
        export=export,
        masks=tuple(mask or ()),
        names=tuple(name or ()),
        tls_certificate=None if tls_cert is None else str(tls_cert),
        tls_key=None if tls_key is None else str(tls_key),
        pipelines=tuple(_pipeline(file) for file in pipeline or ()),
        audit_topic=audit_topic or None,
        profile=None if profile is None else profile.name,
        registry=_registry(registry, connection),
    )
    if not is_loopback(host) and not settings.login_required:
        raise Failure(
            f"--listen {listen} is not on this machine only: everybody who reaches it could change the cluster",
            "pass --tokens FILE or --login, or listen on 127.0.0.1",
            exit_code=EXIT_USAGE,
        )
    if tls_key is not None and tls_cert is None:
        raise Failure("--tls-key is the key of --tls-cert, which is missing", "pass --tls-cert FILE too", exit_code=EXIT_USAGE)
    connection.security  # noqa: B018  (a wrong client property is told here)
    from ottla.cli.console.process import become

    sys.stdout.flush()
    become(settings)


def listen_address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise Failure(f"--listen {text!r} is not an address", f"write host:port, as in {DEFAULT_LISTEN}", exit_code=EXIT_USAGE)
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)


def _pipeline(file: Path) -> str:
    if not file.is_file():
        raise Failure(f"--pipeline {file}: no such file", exit_code=EXIT_USAGE)
    return str(file.resolve())


def _registry(url: str | None, connection: Connection) -> dict[str, str]:
    """The settings of the registry; empty if none is named."""
    settings = registry_settings(url, connection.properties)
    if "url" not in settings:
        return {}
    from ottla.client.schema_registry import RegistryOptions, SchemaRegistry

    try:
        SchemaRegistry(RegistryOptions.of(settings))  # connects to nothing
    except ValueError as error:
        raise Failure(str(error), exit_code=EXIT_USAGE) from None
    return settings


def _tokens(path: Path | None) -> dict[str, str]:
    """The roles by token, of a file that only its owner can read."""
    if path is None:
        return {}
    tokens: dict[str, str] = {}
    for number, line in enumerate(read_text(path).splitlines(), 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        if len(words) != 2 or words[0].lower() not in _ROLES:
            raise Failure(f"{path}, line {number} is not ROLE TOKEN", f"the roles are {', '.join(_ROLES)}", exit_code=EXIT_USAGE)
        if len(words[1]) < 16:
            raise Failure(
                f"{path}, line {number}: a token has at least 16 characters",
                "make one with `openssl rand -hex 16`",
                exit_code=EXIT_USAGE,
            )
        tokens[words[1]] = words[0].lower()
    if not tokens:
        raise Failure(f"{path} has no tokens", "write lines of ROLE TOKEN", exit_code=EXIT_USAGE)
    if os.name == "posix" and path.stat().st_mode & 0o077:
        raise Failure(f"{path} can be read by others", f"run: chmod 600 {path}", exit_code=EXIT_USAGE)
    return tokens


def _roles(words: list[str] | None) -> dict[str, str]:
    roles = parse_pairs(words, "--role")
    for user, role in roles.items():
        if role.lower() not in _ROLES:
            raise Failure(
                f"--role {user}={role}: there is no role {role}", f"it can be {', '.join(_ROLES)}", exit_code=EXIT_USAGE
            )
    return {user: role.lower() for user, role in roles.items()}
