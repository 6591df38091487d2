"""A literal is found exactly where Python finds it, in few bytes and in many."""

from __future__ import annotations

import random

import pytest

from ottla.filters.literal import Literal


@pytest.mark.parametrize("text", [b"a", b"needle", b"\x00", b"\xff\xfe", "žluť".encode(), b"\\u", b".*", b"(", b"a\nb", b""])
@pytest.mark.parametrize("size", [0, 10, 4095, 4096, 100_000])
def test_it_is_found_anywhere(text: bytes, size: int) -> None:
    literal = Literal(text)
    filling = b"x" * size
    middle = filling[: size // 2] + text + filling[size // 2 :]
    for data in (filling, text + filling, filling + text, middle, filling + text[:-1]):
        assert literal.is_in(data) == (text in data)


def test_in_bytes_that_are_no_text() -> None:
    chance = random.Random(7)
    for _ in range(200):
        data = chance.randbytes(5000)
        start = chance.randrange(4990)
        for text in (data[start : start + chance.randint(1, 9)], chance.randbytes(2)):
            assert Literal(text).is_in(data) == (text in data), text
