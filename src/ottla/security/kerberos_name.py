"""Kerberos principals, and the rules that make users of them (`sasl.kerberos.principal.to.local.rules`), as Kafka has them.

    DEFAULT                                          ada@OUR.REALM is ada
    RULE:[1:$1@$0](.*@EXAMPLE.COM)s/@.*//            ada@EXAMPLE.COM is ada
    RULE:[2:$1](kafka.*)/L                           Kafka1/host@ANY is kafka1

The first rule that applies decides. A principal that no rule applies to cannot log in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

_NAME: Final = re.compile(r"([^/@]*)(?:/([^/@]*))?@([^/@]*)")
_RULE: Final = re.compile(r"DEFAULT|RULE:\[(\d{1,3}):([^\]]*)\](?:\(([^)]*)\))?(?:s/([^/]*)/([^/]*)/(g)?)?/?([LU])?")
_PARAMETER: Final = re.compile(r"\$(\d*)")
_NOT_SIMPLE: Final = re.compile(r"[/@]")


class BadRule(ValueError):
    """A rule that cannot be parsed."""


class NoUser(Exception):
    """No rule makes a user of the principal, or a rule makes one with `/` or `@`."""


@dataclass(frozen=True, slots=True)
class KerberosName:
    service: str
    host: str | None
    realm: str | None

    @classmethod
    def parse(cls, text: str) -> KerberosName:
        match = _NAME.fullmatch(text)
        if match is not None:
            return cls(match[1], match[2], match[3])
        if "@" in text:
            raise NoUser(f"{text[:80]!r} is not a Kerberos principal")
        return cls(text, None, None)


@dataclass(frozen=True, slots=True)
class Rule:
    components: int
    """Of the principal, without the realm; 0: the rule is DEFAULT."""
    form: str = ""
    matches: re.Pattern[str] | None = None
    replaces: re.Pattern[str] | None = None
    replacement: str = ""
    everywhere: bool = False
    case: str | None = None

    def apply(self, parts: tuple[str, ...], default_realm: str) -> str | None:
        """`parts`: the realm and the components. None: the rule does not apply."""
        if self.components == 0:
            result = parts[1] if parts[0] == default_realm else None
        elif len(parts) - 1 != self.components:
            return None
        else:
            result = _PARAMETER.sub(lambda found: _part(parts, found[1]), self.form)
            if self.matches is not None and not self.matches.fullmatch(result):
                return None
            if self.replaces is not None:
                result = self.replaces.sub(self.replacement, result, count=0 if self.everywhere else 1)
        if result is None:
            return None
        if _NOT_SIMPLE.search(result):
            raise NoUser(f"the rules make {result[:80]!r} of the principal, which is not a simple name")
        return result.lower() if self.case == "L" else result.upper() if self.case == "U" else result


def parse_rules(texts: Iterable[str]) -> tuple[Rule, ...]:
    return tuple(_parse_rule(text.strip()) for text in texts if text.strip())


def _parse_rule(text: str) -> Rule:
    match = _RULE.fullmatch(text)
    if match is None:
        raise BadRule(f"{text!r} is not a rule; allowed: DEFAULT, RULE:[n:format](regex)s/from/to/g/L")
    if match[1] is None:
        return Rule(0)
    count, form, matches, replaces, replacement, everywhere, case = match.groups()
    if int(count) == 0:
        raise BadRule(f"{text!r}: a principal has at least one component")
    try:
        return Rule(
            int(count),
            form,
            re.compile(matches) if matches is not None else None,
            re.compile(replaces) if replaces is not None else None,
            # Java writes groups as $1.
            re.sub(r"\$(\d)", r"\\g<\1>", (replacement or "").replace("\\", "\\\\")),
            everywhere is not None,
            case,
        )
    except re.error as error:
        raise BadRule(f"{text!r} has an invalid regular expression: {error}") from None


def user_of(principal: str, rules: Iterable[Rule], default_realm: str) -> str:
    """The user that the rules make of a principal; NoUser if there is none."""
    name = KerberosName.parse(principal)
    if not name.service:
        raise NoUser("the principal has no name")
    if name.host is None:
        if name.realm is None:
            return name.service
        parts: tuple[str, ...] = (name.realm, name.service)
    else:
        parts = (name.realm or "", name.service, name.host)
    for rule in rules:
        try:
            found = rule.apply(parts, default_realm)
        except (IndexError, re.error) as error:
            raise NoUser(f"a rule does not fit {principal[:80]!r}: {error}") from None
        if found:
            return found
    raise NoUser(f"no rule of sasl.kerberos.principal.to.local.rules applies to {principal[:80]!r}")


def _part(parts: tuple[str, ...], number: str) -> str:
    return parts[int(number)] if number else ""
