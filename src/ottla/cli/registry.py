"""`ottla registry`: a schema registry until SIGTERM or Ctrl-C. The work is in `ottla.registry`."""

from __future__ import annotations

import socket
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.connection import Connection, split_servers
from ottla.cli.failure import EXIT_USAGE, Failure
from ottla.cli.options import DEFAULT_BOOTSTRAP_SERVERS, Bootstrap, CommandConfig, Properties, parse_pairs, read_text

if TYPE_CHECKING:
    from ottla.registry.rules import Rules
    from ottla.registry.server import Settings

DEFAULT_LISTEN = "127.0.0.1:8081"
_LOOPBACK = ("127.", "::1", "localhost")


class Auth(StrEnum):
    NONE = "none"
    SCRAM = "scram"


def registry(
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where to serve the REST API.")] = DEFAULT_LISTEN,
    advertise: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Where other registries reach this one. (default: the address of --listen)"),
    ] = None,
    topic: Annotated[str, typer.Option(metavar="TOPIC", help="The topic that holds the schemas.")] = "_schemas",
    group: Annotated[
        str, typer.Option(metavar="GROUP", help="The group in which registries elect a leader.")
    ] = "schema-registry",
    auth: Annotated[
        Auth | None,
        typer.Option(
            help="scram: clients log in as users of the cluster, with basic auth. (default: scram if --listen is not "
            "this machine, else none)",
        ),
    ] = None,
    rules: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Who may read, write and configure which subjects: a TOML file.")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option("--tls-cert", metavar="FILE", help="Serve HTTPS: a PEM certificate.")] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="Its key. (default: in --tls-cert)")] = None,
    tls_ca: Annotated[
        Path | None, typer.Option("--tls-ca", metavar="FILE", help="What the certificates of other registries are signed by.")
    ] = None,
    supervisor_fd: Annotated[int | None, typer.Option(hidden=True)] = None,
    properties: Properties = None,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
) -> None:
    """Serve a schema registry with Confluent's REST API, until SIGTERM or Ctrl-C.

    Works with any Kafka. Schemas are in the topic _schemas, as Confluent's registry and Karapace keep them: each of the three can
    take over from another. Several registries elect a leader; the others forward writes to it.
    """
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise Failure(f"{error.name} is not installed", "pip install 'ottla[registry]'") from None
    connection = Connection(bootstrap_servers, command_config, parse_pairs(properties, "-X"))
    host, port = _address(listen, "--listen")
    logs_in = _logs_in(auth, host, connection)
    connection.reach()
    from ottla.client.options import ClientOptions
    from ottla.registry.election import Identity
    from ottla.registry.server import Settings, TlsFiles

    owner = socket.socket(fileno=supervisor_fd) if supervisor_fd is not None else None
    tls = TlsFiles(str(tls_cert), _text(tls_key), _text(tls_ca)) if tls_cert is not None else None
    with _listen(host, port) as sock:
        reached, at = _address(advertise, "--advertise") if advertise is not None else (_reachable(host), sock.getsockname()[1])
        settings = Settings(
            ClientOptions(tuple(split_servers(connection.bootstrap_servers)), "ottla-registry", connection.security),
            Identity(reached, at, "https" if tls is not None else "http"),
            logs_in,
            _rules(rules, logs_in),
            tls,
            topic,
            group,
        )
        _serve(settings, sock, owner)


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _logs_in(auth: Auth | None, host: str, connection: Connection) -> bool:
    """Whether clients log in. Failure if they should, and the cluster has no logins."""
    is_local = host.startswith(_LOOPBACK)
    if auth is None and is_local:
        return False
    if auth is Auth.NONE:
        return False
    if not connection.security.authenticates:
        raise Failure(
            f"clients cannot log in: security.protocol={connection.security.protocol} of the cluster has no users",
            "name a SASL listener in --command-config, listen on 127.0.0.1, or let everybody in with --auth none",
            exit_code=EXIT_USAGE,
        )
    return True


def _rules(path: Path | None, logs_in: bool) -> Rules:
    from ottla.registry.rules import EVERYTHING, BadRules, parse_rules

    if path is None:
        return EVERYTHING
    if not logs_in:
        raise Failure("--rules needs logins", "add --auth scram", exit_code=EXIT_USAGE)
    try:
        return parse_rules(read_text(path))
    except BadRules as error:
        raise Failure(f"{path}: {error}", exit_code=EXIT_USAGE) from None


def _serve(settings: Settings, sock: socket.socket, owner: socket.socket | None) -> None:
    import logging

    from ottla.client.security import InvalidOption
    from ottla.registry.server import StartupError, serve
    from ottla.runtime.loop import run

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)-7s %(message)s")
    for noisy in ("uvicorn", "uvicorn.error"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    try:
        run(serve(settings, sock, owner))
    except StartupError as error:
        raise Failure(str(error)) from None
    except InvalidOption as error:
        raise Failure(f"invalid client property: {error}", exit_code=EXIT_USAGE) from None


def _listen(host: str, port: int) -> socket.socket:
    try:
        info = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(info[4][:2], family=info[0], backlog=256)
    except OSError as error:
        where = f"{host}:{port}"
        raise Failure(f"cannot listen on {where}: {error.strerror or error}", "choose another address with --listen") from None


def _reachable(host: str) -> str:
    """A name for other registries, if this one listens everywhere."""
    return host if host not in ("", "0.0.0.0", "::") else socket.getfqdn()


def _address(text: str, option: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise Failure(f"{option} {text!r} is not an address", f"write host:port, as in {DEFAULT_LISTEN}", exit_code=EXIT_USAGE)
    return host.removeprefix("[").removesuffix("]"), int(port)
