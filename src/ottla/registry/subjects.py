"""Names of subjects and contexts (SR10): `s` is in the default context `.`, `:.c:s` in the context `.c`.

A subject is kept by its full name, in which the default context does not appear. `:.c:` names the context itself: its config, its
mode, all of its subjects.
"""

from __future__ import annotations

import re
from typing import Final

DEFAULT_CONTEXT: Final = "."
GLOBAL_CONTEXT: Final = ".__GLOBAL"
"""Holds the config and mode that also cover contexts without one of their own."""
ANY_CONTEXT: Final = ":*:"

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def split(subject: str) -> tuple[str, str]:
    """The context of a subject and its name there."""
    if not subject.startswith(":."):
        return DEFAULT_CONTEXT, subject
    context, _, name = subject[1:].partition(":")
    return context, name


def joined(context: str, name: str) -> str:
    return name if context == DEFAULT_CONTEXT else f":{context}:{name}"


def normalized(subject: str) -> str:
    """The one spelling of a subject: `:.:s` is `s`, and `:.c` is `:.c:`."""
    return joined(*split(subject))


def context_of(subject: str) -> str:
    return split(subject)[0]


def is_context(subject: str) -> bool:
    """Whether this names a context and no subject in it."""
    return subject.startswith(":.") and not split(subject)[1]


def within(context: str | None, subject: str) -> str:
    """The subject as a request below /contexts/`context` means it."""
    if context is None or subject.startswith(":."):
        return normalized(subject)
    return joined(context, subject)


def referenced(subject: str, reference: str) -> str:
    """The full name of a subject that a schema of `subject` references: in its own context unless it names one."""
    if reference.startswith(":."):
        return normalized(reference)
    return joined(context_of(subject), reference)


def context_name(given: str) -> str:
    """A context as people write it: `.c`, `c` or `:.c:`."""
    name = given.strip(":")
    return name if name.startswith(".") else f".{name}"


def is_valid(subject: str) -> bool:
    """Whether a schema may be registered here. `__GLOBAL`, `__EMPTY` and the global context are reserved."""
    context, name = split(subject)
    is_reserved = context == GLOBAL_CONTEXT or name in ("__GLOBAL", "__EMPTY")
    return bool(name.strip()) and not is_reserved and not _CONTROL.search(subject)
