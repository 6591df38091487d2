"""Tables of files: what other readers find in the directory, whatever died when (F82)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.pipelines import PipelineError
from ottla.pipelines.exactly_once import ExactlyOnceSink
from ottla.pipelines.spark_jvm import FileSystem

if TYPE_CHECKING:
    from tests.pipelines.conftest import Shop

TABLE = """
from ottla import pipelines as p

orders = p.source("{source}", p.json("id long, day string"), name="orders", options={{"minPartitions": "3"}})
p.sql(orders, to=p.table("{lake}"{more}), name="rows", query="SELECT * FROM orders")
"""
BY_DAY = ', partition_by="day"'


def table(shop: Shop, more: str = "") -> tuple[Path, str, Path]:
    source, lake = shop.topic("orders", 3), shop.folder / "lake"
    return shop.pipeline(TABLE.format(source=source, lake=lake, more=more)), source, lake


def days(first: int, count: int) -> list[Any]:
    return [(str(n), {"id": n, "day": f"d{n % 2}"}) for n in range(first, first + count)]


def ids(lake: Path) -> list[int]:
    """As a reader sees it that knows nothing of Ottla."""
    import pyarrow.dataset as ds

    found = ds.dataset(lake, format="parquet", partitioning="hive").to_table()
    assert set(found.column_names) == {"id", "day"}
    return sorted(found.column("id").to_pylist())


@pytest.mark.parametrize("more", ["", BY_DAY])
def test_f82_other_readers_find_files_and_nothing_else(shop: Shop, more: str) -> None:
    file, source, lake = table(shop, more)
    for first in (0, 10):
        shop.produce(source, days(first, 10))
        shop.run(file)
    assert ids(lake) == list(range(20))
    assert sorted(row["id"] for row in shop.spark.read.parquet(str(lake)).collect()) == list(range(20))
    folders = {path.name for path in lake.iterdir() if path.is_dir()}
    assert folders == ({"day=d0", "day=d1"} if more else set())
    files = list(lake.rglob("*.parquet"))
    # One file of each batch in each directory, though the batch had several tasks.
    assert len(files) == (4 if more else 2)


@pytest.mark.parametrize("moved", [0, 1])
def test_f82_a_batch_that_was_moved_half_way_is_moved_to_its_end(shop: Shop, monkeypatch: pytest.MonkeyPatch, moved: int) -> None:
    """The driver dies after the record that says that the batch is in, before or between the moves of its files."""
    file, source, lake = table(shop, BY_DAY)
    shop.produce(source, days(0, 10))
    rename, calls = FileSystem.rename, []

    def dies(self: FileSystem, path: str, to: str) -> bool:
        if ".parquet" in path:
            calls.append(to)
            if len(calls) > moved:
                raise SystemError("killed")
        return rename(self, path, to)

    with monkeypatch.context() as patch:
        patch.setattr(FileSystem, "rename", dies)
        with pytest.raises(PipelineError):
            shop.run(file)
    shop.produce(source, days(10, 4))
    shop.run(file)
    assert ids(lake) == list(range(14))


def test_f82_a_batch_that_kafka_did_not_get_is_not_written_again(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    file, source, lake = table(shop)
    shop.produce(source, days(0, 10))
    with monkeypatch.context() as patch:
        patch.setattr(ExactlyOnceSink, "_commit", lambda self, *arguments: 1 / 0)
        with pytest.raises(PipelineError):
            shop.run(file)
    assert ids(lake) == list(range(10))
    before = sorted(lake.rglob("*.parquet"))
    shop.run(file)
    assert sorted(lake.rglob("*.parquet")) == before
    assert [path.name for path in (shop.folder / ".ottla-lake" / "drafts").iterdir()] == []


def test_f82_a_table_of_the_earlier_layout_is_refused_by_name(shop: Shop) -> None:
    file, source, lake = table(shop)
    shop.produce(source, days(0, 1))
    (lake / "ottla_batch=12345678-000000000").mkdir(parents=True)
    with pytest.raises(PipelineError, match="has directories ottla_batch=… of an earlier version") as caught:
        shop.run(file)
    assert caught.value.hint is not None
    assert "ottla pipeline compact" in caught.value.hint
