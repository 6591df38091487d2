"""The forms of documents."""

from __future__ import annotations

import csv
import io
import json
import math
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.cli.forms import csv_text, jsonl_text, names_text, table_of, yaml_text

GROUP = {
    "group": "billing",
    "coordinator": {"id": 1, "address": "a:9092"},
    "lag": None,
    "members": [{"member_id": "m-1"}],
    "partitions": [{"topic": "orders", "partition": 0, "lag": 3}, {"topic": "orders", "partition": 1, "lag": None}],
}

SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text())
DOCUMENTS = st.recursive(
    SCALARS, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)), max_leaves=8
)


@given(DOCUMENTS)
@example(
    ["yes", "No", "~", "null", "1e3", "0x1f", "1:20", "2024-05-01", "a: b", "- a", "#", "", " a", "é", "\x85", "\u2028", "\ufeff"]
)
@example([1e16, 1e-7, -0.0, math.inf, 1.5e300, "=", "<<", "a\nb", "\t", "\U0001f600", "\x7f\U0001f600", "a/b.c-d", "-", "."])
@example({"": {}, "a": [], "b": [[], {}, [[1]], {"c": {"d": [{"e": None}]}}]})
def test_another_parser_reads_the_yaml(document: Any) -> None:
    assert yaml.safe_load(yaml_text(document)) == document


def test_yaml_is_readable() -> None:
    lines = yaml_text([GROUP]).splitlines()
    assert lines[:5] == ["- group: billing", "  coordinator:", "    id: 1", '    address: "a:9092"', "  lag: null"]
    assert lines[-4:] == ["      lag: 3", "    - topic: orders", "      partition: 1", "      lag: null"]


def test_partitions_are_rows() -> None:
    columns, rows = table_of([GROUP, {**GROUP, "group": "empty", "members": [], "partitions": []}])
    assert columns[:4] == ["group", "coordinator.id", "coordinator.address", "lag"]
    assert [(row.get("group"), row.get("topic"), row.get("partition"), row.get("partitions.lag")) for row in rows] == [
        ("billing", "orders", 0, 3),
        ("billing", "orders", 1, None),
        ("empty", None, None, None),
    ]


def test_csv_is_quoted() -> None:
    text = csv_text([{"topic": 'a,"b"', "isr": [1, 2], "config": {"x": "line\nbreak"}, "ok": True, "none": None}])
    assert list(csv.reader(io.StringIO(text))) == [
        ["topic", "isr", "config.x", "ok", "none"],
        ['a,"b"', "1,2", "line\nbreak", "true", ""],
    ]


@pytest.mark.parametrize(
    ("document", "names"),
    [
        ([{"topic": "a", "x": 1}, {"topic": "b"}], "a\nb\n"),
        ({"pipelines": [{"pipeline": "p"}]}, "p\n"),
        (GROUP, "billing\n"),
        ([{"topic": "a", "partition": 0}, {"topic": "a", "partition": 1}], "a\n"),
        ([], ""),
    ],
)
def test_names_are_the_first_fields(document: Any, names: str) -> None:
    assert names_text(document) == names


def test_json_lines() -> None:
    assert [json.loads(line) for line in jsonl_text([GROUP, GROUP]).splitlines()] == [GROUP, GROUP]


def test_nothing_prints_nothing() -> None:
    assert (csv_text([]), jsonl_text([]), names_text([]), yaml_text([])) == ("", "", "", "[]\n")
