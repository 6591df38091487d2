"""Options that several commands share, and the parsing of their values."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from ottla.cli.failure import EXIT_USAGE, C, Failure, guarded
from ottla.cli.shared import Changes, Yes, with_shared_options
from ottla.cli.views import VIEWS, with_view_options

__all__ = ["Yes"]

DEFAULT_BOOTSTRAP_SERVERS = "127.0.0.1:9092"


class Command(TyperCommand):
    def format_help(self, ctx: Any, formatter: Any) -> None:
        _hide_types_of_flags(self.get_params(ctx))
        super().format_help(ctx, formatter)


class Group(TyperGroup):
    def format_help(self, ctx: Any, formatter: Any) -> None:
        _hide_types_of_flags(self.get_params(ctx))
        super().format_help(ctx, formatter)


def _hide_types_of_flags(parameters: Iterable[Any]) -> None:
    """Typer 0.29 shows a flag with <bool>, as if it took a value."""
    for each in parameters:
        if getattr(each, "is_flag", False) and each.metavar is None:
            each.metavar = ""


class Commands(typer.Typer):
    def __init__(self, **options: Any) -> None:
        super().__init__(**{"cls": Group} | options)

    def add(self, name: str, *, changes: Changes = False) -> Callable[[C], C]:
        """Decorator: add a command that prints failures and sets the exit code, with the options of `shared`.

        A command of `views` also gets -o and --watch. `changes`: whether it changes the cluster. It then asks before it runs
        with a protected profile.
        """
        view = with_view_options if name in VIEWS else _unchanged
        return lambda command: self.command(name, cls=Command)(guarded(with_shared_options(view(command), changes)))


def _unchanged(command: C) -> C:
    return command


Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap-servers",
        "-b",
        metavar="HOST:PORT[,…]",
        envvar="OTTLA_BOOTSTRAP_SERVERS",
        help="Addresses of one or more brokers.",
        rich_help_panel="Connection",
    ),
]
CommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        metavar="FILE",
        envvar="OTTLA_COMMAND_CONFIG",
        help="A file of client properties (security and others), one key=value a line.",
        rich_help_panel="Connection",
    ),
]
Properties = Annotated[
    list[str] | None,
    typer.Option("--property", "-X", metavar="KEY=VALUE", help="One client property (repeatable).", rich_help_panel="Connection"),
]


def _known_acks(value: str) -> str:
    # librdkafka accepts any number up to 1000, and the broker then refuses each record.
    if value not in ("0", "1", "-1", "all"):
        raise typer.BadParameter(f"{value!r} is not 0, 1 or all")
    return value


Acks = Annotated[
    str,
    typer.Option(
        "--acks",
        metavar="0|1|all",
        callback=_known_acks,
        help="Which replicas must acknowledge a record: none, the leader, or all in sync.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def confirm(question: str, yes: bool) -> None:
    """Ask for confirmation, but only at a terminal: scripts are not asked."""
    if not yes and sys.stdin.isatty() and sys.stderr.isatty():
        typer.confirm(question, abort=True, err=True)


def read_text(path: Path, *, encoding: str = "utf-8") -> str:
    """The text of a file that an option names."""
    try:
        return path.read_text(encoding=encoding)
    except OSError as error:
        raise Failure(f"cannot read {path}: {error.strerror}", exit_code=EXIT_USAGE) from None
    except UnicodeDecodeError:
        raise Failure(f"cannot read {path}: it is not UTF-8 text", exit_code=EXIT_USAGE) from None


def read_text_or_stdin(path: Path) -> str:
    return sys.stdin.read() if str(path) == "-" else read_text(path)


def parse_pairs(words: list[str] | None, option: str) -> dict[str, str]:
    """Parse the `key=value` words of a repeatable option."""
    pairs = {}
    for word in words or []:
        key, equals, value = word.partition("=")
        if not equals or not key.strip():
            raise Failure(f"{option} {word!r} is not key=value", exit_code=EXIT_USAGE)
        pairs[key.strip()] = value.strip()
    return pairs
