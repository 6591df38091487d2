"""A record as an expression sees it: each part is decoded when it is first asked for.

Bytes are read as UTF-8, with U+FFFD for what is not. A key or value that is a JSON object or array is one; all else is text.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Protocol

from ottla.filters.times import Moment


class Record(Protocol):
    """What a filter reads of a record."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp_ms(self) -> int | None: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]: ...


def text_of(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "replace")


def _no_number(_: str) -> None:
    """NaN and Infinity are not JSON."""


_DECODER = json.JSONDecoder(parse_constant=_no_number)


def decoded(text: str | None) -> Any:
    """The object or array that the text is as JSON, else the text."""
    if text is None or not text.lstrip(" \t\r\n").startswith(("{", "[")):
        return text
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError):
        return text


class _Unread:
    """Marks a part that is not decoded yet."""


_UNREAD = _Unread()


class Row:
    """The parts of one record by the names of the language."""

    __slots__ = ("_headers", "_key", "_value", "record")

    def __init__(self, record: Record) -> None:
        self.record = record
        self._key: Any = _UNREAD
        self._value: Any = _UNREAD
        self._headers: Any = _UNREAD

    @property
    def key(self) -> Any:
        if self._key is _UNREAD:
            self._key = decoded(self.key_text)
        return self._key

    @property
    def value(self) -> Any:
        if self._value is _UNREAD:
            self._value = decoded(self.value_text)
        return self._value

    @property
    def key_text(self) -> str | None:
        return text_of(self.record.key)

    @property
    def value_text(self) -> str | None:
        return text_of(self.record.value)

    @property
    def headers(self) -> dict[str, str | None]:
        """By name. Of several headers of a name it is the last, as in Kafka's `lastHeader`."""
        if self._headers is _UNREAD:
            self._headers = {name: text_of(value) for name, value in self.record.headers}
        headers: dict[str, str | None] = self._headers
        return headers

    @property
    def timestamp(self) -> Moment | None:
        ms = self.record.timestamp_ms
        return None if ms is None else Moment(ms)
