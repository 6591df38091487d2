"""`ottla cluster`: up (start a cluster on this machine), status (show any cluster)."""

from __future__ import annotations

import typer

from ottla.cli.cluster.status import status
from ottla.cli.cluster.up import up

app = typer.Typer(help="A cluster: start one on this machine, or show any.", no_args_is_help=True)
app.command("up")(up)
app.command("status")(status)
