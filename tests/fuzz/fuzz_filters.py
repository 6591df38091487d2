"""Coverage-guided fuzzing of the filter language: an expression, and a record to ask it about. With atheris.

    python tests/fuzz/fuzz_filters.py [seconds]

An expression is a filter or a FilterError with a place; a filter answers for every record, and its prefilter rejects no match.
Anything else stops the run and leaves the input in a `crash-...` file.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["ottla.filters"]):
    from ottla.filters.errors import FilterError
    from ottla.filters.filter import parse_filter

NOW_MS = 1_714_557_600_000
SEEDS = (
    b'value.amount > 100 and headers["x"] == "1"\x00{"amount": 150}',
    b'timestamp > now - "1h" or key in ["a", "b"]\x00plain',
    b'value.name.lower().startswith("ada")\x00{"name": "Ada"}',
    b'matches(value, "a.c") and not value.a[0].b / 2 % 3\x00[1, {"b": null}]',
    b"len(str(value)) // 2 != -int(offset)\x00\xff\xfe",
)


@dataclass
class Fuzzed:
    value: bytes | None
    key: bytes | None = b"key"
    headers: list[tuple[str, bytes | None]] = field(default_factory=lambda: [("x", b"1")])
    topic: str = "orders"
    partition: int = 0
    offset: int = 7
    timestamp_ms: int | None = NOW_MS - 1000


def one(data: bytes) -> None:
    expression, _, value = data.partition(b"\x00")
    text = expression.decode("utf-8", "surrogateescape")
    try:
        found = parse_filter(text, NOW_MS)
    except FilterError as error:
        if not 0 <= error.start <= error.end <= len(text) or not str(error):
            raise AssertionError(f"{text!r}: an error without a place") from error
        return
    for record in (Fuzzed(value), Fuzzed(None, value)):
        if found.matches(record) and not found.may_match(record.key, record.value):
            raise AssertionError(f"{text!r} matches {record}, which its prefilter rejects")


def main() -> None:
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    with tempfile.TemporaryDirectory() as corpus:
        for number, seed in enumerate(SEEDS):
            (Path(corpus) / f"seed-{number}").write_bytes(seed)
        atheris.Setup(
            [sys.argv[0], f"-max_total_time={seconds}", "-timeout=10", "-max_len=512", "-print_final_stats=1", corpus], one
        )
        atheris.Fuzz()


if __name__ == "__main__":
    main()
