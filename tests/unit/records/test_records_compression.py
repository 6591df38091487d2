"""Codecs: what other programs write is read, what is written others read, and nothing unpacks without a bound (F21, F23)."""

from __future__ import annotations

import gzip
import random
import struct
import tracemalloc

import cramjam
import pytest

from ottla.errors import MalformedInput
from ottla.records.compression import CODEC_NAMES, GZIP, LZ4, NONE, SNAPPY, ZSTD, TooLarge, compress, decompress

MIB = 1 << 20
PACKED = [GZIP, SNAPPY, LZ4, ZSTD]


def words(size: int) -> bytes:
    """Text that packs neither too well nor too badly."""
    source = random.Random(5)
    dictionary = [bytes(source.choices(b"abcdefghij ", k=source.randint(2, 9))) for _ in range(500)]
    return b" ".join(source.choice(dictionary) for _ in range(size // 4))[:size]


@pytest.mark.parametrize("codec", range(len(CODEC_NAMES)))
@pytest.mark.parametrize("size", [0, 1, 100, 32 * 1024, 32 * 1024 + 1, 300_000])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_round_trip(codec: int, size: int, kind: type) -> None:
    data = words(size)
    assert decompress(codec, kind(compress(codec, kind(data))), size) == data


@pytest.mark.parametrize("codec", PACKED)
def test_noise_survives(codec: int) -> None:
    """Data that cannot be packed is stored in blocks of another kind."""
    noise = random.Random(7).randbytes(200_000)
    assert decompress(codec, compress(codec, noise), MIB) == noise


@pytest.mark.parametrize(("codec", "low", "high"), [(GZIP, 1, 9), (LZ4, 1, 12), (ZSTD, 1, 19)])
def test_levels_matter(codec: int, low: int, high: int) -> None:
    data = words(200_000)
    small, large = compress(codec, data, high), compress(codec, data, low)
    assert len(small) < len(large)
    assert decompress(codec, small, MIB) == decompress(codec, large, MIB) == data


def test_lz4_level_9_is_the_fast_compressor() -> None:
    """Kafka's default level for lz4 stands for it."""
    data = words(100_000)
    assert compress(LZ4, data, 9) == compress(LZ4, data) != compress(LZ4, data, 8)


@pytest.mark.parametrize("codec", range(len(CODEC_NAMES)))
def test_limit_is_exact(codec: int) -> None:
    data = words(70_000)
    packed = compress(codec, data)
    assert decompress(codec, packed, 70_000) == data
    with pytest.raises(TooLarge, match="69999"):
        decompress(codec, packed, 69_999)


@pytest.mark.parametrize("codec", PACKED)
@pytest.mark.parametrize("limit", [0, 1, MIB])
def test_bombs_are_refused_within_the_limit(codec: int, limit: int) -> None:
    packed = compress(codec, bytes(16 * MIB))
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge):
            decompress(codec, packed, limit)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # what the reader of gzip grows by in one step comes on top
    assert peak < 2 * limit + MIB


@pytest.mark.parametrize("codec", PACKED)
def test_every_cut_is_malformed(codec: int) -> None:
    packed = compress(codec, words(500))
    for cut in range(len(packed)):
        if codec == SNAPPY and cut in (16, 17, 18, 19):
            continue  # the header alone, or less than a block's length after it, is an empty stream to Java too
        with pytest.raises((MalformedInput, TooLarge)):
            decompress(codec, packed[:cut], MIB)


@pytest.mark.parametrize("codec", PACKED)
def test_garbage_is_malformed(codec: int) -> None:
    source = random.Random(11)
    for size in (0, 1, 3, 7, 20, 100, 1000):
        with pytest.raises((MalformedInput, TooLarge)):
            decompress(codec, source.randbytes(size), MIB)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_no_such_codec(codec: int) -> None:
    with pytest.raises(MalformedInput):
        decompress(codec, b"", MIB)
    with pytest.raises(ValueError, match="no codec"):
        compress(codec, b"")


class TestGzip:
    def test_members_in_a_row(self) -> None:
        assert decompress(GZIP, gzip.compress(b"one ") + gzip.compress(b"two"), 7) == b"one two"

    def test_the_limit_is_of_all_members_together(self) -> None:
        with pytest.raises(TooLarge):
            decompress(GZIP, gzip.compress(b"one ") + gzip.compress(b"two"), 6)

    def test_what_follows_the_last_member_is_ignored_as_in_java(self) -> None:
        assert decompress(GZIP, gzip.compress(b"one") + b"\x00\x00rest", 10) == b"one"

    def test_wrong_checksum(self) -> None:
        packed = bytearray(gzip.compress(b"one"))
        packed[-5] ^= 1
        with pytest.raises(MalformedInput):
            decompress(GZIP, packed, 10)


class TestSnappy:
    def test_raw_as_librdkafka_writes_it(self) -> None:
        data = words(100_000)
        assert decompress(SNAPPY, bytes(cramjam.snappy.compress_raw(data)), MIB) == data

    def test_framing_as_java_writes_it(self) -> None:
        packed = compress(SNAPPY, words(40_000))
        assert packed[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
        first = int.from_bytes(packed[16:20], "big")
        assert len(cramjam.snappy.decompress_raw(packed[20 : 20 + first])) == 32 * 1024

    def test_joined_streams(self) -> None:
        assert decompress(SNAPPY, compress(SNAPPY, b"one ") + compress(SNAPPY, b"two"), 7) == b"one two"

    @pytest.mark.parametrize("length", [-1, 2**31 - 1, -(2**31), 100])
    def test_block_length_that_lies(self, length: int) -> None:
        """CVE-2023-34455: a length is not to be allocated."""
        header = compress(SNAPPY, b"")
        with pytest.raises(MalformedInput):
            decompress(SNAPPY, header + struct.pack(">i", length) + b"abc", MIB)

    def test_size_that_lies(self) -> None:
        for packed in (b"\xff\xff\xff\xff\x0fabc", b"\x80\x80\x80\x08\x00a"):
            with pytest.raises((MalformedInput, TooLarge)):
                decompress(SNAPPY, packed, 1 << 40)

    def test_version_zero(self) -> None:
        with pytest.raises(MalformedInput, match="version 0"):
            decompress(SNAPPY, b"\x82SNAPPY\x00" + struct.pack(">ii", 0, 1), MIB)


class TestLz4:
    def test_frame_that_java_reads(self) -> None:
        """Independent blocks of at most 64 KiB: Java's reader knows nothing else."""
        packed = compress(LZ4, words(200_000))
        assert packed[:4] == b"\x04\x22\x4d\x18"
        assert packed[4] & 0xE3 == 0x60
        assert packed[5] == 0x40

    def test_dependent_blocks_are_refused_as_java_does(self) -> None:
        linked = cramjam.lz4.Compressor(block_linked=True)
        linked.compress(words(200_000))
        with pytest.raises(MalformedInput, match="depend"):
            decompress(LZ4, bytes(linked.finish()), MIB)

    def test_what_follows_the_frame_is_not_read_as_in_java(self) -> None:
        assert decompress(LZ4, compress(LZ4, b"one") + b"rest", 10) == b"one"
        assert decompress(LZ4, compress(LZ4, b"one") + compress(LZ4, b"two"), 10) == b"one"

    @pytest.mark.parametrize(("at", "value"), [(4, 0x20), (4, 0x63), (4, 0xE0), (5, 0x30), (5, 0x41), (5, 0xC0), (6, 0x00)])
    def test_descriptor_bytes(self, at: int, value: int) -> None:
        packed = bytearray(compress(LZ4, b"one"))
        packed[at] = value
        with pytest.raises(MalformedInput):
            decompress(LZ4, packed, MIB)

    def test_content_size_and_checksum(self) -> None:
        checked = cramjam.lz4.Compressor(content_checksum=True, block_linked=False)
        checked.compress(b"one" * 100)
        packed = bytes(checked.finish())
        assert decompress(LZ4, packed, 300) == b"one" * 100

    def test_block_larger_than_its_frame_allows(self) -> None:
        packed = bytearray(compress(LZ4, b"one"))
        packed[7:11] = struct.pack("<I", 64 * 1024 + 1)
        with pytest.raises(MalformedInput, match="larger"):
            decompress(LZ4, packed + bytes(70_000), MIB)


class TestZstd:
    def test_frames_in_a_row(self) -> None:
        skippable = struct.pack("<II", 0x184D2A53, 5) + b"hello"
        assert decompress(ZSTD, compress(ZSTD, b"one ") + skippable + compress(ZSTD, b"two"), 7) == b"one two"

    def test_without_content_size(self) -> None:
        stream = cramjam.zstd.Compressor(level=3)
        data = words(300_000)
        stream.compress(data)
        packed = bytes(stream.finish())
        assert packed[4] >> 6 == 0, "the stream knows no size"
        assert decompress(ZSTD, packed, 300_000) == data
        with pytest.raises(TooLarge):
            decompress(ZSTD, packed, 299_999)

    def test_huge_window(self) -> None:
        # magic, no flags, window 2^41, one empty last block
        with pytest.raises(MalformedInput, match="window"):
            decompress(ZSTD, b"\x28\xb5\x2f\xfd\x00\xf8\x01\x00\x00", MIB)

    def test_huge_content_size(self) -> None:
        # single segment, content size 2^62, one empty last block
        with pytest.raises((MalformedInput, TooLarge)):
            decompress(ZSTD, b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 1 << 62) + b"\x01\x00\x00", MIB)

    def test_repeated_blocks(self) -> None:
        # one block that repeats a byte 2^17 times costs four bytes
        block = lambda last: struct.pack("<I", (1 << 17) << 3 | 1 << 1 | last)[:3] + b"a"  # noqa: E731
        frame = b"\x28\xb5\x2f\xfd\x00\x88" + block(0) * 100 + block(1)
        assert decompress(ZSTD, frame, 101 << 17) == b"a" * (101 << 17)
        with pytest.raises(TooLarge):
            decompress(ZSTD, frame, (101 << 17) - 1)

    def test_trailing_bytes(self) -> None:
        with pytest.raises(MalformedInput):
            decompress(ZSTD, compress(ZSTD, b"one") + b"rest", MIB)

    def test_skippable_frame_beyond_the_end(self) -> None:
        with pytest.raises(MalformedInput):
            decompress(ZSTD, struct.pack("<II", 0x184D2A50, 0xFFFFFFFF), MIB)


def test_none_is_a_copy_with_a_limit() -> None:
    assert decompress(NONE, memoryview(b"abc"), 3) == b"abc"
    with pytest.raises(TooLarge):
        decompress(NONE, b"abcd", 3)
