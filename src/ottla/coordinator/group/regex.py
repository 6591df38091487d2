"""Subscriptions by pattern: which topics a regular expression stands for.

Owns the flavour and the matching. A pattern comes from a client and is matched against every topic's name on the broker's one
loop: it must cost time linear in the name whatever it says, and mean what it means to Kafka. Kafka uses RE2/J; RE2 itself has the
same syntax and the same bound (no look-around, no back references), which Python's `re` lacks. Hence `re2`, imported when the
first pattern comes.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

from ottla.errors import ErrorCode, KafkaError

PATTERN_CHARS_MAX: Final = 4096
_PROGRAM_BYTES_MAX: Final = 1 << 20


def check(pattern: str) -> None:
    """That it is one. KafkaError if not."""
    _compiled(pattern)


def matching(pattern: str, names: Iterable[str]) -> frozenset[str]:
    """The names the whole of which the pattern matches. A pattern that is none matches nothing: the log may hold such."""
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
        raise _invalid(pattern[:64] + "…", f"it has {len(pattern)} characters, {PATTERN_CHARS_MAX} are allowed")
    try:
        return re2.compile(pattern, options)
    except (re2.error, UnicodeEncodeError) as error:
        reason = error.args[0] if isinstance(error, re2.error) else error
        raise _invalid(pattern, reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)) from None


def _invalid(pattern: str, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        f"{pattern!r} is no regular expression of RE2: {reason}",
    )
