"""Decodes MessagePack, strictly: one value and nothing behind it. Pure.

Bytes that are no text become `{"base64": …}` in `plain`, extension types their number and bytes.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Callable
from typing import Any, Final

_DEPTH_MAX: Final = 64


class NotMessagePack(ValueError):
    """The bytes are no MessagePack, or more than one value."""


def decode(data: bytes) -> Any:
    reader = _Reader(data)
    value = reader.value(0)
    if reader.at != len(data):
        raise NotMessagePack(f"{len(data) - reader.at} bytes after the value")
    return value


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def _take(self, size: int) -> bytes:
        if size > len(self._data) - self.at:
            raise NotMessagePack(f"a value of {size} bytes in {len(self._data) - self.at}")
        self.at += size
        return self._data[self.at - size : self.at]

    def _number(self, form: str) -> Any:
        return struct.unpack(form, self._take(struct.calcsize(form)))[0]

    def value(self, depth: int) -> Any:
        if depth > _DEPTH_MAX:
            raise NotMessagePack("too many values inside each other")
        first = self._take(1)[0]
        if first <= 0x7F:
            return first
        if first >= 0xE0:
            return first - 0x100
        if first <= 0x8F:
            return self._map(first & 0x0F, depth)
        if first <= 0x9F:
            return self._array(first & 0x0F, depth)
        if first <= 0xBF:
            return self._text(first & 0x1F)
        if first in _CONSTANTS:
            return _CONSTANTS[first]
        if first in _NUMBERS:
            found = self._number(_NUMBERS[first])
            if isinstance(found, float) and not math.isfinite(found):
                return str(found)
            return found
        if first in _SIZED:
            form, read = _SIZED[first]
            return read(self, self._number(form), depth)
        if 0xD4 <= first <= 0xD8:
            return self._extension(1 << (first - 0xD4), depth)
        raise NotMessagePack(f"0x{first:02x} begins no value")

    def _map(self, count: int, depth: int) -> dict[str, Any]:
        self._check_count(2 * count)
        found: dict[str, Any] = {}
        for _ in range(count):
            key = self.value(depth + 1)
            found[key if isinstance(key, str) else str(key)] = self.value(depth + 1)
        return found

    def _array(self, count: int, depth: int) -> list[Any]:
        self._check_count(count)
        return [self.value(depth + 1) for _ in range(count)]

    def _check_count(self, count: int) -> None:
        if count > len(self._data) - self.at:
            raise NotMessagePack(f"{count} values in {len(self._data) - self.at} bytes")

    def _text(self, size: int, depth: int = 0) -> str:
        try:
            return self._take(size).decode()
        except UnicodeDecodeError:
            raise NotMessagePack("a text that is not UTF-8") from None

    def _bytes(self, size: int, depth: int) -> dict[str, str]:
        return {"base64": base64.b64encode(self._take(size)).decode()}

    def _extension(self, size: int, depth: int) -> dict[str, Any]:
        kind = self._number(">b")
        return {"extension": kind, "base64": base64.b64encode(self._take(size)).decode()}


_CONSTANTS: Final[dict[int, Any]] = {0xC0: None, 0xC2: False, 0xC3: True}
_NUMBERS: Final = {
    0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"
}  # fmt: skip
_SIZED: Final[dict[int, tuple[str, Callable[[_Reader, int, int], Any]]]] = {
    0xC4: (">B", _Reader._bytes), 0xC5: (">H", _Reader._bytes), 0xC6: (">I", _Reader._bytes),
    0xC7: (">B", _Reader._extension), 0xC8: (">H", _Reader._extension), 0xC9: (">I", _Reader._extension),
    0xD9: (">B", _Reader._text), 0xDA: (">H", _Reader._text), 0xDB: (">I", _Reader._text),
    0xDC: (">H", _Reader._array), 0xDD: (">I", _Reader._array),
    0xDE: (">H", _Reader._map), 0xDF: (">I", _Reader._map),
}  # fmt: skip
