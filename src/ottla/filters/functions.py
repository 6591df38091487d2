"""The table of what an expression may call. A function of a missing value is missing.

Each is a function, `lower(value.name)`, and, but for those that only take a value, a method: `value.name.lower()`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ottla.filters import values


@dataclass(frozen=True, slots=True)
class Function:
    name: str
    parameters: tuple[str, ...]
    meaning: str
    call: Callable[..., Any]
    is_method: bool = True

    @property
    def usage(self) -> str:
        return f"{self.name}({', '.join(self.parameters)})"


def _of_text(operation: Callable[[str], str]) -> Callable[[Any], Any]:
    return lambda value: operation(value) if isinstance(value, str) else None


def _of_texts(operation: Callable[[str, str], bool]) -> Callable[[Any, Any], Any]:
    return lambda value, other: operation(value, other) if isinstance(value, str) and isinstance(other, str) else None


def _contains(value: Any, part: Any) -> bool | None:
    return None if value is None else values.contains(value, part)


def _matches(value: Any, pattern: Any) -> bool | None:
    """`pattern` is compiled, for bytes: `parsing` wants a literal."""
    return pattern.search(value.encode("utf-8", "replace")) is not None if isinstance(value, str) else None


FUNCTIONS = {
    function.name: function
    for function in (
        Function(
            "len", ("x",), "characters of a text, elements of an array, fields of an object", values.length, is_method=False
        ),
        Function("lower", ("text",), "in lower case", _of_text(str.lower)),
        Function("upper", ("text",), "in upper case", _of_text(str.upper)),
        Function("strip", ("text",), "without white space at both ends", _of_text(str.strip)),
        Function("startswith", ("text", "start"), "whether it begins with this", _of_texts(str.startswith)),
        Function("endswith", ("text", "end"), "whether it ends with this", _of_texts(str.endswith)),
        Function("contains", ("x", "part"), "whether a text, an array or an object has this in it", _contains),
        Function("matches", ("text", '"pattern"'), "whether an RE2 regular expression is found in it", _matches),
        Function("int", ("x",), "a whole number, cut off", values.as_integer, is_method=False),
        Function("float", ("x",), "a number", values.as_float, is_method=False),
        Function(
            "str",
            ("x",),
            "text; of objects and arrays their JSON, of the key or value all of it",
            values.as_text,
            is_method=False,
        ),
    )
}

MATCHES = FUNCTIONS["matches"]
STR = FUNCTIONS["str"]
