"""Options that mean the same in every command, declared once."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ottla.cli.failure import EXIT_USAGE, Failure

DEFAULT_BOOTSTRAP_SERVERS = "127.0.0.1:9092"

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap-servers",
        "-b",
        metavar="HOST:PORT[,…]",
        envvar="OTTLA_BOOTSTRAP_SERVERS",
        help="Where the cluster is.",
        rich_help_panel="Connection",
    ),
]
CommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        metavar="FILE",
        help="Client properties (security and the like), one key=value a line.",
        rich_help_panel="Connection",
    ),
]
Properties = Annotated[
    list[str] | None,
    typer.Option("--property", "-X", metavar="KEY=VALUE", help="One client property.", rich_help_panel="Connection"),
]


def _known_acks(value: str) -> str:
    # The library takes any number up to 1000, and the broker refuses it record by record.
    if value not in ("0", "1", "-1", "all"):
        raise typer.BadParameter(f"{value!r} is none of 0, 1 and all")
    return value


Acks = Annotated[str, typer.Option("--acks", metavar="0|1|all", callback=_known_acks, help="Who has to have it.")]
Json = Annotated[bool, typer.Option("--json", help="JSON instead of text.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def confirm(question: str, yes: bool) -> None:
    """Ask before something is lost: a person at a terminal, not a script."""
    if not yes and sys.stdin.isatty() and sys.stderr.isatty():
        typer.confirm(question, abort=True, err=True)


def parse_pairs(words: list[str] | None, option: str) -> dict[str, str]:
    """`key=value` words of a repeatable option."""
    pairs = {}
    for word in words or []:
        key, equals, value = word.partition("=")
        if not equals or not key.strip():
            raise Failure(f"{option} {word!r} is not key=value", exit_code=EXIT_USAGE)
        pairs[key.strip()] = value.strip()
    return pairs
