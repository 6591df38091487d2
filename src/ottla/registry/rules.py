"""Who may do what with which subjects. Pure: a rules file in TOML, and decisions.

    [[rule]]
    users = ["ada", "team-*"]
    subjects = ["orders-*", ":.shop:*"]
    allow = ["read", "write", "compatibility"]

`read` is to see schemas and check compatibility, `write` to register and delete, `compatibility` to change config and mode. A
rule that allows any of the others allows to read too. What no rule allows is refused.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache
from typing import Final

READ: Final = "read"
WRITE: Final = "write"
COMPATIBILITY: Final = "compatibility"
_OPERATIONS: Final = (READ, WRITE, COMPATIBILITY)
_KEYS: Final = ("users", "subjects", "allow")


class BadRules(ValueError):
    """The rules file is wrong. The message says where."""


@dataclass(frozen=True, slots=True)
class Rule:
    users: tuple[str, ...]
    subjects: tuple[str, ...]
    operations: frozenset[str]

    def allows(self, user: str, operation: str, subject: str) -> bool:
        return operation in self.operations and _matches(self.users, user) and _matches(self.subjects, subject)


@dataclass(frozen=True, slots=True)
class Rules:
    """None of them: everybody may do everything."""

    rules: tuple[Rule, ...] | None = None

    def allow(self, user: str, operation: str, subject: str) -> bool:
        """`subject` is empty for what concerns all of them, as the global config."""
        return self.rules is None or any(rule.allows(user, operation, subject) for rule in self.rules)


EVERYTHING: Final = Rules()


def parse_rules(text: str) -> Rules:
    """BadRules."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadRules(f"it is not TOML: {error}") from None
    unknown = sorted(document.keys() - {"rule"})
    if unknown:
        raise BadRules(f"unknown key {unknown[0]}: rules are sections [[rule]]")
    rules = document.get("rule", [])
    if not isinstance(rules, list):
        raise BadRules("rules are sections [[rule]]")
    return Rules(tuple(_rule(number, section) for number, section in enumerate(rules, 1)))


def _rule(number: int, section: object) -> Rule:
    if not isinstance(section, dict):
        raise BadRules("rules are sections [[rule]]")
    unknown = sorted(section.keys() - set(_KEYS))
    if unknown:
        raise BadRules(f"rule {number}: unknown key {unknown[0]}; the keys are {', '.join(_KEYS)}")
    users, subjects, allowed = (_words(number, key, section.get(key)) for key in _KEYS)
    for operation in allowed:
        if operation not in _OPERATIONS:
            raise BadRules(f"rule {number}: {operation!r} cannot be allowed; it is one of {', '.join(_OPERATIONS)}")
    return Rule(users, subjects, frozenset((*allowed, READ)))


def _words(number: int, key: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(each, str) for each in value):
        raise BadRules(f'rule {number}: {key} is a list of words, as in {key} = ["…"]')
    return tuple(value)


def _matches(patterns: Sequence[str], name: str) -> bool:
    return any(_compiled(pattern).match(name) for pattern in patterns)


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(translate(pattern))
