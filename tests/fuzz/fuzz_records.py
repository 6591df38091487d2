"""Fuzzes the check of produced batches and the readers of records with atheris.

    python tests/fuzz/fuzz_records.py SECONDS [directory of inputs]

The first input byte chooses what the rest is taken for: a whole partition's records, a section under a sound header, or a packed
section of some codec. Anything but the two refusals, or a batch that passes and cannot be read back, stops the run with the
input. atheris sees coverage in the interpreted form only; what it keeps there is then tried, changed, on the compiled one.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

import atheris
from crc32c import crc32c

with atheris.instrument_imports(include=["ottla.records"]):
    from ottla.errors import MalformedInput
    from ottla.records import compiled
    from ottla.records.batch import batch_crc_ok, read_batch_header, scan_batches
    from ottla.records.compression import CODEC_NAMES, TooLarge, compress, decompress
    from ottla.records.record import build_batch, offset_of_max_timestamp, offset_of_timestamp, read_records
    from ottla.records.validate import RecordsRefused, Rules, check

NOW_MS = 1_800_000_000_000
LIMIT = 1 << 20
RULES = [
    Rules(decompressed_bytes_max=LIMIT),
    Rules(decompressed_bytes_max=LIMIT, compacted=True, timestamp_before_max_ms=1000),
    Rules(decompressed_bytes_max=LIMIT, timestamp_type=1, compression=3),
    Rules(decompressed_bytes_max=LIMIT, compression=2, timestamp_after_max_ms=2**63 - 1),
]
HEADER = build_batch([(b"k", b"v", [], NOW_MS)])


def one_input(data: bytes) -> None:
    if len(data) < 3:
        return
    mode, choice, body = data[0] % 3, data[1], data[2:]
    if mode == 0:
        records(bytearray(body), choice)
    elif mode == 1:
        section(body, choice)
    else:
        packed(body, choice)


def records(buffer: bytearray, choice: int) -> None:
    if choice & 4 and len(buffer) > 61:
        buffer[8:12] = (len(buffer) - 12).to_bytes(4, "big")
        buffer[16] = 2
        buffer[17:21] = crc32c(bytes(buffer[21:])).to_bytes(4, "big")
    before = bytes(buffer)
    try:
        checked = check(buffer, RULES[choice % len(RULES)], NOW_MS)
    except RecordsRefused:
        assert bytes(buffer) == before, "what was refused has been changed"
    else:
        [info] = checked.batches
        assert batch_crc_ok(checked.buffer, info), "stored with a wrong CRC"
        read = read_records(checked.buffer, info)
        assert [record.offset for record in read] == list(range(info.record_count)), "stored with wrong offsets"
        assert offset_of_max_timestamp(checked.buffer, info).timestamp_ms <= checked.max_timestamp
    try:
        batches, _ = scan_batches(before)
        for info in batches:
            read_batch_header(before, info.position)
            read_records(before, info, LIMIT)
            offset_of_timestamp(before, info, NOW_MS)
    except MalformedInput:
        pass


def section(body: bytes, choice: int) -> None:
    """Any bytes as the records of a batch whose header is right, packed by ourselves or claimed to be packed."""
    count = body[0]
    codec = choice >> 3 & 7
    claimed = body[1:]
    if choice & 64 and codec < len(CODEC_NAMES):
        claimed = compress(codec, claimed)
    buffer = bytearray(HEADER[:61]) + claimed
    buffer[21:23] = codec.to_bytes(2, "big")
    buffer[23:27] = (count - 1).to_bytes(4, "big", signed=True)
    buffer[57:61] = count.to_bytes(4, "big")
    records(buffer, choice & 3 | 4)


def packed(body: bytes, choice: int) -> None:
    try:
        assert len(decompress(choice & 7, body, LIMIT)) <= LIMIT
    except (MalformedInput, TooLarge):
        pass


def seeds(directory: Path) -> None:
    """Sound inputs of every codec to begin with."""
    directory.mkdir(parents=True, exist_ok=True)
    sample = [(b"key", b"value" * 20, [("h", b"x"), ("n", None)], NOW_MS), (None, None, [], NOW_MS + 3)]
    for codec in range(len(CODEC_NAMES)):
        batch = build_batch(sample, codec=codec)
        (directory / f"batch-{codec}").write_bytes(bytes([0, 4]) + batch)
        (directory / f"section-{codec}").write_bytes(bytes([1, codec << 3, 2]) + batch[61:])
        (directory / f"packed-{codec}").write_bytes(bytes([2, codec]) + batch[61:])


def mutate_for(seconds: int, corpus: Path) -> None:
    """Without coverage atheris forgets its inputs, so the compiled form is fed with changed copies of all of them."""
    inputs = [path.read_bytes() for path in sorted(corpus.iterdir())]
    for seed in inputs:
        one_input(seed)
    chance = random.Random(len(inputs))
    end = time.monotonic() + seconds
    runs = 0
    while time.monotonic() < end:
        data = bytearray(chance.choice(inputs))
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(data) + 1)
            match chance.randrange(4):
                case 0:
                    data[at : at + 1] = bytes([chance.randrange(256)])
                case 1:
                    data[at : at + chance.randrange(8)] = b""
                case 2:
                    data[at:at] = chance.randbytes(chance.randrange(8))
                case _:
                    other = chance.choice(inputs)
                    data[at : at + 8] = other[chance.randrange(len(other) + 1) :][: chance.randrange(40)]
        try:
            one_input(bytes(data))
        except BaseException:
            print(f"input: {bytes(data)!r}", flush=True)
            raise
        runs += 1
    print(f"{runs} runs over {len(inputs)} inputs")


def main(argv: list[str]) -> None:
    seconds = int(argv[1]) if len(argv) > 1 else 60
    corpus = Path(argv[2]) if len(argv) > 2 else Path("/tmp/ottla-fuzz-records")
    seeds(corpus)
    print(f"hot modules compiled: {compiled()}", flush=True)
    if compiled():
        mutate_for(seconds, corpus)
        return
    options = [f"-max_total_time={seconds}", "-max_len=4096", "-rss_limit_mb=1024", "-print_final_stats=1"]
    atheris.Setup([argv[0], *options, str(corpus)], one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv)
