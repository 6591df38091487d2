from __future__ import annotations

import pytest

from ottla.cli.failure import Failure
from ottla.cli.units import parse_bytes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("500", 500),
        ("1KB", 1000),
        ("1kB", 1000),
        ("1KiB", 1024),
        ("2.5MB", 2_500_000),
        ("10 GB/s", 1e10),
        ("1Gbit", 125_000_000),
        ("1Gbit/s", 125_000_000),
        ("8bit", 1),
        ("1_000", 1000),
        ("1e6", 1_000_000),
        ("4T", 4e12),
    ],
)
def test_amounts(text: str, expected: float) -> None:
    assert parse_bytes(text, "--size") == expected


@pytest.mark.parametrize("text", ["", "fast", "-1KB", "1XB", "1KBB", "1.2.3"])
def test_what_is_none(text: str) -> None:
    with pytest.raises(Failure, match="is not an amount of data"):
        parse_bytes(text, "--size")


def test_small_b_is_ambiguous() -> None:
    with pytest.raises(Failure, match="'1Gb' is ambiguous"):
        parse_bytes("1Gb", "--network")
