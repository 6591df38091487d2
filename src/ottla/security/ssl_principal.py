"""The principal of a client certificate: `ssl.principal.mapping.rules` on the name of its subject (TL04).

A rule is `DEFAULT`, which takes the name as it is, or `RULE:pattern/replacement/[L|U]`. The first rule whose pattern matches the
whole name decides. The pattern is then replaced everywhere in the name, as Java's `replaceAll` does, and L or U changes the case.
Patterns are Java's: `java_pattern` writes them for Python, and refuses what would mean something else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from ottla.security.certificate import subject_of
from ottla.security.principal import ANONYMOUS, USER, Principal

_RULE: Final = r"(DEFAULT)|RULE:((\\.|[^\\/])*)/((\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER: Final = re.compile(rf"[ \t\n\x0b\f\r]*({_RULE})[ \t\n\x0b\f\r]*(,[ \t\n\x0b\f\r]*|$)")
_PARSER: Final = re.compile(_RULE)
_REFERENCE: Final = re.compile(r"\$(\d+)", re.ASCII)
_JAVA_BLANKS: Final = "".join(map(chr, range(0x21)))
_NOT_IN_PYTHON: Final = frozenset("pPRXhHvVGkNceE")
"""Letters that follow a backslash in Java's patterns and mean something else, or nothing, in Python's."""
_ANY_CHAR: Final = "[^\\n\\r\\x85\\u2028\\u2029]"


class BadRule(ValueError):
    """`ssl.principal.mapping.rules` has an invalid rule."""


class NoMatchingRule(ValueError):
    """No rule matches the name of a certificate's subject."""


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str] | None
    """None: DEFAULT."""
    replacement: str
    case: str

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        result = self.pattern.sub(lambda match: _replaced(self.replacement, match), name)
        return result.lower() if self.case == "L" else result.upper() if self.case == "U" else result


class SslPrincipalMapper:
    def __init__(self, rules: str) -> None:
        """BadRule names a rule that is invalid."""
        self._text = rules
        self._rules = [rule for text in _split(rules) if (rule := _parse(text)) is not None]

    def name_of(self, subject: str) -> str:
        """The name of the principal, or NoMatchingRule."""
        for rule in self._rules:
            name = rule.apply(subject)
            if name is not None:
                return name
        raise NoMatchingRule(f"no rule of ssl.principal.mapping.rules matches the subject {subject}")


def certificate_principal(mapper: SslPrincipalMapper, der: bytes | None) -> Principal:
    """The principal of a client on an SSL listener, from its certificate. ValueError, with the reason, if there is none."""
    return ANONYMOUS if der is None else Principal(USER, mapper.name_of(subject_of(der)))


def _split(rules: str) -> list[str]:
    return [match[1] for match in _SPLITTER.finditer(rules.strip(_JAVA_BLANKS))]


def _parse(text: str) -> _Rule | None:
    match = _PARSER.match(text)
    if match is None or match.end() != len(text):
        # The last alternative of the pattern takes everything else, but nothing of it.
        raise BadRule(f"ssl.principal.mapping.rules: {text} is not a rule; allowed: DEFAULT, RULE:pattern/replacement/[L|U]")
    if match[1] is not None:
        return _Rule(None, "", "")
    if match[2] is None:
        return None
    try:
        pattern = re.compile(java_pattern(match[2]), re.ASCII)
    except (re.error, BadRule) as error:
        raise BadRule(f"ssl.principal.mapping.rules: the pattern {match[2]} is not supported: {error}") from None
    _check_replacement(match[4], pattern.groups)
    return _Rule(pattern, match[4], match[6])


def _check_replacement(replacement: str, groups: int) -> None:
    """Java would throw for each certificate; a rule that cannot work is refused once."""
    at = 0
    while at < len(replacement):
        char = replacement[at]
        if char == "\\":
            if at + 1 == len(replacement):
                raise BadRule(f"ssl.principal.mapping.rules: the replacement {replacement} ends with a backslash")
            at += 1
        elif char == "$":
            number = _REFERENCE.match(replacement, at)
            if number is None:
                raise BadRule(f"ssl.principal.mapping.rules: $ must be followed by the number of a group: {replacement}")
            if groups == 0 and int(number[1][0]) > 0:
                raise BadRule(f"ssl.principal.mapping.rules: {number[0]} names a group, and the pattern has none: {replacement}")
        at += 1


def _replaced(replacement: str, match: re.Match[str]) -> str:
    """Java's replacement: `$n` is a group, with as many digits as there are groups for; `\\c` is `c`. A group that the pattern
    does not have is text, as in Kafka."""
    groups = match.re.groups
    parts: list[str] = []
    at = 0
    while at < len(replacement):
        char = replacement[at]
        at += 1
        if char == "\\":
            parts.append(replacement[at])
            at += 1
        elif char == "$":
            number = int(replacement[at])
            if number > groups:
                parts.append("$")
                continue
            at += 1
            while at < len(replacement) and replacement[at] in "0123456789":
                longer = number * 10 + int(replacement[at])
                if longer > groups:
                    break
                number = longer
                at += 1
            parts.append(match[number] or "")
        else:
            parts.append(char)
    return "".join(parts)


def java_pattern(pattern: str) -> str:
    """A pattern of Java's as one of Python's. BadRule for what Python does not have."""
    parts: list[str] = []
    at = 0
    in_class = False
    while at < len(pattern):
        char = pattern[at]
        after = pattern[at + 1 : at + 2]
        if char == "\\":
            if after == "Q":
                end = pattern.find("\\E", at + 2)
                end = len(pattern) if end < 0 else end
                parts.append(re.escape(pattern[at + 2 : end]))
                at = end + 2
                continue
            if after in _NOT_IN_PYTHON or not after:
                raise BadRule(f"\\{after} has no counterpart in Python")
            if after == "Z" and not in_class:
                parts.append(r"(?=(?:\r\n|[\n\r\x85\u2028\u2029])?\Z)")
            else:
                parts.append(r"\Z" if after == "z" and not in_class else char + after)
            at += 2
            continue
        if in_class:
            if char == "[" or pattern.startswith("&&", at):
                raise BadRule("sets of characters inside of others have no counterpart in Python")
            in_class = char != "]"
            parts.append(char)
        elif char == "[":
            in_class = True
            begin = at
            if after == "^":
                at += 1
            if pattern[at + 1 : at + 2] == "]":
                at += 1  # the first one is a character
            parts.append(pattern[begin : at + 1].replace("]", "\\]"))
        elif char == ".":
            parts.append(_ANY_CHAR)
        elif char == "$":
            parts.append(r"(?=(?:\r\n|[\n\r\x85\u2028\u2029])?\Z)")
        elif pattern.startswith("(?<", at) and pattern[at + 3 : at + 4] not in ("=", "!"):
            parts.append("(?P<")
            at += 2
        elif char == "(" and after == "?" and re.match(r"\(\?[a-zA-Z-]*[sxmudU]", pattern[at:]):
            raise BadRule("of the flags only i is supported")
        else:
            parts.append(char)
        at += 1
    if in_class:
        raise BadRule("a set of characters has no end")
    return "".join(parts)
