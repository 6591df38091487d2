"""Settings from the environment: `OTTLA_LOG_SEGMENT_BYTES=1048576` stands for `log.segment.bytes=1048576`.

An underscore may mean a dot or an underscore; the table of settings decides which, so no name is ambiguous.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from ottla.cluster.settings.broker import BROKER_SETTINGS
from ottla.cluster.settings.problems import SettingsError, unknown_name

PREFIX: Final = "OTTLA_"


def variable_of(name: str) -> str:
    return PREFIX + name.upper().replace(".", "_").replace("-", "_")


def settings_from_environment(environment: Mapping[str, str], other: Collection[str] = ()) -> dict[str, str]:
    """The settings among the variables. `other`: names with the prefix that mean something else."""
    by_variable = {variable_of(name): name for name in BROKER_SETTINGS}
    settings: dict[str, str] = {}
    problems: list[str] = []
    for variable, text in environment.items():
        if not variable.startswith(PREFIX) or variable in other:
            continue
        name = by_variable.get(variable.upper())
        if name is None:
            problems.append(unknown_name(variable, by_variable, "variable"))
        else:
            settings[name] = text
    if problems:
        raise SettingsError(problems)
    return settings
