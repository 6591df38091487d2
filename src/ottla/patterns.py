"""Regular expressions of clients and operators, in RE2: matching takes linear time whatever the expression, so it may run on the
event loop. Kafka uses RE2/J for the same reason, where it does.

`re2` is imported with the first expression.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

from ottla.errors import ErrorCode, KafkaError

PATTERN_CHARS_MAX: Final = 4096
_PROGRAM_BYTES_MAX: Final = 1 << 20


def check_pattern(pattern: str) -> None:
    """KafkaError if the expression is invalid."""
    _compiled(pattern)


def matches(pattern: str, text: str) -> bool:
    """Whether the expression matches the text entirely. An invalid one, which a log may have, matches nothing."""
    try:
        return _compiled(pattern).fullmatch(text) is not None
    except KafkaError:
        return False


def matching_names(pattern: str, names: Iterable[str]) -> frozenset[str]:
    """The names that the expression matches entirely."""
    try:
        match = _compiled(pattern).fullmatch
    except KafkaError:
        return frozenset()
    return frozenset(name for name in names if match(name) is not None)


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = _PROGRAM_BYTES_MAX
    if len(pattern) > PATTERN_CHARS_MAX:
        raise _invalid(pattern[:64] + "…", f"{len(pattern)} characters, at most {PATTERN_CHARS_MAX} are allowed")
    try:
        return re2.compile(pattern, options)
    except (re2.error, UnicodeEncodeError) as error:
        reason = error.args[0] if isinstance(error, re2.error) else error
        raise _invalid(pattern, reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)) from None


def _invalid(pattern: str, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        f"{pattern!r} is not a valid RE2 regular expression: {reason}",
    )
