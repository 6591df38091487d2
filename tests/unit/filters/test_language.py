"""Every construct of the filter language, and what it refuses."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from ottla.filters.errors import FilterError
from ottla.filters.filter import parse_filter
from ottla.filters.functions import FUNCTIONS
from ottla.filters.parsing import ARITHMETIC, COMPARISONS, DEPTH_MAX, NAMES, NODES_MAX, TEXT_CHARS_MAX

NOW_MS = 1_714_557_600_000  # 2024-05-01T10:00Z


@dataclass
class Example:
    value: bytes | None = None
    key: bytes | None = b"customer-7"
    headers: list[tuple[str, bytes | None]] = field(default_factory=lambda: [("x", b"0"), ("x", b"1"), ("none", None)])
    topic: str = "orders"
    partition: int = 2
    offset: int = 120
    timestamp_ms: int | None = NOW_MS - 60_000


ORDER = {
    "amount": 150,
    "price": 1.5,
    "name": "Ada Lovelace",
    "paid": True,
    "note": None,
    "count": "12",
    "tags": ["new", "vip", 7],
    "lines": [{"sku": "a-1"}, {"sku": "b-2"}],
    "at": "2024-05-01T09:30:00Z",
    "class": "first",
}


def holds(expression: str, value: Any = ORDER, **parts: Any) -> bool:
    data = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
    record = Example(data, **parts)
    found = parse_filter(expression, NOW_MS)
    matches = found.matches(record)
    assert found.may_match(record.key, record.value) or not matches
    return matches


TRUE = [
    # names
    'key == "customer-7"',
    "value.amount == 150",
    'headers["x"] == "1"',
    'headers.x == "1"',
    "headers.x == 1",
    'headers["none"] is None',
    '"none" in headers',
    '"y" not in headers',
    'topic == "orders"',
    "partition == 2",
    "offset >= 120",
    'timestamp == "2024-05-01T09:59:00Z"',
    'timestamp > now - "1h"',
    'timestamp < now - "30s"',
    'now - timestamp == "1m"',
    'now - timestamp < "1h"',
    'timestamp + "1m" == now',
    '"30s" + timestamp < now',
    "timestamp == 1714557540000",
    'value.at > now - "1h"',
    'timestamp > value.at and value.at < "2024-05-01T10"',
    # fields
    'value["amount"] == 150',
    'value.lines[0].sku == "a-1"',
    'value["lines"][-1]["sku"] == "b-2"',
    "value.lines[9].sku == None",
    "value.no.such.field is None",
    "value.no[0] == null",
    "value.amount.more is None",
    'value["class"] == "first"',
    "value.amount is not None",
    # literals
    "value.paid == True",
    "value.paid is True",
    "value.paid == true",
    "value.paid is not false",
    "value.note is null",
    "value.price == 15e-1",
    "value.name == 'Ada Lovelace'",
    # comparison
    "value.amount > 100",
    "100 < value.amount <= 150 < 151",
    "not 100 < value.amount < 150",
    "value.amount != 151",
    "value.no != 1",
    "not value.no > 1",
    "not value.no <= 1",
    'not value.name > 1 and not value.name < 1 and value.name != 1 and value.name > "A"',
    'value.count == 12 and value.count == "12" and value.count > 9',
    'value.tags == ["new", "vip", 7]',
    # and, or, not
    "value.paid and value.amount",
    "value.no or value.paid",
    "not value.note and not value.no",
    "not (value.no or value.amount < 100)",
    # in
    '"vip" in value.tags',
    '7 in value.tags and "7" in value.tags',
    '"old" not in value.tags',
    '"Love" in value.name',
    '"amount" in value',
    "value.amount in [1, 150]",
    'value.name in ("Bob", "Ada Lovelace")',
    "partition in {1, 2}",
    "not value.name in []",
    # arithmetic
    "value.amount + 1 == 151",
    "value.amount - 1 == 149",
    "value.amount * 2 == 300",
    "value.amount / 4 == 37.5",
    "value.amount // 4 == 37",
    "value.amount % 100 == 50",
    "-value.amount == -150",
    "offset % 2 == 0",
    'value.name + "!" == "Ada Lovelace!"',
    "value.amount / 0 is None",
    "value.amount % 0 is None",
    "value.name * 2 is None",
    "value.name % 2 is None",
    "value.no + 1 is None",
    # functions and methods
    "len(value.name) == 12",
    "len(value.tags) == 3 and len(value) == 10 and len(headers) == 2",
    "len(value.amount) is None",
    'lower(value.name) == "ada lovelace"',
    'value.name.upper() == "ADA LOVELACE"',
    'strip(" a ") == "a"',
    '" a".strip() == "a"',
    'value.name.lower() == "ada lovelace"',
    'startswith(value.name, "Ada")',
    'value.name.startswith("Ada") and not value.name.startswith("ada")',
    'value.name.endswith("lace")',
    'contains(value.name, "Love")',
    'value.tags.contains("vip")',
    'matches(value.name, "^A.*e$")',
    r'value.name.matches("\w+ L")',
    'key.matches("(?i)CUSTOMER-\\\\d")',
    "int(value.price) == 1",
    'int("12x") is None',
    "float(value.count) == 12.0",
    'str(value.amount) == "150"',
    "'\"amount\": 150' in str(value)",
    'str(value.tags) == \'["new","vip",7]\'',
    'not lower(value.no).startswith("a")',
    'int(timestamp) == 1714557540000 and str(timestamp).startswith("171")',
    # white space
    "  value.amount > 100  ",
    "(value.amount > 100\n and value.paid)",
]


@pytest.mark.parametrize("expression", TRUE)
def test_it_holds(expression: str) -> None:
    assert holds(expression)


@pytest.mark.parametrize("expression", [each for each in TRUE if "is None" not in each])
def test_a_record_without_value_and_key_is_no_error(expression: str) -> None:
    parse_filter(expression, NOW_MS).matches(Example(None, None, [], timestamp_ms=None))


def test_every_construct_of_the_tables_has_an_example() -> None:
    text = "\n".join(TRUE)
    assert [name for name in NAMES if name not in text] == []
    assert [name for name in FUNCTIONS if f"{name}(" not in text] == []
    assert [name for name, each in FUNCTIONS.items() if each.is_method and f".{name}(" not in text] == []
    for sign, _ in (*ARITHMETIC.values(), *COMPARISONS.values()):
        assert f" {sign} " in text, sign


@pytest.mark.parametrize(
    ("data", "expression"),
    [
        (b"plain text", 'value == "plain text" and "text" in value'),
        (b"42", 'value == 42 and value == "42" and value > 41'),
        (b"-1.5e3", "value == -1500"),
        (b"{broken", 'value == "{broken" and value.a is None'),
        (b'{"a": NaN}', "value.a is None"),
        (b'{"a": 1e999}', "value.a > 1 and int(value.a) is None"),
        (b"[1, 2]", "value[0] == 1 and 2 in value"),
        (b' \n{"a": 1}', "value.a == 1"),
        (b'"quoted"', "value == '\"quoted\"'"),
        (b"\xff\xfeabc", '"abc" in value and value.endswith("c")'),
        (b"\xff", 'value == "\ufffd"'),
        (b'{"a": "\\u00dc"}', 'value.a == "\u00dc" and value.a.matches("^.$")'),
        (b'{"a": "\\ud800"}', 'not value.a.matches("x") and len(value.a) == 1'),
        (b'{"a\\u0062": 1}', "value.ab == 1"),
        (b"[" * 100_000, 'value.startswith("[[")'),
        (b'{"a": ' + b"9" * 5000 + b"}", 'value.a is None and value.contains("99")'),
        (b'{"a": ' + b"9" * 4000 + b"}", "value.a > 1 and value.a * 2 is None and float(value.a) is None"),
        (b"", 'value == ""'),
    ],
)
def test_what_bytes_are(data: bytes, expression: str) -> None:
    assert holds(expression, data)


def test_a_null_value_is_none() -> None:
    assert holds("value is None", None)
    assert not holds('"a" in value or value.a or str(value) == "None"', None)


@pytest.mark.parametrize(
    ("expression", "marked", "says"),
    [
        ("value.amount > foo", "foo", "foo is not the name of a part of a record"),
        ("lower > 1", "lower", "it is a function: lower(text)"),
        ("open('/etc/passwd')", "open", "open cannot be called"),
        ("__import__('os')", "__import__", "__import__ cannot be called"),
        ("value.__class__.__bases__[0].__subclasses__()", "value.__class__.__bases__[0].__subclasses__", "cannot be called"),
        ("value.format(1)", "value.format", ".format cannot be called"),
        ("(lambda: 1)()", "lambda: 1", "cannot be called"),
        ("len(x=1)", "x=1", "arguments have no names here"),
        ("len(value, 1)", "len(value, 1)", "len takes 1 of len(x), not 2"),
        ("value.len()", "value.len", ".len cannot be called"),
        ("value.a ** 9", "value.a ** 9", "** is not allowed"),
        ("value.a << 9", "value.a << 9", "<< is not allowed"),
        ("value.a & 1", "value.a & 1", "& (write and) is not allowed"),
        ("~value.a", "~value.a", "~ (write not) is not allowed"),
        ("+value.a", "+value.a", "a + before a value is not allowed"),
        ("[x for x in value]", "[x for x in value]", "a comprehension is not allowed"),
        ("f'{value}'", "f'{value}'", "an f-string is not allowed"),
        ("1 if value else 2", "1 if value else 2", "if … else is not allowed"),
        ("(a := 1)", "a := 1", ":= is not allowed"),
        ("{'a': 1}", "{'a': 1}", "a dict is not allowed"),
        ("b'a' in value", "b'a'", "a bytes is not allowed"),
        ("value == 1j", "1j", "a complex is not allowed"),
        ("value == ...", "...", "a ellipsis is not allowed"),
        ("[*value]", "*value", "* is not allowed"),
        ("value[0:2]", "0:2", "a slice is not allowed"),
        ("value is 1", "1", "`is` takes None, True or False only"),
        ("value == 1" + "0" * 400, "1" + "0" * 400, "the number is too large"),
        ('timestamp > "10m"', '"10m"', "'10m' is not a time"),
        ('timestamp > now - "10 apples"', '"10 apples"', "is not a duration"),
        ('matches(value, "(")', '"("', "is not a regular expression of RE2"),
        ("matches(value, key)", "key", "the regular expression must be a text"),
        ('matches(value, "\\ud800")', '"\\ud800"', "surrogates not allowed"),
        ("value.ä == é", "é", "é is not the name"),
        ("   \n(value and\n  foo)", "foo", "foo is not the name"),
        ("value = 1", "=", "not complete or not correct"),
        ("value and", "", "not complete or not correct"),
        ("value; key", ";", "not complete or not correct"),
        ("", "", "the expression is empty"),
        (" \t ", "", "the expression is empty"),
        ("value == '\x00'", None, "null bytes"),
        ("(" * 500, None, "too many nested parentheses"),
        ("-" * 3000 + "1", None, "nested"),
        ("1" * (TEXT_CHARS_MAX + 1), None, "at most 4000"),
        ("-" * (DEPTH_MAX + 1) + "1", None, "nested deeper than 30"),
        ("[" + "1," * NODES_MAX + "]", None, "more than 400 parts"),
    ],
)
def test_an_error_points_at_its_place(expression: str, marked: str | None, says: str) -> None:
    with pytest.raises(FilterError) as caught:
        parse_filter(expression, NOW_MS)
    error = caught.value
    assert says in str(error), str(error)
    if marked is not None:
        assert expression[error.start : error.end] == marked or not marked.strip()
        line, mark = error.excerpt.split("\n")
        assert mark.strip("^ ") == ""
        assert len(mark) <= len(line) + 1


def test_an_error_names_what_is_allowed() -> None:
    with pytest.raises(FilterError) as caught:
        parse_filter("value.a + amount", NOW_MS)
    shown = str(caught.value).splitlines()
    assert shown == [
        "amount is not the name of a part of a record",
        "value.a + amount",
        "          ^^^^^^",
        "names are key, value, headers, topic, partition, offset, timestamp, now;"
        ' a field of the value is value.amount, a text is "amount"',
    ]


def test_a_long_line_is_shown_around_its_error() -> None:
    with pytest.raises(FilterError) as caught:
        parse_filter(" and ".join(["value.amount > 100"] * 20 + ["foo"]), NOW_MS)
    line, mark = caught.value.excerpt.split("\n")
    assert len(line) <= 100
    assert line[mark.index("^") :] == "foo"


def test_text_that_an_expression_makes_is_bounded() -> None:
    assert holds("len(value + value) == 200", b"a" * 100)
    assert holds("value + value is None", b"a" * (3 << 20))
