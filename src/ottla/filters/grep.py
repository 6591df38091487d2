"""Looks for text or a regular expression in keys, values and headers, without decoding them."""

from __future__ import annotations

from collections.abc import Callable

from ottla.filters.errors import FilterError
from ottla.filters.literal import Literal
from ottla.filters.record import Record
from ottla.filters.regex import InvalidPattern, compile_pattern


class Grep:
    def __init__(self, pattern: str, *, regex: bool = False, ignore_case: bool = False) -> None:
        """FilterError if it is no regular expression."""
        self.pattern = pattern
        self._found = _finder(pattern, regex, ignore_case)
        # An assertion (^, $, \\b, …) looks at what is beside it, which is another field where several are in one piece.
        self._anywhere = not regex or not any(mark in pattern for mark in "^$\\")

    def in_bytes(self, data: bytes | None) -> bool:
        return data is not None and self._found(data)

    def may_be_in(self, fields: bytes) -> bool:
        """False if none of the fields, which are in one piece each, has it."""
        return not self._anywhere or self._found(fields)

    def matches(self, record: Record) -> bool:
        """Whether the key, the value, or the name or value of a header has it."""
        return (
            self.in_bytes(record.value)
            or self.in_bytes(record.key)
            or any(self._found(name.encode("utf-8", "replace")) or self.in_bytes(value) for name, value in record.headers)
        )


def _finder(pattern: str, regex: bool, ignore_case: bool) -> Callable[[bytes], bool]:
    if not pattern:
        raise FilterError("there is no text to look for", pattern)
    # The shell's bytes that are not UTF-8 are found as they are.
    needle = pattern.encode("utf-8", "surrogateescape")
    if not regex and not ignore_case:
        return Literal(needle).is_in
    try:
        search = compile_pattern(needle, ignore_case=ignore_case, literal=not regex).search
    except InvalidPattern as error:
        raise FilterError(str(error), pattern) from None
    return lambda data: search(data) is not None
