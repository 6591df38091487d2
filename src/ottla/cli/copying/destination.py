"""The cluster that `topic clone` and `topic copy` write to: the one they read from, or another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ottla.cli.connection import Connection
from ottla.cli.options import DEFAULT_BOOTSTRAP_SERVERS
from ottla.cli.profile.chosen import Chosen, in_use
from ottla.cli.profile.file import read_file
from ottla.cli.shared import Options, ask_about

ToProfile = Annotated[
    str | None,
    typer.Option("--to-profile", metavar="NAME", help="The profile of the cluster to write to.", rich_help_panel="Destination"),
]
ToServers = Annotated[
    str | None,
    typer.Option(
        "--to-bootstrap-servers",
        "--to-bootstrap",
        metavar="HOST:PORT[,…]",
        help="Brokers of the cluster to write to. (default: the same cluster)",
        rich_help_panel="Destination",
    ),
]
ToConfig = Annotated[
    Path | None,
    typer.Option(
        "--to-command-config", metavar="FILE", help="Client properties of the cluster to write to.", rich_help_panel="Destination"
    ),
]


def stays_here(options: Options) -> bool:
    """Whether a command with these options writes to the cluster that it reads from."""
    return not (options["to_profile"] or options["to_servers"] or options["to_config"])


def destination(source: Connection, profile: str | None, servers: str | None, config: Path | None, *, yes: bool) -> Connection:
    """The connection to write with. A protected profile asks first."""
    if not (profile or servers or config):
        return source
    chosen = read_file().profile(profile) if profile is not None else None
    if chosen is not None and chosen.protected:
        ask_about(chosen, "this command", yes)
    # The profile of the source is put aside: its passwords are for its own brokers.
    with in_use(Chosen(chosen, servers_named=servers is not None)):
        return Connection(servers or DEFAULT_BOOTSTRAP_SERVERS, config)
