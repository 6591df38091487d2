"""Which records a command takes: the options --where and --grep, and the count of what was read for them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.failure import EXIT_USAGE, Failure
from ottla.cli.formats import Incoming, word_bytes
from ottla.cli.output import size_text

if TYPE_CHECKING:
    from confluent_kafka import Message

    from ottla.filters.errors import FilterError
    from ottla.filters.filter import Filter
    from ottla.filters.grep import Grep
    from ottla.filters.literal import Literal

Where = Annotated[
    str | None,
    typer.Option(
        "--where",
        metavar="EXPRESSION",
        help='Only records for which this is true: \'value.amount > 100 and headers["x"] == "1"\'.',
        rich_help_panel="Selection",
    ),
]
GrepText = Annotated[
    str | None,
    typer.Option(
        "--grep", metavar="TEXT", help="Only records with this text in key, value or headers.", rich_help_panel="Selection"
    ),
]
Regex = Annotated[
    bool, typer.Option("--regex", help="The text of --grep is a regular expression (RE2).", rich_help_panel="Selection")
]
IgnoreCase = Annotated[
    bool,
    typer.Option("--ignore-case", "-i", help="--grep finds capitals and small letters alike.", rich_help_panel="Selection"),
]


@dataclass(slots=True)
class Selection:
    """What a record must have. Without any of them every record is taken."""

    where: Filter | None = None
    grep: Grep | None = None
    key: bytes | None = None
    _literal_key: Literal | None = field(default=None, init=False, repr=False)

    def __bool__(self) -> bool:
        return self.where is not None or self.grep is not None or self.key is not None

    def may_take(self, message: Message) -> bool:
        """`may_take_parts` of a message."""
        return self.may_take_parts(message.key(), message.value(), bool(message.headers()))

    def may_take_parts(self, key: bytes | None, value: bytes | None, has_headers: bool) -> bool:
        """False if the record is certainly not taken. Looks at key and value as they are."""
        if not self.has_key(key):
            return False
        if self.where is not None and not self.where.may_match(key, value):
            return False
        return self.grep is None or has_headers or self.grep.in_bytes(value) or self.grep.in_bytes(key)

    def has_key(self, key: bytes | None) -> bool:
        """Whether a record with this key may be taken. A key is compared as it is."""
        return self.key is None or key == self.key

    def may_take_of(self, section: bytes) -> bool:
        """False if no record of a batch is taken. `section` holds the fields of all its records, each in one piece, so what a
        field must have is in it too. Looks at many records at once, in C."""
        if self.key is not None and not self._key_is_in(section):
            return False
        if self.where is not None and not self.where.may_match(section, section):
            return False
        return self.grep is None or self.grep.may_be_in(section)

    def _key_is_in(self, section: bytes) -> bool:
        from ottla.filters.literal import Literal

        if self._literal_key is None or self._literal_key.text != self.key:
            self._literal_key = Literal(self.key or b"")
        return self._literal_key.is_in(section)

    def takes(self, record: Incoming) -> bool:
        """The records that pass `may_take` are asked this."""
        return (self.grep is None or self.grep.matches(record)) and (self.where is None or self.where.matches(record))


@dataclass(slots=True)
class Tally:
    """What was read, and how many records of it were taken."""

    records: int = 0
    size_bytes: int = 0
    """Of values; of a scan, of whole records."""
    taken: int = 0

    def add(self, messages: Sequence[Message]) -> None:
        self.records += len(messages)
        self.size_bytes += sum(map(len, messages))

    def text(self) -> str:
        """`2 of 1,000 records (34.1 KB) match`."""
        noun = "record" if self.records == 1 else "records"
        verb = "matches" if self.taken == 1 else "match"
        return f"{self.taken:,} of {self.records:,} {noun} ({size_text(self.size_bytes)}) {verb}"


def select(
    where: str | None, grep: str | None, key: str | None = None, *, regex: bool = False, ignore_case: bool = False
) -> Selection:
    """The selection that the options describe."""
    key_bytes = None if key is None else word_bytes(key)
    if grep is None and (regex or ignore_case):
        raise Failure("--regex and --ignore-case say how --grep looks for its text", "pass --grep TEXT", exit_code=EXIT_USAGE)
    if where is None and grep is None:
        return Selection(key=key_bytes)
    from ottla.filters.errors import FilterError
    from ottla.filters.filter import parse_filter
    from ottla.filters.grep import Grep

    try:
        chosen = None if where is None else parse_filter(where, int(time.time() * 1000))
    except FilterError as error:
        raise _wrong("--where", error) from None
    try:
        return Selection(chosen, None if grep is None else Grep(grep, regex=regex, ignore_case=ignore_case), key_bytes)
    except FilterError as error:
        raise _wrong("--grep", error) from None


def _wrong(option: str, error: FilterError) -> Failure:
    # `report` indents the first line of a hint.
    hint = "\n  ".join(part for part in (*error.excerpt.split("\n"), error.hint) if part)
    return Failure(f"{option}: {error.message}", hint, exit_code=EXIT_USAGE)
