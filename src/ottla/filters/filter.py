"""A filter: an expression that is ready to be asked about records."""

from __future__ import annotations

from ottla.filters.parsing import parse
from ottla.filters.prefilter import prefilter
from ottla.filters.record import Record, Row


class Filter:
    """Made by `parse_filter`."""

    def __init__(self, text: str, now_ms: int) -> None:
        parsed = parse(text, now_ms)
        self.text = text
        self._evaluate = parsed.evaluate
        self.prefilter = prefilter(parsed.tree)

    def matches(self, record: Record) -> bool:
        return bool(self._evaluate(Row(record)))

    def may_match(self, key: bytes | None, value: bytes | None) -> bool:
        """False if no record with these bytes matches. Cheaper than `matches`: nothing is decoded."""
        return self.prefilter.admits(key, value)


def parse_filter(text: str, now_ms: int) -> Filter:
    """The filter that the expression describes. FilterError if it is none."""
    return Filter(text, now_ms)
