"""`python -m bench.pipelines`: Ottla's Spark source and sink beside Spark's own Kafka connector, on one broker.

| case | measured |
|---|---|
| batch, stream | topic to noop, a batch query and a stream (AvailableNow), 100 B and 1 KB |
| copy | topic to topic as a stream: Ottla exactly once, the connector at least once; without compression |
| small | topic to topic in many micro-batches of 100 records: the cost of a batch, and of its transaction |
| cold | a process that starts Spark and reads the first row, by a batch query and by a stream |

Rates are medians over the time of the micro-batches; the start of a query is a separate figure. CPU seconds include the JVM, the
Python workers and the broker; on a busy machine only they are comparable. The last lines are a table for docs/bench.md. Needs the
jars of Spark's connector (fetched once) and compiled modules.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bench import OUT
from tests.kit.peers import ApacheKafka, spark_connector_jars

if TYPE_CHECKING:
    from ottla.pipelines.running import PipelineRun

ROUNDS = 3
SIZES = {"100 B": (100, 2_000_000), "1 KB": (1000, 400_000)}
QUICK = {"100 B": (100, 300_000), "1 KB": (1000, 100_000)}
# Long enough that what a query and a batch cost, however little they hold, does not decide; that is what `small` shows.
COPY_RECORDS, COPY_RECORDS_QUICK = 1_000_000, 100_000
SMALL_RECORDS, SMALL_BATCH = 3_000, 100
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
SOURCES = ("ottla", "kafka")
START_ATTEMPTS = 5
PIPELINE = """
from ottla import pipelines as p

records = p.source("{topic}", p.bytes(), name="records", columns=("key",), options={options!r})
to = p.sink("{out}", key="key", value=p.bytes(), compression="none")
p.sql(records, to=to, name="copy", query="SELECT key, value FROM records")
"""


class Run(NamedTuple):
    seconds: float
    """That Spark worked on the data."""
    start_seconds: float
    """That a query took beside that."""
    cpu_seconds: float


def fill(servers: str, topic: str, size: int, count: int, partitions: int) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)
    settings: dict[str, Any] = {"linger.ms": 50, "queue.buffering.max.kbytes": 256_000, "batch.size": 200_000}
    producer = Producer({"bootstrap.servers": servers, **settings})
    value = os.urandom(size)
    for number in range(count):
        while True:
            try:
                producer.produce(topic, value, b"key-%06d" % (number % 1_000_000), partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(120) == 0


def session(memory: str = "1g") -> Any:
    from ottla.pipelines import session

    conf = {
        "spark.driver.memory": memory,
        "spark.sql.shuffle.partitions": "2",
        "spark.jars": ",".join(map(str, spark_connector_jars())),
    }
    return session.start("bench", "local[2]", conf)


def cpu_seconds() -> float:
    """Of this process's children and theirs so far, those that have ended included."""
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
    family, grown = {os.getpid()}, True
    while grown:
        new = {pid for pid, parent in parents.items() if parent in family} - family
        family |= new
        grown = bool(new)
    return sum(spent[pid] for pid in family if pid != os.getpid())


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


