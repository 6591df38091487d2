"""Reads an expression: Python's parser makes a tree, an allow-list of constructs makes closures of it.

The tree is never compiled by Python. A construct that is not in `_COMPILERS` is a FilterError that points at it.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NoReturn

from ottla.filters import values
from ottla.filters.errors import FilterError
from ottla.filters.functions import FUNCTIONS, MATCHES, STR, Function
from ottla.filters.record import Row
from ottla.filters.regex import InvalidPattern, compile_pattern
from ottla.filters.times import Moment, duration_ms, iso_time_ms

Evaluate = Callable[[Row], Any]

TEXT_CHARS_MAX = 4000
NODES_MAX = 400
DEPTH_MAX = 30

NAMES: dict[str, tuple[str, Evaluate]] = {
    "key": ("the key: an object or array if it is JSON, else text", lambda row: row.key),
    "value": ("the value: an object or array if it is JSON, else text", lambda row: row.value),
    "headers": ('the headers by name, as text: headers["x"] or headers.x', lambda row: row.headers),
    "topic": ("the name of the topic", lambda row: row.record.topic),
    "partition": ("the number of the partition", lambda row: row.record.partition),
    "offset": ("the offset", lambda row: row.record.offset),
    "timestamp": ("the time of the record", lambda row: row.timestamp),
}
"""What a record has, with its meaning. `now` is the time at which the search began."""
NOW = "now"
CONSTANTS: dict[str, Any] = {"true": True, "false": False, "null": None}
"""JSON's words beside Python's True, False and None."""

ARITHMETIC: dict[type[ast.AST], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("+", values.add),
    ast.Sub: ("-", values.subtract),
    ast.Mult: ("*", values.multiply),
    ast.Div: ("/", values.divide),
    ast.FloorDiv: ("//", values.floor_divide),
    ast.Mod: ("%", values.remainder),
}


def _ordered(is_so: Callable[[int], bool]) -> Callable[[Any, Any], bool]:
    def compare(left: Any, right: Any) -> bool:
        order = values.ordering(left, right)
        return order is not None and is_so(order)

    return compare


COMPARISONS: dict[type[ast.AST], tuple[str, Callable[[Any, Any], bool]]] = {
    ast.Eq: ("==", values.equal),
    ast.NotEq: ("!=", lambda left, right: not values.equal(left, right)),
    ast.Lt: ("<", _ordered(lambda order: order < 0)),
    ast.LtE: ("<=", _ordered(lambda order: order <= 0)),
    ast.Gt: (">", _ordered(lambda order: order > 0)),
    ast.GtE: (">=", _ordered(lambda order: order >= 0)),
    ast.In: ("in", lambda left, right: values.contains(right, left)),
    ast.NotIn: ("not in", lambda left, right: not values.contains(right, left)),
    ast.Is: ("is", lambda left, right: left is right),
    ast.IsNot: ("is not", lambda left, right: left is not right),
}

_ALLOWED = (
    "allowed are the names key, value, headers, topic, partition, offset, timestamp and now, fields (value.a, value[0],"
    ' headers["x"]), comparisons, and, or, not, in, is None, + - * / // %, and ' + ", ".join(f"{name}()" for name in FUNCTIONS)
)


@dataclass(frozen=True, slots=True)
class Parsed:
    text: str
    tree: ast.expr
    evaluate: Evaluate


def parse(text: str, now_ms: int) -> Parsed:
    """The expression as a tree of allowed constructs and as a function. FilterError says what is wrong."""
    if len(text) > TEXT_CHARS_MAX:
        raise FilterError(f"the expression has {len(text)} characters, at most {TEXT_CHARS_MAX} are allowed", text, 0, 1)
    if not text.strip():
        raise FilterError("the expression is empty", text, hint='write one as in value.amount > 100 and headers["x"] == "1"')
    tree = _tree(text)
    _check_size(text, tree)
    return Parsed(text, tree, _Compiler(text, now_ms).compile(tree))


def _tree(text: str) -> ast.expr:
    indent = len(text) - len(text.lstrip())
    # Python's parser takes white space before an expression for an indented block.
    source = text[indent:].rstrip()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "\d" in a pattern is not this program's mistake
            tree = ast.parse(source, mode="eval").body
    except SyntaxError as error:
        # The parser tells no place if the end is missing.
        start = _index(text, indent, error.lineno or 1, error.offset - 1) if error.offset else len(text.rstrip())
        raise FilterError(f"the expression is not complete or not correct: {error.msg}", text, start, start + 1) from None
    except (ValueError, MemoryError, RecursionError, OverflowError) as error:
        why = "it is nested too deep" if isinstance(error, (MemoryError, RecursionError)) else str(error)
        raise FilterError(f"the expression cannot be read: {why}", text) from None
    for node in ast.walk(tree):
        if isinstance(node, (ast.expr, ast.keyword)):
            _set_place(node, text, source, indent)
    return tree


def _set_place(node: ast.expr | ast.keyword, text: str, source: str, indent: int) -> None:
    """Replace the parser's lines and UTF-8 columns by characters from the start of `text`."""
    lines = source.split("\n")

    def characters(line: int, column: int) -> int:
        before = sum(len(each) + 1 for each in lines[: line - 1])
        return indent + before + len(lines[line - 1].encode()[:column].decode(errors="ignore"))

    start = characters(node.lineno, node.col_offset)
    end = characters(node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)
    node.lineno, node.end_lineno, node.col_offset, node.end_col_offset = 1, 1, start, end


