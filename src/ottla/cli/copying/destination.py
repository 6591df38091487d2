"""The cluster that `topic clone`, `topic copy` and `mirror` write to: the one they read from, or another."""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True)
class Destination:
    """The options that name the cluster to write to."""

    to_profile: ToProfile = None
    to_servers: ToServers = None
    to_config: ToConfig = None

    def connect(self, source: Connection, *, yes: bool) -> Connection:
        """The connection to write with. A protected profile asks first."""
        if not (self.to_profile or self.to_servers or self.to_config):
            return source
        chosen = read_file().profile(self.to_profile) if self.to_profile is not None else None
        if chosen is not None and chosen.protected:
            ask_about(chosen, "this command", yes)
        # The profile of the source is put aside: its passwords are for its own brokers.
        with in_use(Chosen(chosen, servers_named=self.to_servers is not None)):
            return Connection(self.to_servers or DEFAULT_BOOTSTRAP_SERVERS, self.to_config)
