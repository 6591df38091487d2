"""Writes OpenTelemetry's MetricsData for tests, field by field."""

from __future__ import annotations

import struct


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def sub(number: int, data: bytes) -> bytes:
    """A field that is a message or a string."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def attribute(name: str, value: str | int | bool | float) -> bytes:
    match value:
        case bool():
            held = varint(2 << 3) + varint(value)
        case int():
            held = varint(3 << 3) + varint(value & (1 << 64) - 1)
        case float():
            held = varint(4 << 3 | 1) + struct.pack("<d", value)
        case _:
            held = sub(1, value.encode())
    return sub(1, name.encode()) + sub(2, held)


def point(value: float | int, **labels: str | int | bool | float) -> bytes:
    held = (
        varint(6 << 3 | 1) + struct.pack("<q", value) if isinstance(value, int) else varint(4 << 3 | 1) + struct.pack("<d", value)
    )
    times = varint(3 << 3 | 1) + struct.pack("<Q", 1)
    return times + held + b"".join(sub(7, attribute(name, each)) for name, each in labels.items())


def gauge(name: str, *points: bytes, description: str = "") -> bytes:
    return sub(1, name.encode()) + sub(2, description.encode()) + sub(5, b"".join(sub(1, each) for each in points))


def total(name: str, *points: bytes, delta: bool = True, monotonic: bool = True) -> bytes:
    ends = varint(2 << 3) + varint(1 if delta else 2) + varint(3 << 3) + varint(monotonic)
    return sub(1, name.encode()) + sub(7, b"".join(sub(1, each) for each in points) + ends)


def metrics_data(*metrics: bytes, **resource: str) -> bytes:
    scope = b"".join(sub(2, metric) for metric in metrics)
    attributes = b"".join(sub(1, attribute(name, value)) for name, value in resource.items())
    return sub(1, sub(1, attributes) + sub(2, sub(1, b"") + scope))
