"""Options that commands get by what they are, so that none is forgotten.

A command with `command_config` talks to a cluster: it gets --profile. One that `changes` the cluster also gets --yes, and asks
before it runs with a protected profile. The command itself sees neither of them, unless it has a `yes` of its own.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from ottla.cli.completion.names import complete, profiles
from ottla.cli.failure import EXIT_USAGE, C, Failure
from ottla.cli.parameters import declare, own_parameters
from ottla.cli.profile.chosen import Chosen, choose, given_options, in_use
from ottla.cli.profile.definition import COLOURS, Profile

Options = Mapping[str, Any]
Changes = bool | Callable[[Options], bool]
"""Whether a command changes the cluster, perhaps by its options: `lambda options: options["execute"]`."""

_CONTEXT = "typer_context"
_PROFILE = "profile"
_YES = "yes"

ProfileName = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="NAME",
        autocompletion=profiles,
        help="A profile of `ottla profile`. (default: OTTLA_PROFILE, else the current one)",
        rich_help_panel="Connection",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def with_shared_options(command: C, changes: Changes) -> C:
    """The command with the options that it gets."""
    own = own_parameters(command)
    if "command_config" not in own:
        return command
    own_yes = _YES in own
    added: dict[str, tuple[Any, Any]] = {_CONTEXT: (typer.Context, inspect.Parameter.empty), _PROFILE: (ProfileName, None)}
    if changes and not own_yes:
        added[_YES] = (Yes, False)

    @functools.wraps(command)
    def run(**options: Any) -> Any:
        context, named = options.pop(_CONTEXT), options.pop(_PROFILE)
        yes = options[_YES] if own_yes else options.pop(_YES, False)
        given = given_options(context)
        profile = choose(named, other_cluster=bool(given))
        if profile is not None and profile.protected and (changes(options) if callable(changes) else changes):
            ask_about(profile, context.command_path, yes)
            if own_yes:
                options[_YES] = True
        with in_use(Chosen(profile, servers_named="bootstrap_servers" in given)):
            return command(**options)

    for each in own.values():
        complete(each.annotation)
    declare(run, own.values(), added)
    return run  # type: ignore[return-value]


def ask_about(profile: Profile, command: str, yes: bool) -> None:
    """Ask before a protected profile is changed: at a terminal. Elsewhere --yes must say it."""
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Failure(
            f"profile {profile.name} is protected: {command} would change it",
            "pass --yes to do it without a terminal to ask at",
            exit_code=EXIT_USAGE,
        )
    import shlex

    words = " ".join(map(shlex.quote, sys.argv[1:]))
    name = f"\033[1;{COLOURS[profile.colour]}m{profile.name}\033[0m" if profile.colour else profile.name
    typer.confirm(f"Profile {name} ({profile.bootstrap_servers}) is protected. Run `ottla {words}`?", abort=True, err=True)
