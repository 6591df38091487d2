"""The records of `__transaction_state`: one key per transactional id, as Kafka writes them.

Owns the formats. A key begins with two bytes that name its type (0 is the only one), a value with two that are its version; no
value is a tombstone. Types not known here decode to None.

Written is version 1, which Kafka has used since `transaction.version` 1 and which 3.9 reads too. Unlike Kafka we fill in the
previous and the next producer id, for which the format has its places: a coordinator that takes over between the two halves of a
commit that used up the epochs then still knows which id it has promised the producer.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from ottla.errors import MalformedInput
from ottla.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Buffer
from ottla.wire.codec import decode, encode
from ottla.wire.schema import list_of, message, wire


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


def encode_key(transactional_id: str) -> bytes:
    return _prefix.pack(_TRANSACTION_LOG) + encode(TransactionLogKey(transactional_id=transactional_id), 0)


def encode_value(value: TransactionLogValue, version: int = VALUE_VERSION) -> bytes:
    return _prefix.pack(version) + encode(value, version)


def decode_record(key: Buffer, value: Buffer | None) -> tuple[str, TransactionLogValue | None] | None:
    """(transactional id, value or None for a tombstone), or None for a record of a type not known here."""
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
