"""A setting: name, type, default, allowed values, update mode, documentation.

Parses and renders values as Kafka writes them, and describes invalid ones.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Literal, Protocol

Value = bool | int | float | str | tuple[str, ...] | None
UpdateMode = Literal["read-only", "per-broker", "cluster-wide"]
INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1


_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)


class SettingType(IntEnum):
    """The numbers are those of DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9

    @property
    def words(self) -> str:
        return self.name.lower()


BOOLEAN: Final = SettingType.BOOLEAN
STRING: Final = SettingType.STRING
INT: Final = SettingType.INT
SHORT: Final = SettingType.SHORT
LONG: Final = SettingType.LONG
DOUBLE: Final = SettingType.DOUBLE
LIST: Final = SettingType.LIST
CLASS: Final = SettingType.CLASS
PASSWORD: Final = SettingType.PASSWORD
_WHOLE: Final = {SHORT: 2**15, INT: 2**31, LONG: 2**63}


class Allowed(Protocol):
    """A constraint on values of the right type."""

    @property
    def words(self) -> str:
        """The allowed values, after "allowed:"."""
        ...

    def accepts(self, value: Value) -> bool: ...


@dataclass(frozen=True, slots=True)
class Between:
    low: float | None
    high: float | None = None
    also: int | None = None
    """One allowed value outside the range."""

    @property
    def words(self) -> str:
        if self.high is None:
            words = f"{self.low} or more"
        elif self.low is None:
            words = f"{self.high} or less"
        else:
            words = f"{self.low} to {self.high}"
        return words if self.also is None else f"{words}, or {self.also}"

    def accepts(self, value: Value) -> bool:
        assert isinstance(value, int | float), value
        if self.also is not None and value == self.also:
            return True
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of the choices; of a list, each element."""

    choices: tuple[str, ...]
    any_case: bool = False

    @property
    def words(self) -> str:
        return ", ".join(self.choices)

    def accepts(self, value: Value) -> bool:
        elements = value if isinstance(value, tuple) else (str(value),)
        if self.any_case:
            lowered = {choice.lower() for choice in self.choices}
            return all(element.lower() in lowered for element in elements)
        return all(element in self.choices for element in elements)


@dataclass(frozen=True, slots=True)
class NotEmpty:
    words: str = "not empty"

    def accepts(self, value: Value) -> bool:
        return bool(value)


@dataclass(frozen=True, slots=True)
class HostPort:
    words: str = "host:port, such as 127.0.0.1:9404, or empty"

    def accepts(self, value: Value) -> bool:
        return value == "" or (_HOST_PORT.fullmatch(str(value)) is not None and host_and_port(str(value))[1] < 1 << 16)


_HOST_PORT = re.compile(r"(?:\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]*):[0-9]{1,5}", re.ASCII)


def host_and_port(text: str) -> tuple[str, int]:
    """The host and port of a value that `HostPort` accepts. An empty host is every interface."""
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


@dataclass(frozen=True, slots=True)
class ThrottledReplicas:
    words: str = "* or a list of partition:broker"

    def accepts(self, value: Value) -> bool:
        assert isinstance(value, tuple), value
        return value == ("*",) or all(re.fullmatch(r"[0-9]+:[0-9]+", pair, re.ASCII) for pair in value)


def at_least(low: float) -> Between:
    return Between(low)


def between(low: float, high: float) -> Between:
    return Between(low, high)


def one_of(*choices: str) -> OneOf:
    return OneOf(choices)


@dataclass(frozen=True, slots=True)
class Setting:
    name: str
    type: SettingType
    default: Value
    valid: Allowed | None
    scope: Literal["broker", "topic", "group", "client-metrics"]
    update_mode: UpdateMode
    used: bool
    """False: Kafka has the setting and Ottla does not use it."""
    doc: str
    server_default: str | None = None
    """Of a topic or group setting: the broker setting that is its default."""
    internal: bool = False
    """Not described unless it is set: Kafka's internal settings, and topic settings that Kafka 4 removed."""

    @property
    def sensitive(self) -> bool:
        return self.type is PASSWORD

    def parse(self, text: str) -> Value:
        """The value of a text; a ValueError says what is wrong and what is allowed."""
        value = self._typed(text.strip())
        if self.valid is not None and value is not None and not self.valid.accepts(value):
            raise ValueError(f"{self.name}={self.shown(text)} is not allowed; allowed: {self.valid.words}")
        return value

    def render(self, value: Value) -> str | None:
        """The value as Kafka writes it, the inverse of `parse`. None for a password."""
        if value is None or self.sensitive:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        if isinstance(value, float):
            return _java_double(value)
        return str(value)

    def shown(self, text: str) -> str:
        return "[hidden]" if self.sensitive else text.strip()

    def _typed(self, text: str) -> Value:
        match self.type:
            case SettingType.BOOLEAN:
                if text.lower() not in ("true", "false"):
                    raise ValueError(f"{self.name}={text} is not a boolean; allowed: true, false")
                return text.lower() == "true"
            case SettingType.INT | SettingType.SHORT | SettingType.LONG:
                limit = _WHOLE[self.type]
                if not _WHOLE_NUMBER.fullmatch(text):
                    raise ValueError(f"{self.name}={text} is not a whole number{self._allowed()}")
                # The length is checked first: parsing a megabyte of digits takes seconds.
                if len(text) > 20 or not -limit <= int(text) < limit:
                    raise ValueError(f"{self.name}={text[:40]} does not fit into the type {self.type.words}{self._allowed()}")
                return int(text)
            case SettingType.DOUBLE:
                if not _NUMBER.fullmatch(text):
                    raise ValueError(f"{self.name}={text} is not a number{self._allowed()}")
                return float(text)
            case SettingType.LIST:
                return tuple(element.strip() for element in text.split(",")) if text else ()
            case _:
                return text

    def _allowed(self) -> str:
        return f"; allowed: {self.valid.words}" if self.valid is not None else ""


