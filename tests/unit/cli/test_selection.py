"""Many records in one piece: what a batch lacks, none of its records has."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.formats import Incoming
from ottla.cli.selection import Selection, select
from ottla.records.batch import read_batch_header
from ottla.records.record import Record, build_batch, records_in, records_section

_WORDS = st.sampled_from(["Ada", "ada", "a/b", 'say "hi"', "Ümlaut", "x\ny", "k1", "trace", "1", "10"])
_SELECTIONS = [
    {"grep": "Ada"},
    {"grep": "ADA", "ignore_case": True},
    {"grep": "^Ada", "regex": True},
    {"grep": "A.a", "regex": True},
    {"where": 'value.name == "Ada"'},
    {"where": 'value.name == "a/b" or key == "k1"'},
    {"where": 'value.name == "Ümlaut" and value.n > 0'},
    {"where": 'headers["trace"] == "1"'},
    {"key": "k1"},
]


def taken(selection: Selection, record: Record) -> bool:
    found = Incoming("t", 0, record.offset, record.timestamp, "CreateTime", record.key, record.value, record.headers)
    return selection.may_take_parts(record.key, record.value, bool(record.headers)) and selection.takes(found)


@pytest.mark.parametrize("options", _SELECTIONS, ids=str)
@given(st.lists(st.tuples(_WORDS, _WORDS, _WORDS, st.booleans()), min_size=1, max_size=5))
def test_a_batch_that_is_passed_over_has_no_record_that_is_taken(
    options: dict[str, str], rows: list[tuple[str, str, str, bool]]
) -> None:
    words = dict(options)
    selection = select(words.pop("where", None), words.pop("grep", None), words.pop("key", None), **words)  # type: ignore[arg-type]
    records = [
        Record(n, n, key.encode(), json.dumps({"name": name, "n": n}, ensure_ascii=ascii).encode(), [(header, b"1")])
        for n, (key, name, header, ascii) in enumerate(rows)
    ]
    batch = build_batch([(each.key, each.value, each.headers, each.timestamp) for each in records])
    info = read_batch_header(batch, 0)
    section = records_section(batch, info)
    assert records_in(section, info) == records
    if not selection.may_take_of(section):
        assert not any(taken(selection, record) for record in records)


def test_a_batch_without_the_text_is_passed_over() -> None:
    section = b'\x5c\x10{"name": "Grace"}'
    assert not select(None, "Ada").may_take_of(section)
    assert not select('value.name == "Ada"', None).may_take_of(section)
    assert select('value.name == "Ada"', None).may_take_of(section + b"\\u0041da")
