"""Mistakes of people who write their first pipeline: one line with file and line and what to do, before Spark starts."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from ottla.pipelines import PipelineError
from ottla.pipelines.ddl import mistake_in
from ottla.pipelines.graph import plan
from ottla.pipelines.loading import load
from ottla.pipelines.project import read
from tests.pipelines.test_pipeline_cli import ottla

HEAD = """from ottla import pipelines as p

sales = p.source("sales", p.json("customer string, amount double"), dead_letter="sales.dlq")
"""
SQL = 'p.sql(sales, to=p.sink("totals"), name="totals", query="SELECT * FROM sales")\n'
FLOW = '\n@p.flow(sales, to=p.sink("totals"))\ndef totals(sales):\n    return sales\n'


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        (
            HEAD.replace("string,", "string") + SQL,
            "3: schema 'customer string amount double': column 'customer': a comma is missing before 'amount'",
            'write Spark\'s DDL: "id long, at timestamp"',
        ),
        (
            HEAD.replace('"customer string, amount double"', '{"customer": "string"}') + SQL,
            "3: schema {'customer': 'string'} is neither Spark DDL nor a StructType",
            'write Spark\'s DDL: "id long, at timestamp"',
        ),
        (
            HEAD.replace("dead_letter=", "deadletter=") + SQL,
            "3: TypeError: source() got an unexpected keyword argument 'deadletter'",
            "did you mean dead_letter=?",
        ),
        (
            HEAD.replace("dead_letter=", "zzz=") + SQL,
            "3: TypeError: source() got an unexpected keyword argument 'zzz'",
            "the arguments are topic, value, pattern, ",
        ),
        (
            HEAD.replace('dead_letter="sales.dlq"', 'options={"maxOffsetPerTrigger": 5}') + SQL,
            "3: source 'sales': option maxOffsetPerTrigger: '5' is not possible, there is no such option; did you mean "
            "maxOffsetsPerTrigger?",
            "",
        ),
        (
            HEAD.replace('dead_letter="sales.dlq"', 'starting="begining"') + SQL,
            "3: source 'sales': option startingOffsets: 'begining' is not possible, it is earliest, latest, or JSON like "
            '{"topic":{"0":23,"1":-2}} (-2 is earliest, -1 latest)',
            'starting= is "earliest", "latest", or offsets as JSON',
        ),
        (
            HEAD + FLOW.replace("(sales):", "():"),
            "5: flow 'totals' has 1 inputs and its function takes (): too many positional arguments",
            "write one parameter for each input: def totals(sales)",
        ),
        (
            HEAD + SQL.replace('p.sink("totals")', 'p.jdbc("jdbc:h2:mem:x", "t", options={"password": "${OTTLA_NOPE}"})'),
            "4: table 't': ${OTTLA_NOPE}: the environment has no variable OTTLA_NOPE",
            "",
        ),
    ],
    ids=["comma", "dict", "near-argument", "no-argument", "option", "starting", "parameters", "secret"],
)
def test_a_mistake_is_one_line_with_its_place_before_spark_starts(tmp_path: Path, text: str, said: str, hint: str) -> None:
    file = tmp_path / "sales.py"
    file.write_text(text)
    code, stdout, stderr = ottla("check", file)
    assert (code, stdout) == (1, "")
    first, *rest = stderr.splitlines()
    assert first == f"error: {file}:{said}"
    assert [line[: len(hint) + 2] for line in rest] == ([f"  {hint}"] if hint else [])


@pytest.mark.parametrize(
    "ddl",
    [
        "id long not null, at timestamp",
        "id long comment 'int', at timestamp",
        "a array<struct<x: int, y: map<string, int>>> not null, b decimal(10, 2)",
        "t timestamp_ntz default null, s string collate binary",
        "i interval day to second, x int",
    ],
)
def test_what_may_follow_a_type(ddl: str) -> None:
    assert mistake_in(ddl) is None


@pytest.mark.parametrize("ddl", ["a array<int> b int", "a decimal(10, 2) b int", "a struct<x int y int>", "a int b int, c int"])
def test_a_missing_comma(ddl: str) -> None:
    assert "a comma is missing before" in (mistake_in(ddl) or "")


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        (
            FLOW.replace("@p.flow(sales,", '@p.flow(sales, p.source("rates", p.string()),').replace(
                "(sales):", "(rates, sales):"
            ),
            "flow 'totals' takes its inputs in another order than its function has parameters",
            "inputs are given by position: write def totals(sales, rates)",
        ),
        (SQL.replace('"SELECT * FROM sales"', "None"), "flow 'totals' has no query", 'write query="SELECT …"'),
        (
            SQL.replace('"totals")', '"totals", key=["a", "b"])', 1),
            "key=['a', 'b'] is not the name of a column",
            "make one column",
        ),
        (SQL.replace('"totals")', '"totals", timestamp=5)', 1), "timestamp=5 is not the name of a column", None),
        (
            SQL.replace('"totals")', '"totals", partitions=3)', 1)
            + SQL.replace('"totals")', '"totals", partitions=6)', 1).replace('name="totals"', 'name="more"'),
            "flow 'more' declares topic 'totals' with partitions 6, flow 'totals' with 3 (",
            None,
        ),
        (
            SQL.replace('"totals")', '"totals", config={"retention.ms": 1})', 1)
            + SQL.replace('"totals")', '"totals", config={"retention.ms": 2})', 1).replace('name="totals"', 'name="more"'),
            "flow 'more' declares topic 'totals' with retention.ms 2, flow 'totals' with 1 (",
            None,
        ),
    ],
    ids=["order", "query", "key", "timestamp", "partitions", "config"],
)
def test_a_mistake_in_a_declaration(tmp_path: Path, text: str, said: str, hint: str | None) -> None:
    file = tmp_path / "sales.py"
    file.write_text(HEAD + text)
    with pytest.raises(PipelineError) as failed:
        plan(load(file))
    assert str(failed.value).partition(": ")[2].startswith(said)
    assert (failed.value.hint or "").startswith(hint or "")
    assert (failed.value.hint is None) == (hint is None)


def test_a_directory_is_no_pipeline(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="is a directory"):
        read(tmp_path)


def test_sinks_of_one_topic_may_leave_out_what_another_declares(tmp_path: Path) -> None:
    file = tmp_path / "sales.py"
    file.write_text(HEAD + SQL.replace('"totals")', '"totals", partitions=3)', 1) + SQL.replace('name="totals"', 'name="more"'))
    assert len(plan(load(file)).queries) == 2


def test_an_edit_in_the_same_second_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that leaves the size of the file: bytecode in `__pycache__` looks the same then."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file = tmp_path / "edited.py"
    for name in ("totals", "extras"):
        file.write_text(HEAD + SQL.replace("totals", name))
        os.utime(file, (1_700_000_000, 1_700_000_000))
        assert [flow.name for flow in load(file)] == [name]
