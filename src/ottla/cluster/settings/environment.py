"""Settings from the environment: `OTTLA_LOG_SEGMENT_BYTES=1048576` is `log.segment.bytes=1048576`.

An underscore is a dot or an underscore, as the table of settings has it. Other programs set variables with this prefix too:
Kubernetes sets OTTLA_PORT and OTTLA_SERVICE_HOST for a service `ottla`. So an unknown variable is refused only if it resembles a
setting.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from ottla.cluster.settings.broker import BROKER_SETTINGS
from ottla.cluster.settings.setting import SettingsError, unknown_name

PREFIX: Final = "OTTLA_"
_NEAR: Final = 0.75


def variable_of(name: str) -> str:
    return PREFIX + name.upper().replace(".", "_").replace("-", "_")


def settings_from_environment(
    environment: Mapping[str, str], other: Collection[str] = (), strangers: list[str] | None = None
) -> dict[str, str]:
    """The settings among the variables. `other`: variables with the prefix that are no settings. Unknown variables are added to
    `strangers`."""
    by_variable = {variable_of(name): name for name in BROKER_SETTINGS}
    settings: dict[str, str] = {}
    problems: list[str] = []
    for variable, text in environment.items():
        if not variable.startswith(PREFIX) or variable in other:
            continue
        name = by_variable.get(variable.upper())
        if name is not None:
            settings[name] = text
        elif _looks_like_a_setting(variable.upper(), by_variable):
            problems.append(unknown_name(variable, by_variable, "variable"))
        elif strangers is not None:
            strangers.append(variable)
    if problems:
        raise SettingsError(problems)
    return settings


def _looks_like_a_setting(variable: str, known: Collection[str]) -> bool:
    word, more, _ = variable[len(PREFIX) :].partition("_")
    if more and any(each.startswith(f"{PREFIX}{word}_") for each in known):
        return True
    import difflib  # rarely needed

    names = [each[len(PREFIX) :] for each in known]
    return bool(difflib.get_close_matches(variable[len(PREFIX) :][:120], names, n=1, cutoff=_NEAR))
