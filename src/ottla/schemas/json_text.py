"""JSON as Java's registry reads and prints it, so that one schema has one text on both.

Numbers print as Java prints them, in Avro as doubles (`1.0E10`), in JSON Schema as decimals (`1E+10`). Strings escape only what
JSON requires, an object keeps its order and the last of two equal keys wins.
"""

from __future__ import annotations

import decimal
import json
import math
import re
from typing import Final, NoReturn, TypeAlias

from ottla.schemas.limits import JSON_NESTING_MAX, require_json_nesting
from ottla.schemas.model import InvalidSchema

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"

_COMMENT = re.compile(r'("(?:[^"\\]|\\.)*")|/\*.*?\*/|//[^\n]*', re.DOTALL)
_ESCAPED = re.compile(r'["\\\x00-\x1f]')
_SHORT: Final = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


class Decimal(float):
    """A number that prints as Java prints it as a BigDecimal: 1.10 and 1E+400 stay so."""

    __slots__ = ("text",)
    text: str

    def __new__(cls, literal: str) -> Decimal:
        number = super().__new__(cls, literal)
        try:
            found = decimal.Decimal(literal)
        except decimal.InvalidOperation:
            raise ValueError(f"the exponent of {literal[:100]} is too large") from None
        number.text = str(found if found else abs(found))
        return number


def loads(text: str, *, comments: bool = False, number: type[float] = float) -> Json:
    """The value of a JSON text. InvalidSchema says where it is none. `comments` takes what Avro's own parser skips, `number`
    is what a number that is no integer becomes."""
    require_json_nesting(text)
    try:
        value = _loads(text, number)
    except ValueError as error:
        if not (comments and "/" in text):
            raise InvalidSchema(f"not JSON: {error}") from None
        try:
            value = _loads(_COMMENT.sub(lambda found: found[1] or " ", text), number)
        except ValueError as second:
            raise InvalidSchema(f"not JSON: {second}") from None
    except RecursionError:
        raise InvalidSchema(f"the JSON nests deeper than {JSON_NESTING_MAX} levels") from None
    if "\\u" in text:
        try:
            dumps(value).encode()
        except UnicodeEncodeError:
            raise InvalidSchema("a \\u escape is half of a surrogate pair") from None
    return value


def _loads(text: str, number: type[float]) -> Json:
    value: Json = json.loads(text, parse_float=number, parse_constant=_refuse_constant)
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def dumps(value: Json) -> str:
    """The compact text of a value."""
    if isinstance(value, str):
        return quoted(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, Decimal):
        return value.text
    if isinstance(value, float):
        return _double(value)
    if isinstance(value, list):
        return "[" + ",".join(map(dumps, value)) + "]"
    return "{" + ",".join(f"{quoted(key)}:{dumps(each)}" for key, each in value.items()) + "}"


def quoted(text: str) -> str:
    """A JSON string."""
    return '"' + _ESCAPED.sub(lambda found: _SHORT.get(found[0]) or f"\\u{ord(found[0]):04X}", text) + '"'


def ordered(value: Json) -> Json:
    """The value with the keys of every object in order."""
    if isinstance(value, dict):
        return {key: ordered(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [ordered(each) for each in value]
    return value


def _double(number: float) -> str:
    """A double as Java prints it: plain from 1e-3 to 1e7, else with an exponent; what JSON cannot write is a string."""
    if math.isnan(number):
        return '"NaN"'
    if math.isinf(number):
        return '"Infinity"' if number > 0 else '"-Infinity"'
    sign = "-" if math.copysign(1, number) < 0 else ""
    if number == 0:
        return f"{sign}0.0"
    mantissa, _, exponent = f"{abs(number)!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    leading = len(whole + fraction) - len(digits)
    point = len(whole) - leading + int(exponent or 0)
    digits = digits.rstrip("0") or "0"
    if 1e-3 <= abs(number) < 1e7:
        if point <= 0:
            return f"{sign}0.{'0' * -point}{digits}"
        return f"{sign}{digits[:point].ljust(point, '0')}.{digits[point:] or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{point - 1}"
