"""The records of `__transaction_state`: one key per transactional id, as Kafka writes them.

A key begins with two bytes with the record type (only 0 exists), a value with two bytes with its version; no value is a
tombstone. Unknown types decode to None.

Version 1 is written, as by Kafka since `transaction.version` 1; 3.9 can read it. Unlike Kafka, Ottla also fills in the previous
and the next producer id: a coordinator that takes over between PREPARE_* and COMPLETE_* knows the new id of a producer with
exhausted epochs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from struct import Struct
from typing import Final

from ottla.errors import MalformedInput
from ottla.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Buffer
from ottla.wire.codec import decode, encode
from ottla.wire.schema import list_of, message, wire
from ottla.wire.varint import write_unsigned_varint


@message(versions="0")
class TransactionLogKey:
    transactional_id: str = wire("string")


@message()
class PartitionsSchema:
    topic: str = wire("string")
    partition_ids: list[int] = wire("[]int32")


@message(versions="0-1", flexible="1+")
class TransactionLogValue:
    producer_id: int = wire("int64")
    previous_producer_id: int = wire("int64", "1+", tag=0, default=NO_PRODUCER_ID, ignorable=True)
    next_producer_id: int = wire("int64", "1+", tag=1, default=NO_PRODUCER_ID, ignorable=True)
    producer_epoch: int = wire("int16")
    next_producer_epoch: int = wire("int16", "1+", tag=3, default=NO_PRODUCER_EPOCH, ignorable=True)
    transaction_timeout_ms: int = wire("int32")
    transaction_status: int = wire("int8")
    transaction_partitions: list[PartitionsSchema] | None = wire(list_of(PartitionsSchema), nullable="0+")
    transaction_last_update_timestamp_ms: int = wire("int64")
    transaction_start_timestamp_ms: int = wire("int64")
    client_transaction_version: int = wire("int16", "1+", tag=2, default=0, ignorable=True)


VALUE_VERSION: Final = 1

_TRANSACTION_LOG: Final = 0
_VERSIONS: Final = (0, 1)
_prefix = Struct(">h")
_int32 = Struct(">i")
_value_head = Struct(">hqhib")
_value_times = Struct(">qq")
_id_tag = Struct(">bbq")
_version_tag = Struct(">bbh")


@lru_cache(maxsize=16_384)
def encode_key(transactional_id: str) -> bytes:
    return _prefix.pack(_TRANSACTION_LOG) + encode(TransactionLogKey(transactional_id=transactional_id), 0)


def encode_value(value: TransactionLogValue, version: int = VALUE_VERSION) -> bytes:
    return _prefix.pack(version) + encode(value, version)


def transaction_value(
    producer_id: int,
    previous_producer_id: int,
    next_producer_id: int,
    producer_epoch: int,
    timeout_ms: int,
    status: int,
    partitions: Mapping[str, Sequence[int]] | None,
    last_update_ms: int,
    start_ms: int,
    client_version: int,
) -> bytes:
    """The record value of a transactional id. The same bytes as from the codec, faster."""
    out = bytearray(_value_head.pack(VALUE_VERSION, producer_id, producer_epoch, timeout_ms, status))
    if partitions is None:
        out.append(0)
    else:
        write_unsigned_varint(out, len(partitions) + 1)
        for topic, numbers in partitions.items():
            name = topic.encode()
            write_unsigned_varint(out, len(name) + 1)
            out += name
            write_unsigned_varint(out, len(numbers) + 1)
            for number in numbers:
                out += _int32.pack(number)
            out.append(0)
    out += _value_times.pack(last_update_ms, start_ms)
    tags = []
    if previous_producer_id != NO_PRODUCER_ID:
        tags.append(_id_tag.pack(0, 8, previous_producer_id))
    if next_producer_id != NO_PRODUCER_ID:
        tags.append(_id_tag.pack(1, 8, next_producer_id))
    if client_version:
        tags.append(_version_tag.pack(2, 2, client_version))
    out.append(len(tags))
    for tag in tags:
        out += tag
    return bytes(out)


def decode_record(key: Buffer, value: Buffer | None) -> tuple[str, TransactionLogValue | None] | None:
    """(transactional id, value or None for a tombstone), or None for an unknown type."""
    if _number(key) != _TRANSACTION_LOG:
        return None
    transactional_id = decode(TransactionLogKey, 0, memoryview(key)[2:]).transactional_id
    if value is None:
        return transactional_id, None
    version = _number(value)
    if version not in _VERSIONS:
        raise MalformedInput(f"a TransactionLogValue of version {version}, known are 0 and 1")
    return transactional_id, decode(TransactionLogValue, version, memoryview(value)[2:])


def _number(data: Buffer) -> int:
    if len(data) < 2:
        raise MalformedInput(f"a record of a transaction with {len(data)} bytes where its type or version belongs")
    number: int = _prefix.unpack_from(data)[0]
    return number
