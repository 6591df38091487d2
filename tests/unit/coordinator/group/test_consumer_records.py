"""The records of the new protocol, byte for byte as Apache Kafka 4.3 wrote them (taken from its log)."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.coordinator.group import consumer_records as records
from ottla.coordinator.group.consumer_member import ClassicMetadata, ConsumerMember
from ottla.protocol.internal.group_records import ClassicMemberMetadata, decode_record

TOPIC = bytes.fromhex("0bb9362024934d74851583d098c1a004")
PLAIN = ConsumerMember(
    "DMvuGLehSwGG8t0FV8KqNg",
    epoch=3,
    previous_epoch=0,
    rebalance_timeout_ms=300_000,
    client_id="plain",
    client_host="/127.0.0.1",
    topic_names=frozenset({"t"}),
    assigned={TOPIC: {1: 3, 3: 3}},
)
STATIC = ConsumerMember(
    "JOFMBgsJQNKjEB+1K4omWQ",
    instance_id="i",
    rebalance_timeout_ms=300_000,
    client_id="rdkafka",
    client_host="/127.0.0.1",
    pattern="(^t$)",
)


@pytest.mark.parametrize(
    ("record", "key", "value"),
    [
        (
            records.member("g", STATIC),
            b"\x00\x05\x00\x01g\x00\x16JOFMBgsJQNKjEB+1K4omWQ",
            b"\x00\x00\x02i\x00\x08rdkafka\x0b/127.0.0.1\x01\x06(^t$)\x00\x04\x93\xe0\x00\x01\x00\x01\x00",
        ),
        (
            records.member("g", PLAIN),
            b"\x00\x05\x00\x01g\x00\x16DMvuGLehSwGG8t0FV8KqNg",
            b"\x00\x00\x00\x00\x06plain\x0b/127.0.0.1\x02\x02t\x01\x00\x04\x93\xe0\x00\x01\x00\x01\x00",
        ),
        (
            records.epoch("g", 3, 0x_D38E8CAA67500E7A - (1 << 64)),
            b"\x00\x03\x00\x01g",
            b"\x00\x00\x00\x00\x00\x03\x01\x00\x08\xd3\x8e\x8c\xaagP\x0ez",
        ),
        (
            records.target("g", "DMvuGLehSwGG8t0FV8KqNg", {TOPIC: frozenset({1, 3})}),
            b"\x00\x07\x00\x01g\x00\x16DMvuGLehSwGG8t0FV8KqNg",
            b"\x00\x00\x02" + TOPIC + b"\x03\x00\x00\x00\x01\x00\x00\x00\x03\x00\x00",
        ),
        (
            records.target_epoch("g", 3, 0x01A1E09813AA),
            b"\x00\x06\x00\x01g",
            b"\x00\x00\x00\x00\x00\x03\x01\x00\x08\x00\x00\x01\xa1\xe0\x98\x13\xaa",
        ),
        (
            records.current("g", PLAIN),
            b"\x00\x08\x00\x01g\x00\x16DMvuGLehSwGG8t0FV8KqNg",
            b"\x00\x00\x00\x00\x00\x03\x00\x00\x00\x00\x00\x02" + TOPIC + b"\x03\x00\x00\x00\x01\x00\x00\x00\x03"
            b"\x01\x00\t\x03\x00\x00\x00\x03\x00\x00\x00\x03\x01\x00",
        ),
    ],
    ids=["static member", "member", "epoch", "target", "target epoch", "current"],
)  # fmt: skip
def test_the_bytes_are_kafkas(record: Any, key: bytes, value: bytes) -> None:
    assert (record.key, record.value) == (key, value)
    assert decode_record(key, value) is not None


def test_a_classic_member_says_so_and_no_other_does() -> None:
    """Kafka takes a member without the field for a classic one: null must be written down."""
    classic = ClassicMetadata(10_000, (("range", b"\0\1"),))
    for member in (PLAIN, ConsumerMember("m", classic=classic)):
        record = records.member("g", member)
        assert record.value is not None
        decoded = decode_record(record.key, record.value)
        assert decoded is not None
        metadata: ClassicMemberMetadata | None = decoded[2].classic_member_metadata
        assert (metadata is None) == (member.classic is None)
        if metadata is not None:
            assert metadata.session_timeout_ms == 10_000
            assert [(protocol.name, bytes(protocol.metadata)) for protocol in metadata.supported_protocols] == [
                ("range", b"\0\1")
            ]
            struct = b"\x00\x00\x27\x10\x02\x06range\x03\x00\x01\x00\x00"
            assert record.value.endswith(b"\x01\x00" + bytes([len(struct) + 1]) + b"\x01" + struct)
