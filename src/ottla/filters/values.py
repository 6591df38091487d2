"""Operations on the values of a record. A missing value is None; what has no answer is None; nothing raises.

Values are None, bool, int, float, str, list, dict, Moment and Span. Text compares with a number as the number that it spells,
with a moment as an ISO time and with a span as a duration: keys, headers and plain values have no types of their own.
"""

from __future__ import annotations

import json
import re
from typing import Any

from ottla.filters.times import Moment, Span, duration_ms, iso_time_ms

NUMBER_CHARS_MAX = 300
"""Longer text is no number, time or duration: reading it would take quadratic time."""
TEXT_CHARS_MAX = 4 << 20
"""Text that `+` may make."""
_INTEGER_BITS_MAX = 1024
"""As large as a float can be."""
_A_SPAN = Span(0)
_NUMBER = re.compile(r"[+-]?(?:\d+(\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float))


def number_of(text: str) -> int | float | None:
    """The number that the text spells, or None."""
    text = text.strip() if len(text) <= NUMBER_CHARS_MAX else ""
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _NUMBER.fullmatch(text) else None


def bounded(number: int | float) -> int | float | None:
    return None if isinstance(number, int) and number.bit_length() > _INTEGER_BITS_MAX else number


def field(value: Any, name: Any) -> Any:
    """The field of an object, or the element of an array."""
    if isinstance(value, dict):
        return value.get(name) if isinstance(name, str) else None
    if isinstance(value, list) and isinstance(name, int) and -len(value) <= name < len(value):
        return value[name]
    return None


def _alike(left: Any, right: Any) -> tuple[Any, Any]:
    """Both as values of one kind, if one is text and the other is not."""
    if isinstance(left, str) and not isinstance(right, str):
        return _read_as(left, right), right
    if isinstance(right, str) and not isinstance(left, str):
        return left, _read_as(right, left)
    if isinstance(left, Moment) and is_number(right):
        return left.ms, right
    if isinstance(right, Moment) and is_number(left):
        return left, right.ms
    return left, right


def _read_as(text: str, like: Any) -> Any:
    """What the text spells, if it spells something of the kind of `like`; else the text."""
    if len(text) > NUMBER_CHARS_MAX:
        return text
    if isinstance(like, Moment):
        ms = iso_time_ms(text)
        return text if ms is None else Moment(ms)
    if isinstance(like, Span):
        ms = duration_ms(text)
        return text if ms is None else Span(ms)
    if is_number(like) and not isinstance(like, bool):
        number = number_of(text)
        return text if number is None else number
    return text


def equal(left: Any, right: Any) -> bool:
    left, right = _alike(left, right)
    try:
        return bool(left == right)
    except RecursionError:
        return False


def ordering(left: Any, right: Any) -> int | None:
    """Negative, zero or positive as `left` is less than, equal to or greater than `right`; None if they have no order."""
    left, right = _alike(left, right)
    comparable = (
        (is_number(left) and is_number(right))
        or (isinstance(left, str) and isinstance(right, str))
        or (isinstance(left, Moment) and isinstance(right, Moment))
        or (isinstance(left, Span) and isinstance(right, Span))
    )
    if not comparable or left != left or right != right:
        return None
    return 1 if left > right else -1 if left < right else 0


def contains(whole: Any, part: Any) -> bool:
    """Text in text, a value in an array, the name of a field in an object."""
    if isinstance(whole, str):
        return isinstance(part, str) and part in whole
    if isinstance(whole, dict):
        return isinstance(part, str) and part in whole
    if isinstance(whole, list):
        return any(equal(each, part) for each in whole)
    return False


def add(left: Any, right: Any) -> Any:
    if is_number(left) and is_number(right):
        return _arithmetic(lambda: left + right)
    if isinstance(left, str) and isinstance(right, str):
        return left + right if len(left) + len(right) <= TEXT_CHARS_MAX else None
    if isinstance(left, Moment):
        return _shifted(left, right, 1)
    return _shifted(right, left, 1) if isinstance(right, Moment) else None


def subtract(left: Any, right: Any) -> Any:
    if is_number(left) and is_number(right):
        return _arithmetic(lambda: left - right)
    if isinstance(left, Moment) and isinstance(right, Moment):
        return Span(left.ms - right.ms)
    return _shifted(left, right, -1) if isinstance(left, Moment) else None


def _shifted(moment: Moment, by: Any, sign: int) -> Moment | None:
    span = _read_as(by, _A_SPAN) if isinstance(by, str) else by
    return Moment(moment.ms + sign * span.ms) if isinstance(span, Span) else None


def multiply(left: Any, right: Any) -> Any:
    return _arithmetic(lambda: left * right) if is_number(left) and is_number(right) else None


def divide(left: Any, right: Any) -> Any:
    return _arithmetic(lambda: left / right) if is_number(left) and is_number(right) else None


def floor_divide(left: Any, right: Any) -> Any:
    return _arithmetic(lambda: left // right) if is_number(left) and is_number(right) else None


def remainder(left: Any, right: Any) -> Any:
    return _arithmetic(lambda: left % right) if is_number(left) and is_number(right) else None


def _arithmetic(compute: Any) -> int | float | None:
    try:
        return bounded(compute())
    except (ArithmeticError, ValueError):
        return None


def negate(value: Any) -> Any:
    return -value if is_number(value) else None


def length(value: Any) -> int | None:
    return len(value) if isinstance(value, (str, list, dict)) else None


def as_text(value: Any) -> str | None:
    """Text as it is, all else as JSON."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, (Moment, Span)):
        return str(value.ms)
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (ValueError, RecursionError):
        return None


def as_integer(value: Any) -> int | None:
    number = as_number(value)
    try:
        return None if number is None else int(number)
    except (ValueError, OverflowError):
        return None


def as_float(value: Any) -> float | None:
    number = as_number(value)
    try:
        return None if number is None else float(number)
    except OverflowError:
        return None


def as_number(value: Any) -> int | float | None:
    if isinstance(value, str):
        return number_of(value)
    if isinstance(value, (Moment, Span)):
        return value.ms
    return value if is_number(value) else None
