"""Records as lines, in and out."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.cli.failure import Failure
from ottla.cli.formats import Format, Incoming, Outgoing, Reading, Writing, parse_header, time_text, unescape


def incoming(
    key: bytes | None = b"k", value: bytes | None = b"v", headers: list[tuple[str, bytes | None]] | None = None
) -> Incoming:
    return Incoming("t", 2, 7, 1_700_000_000_123, "CreateTime", key, value, headers or [])


def test_text_is_the_line() -> None:
    assert Reading().record(b"hello \xff", 1) == Outgoing(None, b"hello \xff")


def test_key_separator_splits_at_the_first() -> None:
    assert Reading(key_separator=":").record(b"a:b:c", 1) == Outgoing(b"a", b"b:c")


def test_a_line_without_separator_names_its_number() -> None:
    with pytest.raises(Failure, match="line 3 has no key separator ':': hello"):
        Reading(key_separator=":").record(b"hello", 3)


def test_null_word_makes_null_key_and_value() -> None:
    reading = Reading(key_separator="|", null="NULL")
    assert reading.record(b"NULL|NULL", 1) == Outgoing(None, None)
    assert reading.record(b"a|", 1) == Outgoing(b"a", b"")


@pytest.mark.parametrize(("form", "line"), [(Format.HEX, b"00ff10"), (Format.HEX, b"0x00FF10"), (Format.BASE64, b"AP8Q")])
def test_hex_and_base64_are_bytes(form: Format, line: bytes) -> None:
    assert Reading(form, form).record(line, 1).value == b"\x00\xff\x10"


@pytest.mark.parametrize(
    ("form", "line"), [(Format.HEX, b"0g"), (Format.HEX, b"abc"), (Format.BASE64, b"!!"), (Format.BASE64, b"\xff")]
)
def test_bad_hex_and_base64_are_told(form: Format, line: bytes) -> None:
    with pytest.raises(Failure, match=f"line 4 is not {form}"):
        Reading(form).record(line, 4)


def test_json_in_takes_everything_a_record_has() -> None:
    line = (
        b'{"key":"k","value":{"a":[1,"\xc3\xa4"]},"headers":{"h":"x","n":null},"partition":3,"timestamp":"2023-11-14T22:13:20Z"}'
    )
    assert Reading(Format.JSON).record(line, 1) == Outgoing(
        b"k", '{"a":[1,"ä"]}'.encode(), [("h", b"x"), ("n", None)], 3, 1_700_000_000_000
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"{", "line 2 is not JSON"),
        (b"[1]", "line 2 is not a JSON object"),
        (b'{"valeu": 1}', "unknown field 'valeu'"),
        (b'{"partition": "x"}', "partition 'x' is not a number"),
        (b'{"timestamp": "soon"}', "timestamp 'soon'"),
        (b'{"timestamp": 9223372036854775808}', "timestamp 9223372036854775808"),
        (b'{"headers": [1]}', "headers must be"),
        (b'{"headers": {"\\ud800": "x"}}', "name .* is not UTF-8 text"),
        (b"[" * 100_000, "line 2 is not JSON"),
        (b'{"value_base64": "*"}', "value_base64 is not base64"),
    ],
)
def test_bad_json_is_told(line: bytes, words: str) -> None:
    with pytest.raises(Failure, match=words):
        Reading(Format.JSON).record(line, 2)


@settings(max_examples=60)
@given(
    key=st.none() | st.binary(max_size=20),
    value=st.none() | st.binary(max_size=40) | st.text(max_size=20).map(str.encode),
    headers=st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=8)), max_size=3),
)
def test_json_out_reads_back_to_the_same_bytes(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    line = Writing(Format.JSON).line(incoming(key, value, headers))
    assert line.count(b"\n") == 1
    assert Reading(Format.JSON).record(line[:-1], 1) == Outgoing(key, value, headers, 2, 1_700_000_000_123)


def test_text_out_is_the_bytes() -> None:
    assert Writing().line(incoming(value=b"\xff\x00")) == b"\xff\x00\n"
    assert Writing(keys=True).line(incoming(key=None)) == b"null\tv\n"
    assert Writing(Format.HEX, Format.BASE64, keys=True, key_separator=" ").line(incoming()) == b"aw== 76\n"


def test_template_has_the_fields_and_keeps_bytes() -> None:
    writing = Writing(template="{topic}-{partition}@{offset} {time} {key}={value} [{headers}]")
    assert writing.line(incoming(value=b"\xff", headers=[("h", b"1"), ("n", None)])) == (
        b"t-2@7 2023-11-14T22:13:20.123Z k=\xff [h=1,n=null]\n"
    )


@pytest.mark.parametrize("template", ["{nope}", "{", "{0}"])
def test_bad_template_is_told(template: str) -> None:
    with pytest.raises(Failure, match="template"):
        Writing(template=template).line(incoming())


def test_json_out_marks_bytes_that_are_no_text() -> None:
    document = json.loads(Writing(Format.JSON).line(incoming(key=b"\xff", value=None)))
    assert document["key_base64"] == "/w=="
    assert "key" not in document
    assert document["value"] is None


@pytest.mark.parametrize(
    ("text", "header"),
    [("a=b", ("a", b"b")), ("a=b=c", ("a", b"b=c")), ("a=", ("a", b"")), ("a", ("a", None)), ("a=\udcff", ("a", b"\xff"))],
)
def test_header_words(text: str, header: tuple[str, bytes | None]) -> None:
    assert parse_header(text) == header


def test_words_that_are_no_text_are_the_bytes_typed() -> None:
    assert Reading(key_separator="\udcff", null="\udcfe").record(b"k\xff\xfe", 1) == Outgoing(b"k", None)
    assert Writing(keys=True, key_separator="\udcff", null="\udcfe").line(incoming(value=None)) == b"k\xff\xfe\n"
    with pytest.raises(Failure, match="not UTF-8 text"):
        parse_header("\udcff=x")


def test_header_without_name() -> None:
    with pytest.raises(Failure, match="no name"):
        parse_header("=x")


def test_unescape_knows_shell_friendly_escapes() -> None:
    assert unescape(r"\t|\n|\\|\x|\0") == "\t|\n|\\|\\x|\0"


def test_times_beyond_the_calendar_are_numbers() -> None:
    assert time_text(1 << 62) == str(1 << 62)
    assert time_text(None) == "-"
