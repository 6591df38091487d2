"""The queries that `bench.pipelines` runs in one Spark session: with Ottla, with Spark's own connector, and with Spark alone."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.measure import touch_memory
from tests.kit.peers import spark_connector_jars

if TYPE_CHECKING:
    from ottla.pipelines.running import PipelineRun

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
SOURCES = ("ottla", "kafka")
START_ATTEMPTS = 5
CUSTOMERS = 100
COPY = """
from ottla import pipelines as p

records = p.source("{topic}", p.bytes(), name="records", columns=("key",), options={options!r})
to = p.sink("{out}", key="key", value=p.bytes(), compression="none")
expect = [p.expect("has_value", "length(value) > 0", on_fail="drop")] if {is_expected} else []
p.sql(records, to=to, name="copy", query="SELECT key, value FROM records", expect=expect)
"""
WINDOW = """
from pyspark.sql import functions as F
from ottla import pipelines as p

orders = p.source("{topic}", p.json("customer string, amount double, at timestamp"), name="orders")

@p.flow(orders, to=p.sink("{out}", key="customer"))
def copy(orders):
    return (orders.withWatermark("at", "1 minute").groupBy(F.window("at", "10 seconds"), "customer")
                  .agg(F.sum("amount").alias("total")))
"""


class Run(NamedTuple):
    seconds: float
    """That Spark worked on the data."""
    start_seconds: float
    """That a query took beside that."""
    cpu_seconds: float


def fill(servers: str, topic: str, size: int, count: int, partitions: int) -> None:
    value = os.urandom(size)
    _fill(servers, topic, count, partitions, lambda number: (b"key-%06d" % (number % 1_000_000), value))


def fill_orders(servers: str, topic: str, count: int, partitions: int) -> None:
    """JSON records of CUSTOMERS customers, a thousand for each second of an hour at most."""

    def order(number: int) -> tuple[bytes, bytes]:
        second = number // 1000
        at = b"2026-01-01T%02d:%02d:%02dZ" % (second // 3600, second // 60 % 60, second % 60)
        return b"", b'{"customer": "customer-%02d", "amount": %d.5, "at": "%b"}' % (number * 7 % CUSTOMERS, number % 1000, at)

    _fill(servers, topic, count, partitions, order)


def _fill(servers: str, topic: str, count: int, partitions: int, record: Any) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)
    produce(servers, topic, count, partitions, record)


def produce(servers: str, topic: str, count: int, partitions: int, record: Any) -> None:
    from confluent_kafka import Producer

    settings: dict[str, Any] = {"linger.ms": 50, "queue.buffering.max.kbytes": 256_000, "batch.size": 200_000}
    producer = Producer({"bootstrap.servers": servers, **settings})
    for number in range(count):
        key, value = record(number)
        while True:
            try:
                producer.produce(topic, value, key, partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(120) == 0


def record_size(topic: str) -> int:
    return 1000 if topic.endswith("1000") else 100


def session(memory: str = "1g") -> Any:
    from ottla.pipelines import session

    conf = {
        "spark.driver.memory": memory,
        "spark.sql.shuffle.partitions": "2",
        "spark.jars": ",".join(map(str, spark_connector_jars())),
    }
    return session.start("bench", "local[2]", conf)


def family(pid: int) -> dict[int, float]:
    """This process, its children and theirs, with the CPU seconds of each so far, those of ended children included."""
    parents: dict[int, int] = {}
    spent: dict[int, float] = {}
    for entry in os.listdir("/proc"):
        try:
            fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
        except (OSError, ValueError):
            continue
        if entry.isdigit():
            parents[int(entry)] = int(fields[1])
            spent[int(entry)] = sum(map(int, fields[11:15])) / TICKS_PER_S
    found, grown = {pid}, True
    while grown:
        new = {pid for pid, parent in parents.items() if parent in found} - found
        found |= new
        grown = bool(new)
    return {pid: spent.get(pid, 0.0) for pid in found}


def cpu_seconds() -> float:
    return sum(family(os.getpid()).values())


def batch(spark: Any, source: str, servers: str, topic: str) -> Run:
    cpu, began = cpu_seconds(), time.perf_counter()
    frame = spark.read.format(source).option("kafka.bootstrap.servers", servers).option("subscribe", topic).load()
    loaded = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return Run(time.perf_counter() - loaded, loaded - began, cpu_seconds() - cpu)


def stream(spark: Any, source: str, servers: str, topic: str) -> Run:
    for attempt in range(START_ATTEMPTS):
        scratch = tempfile.mkdtemp()
        cpu, began = cpu_seconds(), time.perf_counter()
        frame = spark.readStream.format(source).option("kafka.bootstrap.servers", servers).option("subscribe", topic)
        rows = frame.option("startingOffsets", "earliest").load()
        writer = rows.writeStream.format("noop").option("checkpointLocation", scratch)
        try:
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
        except Exception as error:
            # Spark waits ten seconds for a source's Python process, and has no setting for it.
            if "failed to connect back" not in str(error) or attempt + 1 == START_ATTEMPTS:
                raise
            continue
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        taken = time.perf_counter() - began
        worked = sum(progress["durationMs"]["addBatch"] for progress in query.recentProgress) / 1000
        return Run(worked, taken - worked, cpu_seconds() - cpu)
    raise AssertionError("not reached")


def thrown_away(spark: Any, rows: int, *, is_counted: bool) -> Run:
    """Rows of 100 B that Spark itself makes. With `is_counted` it counts those that do not meet a condition, and drops them."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    cpu, began = cpu_seconds(), time.perf_counter()
    frame = spark.range(0, rows, 1, 2).selectExpr("CAST(repeat(CAST(id % 10 AS STRING), 100) AS BINARY) AS value")
    if is_counted:
        is_met = F.coalesce(F.expr("length(value) > 0"), F.lit(False))
        frame = frame.observe(Observation(), F.count_if(~is_met).alias("unmet")).where(is_met)
    frame.write.format("noop").mode("overwrite").save()
    return Run(time.perf_counter() - began, 0.0, cpu_seconds() - cpu)


