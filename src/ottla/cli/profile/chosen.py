"""The profile that a command uses: the one of --profile, else of OTTLA_PROFILE, else the current one of the file.

The current one is for commands that name no cluster. -b, --command-config and their variables put it aside, so that its
passwords go only to its own brokers. One that --profile or OTTLA_PROFILE names stays; what else is given overrides parts of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.cli.profile.definition import Profile
from ottla.cli.profile.file import read_file

if TYPE_CHECKING:
    import typer

VARIABLE = "OTTLA_PROFILE"


@dataclass(frozen=True, slots=True)
class Chosen:
    profile: Profile | None = None
    servers_named: bool = False
    """Whether -b or OTTLA_BOOTSTRAP_SERVERS names the brokers."""


_chosen: ContextVar[Chosen] = ContextVar("chosen", default=Chosen())  # noqa: B039  (it is frozen)


def choose(named: str | None, *, other_cluster: bool) -> Profile | None:
    """The profile; `other_cluster` says that the command names its cluster itself."""
    name = named or os.environ.get(VARIABLE)
    if name:
        return read_file().profile(name)
    if other_cluster:
        return None
    file = read_file()
    return file.profile(file.current) if file.current is not None else None


def given_options(context: typer.Context) -> set[str]:
    """Which of -b and --command-config the command line or the environment has."""
    return {name for name in ("bootstrap_servers", "command_config") if not _is_default(context, name)}


def _is_default(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is None or source.name in ("DEFAULT", "DEFAULT_MAP")


@contextmanager
def in_use(chosen: Chosen) -> Iterator[None]:
    token = _chosen.set(chosen)
    try:
        yield
    finally:
        _chosen.reset(token)


def in_use_now() -> Chosen:
    return _chosen.get()
