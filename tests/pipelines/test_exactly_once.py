"""Topics through a real Spark into topics, once each (F77-F81)."""

from __future__ import annotations

import json
import secrets
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.client.blocking import Client
from ottla.client.offsets import committed_offsets
from ottla.client.options import plain_options
from ottla.errors import ErrorCode, KafkaError
from ottla.pipelines import PipelineError, exactly_once, producing, spark_jvm
from ottla.pipelines.exactly_once import BatchTransaction, ExactlyOnceSink
from ottla.pipelines.marker import marker_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tests.pipelines.conftest import Shop

COPY = """
from ottla import pipelines as p

orders = p.source("{source}", p.json("id long, customer string, amount double"), name="orders"{more})

p.sql(orders, to=p.sink("{out}", key="customer"), name="copy", query="SELECT * FROM orders WHERE amount > 0")
"""


def orders(count: int, first: int = 0) -> list[Any]:
    return [(f"c{n % 7}", {"id": n, "customer": f"c{n % 7}", "amount": 1.0}) for n in range(first, first + count)]


def copy_of(shop: Shop, *, partitions: int = 3, more: str = "") -> tuple[Path, str, str]:
    source, out = shop.topic("orders", 3), shop.topic("out", partitions)
    return shop.pipeline(COPY.format(source=source, out=out, more=more)), source, out


def test_a_flow_copies_every_record_once_and_its_group_shows_the_lag(shop: Shop) -> None:
    """F78, F79, F80."""
    file, source, out = copy_of(shop)
    shop.produce(source, orders(500))
    flows = shop.run(file)
    assert flows.sinks["copy"].totals.records == 500
    shop.produce(source, orders(300, 500))
    shop.run(file)
    assert Counter(value["id"] for value in shop.values(out)) == Counter(range(800))

    with Client(plain_options(shop.broker.bootstrap_servers)) as client:
        everywhere = committed_offsets(client, "shop.copy")  # pipelines of other tests are called so too
    committed = {where: entry for where, entry in everywhere.items() if where.topic == source}
    assert sum(entry.offset for entry in committed.values()) == 800
    markers = [marker for entry in committed.values() if (marker := marker_in(entry.metadata)) is not None]
    assert [marker.batch_id for marker in markers] == [1]


def test_keys_go_to_the_partition_that_java_chooses(shop: Shop) -> None:
    """F78: librdkafka's murmur2 is Java's."""
    from confluent_kafka import Producer

    file, source, out = copy_of(shop, partitions=5)
    other = shop.topic("other", 5)
    shop.produce(source, orders(50))
    shop.run(file)
    producer = Producer({"bootstrap.servers": shop.broker.bootstrap_servers, "partitioner": "murmur2", "log_level": 0})
    for number in range(7):
        producer.produce(other, key=f"c{number}", value=b"")
    producer.flush(60)
    expected = {message.key(): message.partition() for message in shop.read(other)}
    assert {message.key(): message.partition() for message in shop.read(out)} == expected


def test_what_does_not_parse_goes_to_the_dead_letters_with_everything(shop: Shop) -> None:
    """F81."""
    letters = shop.topic("dlq")
    file, source, out = copy_of(shop, more=f', dead_letter="{letters}"')
    shop.produce(source, orders(20))
    shop.produce(source, [("bad", b"{nonsense")], headers=[("trace", b"7")])
    shop.produce(source, [("bad", {"id": "seven"}), ("bad", b"\xff\xfe"), ("c1", None)])
    flows = shop.run(file)
    assert flows.sinks["copy"].totals.dead_letters == 3
    assert len(shop.values(out)) == 20
    found = {message.value(): dict(message.headers()) for message in shop.read(letters)}
    assert found.keys() == {b"{nonsense", b'{"id": "seven"}', b"\xff\xfe"}
    headers = found[b"{nonsense"]
    assert headers["trace"] == b"7"
    assert headers["ottla.topic"] == source.encode()
    assert headers["ottla.flow"] == b"copy"
    assert headers["ottla.reason"] == b"the value is no JSON"
    assert found[b'{"id": "seven"}']["ottla.reason"] == b"the value does not fit the schema"
    assert found[b"\xff\xfe"]["ottla.reason"] == b"the value is no UTF-8"
    places = {(int(each["ottla.partition"]), int(each["ottla.offset"])) for each in found.values()}
    assert places == {(m.partition(), m.offset()) for m in shop.read(source) if m.key() == b"bad"}


