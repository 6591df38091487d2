"""Tables of files: what other readers find in the directory, whatever died when (F82)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.pipelines import PipelineError
from ottla.pipelines.data_source.read_limits import ARE_KNOWN
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


def ids_of(lake: Path, kind: str) -> list[int]:
    """As a reader sees it that lists the directory and then reads all files."""
    import json as plain

    import pyarrow.parquet as pq

    found: list[int] = []
    for file in list(lake.rglob(f"*.{kind}")):
        if kind == "json":
            found += [plain.loads(line)["id"] for line in file.read_text().splitlines()]
        else:
            found += pq.ParquetFile(file).read(["id"]).column("id").to_pylist()
    return sorted(found)


@pytest.mark.parametrize("kind", ["parquet", "json"])
def test_f82_small_files_become_few_and_a_reader_sees_each_row_once_all_the_time(shop: Shop, kind: str) -> None:
    """A reader reads all the time. A batch comes between the rewriting and the exchange."""
    import threading

    from ottla.pipelines import graph, loading
    from ottla.pipelines.tables import compaction

    file, source, lake = table(shop, f', "{kind}"{BY_DAY}')
    if ARE_KNOWN:
        shop.pipeline(file.read_text().replace('"3"}', '"3", "maxOffsetsPerTrigger": 10}'))
    batches, step = 0, 60 if ARE_KNOWN else 10
    for first in range(0, 60, step):
        shop.produce(source, days(first, step))
        batches += shop.run(file).sinks["rows"].totals.batches
    assert batches >= 6
    before = len(list(lake.rglob(f"*.{kind}")))
    assert before >= 12
    written, wrong, stop = set(range(60)), [], threading.Event()

    def read() -> None:
        while not stop.is_set():
            try:
                seen = ids_of(lake, kind)
            except FileNotFoundError:
                continue
            if sorted(set(seen)) != seen or not written <= set(seen):
                wrong.append(seen)

    reader = threading.Thread(target=read)
    reader.start()
    rewritten = compaction._rewritten
    late = list(range(60, 70))

    def with_a_batch(*arguments: Any) -> list[Path]:
        made = rewritten(*arguments)
        if late:
            shop.produce(source, days(60, 10))
            late.clear()
            shop.run(file)
        return made

    plan = graph.plan(loading.load(file))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "_rewritten", with_a_batch)
        patch.setattr(compaction, "LISTED_S", 1.0)
        done = compaction.compact(shop.spark, plan.queries[0])
    stop.set()
    reader.join()
    assert not wrong
    assert ids_of(lake, kind) == list(range(70))
    assert (done.directories, done.files_before, done.files_after) == (2, before + 1, 2)
    assert len(list(lake.rglob(f"*.{kind}"))) == 3  # one of the late batch came too late
    shop.produce(source, days(70, 5))
    shop.run(file)
    assert ids_of(lake, kind) == list(range(75))
    assert sorted(row["id"] for row in shop.spark.read.format(kind).load(str(lake)).collect()) == list(range(75))


def test_f82_compaction_moves_files_of_the_earlier_layout(shop: Shop) -> None:
    from ottla.pipelines import graph, loading
    from ottla.pipelines.tables import compaction

    file, source, lake = table(shop, BY_DAY)
    old = shop.spark.createDataFrame([(1, "d0"), (2, "d1")], "id long, day string")
    old.write.partitionBy("day").parquet(str(lake / "ottla_batch=12345678-000000000"))
    compaction.compact(shop.spark, graph.plan(loading.load(file)).queries[0])
    shop.produce(source, days(3, 2))
    shop.run(file)
    assert ids(lake) == [1, 2, 3, 4]


def test_f82_tables_that_cannot_be_compacted_are_named(shop: Shop) -> None:
    from ottla.pipelines import graph, loading
    from ottla.pipelines.tables import compaction

    file = shop.pipeline("""
from ottla import pipelines as p

orders = p.source("orders", p.json("id long"))
p.sql(orders, to=p.table("/lake/a"), name="a", query="SELECT * FROM orders")
p.sql(orders, to=p.table("s3a://lake/b"), name="b", query="SELECT * FROM orders")
p.sql(orders, to=p.jdbc("jdbc:h2:mem:x", "c"), name="c", query="SELECT * FROM orders")
p.sql(p.files("/lake/a", "id long"), to=p.sink("d"), name="d", query="SELECT * FROM a")
""")
    plan = graph.plan(loading.load(file))
    said = {flow.name: compaction.refusal(plan, flow) for flow in plan.queries}
    assert said == {
        "a": "flow 'd' reads its files as a stream, and would read their rows again",
        "b": "s3a://lake/b is not on this machine",
        "c": "it is no table of files",
        "d": "it is no table of files",
    }
