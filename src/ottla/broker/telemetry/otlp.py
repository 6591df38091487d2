"""Reads OpenTelemetry's MetricsData (protobuf) as far as Kafka's clients write it: gauges and sums of numbers.

Histograms, summaries, exemplars and unknown fields are skipped. Lengths are checked against the bytes that are there; nothing is
recursive. What is no MetricsData is MalformedInput.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ottla.errors import MalformedInput

Labels = tuple[tuple[str, str], ...]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DELTA: Final = 1
_DOUBLE: Final = struct.Struct("<d")
_INT: Final = struct.Struct("<q")


@dataclass(frozen=True, slots=True)
class Point:
    """One value of one metric."""

    name: str
    description: str
    labels: Labels
    value: float
    is_counter: bool
    """A sum that only grows."""
    is_delta: bool
    """The growth since the last push, instead of the whole."""


class _Field:
    """A field of a message: of `data`, the bytes from `start` to `end`, or the number of a varint."""

    __slots__ = ("end", "kind", "number", "start", "value")

    def __init__(self, number: int, kind: int, start: int, end: int, value: int) -> None:
        self.number, self.kind, self.start, self.end, self.value = number, kind, start, end, value


def read_points(data: bytes) -> Iterator[Point]:
    for resource_metrics in _messages(data, 0, len(data), 1):
        inner = list(_fields(data, resource_metrics.start, resource_metrics.end))
        labels: Labels = ()
        for field in inner:
            if field.number == 1 and field.kind == _BYTES:
                labels = _attributes(data, field, 1)
        for field in inner:
            if field.number == 2 and field.kind == _BYTES:
                for metric in _messages(data, field.start, field.end, 2):
                    yield from _points(data, metric, labels)


def _points(data: bytes, metric: _Field, labels: Labels) -> Iterator[Point]:
    name = description = ""
    values: _Field | None = None
    for field in _fields(data, metric.start, metric.end):
        if field.kind != _BYTES:
            continue
        if field.number == 1:
            name = _text(data, field)
        elif field.number == 2:
            description = _text(data, field)
        elif field.number in (5, 7):
            values = field
    if values is None or not name:
        return
    is_sum = values.number == 7
    temporality = monotonic = 0
    for field in _fields(data, values.start, values.end) if is_sum else ():
        if field.kind == _VARINT and field.number == 2:
            temporality = field.value
        elif field.kind == _VARINT and field.number == 3:
            monotonic = field.value
    for point in _messages(data, values.start, values.end, 1):
        value = _number(data, point)
        if value is not None:
            own = _attributes(data, point, 7)
            yield Point(name, description, labels + own, value, is_sum and monotonic == 1, is_sum and temporality == _DELTA)


def _number(data: bytes, point: _Field) -> float | None:
    """None for a point without a value."""
    value: float | None = None
    for field in _fields(data, point.start, point.end):
        if field.kind == _FIXED64 and field.number == 4:
            value = _DOUBLE.unpack_from(data, field.start)[0]
        elif field.kind == _FIXED64 and field.number == 6:
            value = _INT.unpack_from(data, field.start)[0]
    return value


def _attributes(data: bytes, within: _Field, number: int) -> Labels:
    """The attributes with a simple value, in the field `number` of a message."""
    found = []
    for attribute in _messages(data, within.start, within.end, number):
        key, value = "", None
        for field in _fields(data, attribute.start, attribute.end):
            if field.kind == _BYTES and field.number == 1:
                key = _text(data, field)
            elif field.kind == _BYTES and field.number == 2:
                value = _simple_value(data, field)
        if key and value is not None:
            found.append((key, value))
    return tuple(found)


def _simple_value(data: bytes, within: _Field) -> str | None:
    for field in _fields(data, within.start, within.end):
        match field.number, field.kind:
            case 1, 2:
                return _text(data, field)
            case 2, 0:
                return "true" if field.value else "false"
            case 3, 0:
                return str(field.value if field.value < 1 << 63 else field.value - (1 << 64))
            case 4, 1:
                return str(_DOUBLE.unpack_from(data, field.start)[0])
    return None


def _text(data: bytes, field: _Field) -> str:
    return data[field.start : field.end].decode("utf-8", "replace")


def _messages(data: bytes, start: int, end: int, number: int) -> Iterator[_Field]:
    return (field for field in _fields(data, start, end) if field.number == number and field.kind == _BYTES)


def _fields(data: bytes, position: int, end: int) -> Iterator[_Field]:
    while position < end:
        tag, position = _varint(data, position, end)
        kind, value, start = tag & 7, 0, position
        if kind == _VARINT:
            value, position = _varint(data, position, end)
        elif kind == _FIXED64:
            position += 8
        elif kind == _FIXED32:
            position += 4
        elif kind == _BYTES:
            size, start = _varint(data, position, end)
            position = start + size
        else:
            raise MalformedInput(f"a protobuf field of wire type {kind}")
        if position > end:
            raise MalformedInput("a protobuf field is longer than its message")
        yield _Field(tag >> 3, kind, start, position, value)


def _varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    """The number, and the position behind it."""
    value = shift = 0
    while position < end and shift < 70:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, position
        shift += 7
    raise MalformedInput("a protobuf number does not end")
