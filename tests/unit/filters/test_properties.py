"""No input of the filter language runs code, hangs, or raises anything but FilterError; the prefilter rejects no match."""

from __future__ import annotations

import ast
import json
import sys
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.filters.errors import FilterError
from ottla.filters.filter import Filter, parse_filter
from ottla.filters.functions import FUNCTIONS
from tests.kit import ROOT
from tests.unit.filters.test_language import NOW_MS, TRUE, Example

FIELDS = ["a", "b", "Ada", "é", "10", "x y", 'q"', "\\", "lower"]
TEXTS = ["Ada", "a", "", "10", "1e1", "é", 'say "hi"', "\\", "1h", "2024-05-01", "\ufffd", "\ud800", "/", "\n", "NaN"]
SCALARS = [None, True, False, 0, 1, 10, -3, 1.5, 10.0, 1e300, *TEXTS, *TEXTS]
LITERALS = [*map(ascii, TEXTS), "1", "10", "0", "1.5", "None", "True", "false", "null"]
ROOTS = ["key", "value", "value", "value", "headers", "topic", "offset", "timestamp", "now", "str(value)", "str(value.a)"]


class Maker:
    """Random records and expressions that have something to do with each other."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def document(self, depth: int = 2) -> Any:
        kind = self.random.randrange(4) if depth else 0
        if kind == 3:
            return [self.document(depth - 1) for _ in range(self.random.randrange(3))]
        if kind:
            return {self.random.choice(FIELDS): self.document(depth - 1) for _ in range(self.random.randrange(4))}
        return self.random.choice(SCALARS)

    def data(self) -> bytes | None:
        """A null, JSON in one of its spellings, plain text, or other bytes."""
        kind = self.random.choice(["null", "json", "json", "json", "json", "escaped", "text", "bytes"])
        if kind == "null":
            return None
        if kind == "bytes":
            return self.random.choice([b"\xffAda\xc3", b"a\x00\xff", self.random.randbytes(4)])
        if kind == "text":
            return self.random.choice(TEXTS).encode("utf-8", "replace")
        separators = self.random.choice([(",", ":"), (", ", ": ")])
        text = json.dumps(self.document(), ensure_ascii=kind == "escaped", separators=separators)
        if kind == "escaped":
            letter = self.random.choice("Aadx/é")
            text = text if "\\u" in text else text.replace(letter, f"\\u{ord(letter):04x}")
        return text.replace("10.0", "1e1").encode("utf-8", "replace")

    def record(self) -> Example:
        headers = [(self.random.choice(["x", "Ada", ""]), self.data()) for _ in range(self.random.randrange(2))]
        return Example(self.data(), self.data(), headers, timestamp_ms=self.random.choice([None, NOW_MS, NOW_MS - 60_000]))

    def path(self) -> str:
        path = self.random.choice(ROOTS)
        for _ in range(self.random.randrange(3)):
            name = self.random.choice(FIELDS)
            dotted = f".{name}" if name.isidentifier() else "[0]"
            path += self.random.choice([dotted, f"[{name!a}]", f"[{name!a}]", "[0]", "[-1]"])
        return path

    def expression(self, depth: int = 3) -> str:
        kind = self.random.choice(["path", "compare", "compare", "in", "bool", "not", "arithmetic", "call", "chain"])
        if depth == 0:
            return self.random.choice(LITERALS) if self.random.random() < 0.5 else self.path()
        if kind == "path":
            return self.path()
        if kind == "in":
            return f"({self.expression(depth - 1)} in [{', '.join(self.expression(0) for _ in range(self.random.randrange(3)))}])"
        if kind == "not":
            return f"(not {self.expression(depth - 1)})"
        if kind == "call":
            return self.call(depth)
        left, right = self.expression(self.random.randrange(depth)), self.expression(self.random.randrange(depth))
        if kind == "chain":
            return f"({left} == {right} < {self.expression(depth - 1)})"
        signs = {
            "compare": ["==", "==", "!=", "<", ">=", "in", "not in"],
            "bool": ["and", "or"],
            "arithmetic": ["+", "-", "*", "/", "//", "%"],
        }
        return f"({left} {self.random.choice(signs[kind])} {right})"

    def call(self, depth: int) -> str:
        function = self.random.choice(list(FUNCTIONS.values()))
        arguments = [self.expression(self.random.randrange(depth)) for _ in function.parameters]
        if function.name == "matches":
            arguments[1] = self.random.choice(["'Ada'", "'^A'", "'10'", "'.'", "'say .hi'"])
        if function.is_method and self.random.random() < 0.5:
            return f"({arguments[0]}).{function.name}({', '.join(arguments[1:])})"
        return f"{function.name}({', '.join(arguments)})"


def parsed(text: str) -> Filter | None:
    """The filter, or None for an error that has a place and a text. Any other exception fails the test."""
    try:
        return parse_filter(text, NOW_MS)
    except FilterError as error:
        refused = error
    assert 0 <= refused.start <= refused.end <= len(text)
    assert refused.message in str(refused)
    return None


def check_prefilter(text: str, record: Example) -> bool:
    """Whether the record matches, and the prefilter must admit it then."""
    found = parsed(text)
    matches = found is not None and found.matches(record)
    assert found is None or not matches or found.may_match(record.key, record.value), (text, record, found.prefilter)
    return matches


@settings(max_examples=500, deadline=None)
@given(st.integers(0, 1 << 40))
def test_the_prefilter_rejects_no_match(seed: int) -> None:
    maker = Maker(seed)
    for text in (maker.expression(), maker.expression(2), maker.expression(1)):
        for _ in range(4):
            check_prefilter(text, maker.record())


def test_the_records_of_that_test_match_and_are_rejected_often_enough() -> None:
    counted = {"matches": 0, "rejected": 0}
    for seed in range(400):
        maker = Maker(seed)
        text, record = maker.expression(1), maker.record()
        found = parsed(text)
        if found is not None:
            counted["matches"] += found.matches(record)
            counted["rejected"] += not found.may_match(record.key, record.value)
    assert min(counted.values()) > 20, counted


@pytest.mark.parametrize(
    ("text", "value", "matches"),
    [
        ("value.a == '10'", b'{"a": 1e1}', True),
        ("'10' in value", b"[1e1]", True),
        ("value.a in ['x', None]", b"{}", True),
        ("value.a == value.b", None, True),
        ("value.Ada == 1", b'{"\\u0041da": 1}', True),
        ("value.a == 'x/y'", b'{"a": "x\\/y"}', True),
        ("str(value.a) == '[10.0,2]'", b'{"a": [1e1, 2]}', True),
        ("'Ada' in value", b"\xc3Ada\xff", True),
        ("value == '\ufffd'", b"\xff", True),
        ("value.a != 'Ada'", b"{}", True),
        ("not value.Ada", b"{}", True),
        ("value.a.matches('A[dx]a')", b'{"a": "Axa"}', True),
        ("value.a.lower() == 'ada'", b'{"a": "ADA"}', True),
    ],
)
def test_spellings_that_a_prefilter_could_miss(text: str, value: bytes | None, matches: bool) -> None:
    assert check_prefilter(text, Example(value)) is matches


@pytest.mark.parametrize(
    ("text", "admitted", "rejected"),
    [
        ("value.amount > 100", b'{"amount": 1}', b'{"total": 101}'),
        ('value.name == "Ada"', b'{"name": "Ada"}', b'{"name": "Bob"}'),
        ('"Ada" in str(value)', b"Ada", b"Bob"),
        ('value.name.startswith("Ad") and value.paid', b'{"name": "Ad", "paid": 1}', b'{"name": "Ad"}'),
        ('value.a == "x1" or value.b == "x2"', b'{"b": "x2"}', b'{"a": "x2"}'),
        ('value.name in ["Ada", "Bob"]', b'{"name": "Bob"}', b'{"name": "Eve"}'),
        ('matches(value.name, "Ada Love")', b'{"name": "Ada Love"}', b'{"name": "Ada"}'),
        ("value.a + value.b > 3", b'{"a": 1, "b": 2}', b'{"a": 1}'),
        ("len(value.lines) > 1", b'{"lines": []}', b"{}"),
        ("value.note is not None", b'{"note": null}', b"{}"),
        ('key == "x1" or value.a', b'{"a": 1}', b'{"b": 1}'),
    ],
)
def test_what_a_prefilter_rejects(text: str, admitted: bytes, rejected: bytes) -> None:
    found = parse_filter(text, NOW_MS)
    assert found.may_match(b"key", admitted)
    assert not found.may_match(b"key", rejected)
    assert not found.may_match(None, None)


PLAIN_WORDS = """
value key headers topic offset timestamp now . [ ] ( ) , == != < > in not and or is None + - * / // % ** : := lambda x for if else
await yield __class__ __import__ open eval len matches str 1 1e9 0x1f b'' f'{1}' # ; = @ ~ & | ^ ... { } "a" 'b é
"""
WORDS = [*PLAIN_WORDS.split(), "\x00", "\ud800", "\\", "\n", "\t", "9" * 30]
TEXT = st.one_of(
    st.text(max_size=60),
    st.lists(st.sampled_from(WORDS), max_size=25).map(" ".join),
    st.lists(st.sampled_from(WORDS), max_size=25).map("".join),
    st.tuples(st.sampled_from(TRUE), st.sampled_from(WORDS), st.integers(0, 60)).map(
        lambda parts: parts[0][: parts[2]] + parts[1] + parts[0][parts[2] :]
    ),
)


@settings(max_examples=500, deadline=None)
@given(TEXT)
@example("(" * 4000)
@example("-" * 4000)
@example("value" + ".a" * 1900)
@example("not " * 900 + "1")
@example("9" * 4000)
@example("value" + "[0]" * 1300)
def test_any_text_is_a_filter_or_a_filter_error(text: str) -> None:
    found = parsed(text)
    if found is not None:
        for record in (Example(), Example(b'{"a": [1, "b"]}'), Example(b"\xff", None, [])):
            assert found.matches(record) in (True, False)


def test_nothing_in_the_package_can_run_code() -> None:
    """What would run an expression as code, or read attributes by name, is called nowhere in it, but for places of the tree."""
    called: set[str] = set()
    for path in (ROOT / "src/ottla/filters").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                called.add(node.func.id)
    assert "isinstance" in called
    assert called & {"eval", "exec", "compile", "__import__", "globals", "locals", "vars", "setattr", "open"} == set()


HOSTILE = [
    ("now + value > 1", b"1m" * 2000),
    ("value > now", b"2024-01-01T" + b"0" * 4000),
    ("value > 1", b"9" * 4000),
    ("value.matches('(a*)*b')", b"a" * 4000),
    ("value in [" + ",".join(["value"] * 50) + "]", b"[" * 900),
]


@pytest.mark.parametrize(("text", "value"), HOSTILE, ids=[text[:20] for text, _ in HOSTILE])
def test_a_larger_record_takes_no_more_steps(text: str, value: bytes) -> None:
    """Steps are Python's calls; what they call is linear."""

    def steps(data: bytes) -> int:
        found, calls = parse_filter(text, NOW_MS), []
        sys.setprofile(lambda *_: calls.append(1))
        try:
            found.matches(Example(data))
        finally:
            sys.setprofile(None)
        return len(calls)

    steps(value)
    assert steps(value * 8) <= steps(value) + 10


def test_a_pattern_that_python_would_search_for_years() -> None:
    assert not parse_filter("matches(value, '(x+x+)+y')", NOW_MS).matches(Example(b"x" * 200_000))
