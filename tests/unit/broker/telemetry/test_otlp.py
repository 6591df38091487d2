from __future__ import annotations

import random

import pytest

from ottla.broker.telemetry.otlp import Point, read_points
from ottla.errors import MalformedInput
from tests.unit.broker.telemetry.otlp_bytes import gauge, metrics_data, point, sub, total, varint


def test_gauges_and_sums_with_the_attributes_of_point_and_resource() -> None:
    data = metrics_data(
        gauge("org.apache.kafka.producer.connections", point(2.5, node="1", up=True, of=-3, at=0.5), description="Open"),
        total("org.apache.kafka.producer.records.total", point(7), point(8, topic="a")),
        total("org.apache.kafka.producer.bytes.total", point(9), delta=False),
        total("org.apache.kafka.producer.level", point(1), monotonic=False),
        group_id="billing",
    )
    group = (("group_id", "billing"),)
    assert list(read_points(data)) == [
        Point(
            "org.apache.kafka.producer.connections",
            "Open",
            (*group, ("node", "1"), ("up", "true"), ("of", "-3"), ("at", "0.5")),
            2.5,
            is_counter=False,
            is_delta=False,
        ),
        Point("org.apache.kafka.producer.records.total", "", group, 7, is_counter=True, is_delta=True),
        Point("org.apache.kafka.producer.records.total", "", (*group, ("topic", "a")), 8, is_counter=True, is_delta=True),
        Point("org.apache.kafka.producer.bytes.total", "", group, 9, is_counter=True, is_delta=False),
        Point("org.apache.kafka.producer.level", "", group, 1, is_counter=False, is_delta=True),
    ]


def test_what_is_not_known_is_skipped() -> None:
    histogram = sub(1, b"h") + sub(9, sub(1, b""))
    without_value = gauge("empty", b"")
    nameless = gauge("", point(1))
    strange = gauge("kept", point(3)) + varint(99 << 3) + varint(5) + varint(98 << 3 | 5) + b"abcd"
    assert [each.name for each in read_points(metrics_data(histogram, without_value, nameless, strange))] == ["kept"]
    assert list(read_points(b"")) == []


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a\x05ab",
        b"\x0a" + b"\xff" * 11,
        b"\x0b\x00",
        b"\x09abc",
        b"\x0a\x80",
        sub(1, sub(2, sub(2, sub(1, b"name") + sub(5, sub(1, b"\x21abc"))))),
        sub(1, sub(2, sub(2, sub(1, b"name") + sub(5, b"\x0a\x7f")))),
    ],
)
def test_what_is_no_metrics_data_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedInput):
        list(read_points(data))


def test_damage_anywhere_is_read_or_malformed() -> None:
    """Nothing else happens: no other exception, no endless loop."""
    data = metrics_data(gauge("a", point(1.5, x="y")), total("b", point(2), point(3, z=1)), client_rack="r")
    chance = random.Random(7)
    for _ in range(3000):
        damaged = bytearray(data)
        for _ in range(chance.randrange(1, 4)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        try:
            list(read_points(bytes(damaged[: chance.randrange(len(damaged) + 1)])))
        except MalformedInput:
            pass
