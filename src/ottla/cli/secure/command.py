"""`ottla secure init`: everything that a secured broker or cluster needs, in one folder."""

from __future__ import annotations

import secrets
import socket
from pathlib import Path
from typing import Annotated

import typer

from ottla.cli.failure import EXIT_USAGE, Failure
from ottla.cli.options import Commands
from ottla.cli.output import note
from ottla.cli.passwords import PasswordFile, read_password

app = Commands(help="Certificates, a first user and settings for a secured cluster.", no_args_is_help=True)


@app.callback()
def secure() -> None:
    """Certificates, a first user and settings for a secured cluster."""


@app.add("init")
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder for all files.", show_default=False)],
    brokers: Annotated[int, typer.Option("--brokers", min=1, max=100, help="How many brokers.")] = 1,
    host: Annotated[
        list[str] | None,
        typer.Option("--host", metavar="NAME", help="Host of a broker, one for each (repeatable). Default: all on this machine."),
    ] = None,
    port: Annotated[int, typer.Option("--port", min=1, max=65000, help="Port for clients; brokers use the next.")] = 9092,
    zookeeper: Annotated[
        str | None, typer.Option("--zookeeper", metavar="HOST:PORT[/PATH]", help="zookeeper.connect of a cluster.")
    ] = None,
    admin: Annotated[str, typer.Option("--admin", metavar="USER", help="The first user, who may do everything.")] = "admin",
    password_file: PasswordFile = None,
    days: Annotated[int, typer.Option("--days", min=1, max=36500, help="How long certificates are valid.")] = 365,
) -> None:
    """Make a certificate authority, certificates, a first user, and settings for brokers and clients.

    Without --password-file the password of the first user is generated; client.properties has it.
    """
    plan = make_files(
        folder,
        brokers=brokers,
        hosts=host or [],
        port=port,
        zookeeper=zookeeper,
        admin=admin,
        password=read_password(password_file, admin) if password_file is not None else secrets.token_urlsafe(18),
        days=days,
    )
    note(f"{folder} has all files; ca.key signs new certificates: keep it elsewhere")
    for line in plan:
        print(line)


def make_files(
    folder: Path,
    *,
    brokers: int,
    hosts: list[str],
    port: int,
    zookeeper: str | None,
    admin: str,
    password: str,
    days: int,
) -> list[str]:
    """Write all files. Returns the commands that start the brokers and use them."""
    from ottla.cli.secure.files import Node, client_properties, server_properties, users, write_secret
    from ottla.tls.authority import CannotIssue, issuer

    folder = folder.absolute()
    if hosts and len(hosts) != brokers:
        raise Failure(
            f"there are {brokers} brokers and {len(hosts)} --host", "name one host for each broker", exit_code=EXIT_USAGE
        )
    if any(character in admin for character in ';,"\n'):
        raise Failure(f"{admin!r} cannot be the name of the first user", exit_code=EXIT_USAGE)
    nodes = [
        Node(number, hosts[number - 1] if hosts else "localhost", port if hosts else port + (number - 1) * 10)
        for number in range(1, brokers + 1)
    ]
    try:
        maker = issuer()
        folder.mkdir(mode=0o700)
    except CannotIssue as error:
        raise Failure(str(error)) from None
    except FileExistsError:
        raise Failure(f"{folder} exists already", "name a new folder", exit_code=EXIT_USAGE) from None
    except OSError as error:
        raise Failure(f"cannot make {folder}: {error.strerror}") from None
    authority = maker.authority("Ottla CA", max(days, 3650))
    write_secret(folder / "ca.key", authority[0])
    write_secret(folder / "ca.pem", authority[1])
    (folder / "ca.pem").chmod(0o644)
    here = [] if hosts else ["127.0.0.1", "::1", socket.gethostname()]
    token_secret = secrets.token_urlsafe(32)
    for node in nodes:
        names = list(dict.fromkeys([node.host, *here]))
        write_secret(
            folder / f"broker-{node.number}.pem",
            "".join(maker.issue(authority, f"broker-{node.number}", names, days, is_server=True)),
        )
        name = "server.properties" if brokers == 1 else f"server-{node.number}.properties"
        write_secret(folder / name, server_properties(node, folder, admin, token_secret, brokers, zookeeper))
    write_secret(folder / "client.pem", "".join(maker.issue(authority, admin, [], days, is_server=False)))
    write_secret(folder / "users.properties", users(admin, password))
    servers = ",".join(f"[{node.host}]:{node.port}" if ":" in node.host else f"{node.host}:{node.port}" for node in nodes)
    write_secret(folder / "client.properties", client_properties(servers, folder, admin, password))
    configs = ["server.properties"] if brokers == 1 else [f"server-{node.number}.properties" for node in nodes]
    return [
        *(f"ottla serve --config {folder / name}" for name in configs),
        f"ottla topic list --command-config {folder / 'client.properties'}",
    ]
