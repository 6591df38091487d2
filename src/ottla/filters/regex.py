"""Regular expressions of RE2: linear time, bounded memory. `re2` is imported with the first one."""

from __future__ import annotations

from typing import Any

_PROGRAM_BYTES_MAX = 1 << 20


class InvalidPattern(ValueError):
    pass


def compile_pattern(pattern: bytes, *, ignore_case: bool = False, literal: bool = False, as_bytes: bool = False) -> Any:
    """The compiled pattern, to search bytes. `as_bytes`: the pattern itself is bytes, of which none needs to be UTF-8."""
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = _PROGRAM_BYTES_MAX
    options.case_sensitive = not ignore_case
    options.literal = literal
    options.never_capture = True
    if as_bytes:
        options.encoding = re2.Options.Encoding.LATIN1
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise InvalidPattern(f"{pattern.decode(errors='replace')!r} is not a regular expression of RE2: {text}") from None
