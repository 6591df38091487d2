"""Java's login configuration (JAAS): the value of `sasl.jaas.config`, and files with named sections.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="secret";

    KafkaServer { … required …; };
    Client { org.apache.zookeeper.server.auth.DigestLoginModule required username="kafka" password="secret"; };

Classes are not looked up: the SASL mechanism decides which options count. Messages never contain values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_TOKEN: Final = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/|"(?P<double>(?:[^"\\]|\\.)*)"|'(?P<single>(?:[^'\\]|\\.)*)'|(?P<mark>[=;{}])|"""
    r"""(?P<word>(?:(?!//|/\*)[^\s=;{}"'])+)""",
    re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


class BadJaas(ValueError):
    """A configuration that cannot be read. The message says where, without the values."""


@dataclass(frozen=True, slots=True)
class LoginModule:
    class_name: str
    options: Mapping[str, str] = field(repr=False)


def parse_jaas(text: str) -> LoginModule:
    """The login module of a `sasl.jaas.config`. Kafka allows exactly one."""
    tokens = _Tokens(text)
    module = _module(tokens)
    if tokens.peek() is not None:
        raise BadJaas("it holds more than one login module")
    return module


def parse_jaas_file(text: str) -> dict[str, list[LoginModule]]:
    """The login modules of each section."""
    tokens = _Tokens(text)
    sections: dict[str, list[LoginModule]] = {}
    while tokens.peek() is not None:
        name = tokens.word("a section name")
        tokens.mark("{", f"after {name}")
        modules = []
        while tokens.peek() != ("mark", "}"):
            modules.append(_module(tokens))
        tokens.mark("}", f"at the end of section {name}")
        tokens.mark(";", f"after section {name}")
        sections[name] = modules
    return sections


def _module(tokens: _Tokens) -> LoginModule:
    class_name = tokens.word("a login module class")
    flag = tokens.word(f"a control flag after {class_name}")
    if flag.lower() not in _FLAGS:
        raise BadJaas(f"{class_name} has no control flag; allowed: {', '.join(_FLAGS)}")
    options: dict[str, str] = {}
    while tokens.peek() != ("mark", ";"):
        name = tokens.word(f"an option or ; in {class_name}")
        tokens.mark("=", f"after option {name} of {class_name}")
        options[name] = tokens.word(f"a value of option {name} of {class_name}")
    tokens.mark(";", f"at the end of {class_name}")
    return LoginModule(class_name, options)


class _Tokens:
    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        self._next = 0
        at = 0
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise BadJaas("a quoted value does not end")
            at = match.end()
            kind = match.lastgroup
            if kind is None:
                continue  # a blank or a comment
            value = match[kind]
            if kind in ("double", "single"):
                kind, value = "word", _ESCAPE.sub(lambda found: _ESCAPES.get(found[1], found[1]), value)
            self._tokens.append((kind, value))

    def peek(self) -> tuple[str, str] | None:
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    def word(self, what: str) -> str:
        token = self.peek()
        if token is None or token[0] != "word":
            raise BadJaas(f"{what} is missing")
        self._next += 1
        return token[1]

    def mark(self, mark: str, where: str) -> None:
        if self.peek() != ("mark", mark):
            raise BadJaas(f"{mark} is missing {where}")
        self._next += 1
