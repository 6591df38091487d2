"""Which bytes the key or the value of a record must have so that an expression can be true.

`value.name == "Ada"` needs `name` and `Ada` in the value. A search then decodes only records that have them. Text inside JSON may
be written with escapes (`\\u0041da`), so a value with what one begins with always passes. A search may also ask about the bytes
of many records in one piece: if they do not pass, none of the records does.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from ottla.filters.functions import FUNCTIONS
from ottla.filters.literal import Literal
from ottla.filters.values import number_of

_PLAIN_PATTERN = re.compile(r"[\w \-:/@,;]+", re.ASCII)
"""Regular expressions that are the text they look for."""
_SHORT_ESCAPED = re.compile(rb'[\x00-\x1f"\\/]')


class Prefilter(Protocol):
    def admits(self, key: bytes | None, value: bytes | None) -> bool: ...


@dataclass(frozen=True, slots=True)
class Always:
    """Nothing is known: every record may match."""

    def admits(self, key: bytes | None, value: bytes | None) -> bool:
        return True


class _Finder:
    """Whether bytes have a literal, or what an escape begins with that may stand for it."""

    def __init__(self, literal: bytes) -> None:
        self._literal, self._escape = Literal(literal), Literal(_escape(literal))

    def finds(self, data: bytes) -> bool:
        return self._literal.is_in(data) or self._escape.is_in(data)


def _escape(literal: bytes) -> bytes:
    """What an escape begins with that may stand for a character of the literal in JSON. Only some have a short one (`\\n`): for
    the others it is enough to look for `\\u`, which is seldom in bytes that are no text, as the lengths between records."""
    return b"\\" if _SHORT_ESCAPED.search(literal) else b"\\u"


@dataclass(frozen=True, slots=True)
class InKey:
    literal: bytes
    finder: _Finder = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "finder", _Finder(self.literal))

    def admits(self, key: bytes | None, value: bytes | None) -> bool:
        return key is not None and self.finder.finds(key)


@dataclass(frozen=True, slots=True)
class InValue:
    literal: bytes
    finder: _Finder = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "finder", _Finder(self.literal))

    def admits(self, key: bytes | None, value: bytes | None) -> bool:
        return value is not None and self.finder.finds(value)


@dataclass(frozen=True, slots=True)
class AllOf:
    parts: tuple[Prefilter, ...]

    def admits(self, key: bytes | None, value: bytes | None) -> bool:
        return all(part.admits(key, value) for part in self.parts)


@dataclass(frozen=True, slots=True)
class AnyOf:
    parts: tuple[Prefilter, ...]

    def admits(self, key: bytes | None, value: bytes | None) -> bool:
        return any(part.admits(key, value) for part in self.parts)


ALWAYS = Always()


def prefilter(tree: ast.expr) -> Prefilter:
    """What is needed for the expression to be true. `parsing` has checked its constructs."""
    return _if_true(tree)


def _all_of(parts: Iterable[Prefilter]) -> Prefilter:
    needed: list[Prefilter] = []
    for part in parts:
        for each in part.parts if isinstance(part, AllOf) else (part,):
            if each is not ALWAYS and each not in needed:
                needed.append(each)
    # A long literal is rare: looked for first, it skips the search for the others.
    needed.sort(key=lambda part: -len(getattr(part, "literal", b"")))
    return ALWAYS if not needed else needed[0] if len(needed) == 1 else AllOf(tuple(needed))


def _any_of(parts: Iterable[Prefilter]) -> Prefilter:
    choices = tuple(parts)
    return ALWAYS if not choices or ALWAYS in choices else choices[0] if len(choices) == 1 else AnyOf(choices)


def _if_true(node: ast.expr) -> Prefilter:
    if isinstance(node, ast.BoolOp):
        return (_all_of if isinstance(node.op, ast.And) else _any_of)(map(_if_true, node.values))
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        return _all_of(_if_compared(*each) for each in zip(sides, node.ops, sides[1:], strict=False))
    if isinstance(node, ast.Call):
        return _all_of((_if_present(node), _if_call_true(node)))
    return _if_present(node)


def _if_compared(left: ast.expr, operator: ast.cmpop, right: ast.expr) -> Prefilter:
    """What is needed for a comparison of two to be true."""
    if isinstance(operator, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)):
        return _all_of((_if_present(left), _if_present(right)))
    if isinstance(operator, ast.Eq):
        return _all_of((_if_equal(left, right), _if_equal(right, left)))
    if isinstance(operator, ast.In):
        among = (
            _any_of(_if_equal(left, each) for each in right.elts) if isinstance(right, (ast.List, ast.Tuple, ast.Set)) else ALWAYS
        )
        return _all_of((_if_present(right), _has_literal(right, left), among))
    if isinstance(operator, ast.IsNot) and isinstance(right, ast.Constant) and right.value is None:
        return _if_present(left)
    return ALWAYS


def _if_equal(side: ast.expr, other: ast.expr) -> Prefilter:
    """What `side` needs for being equal to `other`."""
    if isinstance(other, ast.Constant) and other.value is not None:
        return _all_of((_if_present(side), _has_literal(side, other)))
    return ALWAYS


def _if_present(node: ast.expr) -> Prefilter:
    """What is needed for the node not to be missing, that is the names of the fields on the way."""
    if isinstance(node, ast.Attribute):
        return _all_of((_if_present(node.value), _in_part(node.value, node.attr)))
    if isinstance(node, ast.Subscript):
        name = node.slice.value if isinstance(node.slice, ast.Constant) else None
        return _all_of((_if_present(node.value), _in_part(node.value, name) if isinstance(name, str) else ALWAYS))
    if isinstance(node, ast.BinOp):
        return _all_of((_if_present(node.left), _if_present(node.right)))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return _if_present(node.operand)
    if isinstance(node, ast.Call):
        return _if_present(_arguments(node)[0])
    return ALWAYS


def _if_call_true(node: ast.Call) -> Prefilter:
    arguments = _arguments(node)
    name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr if isinstance(node.func, ast.Attribute) else ""
    if name in ("startswith", "endswith", "contains"):
        return _has_literal(arguments[0], arguments[1])
    if name == "matches":
        pattern = arguments[1]
        plain = isinstance(pattern, ast.Constant) and isinstance(pattern.value, str) and _PLAIN_PATTERN.fullmatch(pattern.value)
        return _has_literal(arguments[0], pattern) if plain else ALWAYS
    return ALWAYS


def _arguments(node: ast.Call) -> list[ast.expr]:
    return [node.func.value, *node.args] if isinstance(node.func, ast.Attribute) else node.args


def _has_literal(path: ast.expr, literal: ast.expr) -> Prefilter:
    """What is needed for the value at `path` to be, to have or to begin with the literal."""
    text = literal.value if isinstance(literal, ast.Constant) else None
    # "10" is equal to the number 1e1.
    if not isinstance(text, str) or number_of(text) is not None:
        return ALWAYS
    return _in_part(path, text)


def _in_part(path: ast.expr, text: str) -> Prefilter:
    """The text stands in the key or value that the path begins with."""
    part = _root(path)
    # U+FFFD stands for bytes that are not UTF-8.
    if part is None or not text or "\ufffd" in text:
        return ALWAYS
    try:
        literal = text.encode()
    except UnicodeEncodeError:
        return ALWAYS
    return InKey(literal) if part == "key" else InValue(literal)


def _root(path: ast.expr) -> str | None:
    """`key` or `value` if the path is one of them or a part of one."""
    while isinstance(path, (ast.Attribute, ast.Subscript)):
        path = path.value
    if isinstance(path, ast.Call) and isinstance(path.func, ast.Name) and path.func.id == "str":
        path = path.args[0]
    return path.id if isinstance(path, ast.Name) and path.id in ("key", "value") else None


assert {"startswith", "endswith", "contains", "matches", "str"} <= FUNCTIONS.keys()