def _index(text: str, indent: int, line: int, column: int) -> int:
    lines = text[indent:].split("\n")
    return indent + sum(len(each) + 1 for each in lines[: line - 1]) + max(column, 0)


def _check_size(text: str, tree: ast.expr) -> None:
    count, level = 0, [tree]
    for _ in range(DEPTH_MAX + 1):
        count += len(level)
        if count > NODES_MAX:
            raise FilterError(f"the expression has more than {NODES_MAX} parts", text)
        level = [child for node in level for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
        if not level:
            return
    raise FilterError(f"the expression is nested deeper than {DEPTH_MAX} levels", text)


class _Compiler:
    def __init__(self, text: str, now_ms: int) -> None:
        self._text = text
        self._now = Moment(now_ms)

    def refuse(self, node: ast.AST, message: str, hint: str | None = None) -> NoReturn:
        start, end = getattr(node, "col_offset", 0), getattr(node, "end_col_offset", None)
        raise FilterError(message, self._text, start, end, hint=hint)

    def compile(self, node: ast.expr) -> Evaluate:
        compiler = _COMPILERS.get(type(node))
        if compiler is None:
            self.refuse(node, f"{_what(node)} is not allowed in an expression", _ALLOWED)
        return compiler(self, node)

    def constant(self, node: ast.Constant) -> Evaluate:
        found = node.value
        if found is not None and not isinstance(found, (bool, int, float, str)):
            self.refuse(node, f"a {type(found).__name__} is not allowed in an expression", "write numbers and texts")
        if isinstance(found, int) and values.bounded(found) is None:
            self.refuse(node, "the number is too large")
        return lambda row: found

    def name(self, node: ast.Name) -> Evaluate:
        if node.id in NAMES:
            return NAMES[node.id][1]
        if node.id == NOW:
            now = self._now
            return lambda row: now
        if node.id in CONSTANTS:
            constant = CONSTANTS[node.id]
            return lambda row: constant
        if node.id in FUNCTIONS:
            hint = f"it is a function: {FUNCTIONS[node.id].usage}"
        else:
            hint = f'names are {", ".join((*NAMES, NOW))}; a field of the value is value.{node.id}, a text is "{node.id}"'
        self.refuse(node, f"{node.id} is not the name of a part of a record", hint)

    def attribute(self, node: ast.Attribute) -> Evaluate:
        of, name = self.compile(node.value), node.attr
        return lambda row: values.field(of(row), name)

    def subscript(self, node: ast.Subscript) -> Evaluate:
        if isinstance(node.slice, (ast.Slice, ast.Tuple)):
            self.refuse(node.slice, "a slice is not allowed in an expression", 'write one index or field: value[0], value["a"]')
        of, name = self.compile(node.value), self.compile(node.slice)
        return lambda row: values.field(of(row), name(row))

    def boolean(self, node: ast.BoolOp) -> Evaluate:
        parts = [self.compile(each) for each in node.values]
        if isinstance(node.op, ast.And):
            return lambda row: all(part(row) for part in parts)
        return lambda row: any(part(row) for part in parts)

    def unary(self, node: ast.UnaryOp) -> Evaluate:
        operand = self.compile(node.operand)
        if isinstance(node.op, ast.Not):
            return lambda row: not operand(row)
        if isinstance(node.op, ast.USub):
            return lambda row: values.negate(operand(row))
        self.refuse(node, f"{_what(node)} is not allowed in an expression", _ALLOWED)

    def arithmetic(self, node: ast.BinOp) -> Evaluate:
        if type(node.op) not in ARITHMETIC:
            self.refuse(node, f"{_what(node)} is not allowed in an expression", _ALLOWED)
        compute = ARITHMETIC[type(node.op)][1]
        left, right = self.compile(node.left), self.compile(node.right)
        # now - "1h" must be a duration: what is not would be missing in every record.
        for time, by in ((node.left, node.right), (node.right, node.left)):
            if self._is_time(time) and _is_text(by) and duration_ms(_text(by)) is None:
                self.refuse(by, f"{_text(by)!r} is not a duration", 'write it as in now - "1h30m": ms, s, m, h, d, w')
        return lambda row: compute(left(row), right(row))

    def comparison(self, node: ast.Compare) -> Evaluate:
        sides = [node.left, *node.comparators]
        for operator, left, right in zip(node.ops, sides, sides[1:], strict=False):
            self._check_comparison(operator, left, right)
        evaluators = [self.compile(each) for each in sides]
        operations = [COMPARISONS[type(operator)][1] for operator in node.ops]
        if len(operations) == 1:
            (compare,), (first, second) = operations, evaluators
            return lambda row: compare(first(row), second(row))

        def chain(row: Row) -> bool:
            found = [evaluate(row) for evaluate in evaluators]
            return all(compare(*pair) for compare, pair in zip(operations, pairwise(found), strict=True))

        return chain

    def _check_comparison(self, operator: ast.cmpop, left: ast.expr, right: ast.expr) -> None:
        if isinstance(operator, (ast.Is, ast.IsNot)):
            if not (_is_singleton(left) or _is_singleton(right)):
                self.refuse(right, "`is` takes None, True or False only", "compare with ==")
            return
        for side, other in ((left, right), (right, left)):
            if self._is_time(side) and _is_text(other) and not isinstance(operator, (ast.In, ast.NotIn)):
                self._check_time(_text(other), other)

    def _check_time(self, text: str, node: ast.expr) -> None:
        if iso_time_ms(text) is None:
            hint = 'write an ISO time, "2024-05-01T10:00Z", or a time ago, now - "1h"'
            self.refuse(node, f"{text!r} is not a time", hint)

    def _is_time(self, node: ast.expr) -> bool:
        """Whether the node is certainly a point in time."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
            return self._is_time(node.left) and _is_text(node.right)
        return isinstance(node, ast.Name) and node.id in ("timestamp", NOW)

    def display(self, node: ast.List | ast.Tuple | ast.Set) -> Evaluate:
        elements = [self.compile(each) for each in node.elts]
        return lambda row: [element(row) for element in elements]

    def call(self, node: ast.Call) -> Evaluate:
        function, arguments = self._called(node)
        if node.keywords:
            self.refuse(node.keywords[0], "arguments have no names here", f"write {function.usage}")
        if len(arguments) != len(function.parameters):
            self.refuse(node, f"{function.name} takes {len(function.parameters)} of {function.usage}, not {len(arguments)}")
        if function is MATCHES:
            return self._matches(*arguments)
        if function is STR and isinstance(arguments[0], ast.Name) and arguments[0].id in ("key", "value"):
            return _whole_text(arguments[0].id)
        call = function.call
        compiled = [self.compile(each) for each in arguments]
        if len(compiled) == 1:
            (only,) = compiled
            return lambda row: call(only(row))
        return lambda row: call(*[each(row) for each in compiled])

    def _called(self, node: ast.Call) -> tuple[Function, Sequence[ast.expr]]:
        """The function, and its arguments; the first of a method is what stands before the dot."""
        called = node.func
        if isinstance(called, ast.Name) and called.id in FUNCTIONS:
            return FUNCTIONS[called.id], node.args
        if isinstance(called, ast.Attribute) and called.attr in FUNCTIONS and FUNCTIONS[called.attr].is_method:
            return FUNCTIONS[called.attr], [called.value, *node.args]
        name = called.id if isinstance(called, ast.Name) else f".{called.attr}" if isinstance(called, ast.Attribute) else "this"
        known = ", ".join(function.usage for function in FUNCTIONS.values())
        self.refuse(called, f"{name} cannot be called", f"functions are {known}; those of a text are methods too")

    def _matches(self, subject: ast.expr, pattern: ast.expr) -> Evaluate:
        if not _is_text(pattern):
            self.refuse(pattern, "the regular expression must be a text", 'write it as in matches(value.name, "^A.*z$")')
        try:
            compiled = compile_pattern(_text(pattern).encode())
        except (InvalidPattern, UnicodeEncodeError) as error:
            self.refuse(pattern, str(error))
        of, search = self.compile(subject), MATCHES.call
        return lambda row: search(of(row), compiled)


def _whole_text(name: str) -> Evaluate:
    return (lambda row: row.key_text) if name == "key" else (lambda row: row.value_text)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_singleton(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return node.value is None or isinstance(node.value, bool)
    return isinstance(node, ast.Name) and node.id in CONSTANTS


def _text(node: ast.expr) -> str:
    assert isinstance(node, ast.Constant)
    assert isinstance(node.value, str)
    return node.value


_WORDS: dict[type[ast.AST], str] = {
    ast.Lambda: "lambda",
    ast.IfExp: "if … else",
    ast.Dict: "a dict",
    ast.NamedExpr: ":=",
    ast.JoinedStr: "an f-string",
    ast.ListComp: "a comprehension",
    ast.SetComp: "a comprehension",
    ast.DictComp: "a comprehension",
    ast.GeneratorExp: "a comprehension",
    ast.Starred: "*",
    ast.Await: "await",
    ast.Yield: "yield",
    ast.YieldFrom: "yield",
    ast.Pow: "**",
    ast.MatMult: "@",
    ast.BitAnd: "& (write and)",
    ast.BitOr: "| (write or)",
    ast.BitXor: "^",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.Invert: "~ (write not)",
    ast.UAdd: "a + before a value",
}


def _what(node: ast.AST) -> str:
    operator = getattr(node, "op", node)
    return _WORDS.get(type(operator), type(operator).__name__)


_COMPILERS: dict[type[ast.AST], Callable[[_Compiler, Any], Evaluate]] = {
    ast.Constant: _Compiler.constant,
    ast.Name: _Compiler.name,
    ast.Attribute: _Compiler.attribute,
    ast.Subscript: _Compiler.subscript,
    ast.BoolOp: _Compiler.boolean,
    ast.UnaryOp: _Compiler.unary,
    ast.BinOp: _Compiler.arithmetic,
    ast.Compare: _Compiler.comparison,
    ast.List: _Compiler.display,
    ast.Tuple: _Compiler.display,
    ast.Set: _Compiler.display,
    ast.Call: _Compiler.call,
}
