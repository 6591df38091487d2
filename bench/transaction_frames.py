"""Frames of transactional requests for the load generator, and the parts of the responses it needs.

Both generations: before KIP-890 (AddPartitionsToTxn 2, Produce 7, EndTxn 2, as librdkafka sends them) and transaction version 2
(Produce 12, which adds the partition, and EndTxn 5, which bumps the epoch, as Java clients since 4.0 send them).
A request begins with its length, a response with the correlation id.
"""

from __future__ import annotations

import struct

import crc32c

from bench.group_frames import string
from tests.kit.raw import PRODUCE, frame

FIND_COORDINATOR, INIT_PRODUCER_ID, ADD_PARTITIONS_TO_TXN, END_TXN = 10, 22, 24, 26
NO_PRODUCER = (-1, -1)
TRANSACTIONAL = 1 << 4
# The coordinator is not there yet, or the end of the transaction before is still under way.
NOT_YET = (14, 15, 16, 51)
CONCURRENT_TRANSACTIONS = 51

_ATTRIBUTES_AT, _PRODUCER_AT, _CRC_AT, _AFTER_CRC = 21, 43, 17, 21
_PRODUCER = struct.Struct(">qhi")

Producer = tuple[int, int]
"""Id and epoch."""


def stamped(batch: bytearray, producer: Producer, sequence: int, *, transactional: bool = False) -> bytearray:
    """The same batch, now the producer's: what changes is what a client would write anew, the CRC included."""
    _PRODUCER.pack_into(batch, _PRODUCER_AT, *producer, sequence)
    struct.pack_into(">h", batch, _ATTRIBUTES_AT, TRANSACTIONAL if transactional else 0)
    struct.pack_into(">I", batch, _CRC_AT, crc32c.crc32c(memoryview(batch)[_AFTER_CRC:]))
    return batch


def _compact(text: str) -> bytes:
    return bytes([len(text) + 1]) + text.encode()


def _uvarint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def find_coordinator(transactional_id: str) -> bytes:
    return frame(FIND_COORDINATOR, 1, 0, string(transactional_id) + b"\1")


def init_producer_id(transactional_id: str | None) -> bytes:
    return frame(INIT_PRODUCER_ID, 1, 0, string(transactional_id) + struct.pack(">i", 60_000))


def read_init(reply: bytes) -> tuple[int, Producer]:
    error, producer_id, epoch = struct.unpack_from(">hqh", reply, 8)
    return error, (producer_id, epoch)


def add_partitions(transactional_id: str, producer: Producer, topic: str, partition: int) -> bytes:
    body = string(transactional_id) + struct.pack(">qhi", *producer, 1) + string(topic) + struct.pack(">ii", 1, partition)
    return frame(ADD_PARTITIONS_TO_TXN, 2, 0, body)


def read_added(reply: bytes, topic: str) -> int:
    error: int = struct.unpack_from(">h", reply, 8 + 4 + 2 + len(topic) + 4 + 4)[0]
    return error


def produce(transactional_id: str | None, topic: str, partition: int, records: bytes | bytearray, acks: int = -1) -> bytes:
    """Version 7."""
    body = string(transactional_id) + struct.pack(">hii", acks, 30_000, 1) + string(topic)
    return frame(PRODUCE, 7, 0, body + struct.pack(">iii", 1, partition, len(records)) + records)


def read_produced(reply: bytes, topic: str) -> int:
    error: int = struct.unpack_from(">h", reply, 4 + 4 + 2 + len(topic) + 4 + 4)[0]
    return error


def produce_v2(transactional_id: str, topic: str, partition: int, records: bytes | bytearray) -> bytes:
    """Version 12, the first that adds its partitions to the transaction."""
    body = b"\0" + _compact(transactional_id) + struct.pack(">hi", -1, 30_000) + b"\2" + _compact(topic)
    body += b"\2" + struct.pack(">i", partition) + _uvarint(len(records) + 1) + records + b"\0\0\0"
    return frame(PRODUCE, 12, 0, body)


def read_produced_v2(reply: bytes, topic: str) -> int:
    error: int = struct.unpack_from(">h", reply, 4 + 1 + 1 + 1 + len(topic) + 1 + 4)[0]
    return error


def end(transactional_id: str, producer: Producer, *, commit: bool) -> bytes:
    return frame(END_TXN, 2, 0, string(transactional_id) + struct.pack(">qh?", *producer, commit))


def read_ended(reply: bytes) -> int:
    error: int = struct.unpack_from(">h", reply, 8)[0]
    return error


def end_v2(transactional_id: str, producer: Producer, *, commit: bool) -> bytes:
    return frame(END_TXN, 5, 0, b"\0" + _compact(transactional_id) + struct.pack(">qh?", *producer, commit) + b"\0")


def read_ended_v2(reply: bytes) -> tuple[int, Producer]:
    """Who the producer is in its next transaction."""
    error, producer_id, epoch = struct.unpack_from(">hqh", reply, 4 + 1 + 4)
    return error, (producer_id, epoch)