class Copies:
    """Topic -> topic, each time into a topic of its own."""

    def __init__(self, spark: Any, servers: str, partitions: int) -> None:
        from confluent_kafka.admin import AdminClient

        self.spark, self.servers, self.partitions = spark, servers, partitions
        self.admin = AdminClient({"bootstrap.servers": servers})
        self.made = 0
        self.durations_ms: list[float] = []
        """Of each batch of the last copy: what Spark's query was busy with it."""
        self.transactions_ms: list[float] = []
        """Of each batch of the last copy of ours: all that is not the job itself."""

    def run(self, source: str, topic: str, count: int, batch_rows: int | None = None) -> Run:
        from confluent_kafka.admin import NewTopic

        out = f"copy-{self.made}"
        self.made += 1
        self.admin.create_topics([NewTopic(out, self.partitions, 1)])[out].result(30)
        with tempfile.TemporaryDirectory() as scratch:
            cpu, began = cpu_seconds(), time.perf_counter()
            copy = self._ours if source == "ottla" else self._connectors
            progress = copy(scratch, topic, out, {} if batch_rows is None else {"maxOffsetsPerTrigger": str(batch_rows)})
            taken, spent = time.perf_counter() - began, cpu_seconds() - cpu
        worked = [entry["durationMs"]["addBatch"] for entry in progress if entry["numInputRows"]]
        self.durations_ms = [entry["durationMs"]["triggerExecution"] for entry in progress if entry["numInputRows"]]
        found = self._records(out)
        assert found == count, f"{source} copied {found} of {count} records"
        self.admin.delete_topics([out])[out].result(30)
        return Run(sum(worked) / 1000, taken - sum(worked) / 1000, spent)

    def _ours(self, scratch: str, topic: str, out: str, options: dict[str, str]) -> list[Any]:
        from ottla.pipelines import graph, loading, project, running

        file = Path(scratch, "bench.py")
        file.write_text(PIPELINE.format(topic=topic, out=out, options=options))
        settings = project.override(
            project.read(file), bootstrap_servers=self.servers, storage=scratch, name=f"bench-{self.made}"
        )
        flows = running.PipelineRun(self.spark, settings, graph.plan(loading.load(file)), once=True)
        try:
            flows.start()
            self.transactions_ms = self._watched(flows)
            return list(flows.queries["copy"].recentProgress)
        finally:
            flows.stop()

    def _watched(self, flows: PipelineRun) -> list[float]:
        totals, batches, found = flows.sinks["copy"].totals, 0, []
        while flows.running:
            flows.wait(0.02)
            if totals.batches > batches:
                batches = totals.batches
                found.append(totals.transaction_ms)
        flows.wait(0)
        return found

    def _connectors(self, scratch: str, topic: str, out: str, options: dict[str, str]) -> list[Any]:
        frame = self.spark.readStream.format("kafka").option("kafka.bootstrap.servers", self.servers).option("subscribe", topic)
        rows = frame.option("startingOffsets", "earliest").options(**options).load().select("key", "value")
        writer = rows.writeStream.format("kafka").option("kafka.bootstrap.servers", self.servers).option("topic", out)
        query = writer.option("checkpointLocation", scratch).trigger(availableNow=True).start()
        query.awaitTermination()
        return list(query.recentProgress)

    def _records(self, topic: str) -> int:
        """What a reader of committed data would get, counted: offsets count markers too."""
        frame = self.spark.read.format("ottla").option("kafka.bootstrap.servers", self.servers).option("subscribe", topic)
        return int(frame.schema("offset long").load().count())


def cold(kind: str, source: str, servers: str, topic: str) -> float:
    """Seconds from the start of a process to the first row of a topic."""
    began = time.perf_counter()
    words = [sys.executable, "-m", "bench.pipelines", "--first-row", kind, source, servers, topic]
    done = subprocess.run(words, check=True, capture_output=True, text=True, timeout=300)
    assert "first row" in done.stdout, done.stderr[-2000:]
    return time.perf_counter() - began


def first_row(kind: str, source: str, servers: str, topic: str) -> None:
    """What `cold` starts. It ends when there is a row, without taking Spark down in order."""
    spark = session("512m")
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
    if kind == "batch":
        row = spark.read.format(source).options(**options).load().first()
    else:
        found: list[Any] = []
        frame = spark.readStream.format(source).options(**options).load()
        writer = frame.writeStream.foreachBatch(lambda rows, number: found.append(rows.first()))
        writer.option("checkpointLocation", tempfile.mkdtemp()).trigger(availableNow=True).start().awaitTermination()
        row = found[0]
    assert row is not None
    print("first row", flush=True)
    spark.sparkContext._gateway.proc.kill()
    os._exit(0)