class Copies:
    """Topic -> topic, each time into a topic of its own. By "ottla", by "kafka", the connector, or by "spark" alone."""

    def __init__(self, spark: Any, servers: str, partitions: int) -> None:
        from confluent_kafka.admin import AdminClient

        self.spark, self.servers, self.partitions = spark, servers, partitions
        self.admin = AdminClient({"bootstrap.servers": servers})
        self.made = 0
        self.durations_ms: list[float] = []
        """Of each batch of the last copy: what Spark's query was busy with it."""
        self.checkpoints_ms: list[float] = []
        """Of each batch of the last copy: writing Spark's files of the checkpoint."""
        self.transactions_ms: list[float] = []
        """Of each batch of the last copy of ours: all that is not the job itself."""

    def run(
        self,
        source: str,
        topic: str,
        count: int,
        batch_rows: int | None = None,
        *,
        is_expected: bool = False,
        is_watched: bool = False,
    ) -> Run:
        pipeline = COPY.replace("{is_expected}", str(is_expected))
        taken, written = self._run(source, topic, pipeline, count, batch_rows, is_watched)
        assert written == count, f"{source} copied {written} of {count} records"
        return taken

    def window(self, source: str, topic: str, count: int) -> Run:
        taken, written = self._run(source, topic, WINDOW, count)
        # The watermark is a minute behind: the last seven windows stay open.
        assert written == CUSTOMERS * (count // 10_000 - 7), f"{source} wrote {written} sums"
        return taken

    def _run(
        self, source: str, topic: str, pipeline: str, count: int, batch_rows: int | None = None, is_watched: bool = False
    ) -> tuple[Run, int]:
        out = self._topic(self.partitions)
        if batch_rows is None:
            touch_memory(count * (record_size(topic) + 100))
        with tempfile.TemporaryDirectory() as scratch:
            cpu, began = cpu_seconds(), time.perf_counter()
            if source == "ottla":
                options = {} if batch_rows is None else {"maxOffsetsPerTrigger": str(batch_rows)}
                progress = self._ours(scratch, pipeline.format(topic=topic, out=out, options=options), is_watched)
            elif source == "kafka":
                progress = self._connectors(scratch, topic, out, batch_rows, is_window=pipeline == WINDOW)
            else:
                progress = self._sparks(scratch, topic, count, batch_rows)
            taken, spent = time.perf_counter() - began, cpu_seconds() - cpu
        phases = [entry["durationMs"] for entry in progress if entry["numInputRows"]]
        worked = sum(phase["addBatch"] for phase in phases) / 1000
        self.durations_ms = [phase["triggerExecution"] for phase in phases]
        self.checkpoints_ms = [phase["walCommit"] + phase["commitOffsets"] for phase in phases]
        written = count if source == "spark" else self._records(out)
        self.admin.delete_topics([out])[out].result(30)
        return Run(worked, taken - worked, spent), written

    def _topic(self, partitions: int) -> str:
        from confluent_kafka.admin import NewTopic

        name = f"copy-{self.made}"
        self.made += 1
        self.admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)
        return name

    def _ours(self, scratch: str, text: str, is_watched: bool) -> list[Any]:
        from ottla.pipelines import progress
        from ottla.pipelines.published import documents
        from ottla.pipelines.published.publisher import Publisher

        with ExitStack() as watching:
            run = self._pipeline(scratch, text, once=True)
            if is_watched:
                watch = progress.Watch(f"{run.project.name}.", run.sinks, lambda found: None)
                described = documents.Run(run.project, run.plan)
                watching.callback(progress.unlisten, self.spark, progress.listen(self.spark, watch))
                flows = lambda error: documents.of_flows(described, run, watch, error)  # noqa: E731
                watching.enter_context(Publisher(run.published_in, described, flows))
            with run:
                run.start()
                self.transactions_ms = self._watched(run)
                return list(run.queries["copy"].recentProgress)

    def _pipeline(self, scratch: str, text: str, *, once: bool) -> PipelineRun:
        from ottla.pipelines import graph, loading, project, running

        file = Path(scratch, "bench.py")
        file.write_text(text)
        settings = project.override(
            project.read(file),
            bootstrap_servers=self.servers,
            storage=scratch,
            name=f"bench-{self.made}",
            trigger="200 ms",
        )
        return running.PipelineRun(self.spark, settings, graph.plan(loading.load(file)), once=once)

    def _watched(self, flows: PipelineRun) -> list[float]:
        totals, batches, found = flows.sinks["copy"].totals, 0, []
        while flows.running:
            flows.wait(0.02)
            if totals.batches > batches:
                batches = totals.batches
                found.append(totals.transaction_ms)
        flows.wait(0)
        return found

    def _connectors(self, scratch: str, topic: str, out: str, batch_rows: int | None, *, is_window: bool = False) -> list[Any]:
        query = self._connector(scratch, topic, out, batch_rows, is_window=is_window).trigger(availableNow=True).start()
        query.awaitTermination()
        return list(query.recentProgress)

    def _connector(self, scratch: str, topic: str, out: str, batch_rows: int | None = None, *, is_window: bool = False) -> Any:
        from pyspark.sql import functions as F

        frame = self.spark.readStream.format("kafka").option("kafka.bootstrap.servers", self.servers).option("subscribe", topic)
        if batch_rows is not None:
            frame = frame.option("maxOffsetsPerTrigger", batch_rows)
        rows = frame.option("startingOffsets", "earliest").load().select("key", "value")
        if is_window:
            parsed = F.from_json(F.col("value").cast("string"), "customer string, amount double, at timestamp")
            sums = rows.select(parsed.alias("order")).select("order.*").withWatermark("at", "1 minute")
            sums = sums.groupBy(F.window("at", "10 seconds"), "customer").agg(F.sum("amount").alias("total"))
            rows = sums.select(F.col("customer").alias("key"), F.to_json(F.struct("*")).alias("value"))
        writer = rows.writeStream.format("kafka").option("kafka.bootstrap.servers", self.servers).option("topic", out)
        return writer.option("checkpointLocation", scratch)

    def _sparks(self, scratch: str, topic: str, count: int, batch_rows: int | None) -> list[Any]:
        self.spark.dataSource.register(memory_source(record_size(topic), count, batch_rows or count))

        def drop(rows: Any, number: int) -> None:
            rows.mapInArrow(_counted, "records long").collect()

        frame = self.spark.readStream.format("bench-memory").load()
        writer = frame.writeStream.foreachBatch(drop).option("checkpointLocation", scratch)
        # Without a limit of Spark's own: it is not asked for more once it has no more, so the query has to be stopped.
        query = writer.trigger(processingTime="0 seconds").start()
        batches = count // (batch_rows or count)
        try:
            while query.isActive and sum(1 for entry in query.recentProgress if entry["numInputRows"]) < batches:
                time.sleep(0.05)
            return list(query.recentProgress)
        finally:
            query.stop()

    def latency(self, source: str, records: int) -> list[float]:
        """Milliseconds from before a produce to the consumer, one record a second."""
        from confluent_kafka import Consumer, Producer, TopicPartition

        topic, out = self._topic(1), self._topic(1)
        producer = Producer({"bootstrap.servers": self.servers, "linger.ms": 0})
        settings: dict[str, Any] = {"group.id": "latency", "isolation.level": "read_committed", "fetch.wait.max.ms": 10}
        consumer = Consumer({"bootstrap.servers": self.servers, **settings})
        consumer.assign([TopicPartition(out, 0, 0)])
        found = []
        with tempfile.TemporaryDirectory() as scratch, ExitStack() as stopping:
            stopping.callback(consumer.close)
            if source == "ottla":
                run = self._pipeline(scratch, COPY.format(topic=topic, out=out, options={}, is_expected=False), once=False)
                stopping.enter_context(run)
                run.start()
            else:
                query = self._connector(scratch, topic, out).trigger(processingTime="200 milliseconds").start()
                stopping.callback(query.stop)
            for number in range(records + 5):  # the first ones warm up
                began = time.perf_counter()
                producer.produce(topic, b"%d" % number, b"key")
                producer.poll(0)
                while (message := consumer.poll(0.1)) is None or message.error() is not None:
                    assert time.perf_counter() - began < 60
                assert message.value() == b"%d" % number
                found.append((time.perf_counter() - began) * 1000)
                # Not in step with the trigger.
                time.sleep(max(0.0, began + 1 + 0.2 * (number % 7) / 7 - time.perf_counter()))
        return found[5:]

    def _records(self, topic: str) -> int:
        """What a reader of committed data would get, counted: offsets count markers too."""
        frame = self.spark.read.format("ottla").option("kafka.bootstrap.servers", self.servers).option("subscribe", topic)
        return int(frame.schema("offset long").load().count())


