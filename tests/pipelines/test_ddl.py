"""Mistakes in schemas that are found without Spark (F77)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.pipelines.ddl import mistake_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOOD = [
    "id long, at timestamp",
    "`a b` string, `c,d` struct<x: int, y array<double>> NOT NULL COMMENT 'a, b <'",
    "price DECIMAL(10, 2), code char(3), name varchar(20), m map<string, array<struct<k:int>>>",
    "a timestamp_ntz, b timestamp_ltz, c interval day to second, d variant, e binary, f void",
    "struct<a: int, b: string>",
    "a struct<>",
    "id: long, name: string",
    "größe double",
    "a string collate UTF8_LCASE",
    "a int default 5",
]
BAD = {
    "id lng": "column 'id': type 'lng' is unknown; did you mean long?",
    "id long, amount": "column 'amount' has no type",
    "id long,, amount double": "between two commas there is no column",
    "id long, tags array<strng>": "column 'tags': type 'strng' is unknown; did you mean string?",
    "a struct<b: int, c: tex>": "column 'a': column 'c': type 'tex' is unknown",
    "id long, price decimal(10, 2": "a bracket does not close",
    "  ": "it has no columns",
}


def is_refused(ddl: str) -> bool:
    from pyspark.sql.types import StructType

    try:
        return not isinstance(StructType.fromDDL(ddl), StructType)
    except Exception:
        return True


def test_what_spark_takes_is_no_mistake(spark: SparkSession) -> None:
    taken = [ddl for ddl in GOOD if not is_refused(ddl)]
    assert len(taken) >= len(GOOD) - 2
    assert [(ddl, mistake_in(ddl)) for ddl in taken if mistake_in(ddl) is not None] == []


def test_a_mistake_is_one_for_spark_too(spark: SparkSession) -> None:
    assert {ddl: mistake_in(ddl) for ddl in BAD} == BAD
    assert [ddl for ddl in BAD if ddl.strip() and not is_refused(ddl)] == []


def test_check_finds_it_before_java_starts(tmp_path: Path) -> None:
    file = tmp_path / "orders.py"
    file.write_text("from ottla import pipelines as p\n\norders = p.source('orders', p.json('id lng'))\n")
    environment = {"PATH": "/nowhere", "JAVA_HOME": "/nowhere"}
    done = subprocess.run(
        [sys.executable, "-m", "ottla", "pipeline", "check", str(file)],
        capture_output=True, text=True, timeout=60, check=False, env={**environment, "PYTHONPATH": ":".join(sys.path)},
    )  # fmt: skip
    assert done.stderr.splitlines() == [
        f"error: {file}:3: schema 'id lng': column 'id': type 'lng' is unknown; did you mean long?",
        '  write Spark\'s DDL: "id long, at timestamp"',
    ]


def test_a_column_of_another_type_is_refused_and_a_new_one_is_fine(spark: SparkSession, tmp_path: Path) -> None:
    from ottla import pipelines as p
    from ottla.pipelines.definitions import Table
    from ottla.pipelines.tables.files import FileTable

    root = tmp_path / "orders"
    flow = p.sql(p.source("in", p.json("id long")), query="SELECT 1", to=p.table(str(root), partition_by="day"), name="copy")
    assert isinstance(flow.to, Table)
    table = FileTable(spark, flow, flow.to, "shop.copy")
    table.prepare(spark.sql("SELECT 1L AS id, 1 AS day"))
    spark.sql("SELECT 1L AS id, 2.5D AS amount, 1 AS day").write.partitionBy("day").parquet(str(root))
    table.prepare(spark.sql("SELECT 1L AS id, 2.5D AS amount, 'new' AS more, 'monday' AS day"))
    with pytest.raises(p.PipelineError, match="has column 'amount' as double, flow 'copy' writes string") as caught:
        table.prepare(spark.sql("SELECT 1L AS id, 'x' AS amount, 1 AS day"))
    assert caught.value.place == flow.to.place
