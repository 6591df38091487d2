"""Produce requests with records that are wrong where only the checks of records look: lengths and CRCs are right."""

from __future__ import annotations

import random

from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records.batch import RECORDS_AT, read_batch_header, write_header
from ottla.records.compression import compress
from ottla.records.record import build_batch
from ottla.wire.codec import encode
from tests.kit.record_batches import SAMPLE, record, with_header, with_section, zigzag

CODECS = (1, 2, 3, 4)
VERSIONS = range(3, 13)
"""From 13 on topics are named by id."""
OVERLONG = ((b"\xff" * 10 + b"\x01", b"\0"), (b"\x80" * 9 + b"\x02", b"\0"), (b"\0", b"\xff" * 6), (b"\0", b"\x80" * 5))
"""Of a timestamp, of the number of headers."""
TIMES = (-(1 << 63), -1, (1 << 63) - 1)
LARGE_BYTES = (5 << 20, 40 << 20)
"""Checked by a worker; more than a broker unpacks."""
LARGE_SHARE = 0.002


def written() -> dict[str, list[bytes]]:
    """Batches by what is wrong with them."""
    sound = build_batch(SAMPLE)
    section = sound[RECORDS_AT:]
    packed = {codec: build_batch(SAMPLE, codec=codec) for codec in CODECS}

    def changed(name: str, *values: int) -> list[bytes]:
        return [bytes(with_header(batch, **{name: value})) for batch in (sound, packed[4]) for value in values]

    def one(*records: bytes, count: int = 1) -> list[bytes]:
        return [bytes(with_section(each, count, codec)) for each in records for codec in (0, 1, 2, 3, 4)]

    def at(position: int, *values: bytes) -> list[bytes]:
        return [sound[:position] + value + sound[position + len(value) :] for value in values]

    numbers = [(size).to_bytes(4, "big", signed=True) for size in (-(1 << 31), -1, 0, 48, 49, len(sound), (1 << 31) - 1)]
    return {
        "nothing wrong": [sound, *packed.values()],
        "record count": changed("record_count", -(1 << 31), -1, 0, 3, 5, (1 << 31) - 1),
        "last offset delta": changed("last_offset_delta", -1, 0, 7, (1 << 31) - 1),
        "batch length": at(8, *numbers),
        "more batches": [sound + sound, sound + sound[:30], sound + b"\0" * 61, sound + packed[1] + b"x"],
        "batch that ends early": [sound[:size] for size in (0, 1, 11, 12, 16, 17, 60, 61, len(sound) - 1)],
        "magic": at(16, b"\0", b"\1", b"\3", b"\xff"),
        "crc": at(17, b"\0\0\0\0"),
        "attributes": changed("attributes", 5, 6, 7, 8, 0x10, 0x18, 0x40, 0x80, 0x4000, -(1 << 15)),
        "control batch": changed("attributes", 0x20, 0x30, 0x38),
        "timestamps": changed("base_timestamp", *TIMES) + changed("max_timestamp", *TIMES),
        "producer": changed("producer_id", -2, 0, (1 << 63) - 1) + changed("base_sequence", -2, 0, (1 << 31) - 1),
        "base offset": changed("base_offset", -1, (1 << 63) - 1),
        "compressed garbage": [bytes(with_header(sound, attributes=codec)) for codec in CODECS],
        "wrong codec": [bytes(with_header(packed[codec], attributes=codec % 4 + 1)) for codec in CODECS],
        "nested compression": [bytes(with_section(compress(codec, section), len(SAMPLE), codec)) for codec in CODECS],
        "offset delta": one(record(5), record(-1), record(1 << 31), record() + record(), count=2),
        "record length": one(*(record(size=size) for size in (-1, 0, 1, 7, 1 << 20, (1 << 31) - 1))),
        "key length": one(*(record(key=zigzag(size)) for size in (-2, 5, (1 << 31) - 1))),
        "value length": one(*(record(value=zigzag(size)) for size in (-2, 5, (1 << 31) - 1))),
        "header count": one(*(record(headers=zigzag(count)) for count in (-1, 1, 1 << 20, (1 << 31) - 1))),
        "header of a record": one(*(record(headers=zigzag(1) + name + b"\0") for name in (zigzag(-1), zigzag(2) + b"\xc3\x28"))),
        "overlong varint": one(*(record(timestamp_delta=each, headers=other) for each, other in OVERLONG)),
    }  # fmt: skip


class HostileRecords:
    def __init__(self) -> None:
        self._written = list(written().items())
        self._sound = [each for kind, batches in self._written if kind == "nothing wrong" for each in batches]
        self._large = [bytes(with_section(bytes(size), 1, codec)) for size in LARGE_BYTES for codec in CODECS]

    def batch(self, chance: random.Random) -> tuple[str, bytes]:
        """What is wrong with it, and the batch."""
        kind = chance.random()
        if kind < LARGE_SHARE:
            return "unpacks to much", chance.choice(self._large)
        if kind < 0.6:
            name, batches = chance.choice(self._written)
            return name, chance.choice(batches)
        batch = bytearray(chance.choice(self._sound))
        for _ in range(chance.randint(1, 3)):
            batch[chance.randrange(RECORDS_AT if kind < 0.9 else 21, len(batch))] = chance.randrange(256)
        write_header(batch, read_batch_header(batch, 0))
        return "bytes of records", bytes(batch)

    def message(self, chance: random.Random) -> tuple[str, int, bytes]:
        """What is wrong, the version of Produce, and the message."""
        kind, batch = self.batch(chance)
        partition = PartitionProduceData(index=chance.randrange(2), records=batch)
        topic = TopicProduceData(name=f"text-{chance.randint(1, 8)}", partition_data=[partition])
        version = chance.choice(VERSIONS)
        return kind, version, encode(ProduceRequest(acks=chance.choice((1, -1)), timeout_ms=100, topic_data=[topic]), version)