def _counted(batches: Any) -> Any:
    import pyarrow as pa

    yield pa.RecordBatch.from_pydict({"records": [sum(batch.num_rows for batch in batches)]})


def memory_source(size: int, count: int, batch_rows: int) -> Any:
    """A source in Python with `count` rows of `size` bytes in memory, `batch_rows` to a micro-batch, in one task or two."""
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

    # Defined here, so that it is pickled by value: the workers do not have this module.
    class Reader(DataSourceStreamReader):
        def initialOffset(self) -> dict[str, int]:
            return {"row": 0}

        def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
            return {"row": min(start["row"] + batch_rows, count)}

        def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Any]:
            rows = end["row"] - start["row"]
            return [InputPartition(rows)] if rows < 10_000 else [InputPartition(rows // 2), InputPartition(rows - rows // 2)]

        def read(self, partition: Any) -> Any:
            import pyarrow as pa

            rows = min(32_768, 8 * 1024 * 1024 // (size + 60), partition.value)
            made = pa.RecordBatch.from_pydict({"key": [b"key-%06d" % row for row in range(rows)], "value": [b"x" * size] * rows})
            for done in range(0, partition.value, rows):
                yield made.slice(0, min(rows, partition.value - done))

    class Memory(DataSource):
        @classmethod
        def name(cls) -> str:
            return "bench-memory"

        def schema(self) -> str:
            return "key binary, value binary"

        def streamReader(self, schema: Any) -> Any:
            return Reader()

    return Memory