def broker_setting(
    name: str,
    type: SettingType,
    default: Value,
    *,
    used: bool,
    valid: Allowed | None = None,
    mode: UpdateMode = "read-only",
    internal: bool = False,
    doc: str,
) -> Setting:
    return Setting(name, type, default, valid, "broker", mode, used, doc, internal=internal)


def _java_double(value: float) -> str:
    text = repr(value)
    return text.upper().replace("E+", "E") if "e" in text else text


def table_of(rows: Iterable[Setting]) -> dict[str, Setting]:
    table: dict[str, Setting] = {}
    for row in rows:
        assert row.name not in table, row.name
        table[row.name] = row
    return dict(sorted(table.items()))


class SettingsError(ValueError):
    """Invalid settings. `problems` has one sentence for each."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = list(problems)
        super().__init__("; ".join(self.problems))


def unknown_name(name: str, known: Iterable[str], what: str = "setting") -> str:
    """The problem of an unknown name, with the closest known one."""
    import difflib  # not needed by a broker that starts

    shown = name if len(name) <= 120 else name[:120] + "…"
    near = difflib.get_close_matches(name[:120], list(known), n=1, cutoff=0.6)
    return f"unknown {what} {shown}" + (f"; did you mean {near[0]}?" if near else "")


class SettingValues:
    """Typed getters; a value of another type is a bug, not a user's mistake."""

    __slots__ = ()

    def value(self, name: builtins.str) -> Value:
        raise NotImplementedError

    def int(self, name: builtins.str) -> builtins.int:
        value = self.value(name)
        assert isinstance(value, builtins.int), (name, value)
        assert not isinstance(value, builtins.bool), (name, value)
        return value

    def float(self, name: builtins.str) -> builtins.float:
        value = self.value(name)
        assert isinstance(value, builtins.float | builtins.int), (name, value)
        return builtins.float(value)

    def bool(self, name: builtins.str) -> builtins.bool:
        value = self.value(name)
        assert isinstance(value, builtins.bool), (name, value)
        return value

    def str(self, name: builtins.str) -> builtins.str:
        value = self.value(name)
        assert isinstance(value, builtins.str), (name, value)
        return value

    def list(self, name: builtins.str) -> tuple[builtins.str, ...]:
        value = self.value(name)
        assert isinstance(value, tuple), (name, value)
        return value

    def optional_str(self, name: builtins.str) -> builtins.str | None:
        value = self.value(name)
        assert value is None or isinstance(value, builtins.str), (name, value)
        return value
