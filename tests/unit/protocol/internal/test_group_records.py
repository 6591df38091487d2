"""The records of `__consumer_offsets`, against bytes that Apache Kafka wrote."""

from __future__ import annotations

import pytest

from ottla.coordinator.group.committed_offset import offset_commit_value, offset_key, offset_key_prefix
from ottla.errors import MalformedInput
from ottla.protocol.internal import group_records as records


def test_an_offset_commit_has_kafkas_bytes() -> None:
    key = records.OffsetCommitKey(group="g", topic="t", partition=7)
    assert records.encode_key(key) == bytes.fromhex("0001 0001 67 0001 74 00000007")
    value = records.OffsetCommitValue(offset=42, leader_epoch=3, metadata="m", commit_timestamp=5)
    assert records.encode_value(value, 3) == bytes.fromhex("0003 000000000000002a 00000003 0001 6d 0000000000000005")
    assert records.encode_value(value, 4) == bytes.fromhex("0004 000000000000002a 00000003 02 6d 0000000000000005 00")
    expiring = records.OffsetCommitValue(offset=42, metadata="m", commit_timestamp=5, expire_timestamp=6)
    assert records.encode_value(expiring, 1) == bytes.fromhex("0001 000000000000002a 0001 6d 0000000000000005 0000000000000006")


@pytest.mark.parametrize("metadata", ["", "m", "säge", "x" * 126, "x" * 127, "x" * 4096])
@pytest.mark.parametrize("topic_id", [bytes(16), bytes(range(16))])
def test_the_short_way_to_an_offset_writes_what_the_codec_does(metadata: str, topic_id: bytes) -> None:
    value = records.OffsetCommitValue(offset=42, leader_epoch=3, metadata=metadata, commit_timestamp=5, topic_id=topic_id)
    assert offset_commit_value(42, 3, metadata, 5, topic_id) == records.encode_value(value, records.OFFSET_COMMIT_VERSION)


@pytest.mark.parametrize("group", ["g", "gruppe-ä"])
@pytest.mark.parametrize("topic", ["t", "x" * 249])
@pytest.mark.parametrize("partition", [0, 7, 0x7FFFFFFF])
def test_the_short_way_to_an_offset_key_writes_what_the_codec_does(group: str, topic: str, partition: int) -> None:
    decoded = records.OffsetCommitKey(group=group, topic=topic, partition=partition)
    key = offset_key(offset_key_prefix(group, topic), partition)
    assert key == records.encode_key(decoded)
    assert records.decode_record(key, None) == (1, decoded, None)


def test_a_group_has_kafkas_bytes() -> None:
    member = records.MemberMetadata(
        member_id="m", client_id="c", client_host="/h", rebalance_timeout=2, session_timeout=1, subscription=b"s", assignment=b"a"
    )
    value = records.GroupMetadataValue(
        protocol_type="consumer", generation=9, protocol="range", leader="m", current_state_timestamp=8, members=[member]
    )
    assert records.encode_key(records.GroupMetadataKey(group="g")) == bytes.fromhex("0002 0001 67")
    assert records.encode_value(value, records.GROUP_METADATA_VERSION) == (
        bytes.fromhex("0003 0008")
        + b"consumer"
        + bytes.fromhex("00000009 0005")
        + b"range"
        + bytes.fromhex("0001 6d 0000000000000008 00000001")
        + bytes.fromhex("0001 6d ffff 0001 63 0002 2f68 00000002 00000001 00000001 73 00000001 61")
    )


@pytest.mark.parametrize("number", sorted(records.TYPES))
def test_every_record_comes_back(number: int) -> None:
    key_class, value_class = records.TYPES[number]
    key, value = key_class(), value_class()
    text = number.to_bytes(2, "big") + records.encode_key(key)[2:]
    assert number == 0 or text == records.encode_key(key), "type 0 is only read"
    decoded = records.decode_record(text, records.encode_value(value, 0))
    assert decoded == (number, key, value)
    assert records.decode_record(text, None) == (number, key, None)


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("number", [1, 2])
def test_old_values_come_back_in_all_their_versions(number: int, version: int) -> None:
    key_class, value_class = records.TYPES[number]
    data = records.encode_value(value_class(), version)
    decoded = records.decode_record(records.encode_key(key_class()), data)
    assert decoded is not None
    assert records.encode_value(decoded[2], version) == data


def test_unknown_types_are_none_and_unknown_versions_malformed() -> None:
    assert records.decode_record(b"\x00\x0bshare", b"\0\0") is None
    key = records.encode_key(records.GroupMetadataKey(group="g"))
    for value in (b"", b"\0", b"\0\x09" + b"\0" * 40, b"\0\3\0\1"):
        with pytest.raises(MalformedInput):
            records.decode_record(key, value)
    with pytest.raises(MalformedInput):
        records.decode_record(b"\0", None)
