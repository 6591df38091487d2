"""Where producers put a key."""

from __future__ import annotations

import pytest

from ottla.cli.find.placing import partitions_of_key


@pytest.mark.parametrize(
    ("key", "murmur2"), [(b"21", -973932308), (b"foobar", -790332482), (b"a-little-bit-longer-string", -1486304829)]
)
def test_murmur2_as_in_kafkas_own_vectors(key: bytes, murmur2: int) -> None:
    assert partitions_of_key(key, 1000)["murmur2"] == (murmur2 & 0x7FFFFFFF) % 1000


def test_crc32_of_the_check_string() -> None:
    assert partitions_of_key(b"123456789", 1 << 32)["crc32"] == 0xCBF43926