def main() -> None:
    if sys.argv[1:2] == ["--first-row"]:
        first_row(*sys.argv[2:])
    parser = argparse.ArgumentParser(prog="python -m bench.pipelines", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="less data, one round: a look, not a result")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--broker", choices=["ottla", "kafka"], default="ottla")
    parser.add_argument("--sources", default=",".join(SOURCES))
    parser.add_argument("--kinds", default="batch,stream,copy,small,cold")
    parser.add_argument("--sizes", default="100 B,1 KB")
    options = parser.parse_args()
    rounds = 1 if options.quick else options.rounds
    sources, kinds = options.sources.split(","), options.kinds.split(",")
    from ottla.records import compiled
    from ottla.testing import Broker

    if not compiled():
        print("ottla's hot modules run interpreted: these are not its figures", file=sys.stderr)
    table = Table(sources)
    spark = session()
    with ApacheKafka() if options.broker == "kafka" else Broker() as broker:
        servers = broker.bootstrap_servers
        copies = Copies(spark, servers, options.partitions)
        for label in options.sizes.split(","):
            size, count = (QUICK if options.quick else SIZES)[label]
            topic, fewer = f"bench-{size}", f"bench-copy-{size}"
            if {"batch", "stream"} & set(kinds):
                fill(servers, topic, size, count, options.partitions)
            for kind, run in (("batch", batch), ("stream", stream)):
                if kind in kinds:
                    runs: dict[str, list[Run]] = {source: [] for source in sources}
                    for number in range(rounds + 2):
                        for source in sources:
                            taken = run(spark, source, servers, topic)
                            if number > 1:  # the first ones warm up: the JVM compiles, Python's workers start
                                runs[source].append(taken)
                    table.rates(f"topic to noop, {kind}, {label}", runs, count)
            if "copy" in kinds:
                copied = COPY_RECORDS_QUICK if options.quick else COPY_RECORDS
                fill(servers, fewer, size, copied, options.partitions)
                runs = {source: [] for source in sources}
                for number in range(rounds + 1):
                    for source in sources:
                        taken = copies.run(source, fewer, copied)
                        if number > 0:
                            runs[source].append(taken)
                table.rates(f"topic to topic, {label}", runs, copied)
        if "small" in kinds:
            fill(servers, "bench-small", 100, SMALL_RECORDS, options.partitions)
            each: dict[str, float] = {}
            spent: dict[str, float] = {}
            for _ in range(2):  # the first one warms up
                for source in sources:
                    taken = copies.run(source, "bench-small", SMALL_RECORDS, SMALL_BATCH)
                    each[source] = statistics.median(copies.durations_ms)
                    spent[source] = taken.cpu_seconds * 1000 / len(copies.durations_ms)
            table.row("a batch of 100 records, topic to topic, ms", each, "{:.0f}")
            table.row("CPU for such a batch, its share of the query's start included, ms", spent, "{:.0f}")
            if "ottla" in sources:
                copies.run("ottla", "bench-small", SMALL_RECORDS, SMALL_BATCH)
                table.row("of which the transaction, ms", {"ottla": statistics.median(copies.transactions_ms)}, "{:.0f}")
        spark.stop()
        if "cold" in kinds:
            fill(servers, "bench-cold", 100, 100, options.partitions)
            for kind in ("batch", "stream"):
                times: dict[str, list[float]] = {source: [] for source in sources}
                for _ in range(1 if options.quick else 2):
                    for source in sources:
                        times[source].append(cold(kind, source, servers, "bench-cold"))
                table.row(
                    f"cold start to the first row, {kind}, s", {each: min(found) for each, found in times.items()}, "{:.1f}"
                )
    table.finish()


class Table:
    """Figures as they come, then once more as Markdown."""

    def __init__(self, sources: list[str]) -> None:
        self._sources = sources
        self._lines: list[str] = []
        self._found: dict[str, dict[str, float]] = {}

    def rates(self, case: str, runs: dict[str, list[Run]], count: int) -> None:
        def median(field: str) -> dict[str, float]:
            return {source: statistics.median(getattr(run, field) for run in taken) for source, taken in runs.items()}

        self.row(f"{case}, rows/s", {source: count / seconds for source, seconds in median("seconds").items()}, "{:,.0f}")
        costs = {source: seconds / count * 1e6 for source, seconds in median("cpu_seconds").items()}
        self.row(f"{case}, CPU s per million rows", costs, "{:.2f}")
        self.row(f"{case}, s beside the batches", median("start_seconds"), "{:.2f}")

    def row(self, case: str, found: dict[str, float], shape: str) -> None:
        self._found[case] = found
        cells = [shape.format(found[source]) if source in found else "" for source in self._sources]
        both = all(source in found for source in SOURCES)
        ratio = f"{found['ottla'] / found['kafka']:.2f}" if both and found["kafka"] else ""
        self._lines.append(f"| {case} | {' | '.join(cells)} | {ratio} |")
        shown = ", ".join(f"{source} {shape.format(value)}" for source, value in found.items())
        print(f"{case:55} {shown}", flush=True)

    def finish(self) -> None:
        OUT.mkdir(parents=True, exist_ok=True)
        Path(OUT, "pipelines.json").write_text(json.dumps(self._found, indent=1))
        names = {"ottla": "Ottla", "kafka": "Spark's connector"}
        print(f"\n| | {' | '.join(names[source] for source in self._sources)} | ratio |")
        print(f"|---|{'---|' * len(self._sources)}---|")
        print("\n".join(self._lines))


if __name__ == "__main__":
    main()