def test_without_dead_letters_a_bad_record_stops_the_flow_and_nothing_is_lost(shop: Shop) -> None:
    """F81: the message names topic, partition and offset; what came with it is not in."""
    file, source, out = copy_of(shop)
    shop.produce(source, [*orders(5), ("c0", b"{")])
    bad = next(message for message in shop.read(source) if message.value() == b"{")
    with pytest.raises(PipelineError) as caught:
        shop.run(file)
    assert f"topic {source}, partition {bad.partition()}, offset {bad.offset()}: the value is no JSON" in caught.value.message
    assert caught.value.place is not None
    assert caught.value.place.line == 4
    assert shop.read(out) == []
    # Given a place for it, the same checkpoint goes on.
    letters = shop.topic("dlq")
    file.write_text(COPY.format(source=source, out=out, more=f', dead_letter="{letters}"'))
    shop.run(file)
    assert len(shop.read(out)) == 5
    assert len(shop.read(letters)) == 1


def test_a_driver_that_dies_after_the_commit_does_not_write_again(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """F79: the marker of the batch is found, and the batch only brings Spark's state up."""
    file, source, out = copy_of(shop)
    shop.produce(source, orders(100))

    class Died(Exception):
        pass

    whole = ExactlyOnceSink._attempt

    def dies(self: ExactlyOnceSink, *arguments: Any) -> None:
        whole(self, *arguments)
        raise Died("after EndTxn")

    with monkeypatch.context() as patch:
        patch.setattr(ExactlyOnceSink, "_attempt", dies)
        with pytest.raises(PipelineError):
            shop.run(file)
    assert len(shop.values(out)) == 100
    flows = shop.run(file)
    assert flows.sinks["copy"].totals.already_committed == 1
    assert Counter(value["id"] for value in shop.values(out)) == Counter(range(100))


def test_a_batch_that_fails_half_way_runs_again_under_a_new_epoch(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """F79: what was written before is aborted and unseen."""
    file, source, out = copy_of(shop)
    shop.produce(source, orders(100))
    epochs = []
    commit = ExactlyOnceSink._commit

    def fails(self: ExactlyOnceSink, transaction: BatchTransaction, *arguments: Any) -> None:
        epochs.append(transaction.producer)
        if len(epochs) < 3:
            raise KafkaError(ErrorCode.PRODUCER_FENCED, "somebody else")
        commit(self, transaction, *arguments)

    monkeypatch.setattr(ExactlyOnceSink, "_commit", fails)
    flows = shop.run(file)
    assert flows.sinks["copy"].totals.retries == 2
    assert len(set(epochs)) == 3
    assert Counter(value["id"] for value in shop.values(out)) == Counter(range(100))


def test_a_second_attempt_of_a_task_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """F79: its rows may come in another order; the broker would take them for those of the first."""
    import pyspark

    class Second:
        def attemptNumber(self) -> int:
            return 1

        def partitionId(self) -> int:
            return 0

    monkeypatch.setattr(pyspark.TaskContext, "get", classmethod(lambda cls: Second()))
    monkeypatch.setattr(producing, "exclude_imports_from_gc", lambda: None)
    writing = producing.Writing(plain_options("127.0.0.1:1"), "t", 1, "x", (1, 0), 0)  # type: ignore[arg-type]
    for way in (writing.produce, writing.write):
        with pytest.raises(RuntimeError, match="this batch must run again"):
            list(way(iter([])))


def test_a_task_that_is_not_the_only_one_sends_nothing_where_one_was_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    """F79: two tasks would begin at the same sequences, and records of one be taken for those of the other."""
    import pyspark

    class Other:
        def attemptNumber(self) -> int:
            return 0

        def partitionId(self) -> int:
            return 1

    monkeypatch.setattr(pyspark.TaskContext, "get", classmethod(lambda cls: Other()))
    monkeypatch.setattr(producing, "exclude_imports_from_gc", lambda: None)
    writing = producing.Writing(plain_options("127.0.0.1:1"), "t", 1, "x", (1, 0), 0)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="in several tasks"):
        list(writing.write(iter([])))


SPREAD = ', options={"minPartitions": "3"}'


@pytest.mark.parametrize(
    ("options", "local", "way"), [("", True, "alone"), (SPREAD, True, "in turns"), (SPREAD, False, "shuffled")]
)
def test_every_record_is_there_once_whichever_tasks_write_it(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, options: str, local: bool, way: str
) -> None:
    """F78: one task goes alone, tasks of one machine write to the same partitions in turns, others through a shuffle."""
    file, source, out = copy_of(shop, partitions=4, more=options)
    ways: list[str] = []
    one_task, writing = spark_jvm.is_in_one_task, BatchTransaction.writing

    def counted(frame: DataFrame) -> bool:
        ways.append("alone" if one_task(frame) else "shuffled")
        return ways[-1] == "alone"

    def noted(self: BatchTransaction, topic: str, codec: str, turns: str | None = None) -> producing.Writing:
        if turns is not None:
            ways[-1] = "in turns"
        return writing(self, topic, codec, turns)

    monkeypatch.setattr(exactly_once, "is_in_one_task", counted)
    monkeypatch.setattr(BatchTransaction, "writing", noted)
    monkeypatch.setattr(exactly_once, "is_local", lambda master: local)
    for first in (0, 300):
        shop.produce(source, orders(300, first))
        shop.run(file)
    assert set(ways) == {way}  # on a slow machine a batch may have to run again
    found = shop.values(out)
    assert Counter(value["id"] for value in found) == Counter(range(600))


def test_small_batches_go_through_the_driver_and_are_there_once(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """F79: the driver reads them and sends them. One that fails half-way runs again; after a restart the next one is right."""
    file, source, out = copy_of(shop, more=', options={"maxOffsetsPerTrigger": "40"}')
    sent: list[int] = []
    fails = {3, 6}
    send, commit = BatchTransaction._sent_from_here, ExactlyOnceSink._commit

    def counted(self: BatchTransaction, writing: producing.Writing, rows: Any) -> tuple[int, int]:
        sent.append(rows.num_rows)
        return send(self, writing, rows)

    def sometimes(self: ExactlyOnceSink, *arguments: Any) -> None:
        if len(sent) in fails:
            fails.remove(len(sent))
            raise KafkaError(ErrorCode.PRODUCER_FENCED, "somebody else")
        commit(self, *arguments)

    monkeypatch.setattr(BatchTransaction, "_sent_from_here", counted)
    monkeypatch.setattr(ExactlyOnceSink, "_commit", sometimes)
    for first in (0, 120):
        shop.produce(source, orders(120, first))
        flows = shop.run(file)
        assert flows.sinks["copy"].totals.records == 120
    assert not fails
    # All but the first batch of each run, of which the driver does not know how large its rows are.
    assert sum(sent) >= 160 + 40
    assert Counter(value["id"] for value in shop.values(out)) == Counter(range(240))


def test_a_topic_may_take_small_record_batches_only(shop: Shop) -> None:
    file, source, _ = copy_of(shop)
    out = shop.topic("small", 1, {"max.message.bytes": "50000"})
    file.write_text(COPY.format(source=source, out=out, more=""))
    shop.produce(source, [("c", {"id": n, "customer": secrets.token_hex(400), "amount": 1.0}) for n in range(300)])
    flows = shop.run(file)
    assert flows.sinks["copy"].totals.retries == 2  # 512 KB, 128 KB
    assert Counter(value["id"] for value in shop.values(out)) == Counter(range(300))


def test_two_sources_may_have_the_same_dead_letters(shop: Shop) -> None:
    """F81: the second one's go on with the sequences of the first: a broker drops what it takes for a repetition."""
    one, two, out, letters = shop.topic("one"), shop.topic("two"), shop.topic("out"), shop.topic("dlq")
    text = """
from ottla import pipelines as p

one = p.source("{one}", p.json("id long"), name="one", dead_letter="{letters}")
two = p.source("{two}", p.json("id long"), name="two", dead_letter="{letters}")

p.sql(one, two, to=p.sink("{out}"), name="both", query="SELECT * FROM one UNION ALL SELECT * FROM two")
"""
    file = shop.pipeline(text.format(one=one, two=two, out=out, letters=letters))
    shop.produce(one, [("k", {"id": 1}), ("k", b"{one")])
    shop.produce(two, [("k", {"id": 2}), ("k", b"{two")])
    shop.run(file)
    assert sorted(value["id"] for value in shop.values(out)) == [1, 2]
    assert sorted(message.value() for message in shop.read(letters)) == [b"{one", b"{two"]


def test_a_checkpoint_of_another_pipeline_is_refused(shop: Shop) -> None:
    file, source, out = copy_of(shop)
    shop.produce(source, orders(3))
    good = file.read_text()
    file.write_text(good.replace(source, shop.topic("mistaken")).replace('key="', 'key="no_'))
    with pytest.raises(PipelineError, match="no column 'no_"):
        shop.run(file)
    versions = shop.folder / "storage" / ".versions"
    assert not versions.exists()
    file.write_text(good)  # what could not begin has no checkpoint, and may read something else when it is mended
    shop.run(file)
    assert [each.name for each in versions.iterdir()] == ["1"]
    other = shop.pipeline(file.read_text(), "other")
    with pytest.raises(PipelineError, match=r"is the checkpoint of shop\.copy, not of other\.copy"):
        shop.run(other)
    elsewhere = shop.topic("elsewhere")
    file.write_text(COPY.format(source=elsewhere, out=out, more=""))
    with pytest.raises(PipelineError, match="was made when flow 'copy' read"):
        shop.run(file)
    assert len(shop.read(out)) == 3


def test_a_checkpoint_that_is_older_than_the_sink_is_refused(shop: Shop) -> None:
    """F79: the same batch number for other records would be taken for done, and they would be lost."""
    import shutil

    file, source, out = copy_of(shop)
    shop.produce(source, orders(3))
    shop.run(file)
    shutil.copytree(shop.folder / "storage", shop.folder / "backup")
    shop.produce(source, orders(3, 3))
    shop.run(file)
    shop.produce(source, orders(3, 6))
    with pytest.raises(PipelineError, match="is committed with other offsets"):
        shop.run(file, storage=str(shop.folder / "backup"))
    assert len(shop.read(out)) == 6


def test_windows_joins_and_a_flow_that_reads_another(shop: Shop) -> None:
    """F77: stateful flows, several in one pipeline, one through the other's topic."""
    source, names = shop.topic("orders", 2), shop.topic("names", 1)
    totals, named = shop.topic("totals", 2), shop.topic("named", 2)
    file = shop.pipeline(f"""
from pyspark.sql import functions as F
from ottla import pipelines as p

orders = p.source("{source}", p.json("customer string, amount double, at timestamp"), name="orders")
names = p.source("{names}", p.json("customer string, name string, since timestamp"), name="names")


@p.flow(orders, to=p.sink("{totals}", key="customer"))
def totals(orders):
    windows = orders.withWatermark("at", "0 seconds").groupBy(F.window("at", "10 seconds"), "customer")
    return windows.agg(F.sum("amount").alias("total")).select("customer", "total", F.col("window.end").alias("at"))


@p.flow(totals, names, to=p.sink("{named}", key="customer"))
def named(totals, names):
    left = totals.withWatermark("at", "0 seconds").alias("l")
    right = names.withWatermark("since", "0 seconds").alias("r")
    when = F.expr("l.customer = r.customer AND r.since <= l.at AND r.since >= l.at - INTERVAL 1 HOUR")
    return left.join(right, when).select("l.customer", "name", "total")
""")
    moments = [f"2026-01-01T00:00:{second:02d}Z" for second in range(0, 60, 5)]
    shop.produce(source, [("a", {"customer": "a", "amount": 1, "at": at}) for at in moments])
    shop.produce(names, [{"customer": "a", "name": "Ada", "since": "2026-01-01T00:00:00Z"}])
    shop.run(file)
    assert [value["total"] for value in shop.values(totals)] == [2.0] * 5
    assert [(value["name"], value["total"]) for value in shop.values(named)] == [("Ada", 2.0)] * 5


def test_values_as_strings_bytes_and_avro(shop: Shop) -> None:
    import io

    import fastavro

    schema = {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "note", "type": ["null", "string"]},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
        ],
    }
    text, raw, letters = shop.topic("text"), shop.topic("raw"), shop.topic("dlq")
    upper, avro = shop.topic("upper"), shop.topic("avro")
    file = shop.pipeline(f"""
from pyspark.sql import functions as F
from ottla import pipelines as p

SCHEMA = {json.dumps(schema)!r}
text = p.source("{text}", p.string(), name="text", key=p.string(), columns=("offset",))
raw = p.source("{raw}", p.avro(SCHEMA), name="raw", dead_letter="{letters}")


@p.flow(text, to=p.sink("{upper}", key="key", value=p.bytes()))
def upper(text):
    return text.select("key", F.upper("value").cast("binary").alias("value"))


@p.flow(raw, to=p.sink("{avro}", value=p.avro(SCHEMA)))
def again(raw):
    return raw.withColumn("id", F.col("id") + 1)
""")

    def packed(**row: Any) -> bytes:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, schema, row)
        return stream.getvalue()

    shop.produce(text, [("k", b"words")])
    shop.produce(raw, [packed(id=1, note=None, at=1000, tags=["x"]), packed(id=2, note="n", at=2000, tags=[]), b"\x02"])
    shop.run(file)
    assert [(message.key(), message.value()) for message in shop.read(upper)] == [(b"k", b"WORDS")]
    read: list[Any] = [fastavro.schemaless_reader(io.BytesIO(message.value()), schema, None) for message in shop.read(avro)]
    rows = sorted(read, key=lambda row: row["id"])
    assert [(row["id"], row["note"], row["tags"]) for row in rows] == [(2, None, ["x"]), (3, "n", [])]
    assert [int(row["at"].timestamp()) for row in rows] == [1, 2]
    assert [message.value() for message in shop.read(letters)] == [b"\x02"]


