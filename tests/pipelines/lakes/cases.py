"""Batches into Delta and Iceberg tables, in one session of a Spark that has jars for them. `test_lakes` runs this file.

`OTTLA_TEST_LAKE` is delta or iceberg.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession

from ottla import pipelines as p
from ottla.pipelines import session, spark_errors, tables
from ottla.pipelines.exactly_once import WriteRows
from ottla.pipelines.marker import Marker
from ottla.pipelines.spark_jvm import IcebergTable
from ottla.pipelines.tables import lakes
from ottla.types import ProducerIdAndEpoch
from tests.kit.sparks import delta_conf, iceberg_conf

FORMAT = os.environ["OTTLA_TEST_LAKE"]
QUERY = "bb51c7d3-e101-45cd-b1c2-106cd4d679cb"
COLUMNS = "id long, amount double, gone boolean"
is_iceberg = pytest.mark.skipif(FORMAT != "iceberg", reason="about branches")
is_delta = pytest.mark.skipif(FORMAT != "delta", reason="about Delta's log")


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    release = ".".join(pyspark.__version__.split(".")[:2])
    folder = tmp_path_factory.mktemp("lake")
    conf = delta_conf(release) if FORMAT == "delta" else iceberg_conf(release, folder)
    found = session.start("lakes", "local[2]", {"spark.sql.shuffle.partitions": "2", **conf})
    yield found
    found.stop()


class Lake:
    """The table of a flow, and drivers that write it."""

    def __init__(self, spark: SparkSession, path: str, **more: Any) -> None:
        self.spark = spark
        self.table = p.table(path, FORMAT, **more)
        self.flow = p.flow(p.source("orders"), to=self.table, name="rows")(lambda orders: orders)
        self.attempts = 0

    def driver(self, frame: DataFrame | None = None) -> WriteRows:
        return tables.prepare(self.spark, self.flow, self.table, self.frame() if frame is None else frame, "shop.rows")

    def frame(self, *rows: tuple[Any, ...]) -> DataFrame:
        # One partition: the order of rows is that of a topic's partition.
        return self.spark.createDataFrame(list(rows), COLUMNS).coalesce(1)

    def write(self, driver: WriteRows, batch: int, *rows: tuple[Any, ...]) -> int:
        self.attempts += 1
        transaction: Any = SimpleNamespace(producer=ProducerIdAndEpoch(7, self.attempts))
        return driver(self.frame(*rows), Marker(QUERY, batch, "0"), transaction)[0]

    def rows(self) -> list[tuple[Any, ...]]:
        if FORMAT == "iceberg":
            self.spark.catalog.refreshTable(self.table.path)
            found = self.spark.table(self.table.path)
        else:
            found = self.spark.read.format("delta").load(self.table.path)
        return sorted(map(tuple, found.collect()), key=str)

    def versions(self) -> dict[int, list[float | None]]:
        """The amounts of each key, in the order of their times, each of which begins no sooner than the one before ends."""
        found: dict[int, list[float | None]] = {}
        ends: dict[tuple[Any, ...], Any] = {}
        for row in sorted(self.rows(), key=lambda row: row[-3]):
            *values, start, end, current = row
            key = tuple(values[: len(self.table.key)])
            assert (end is None) == current
            assert end is None or start < end
            assert key not in ends or ends[key] <= start, "an open version is the last"
            ends[key] = end
            found.setdefault(values[0], []).append(values[1])
        return found

    def current(self) -> set[int]:
        return {row[0] for row in self.rows() if row[-1]}


@pytest.fixture
def path(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    return str(tmp_path / "lake") if FORMAT == "delta" else f"lake.shop.{request.node.name}"


def test_a_batch_that_runs_again_is_appended_once(spark: SparkSession, path: str) -> None:
    lake = Lake(spark, path)
    driver = lake.driver()
    assert lake.write(driver, 0, (1, 1.0, False), (2, 2.0, False)) == 2
    assert lake.write(driver, 0, (1, 1.0, False), (2, 2.0, False)) == 0
    assert lake.write(lake.driver(), 0, (1, 1.0, False), (2, 2.0, False)) == 0
    assert lake.write(driver, 1, (1, 1.0, False)) == 1
    assert lake.rows() == [(1, 1.0, False), (1, 1.0, False), (2, 2.0, False)]


def test_rows_replace_and_delete_others_and_the_last_one_wins(spark: SparkSession, path: str) -> None:
    lake = Lake(spark, path, mode="upsert", key="id", delete_when="gone")
    driver = lake.driver()
    assert lake.write(driver, 0, (1, 1.0, False), (2, 2.0, False), (1, 5.0, False), (3, 3.0, True)) == 4
    assert lake.rows() == [(1, 5.0), (2, 2.0)]
    assert lake.write(driver, 0, (1, 9.0, False)) == 0
    assert lake.write(driver, 1, (1, None, True), (3, 3.0, False), (9, None, None), (2, 2.5, False)) == 4
    assert lake.rows() == [(2, 2.5), (3, 3.0)]
    # A key comes back.
    assert lake.write(lake.driver(), 2, (1, 1.5, False), (3, 0.0, True)) == 2
    assert lake.rows() == [(1, 1.5), (2, 2.5)]
    assert lake.write(driver, 3) == 0
    assert lake.rows() == [(1, 1.5), (2, 2.5)]


def test_history_keeps_every_version_of_a_row(spark: SparkSession, path: str) -> None:
    lake = Lake(spark, path, mode="upsert", key="id", history=True)
    driver = lake.driver()
    # Two equal rows in succession are one version; a removal of what is not there is none.
    rows = [(1, 1.0, False), (2, 2.0, False), (1, 1.0, False), (1, 5.0, False), (3, None, None), (4, None, False)]
    assert lake.write(driver, 0, *rows) == 6
    assert lake.versions() == {1: [1.0, 5.0], 2: [2.0], 4: [None]}
    assert lake.write(driver, 0, (1, 9.0, False)) == 0
    # What the table says already is no version, but what follows it is: 2 goes and comes again, 1 goes for good.
    rows = [(1, 5.0, False), (1, None, None), (2, 2.0, False), (2, None, None), (2, 2.0, False)]
    assert lake.write(lake.driver(), 1, *rows) == 5
    assert lake.write(driver, 2, (2, 2.0, False), (4, None, False), (3, 3.0, False)) == 3
    assert lake.versions() == {1: [1.0, 5.0], 2: [2.0, 2.0], 3: [3.0], 4: [None]}
    assert lake.current() == {2, 3, 4}
    assert lake.write(driver, 3) == 0
    assert lake.write(driver, 4, (4, 4.0, False), (1, 5.0, False)) == 2
    assert lake.versions() == {1: [1.0, 5.0, 5.0], 2: [2.0, 2.0], 3: [3.0], 4: [None, 4.0]}
    assert lake.current() == {1, 2, 3, 4}


def test_the_history_of_a_table_that_has_only_keys(spark: SparkSession, path: str) -> None:
    lake = Lake(spark, path, mode="upsert", key=["id", "amount"], delete_when="gone", history=True)
    driver = lake.driver()
    lake.write(driver, 0, (1, 1.0, False), (1, 1.0, True), (1, 2.0, False))
    lake.write(driver, 1, (1, 2.0, False), (1, 1.0, False))
    assert lake.versions() == {1: [1.0, 2.0, 1.0]}
    assert lake.current() == {1}


def test_what_history_cannot_write_is_refused_by_name(spark: SparkSession, path: str) -> None:
    history: dict[str, Any] = {"mode": "upsert", "key": "id", "history": True}
    with pytest.raises(p.PipelineError, match="has a column 'Current', which history=True writes itself"):
        Lake(spark, path, **history).driver(spark.createDataFrame([], "id long, Current boolean"))
    with pytest.raises(p.PipelineError, match="column 'tags' of flow 'rows' is map<string,int>, which Spark cannot compare"):
        Lake(spark, path, **history).driver(spark.createDataFrame([], "id long, tags map<string, int>"))
    Lake(spark, path, mode="upsert", key="id").driver()
    with pytest.raises(p.PipelineError, match="has no column 'valid_from', which history=True writes"):
        Lake(spark, path, **history).driver()


def test_names_that_differ_in_case_only_are_one_column(spark: SparkSession, path: str) -> None:
    """As everywhere in Spark."""
    upsert: dict[str, Any] = {"mode": "upsert", "key": "ID"}
    Lake(spark, path, mode="upsert", key="id").driver(spark.createDataFrame([], "id long, amount double"))
    frame = spark.createDataFrame([(1, 1.0), (1, 2.0)], "ID long, Amount double").coalesce(1)
    lake = Lake(spark, path, **upsert)
    transaction: Any = SimpleNamespace(producer=ProducerIdAndEpoch(7, 1))
    lake.driver(frame)(frame, Marker(QUERY, 0, "0"), transaction)
    assert lake.rows() == [(1, 2.0)]


def test_what_does_not_fit_the_table_is_said_before_the_first_batch(spark: SparkSession, path: str) -> None:
    upsert: dict[str, Any] = {"mode": "upsert", "key": "id"}
    lake = Lake(spark, path, **upsert)
    with pytest.raises(p.PipelineError, match="has no column 'id' for the key"):
        lake.driver(spark.createDataFrame([], "amount double"))
    lake.driver(spark.createDataFrame([], "id long, amount double"))
    with pytest.raises(p.PipelineError, match=r"column 'amount' of table .* is double, flow 'rows' writes string"):
        lake.driver(spark.createDataFrame([], "id long, amount string"))
    with pytest.raises(p.PipelineError, match="has no column 'more', which flow 'rows' writes"):
        lake.driver(spark.createDataFrame([], "id long, amount double, more int"))
    lake.driver(spark.createDataFrame([], "id int, amount float"))
    lake = Lake(spark, path, **upsert)
    driver = lake.driver(spark.createDataFrame([], "id long, amount double"))
    with pytest.raises(p.PipelineError, match="1 rows of the batch have no id, the key of table"):
        driver(
            spark.createDataFrame([(None, 1.0), (2, 2.0)], "id long, amount double"),
            Marker(QUERY, 0, "0"),
            SimpleNamespace(producer=ProducerIdAndEpoch(7, 1)),  # type: ignore[arg-type]
        )
    assert lake.rows() == []


@is_delta
@pytest.mark.parametrize("mode", ["append", "history"])
def test_a_suspended_driver_that_wakes_up_writes_nothing(
    spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """It had looked for the batch before its successor wrote it."""
    lake = Lake(spark, path, **({} if mode == "append" else {"mode": "upsert", "key": "id", "history": True}))
    driver = lake.driver()
    lake.write(driver, 0, (1, 1.0, False))
    if mode == "history":
        lake.write(driver, 1, (1, 2.0, False))
    monkeypatch.setattr(lakes, "delta_transaction", lambda *_: -1)
    lake.write(driver, 0, (1, 1.0, False))
    if mode == "history":
        assert lake.versions() == {1: [1.0, 2.0]}
    else:
        assert lake.rows() == [(1, 1.0, False)]


@is_iceberg
@pytest.mark.parametrize("mode", ["append", "upsert", "history"])
def test_a_suspended_driver_that_wakes_up_publishes_nothing(
    spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """Its successor writes the batch between its look at the snapshots and its last step."""
    path = path.partition("[")[0] + f"_{mode}"
    more: dict[str, Any] = {} if mode == "append" else {"mode": "upsert", "key": "id", "history": mode == "history"}
    lake = Lake(spark, path, **more)
    driver, successor = lake.driver(), lake.driver()
    lake.write(driver, 0, (1, 1.0, False))
    publish = IcebergTable.publish

    def late(table: IcebergTable, branch: str) -> str | None:
        monkeypatch.setattr(IcebergTable, "publish", publish)
        assert lake.write(successor, 1, (2, 2.0, False)) == 1
        assert lake.write(successor, 2, (2, 3.0, False)) == 1
        return table.publish(branch)

    monkeypatch.setattr(IcebergTable, "publish", late)
    with pytest.raises(RuntimeError) as caught:
        lake.write(driver, 1, (2, 2.0, False))
    assert "has changed meanwhile" in str(spark_errors.retry_reason(caught.value))
    wanted = [(1, 1.0, False), (2, 2.0, False), (2, 3.0, False)]
    if mode == "history":
        assert lake.versions() == {1: [1.0], 2: [2.0, 3.0]}
    else:
        assert lake.rows() == (wanted if mode == "append" else [wanted[0], wanted[2]])
    branches = spark.sql(f"SELECT name FROM {path}.refs").collect()
    assert [row[0] for row in branches] == ["main"]
