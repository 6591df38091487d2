"""The syntax of Java's properties files, as in server.properties."""

from __future__ import annotations

import pytest

from ottla.cluster.properties import PropertiesError, parse_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1\nb = 2\nc:3\nd 4\ne\n", {"a": "1", "b": "2", "c": "3", "d": "4", "e": ""}),
        ("# comment\n! another\n\n   \t\n  a=1", {"a": "1"}),
        ("a=1 # not a comment", {"a": "1 # not a comment"}),
        ("a=x,\\\n   y,\\\n\tz\nb=1", {"a": "x,y,z", "b": "1"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\\n# joined, not a comment", {"a": "1# joined, not a comment"}),
        ("a\\ b=1\nc\\=d=2\ne\\:f=3", {"a b": "1", "c=d": "2", "e:f": "3"}),
        ("a=\\t\\n\\r\\f\\u00e9\\q", {"a": "\t\n\r\f\u00e9q"}),
        ("a=\\ud83d\\ude00", {"a": "\U0001f600"}),
        ("a==b\na2 := c", {"a": "=b", "a2": "= c"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=first\na=second", {"a": "second"}),
        ("a=trailing blanks  \nb=1", {"a": "trailing blanks  ", "b": "1"}),
        ("listeners=PLAINTEXT://:9092", {"listeners": "PLAINTEXT://:9092"}),
        ("a=ends in a backslash\\", {"a": "ends in a backslash"}),
        ("\\", {}),
        ("\\\n# a comment\na=1", {"a": "1"}),
        ("", {}),
    ],
)
def test_as_java_reads_it(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


def test_a_broken_escape_names_its_line() -> None:
    with pytest.raises(PropertiesError, match="line 3"):
        parse_properties("a=1\n\nb=\\u12x4\n")