def test_files_and_databases_take_every_batch_once(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """F82: with the driver dying after the table was written, and before the transaction."""
    source = shop.topic("orders")
    lake, database = shop.folder / "lake", f"jdbc:derby:{shop.folder}/db;create=true"
    file = shop.pipeline(f"""
from ottla import pipelines as p

orders = p.source("{source}", p.json("id long, customer string"), name="orders")
DERBY = {{"driver": "org.apache.derby.iapi.jdbc.AutoloadedDriver"}}
p.sql(orders, to=p.table("{lake}", partition_by="customer"), name="files", query="SELECT * FROM orders")
p.sql(orders, to=p.jdbc("{database}", "orders", options=DERBY), name="rows", query="SELECT * FROM orders")
""")
    shop.produce(source, [{"id": n, "customer": f"c{n % 2}"} for n in range(10)])
    with monkeypatch.context() as patch:
        patch.setattr(ExactlyOnceSink, "_commit", lambda self, *arguments: 1 / 0)
        with pytest.raises(PipelineError):
            shop.run(file)
    shop.produce(source, [{"id": n, "customer": f"c{n % 2}"} for n in range(10, 15)])
    shop.run(file)
    shop.run(file)
    found = shop.spark.read.parquet(str(lake))
    assert sorted(row["id"] for row in found.collect()) == list(range(15))
    rows = shop.spark.read.format("jdbc").option("url", database).option("dbtable", "orders").load()
    assert sorted(row[0] for row in rows.collect()) == list(range(15))


def test_functions_and_state_of_the_users_own(shop: Shop) -> None:
    """F77: a UDF of the file, one of a module beside it, and transformWithState."""
    source, out = shop.topic("orders"), shop.topic("out")
    (shop.folder / "beside_it.py").write_text("def doubled(n):\n    return 2 * n\n")
    file = shop.pipeline(f"""
from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

import beside_it
from ottla import pipelines as p

orders = p.source("{source}", p.json("id long, customer string"), name="orders")


class Count(StatefulProcessor):
    def init(self, handle):
        self.seen = handle.getValueState("seen", "n long")

    def handleInputRows(self, key, rows, timers):
        count = sum(1 for _ in rows) + (self.seen.get()[0] if self.seen.exists() else 0)
        self.seen.update((count,))
        yield Row(customer=key[0], n=count)

    def close(self):
        pass


@F.udf("long")
def twice(n):
    return beside_it.doubled(n)


@p.flow(orders, to=p.sink("{out}", key="customer"), output_mode="update")
def counts(orders):
    made = orders.groupBy("customer").transformWithState(Count(), "customer string, n long", "Update", "None")
    return made.withColumn("n", twice("n"))
""")
    shop.produce(source, [{"id": n, "customer": "a"} for n in range(3)])
    shop.run(file)
    shop.produce(source, [{"id": n, "customer": "a"} for n in range(4)])
    shop.run(file)
    assert [value["n"] for value in shop.values(out)] == [6, 14]
