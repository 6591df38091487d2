"""`python -m bench.pipelines`: topic -> noop through Spark, our source beside Spark's own connector, on one broker.

One Spark (local[2]) reads the same topic through the two in turn, batch and streaming (AvailableNow), 100 B and 1 KB. Per case:
the median of rows/s over the time Spark worked on the data (a stream's micro-batches; starting a query is a figure of its own),
and the CPU seconds per million rows of everything together: JVM, Python's workers, the broker. On a busy machine only the latter
means something. Needs the jars of Spark's connector (fetched once) and compiled modules.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from peers import ApacheKafka, spark_connector_jars

from bench import OUT
from bench.servers import TICKS_PER_S

ROUNDS = 3
SIZES = {"100 B": (100, 2_000_000), "1 KB": (1000, 400_000)}
QUICK = {"100 B": (100, 300_000), "1 KB": (1000, 100_000)}


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


def session() -> Any:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master("local[2]").appName("bench")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.jars": ",".join(map(str, spark_connector_jars())),
        "spark.log.level": "ERROR",
        "spark.driver.bindAddress": "127.0.0.1",
    }.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


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
    scratch = tempfile.mkdtemp()
    cpu, began = cpu_seconds(), time.perf_counter()
    frame = spark.readStream.format(source).option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    writer = frame.option("startingOffsets", "earliest").load().writeStream.format("noop").option("checkpointLocation", scratch)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    taken = time.perf_counter() - began
    worked = sum(progress["durationMs"]["addBatch"] for progress in query.recentProgress) / 1000
    shutil.rmtree(scratch, ignore_errors=True)
    return Run(worked, taken - worked, cpu_seconds() - cpu)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pipelines", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="less data, one round: a look, not a result")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--broker", choices=["ottla", "kafka"], default="ottla")
    parser.add_argument("--sources", default="ottla,kafka")
    parser.add_argument("--kinds", default="batch,stream")
    parser.add_argument("--sizes", default="100 B,1 KB")
    options = parser.parse_args()
    rounds = 1 if options.quick else options.rounds
    from ottla.records import compiled
    from ottla.testing import Broker

    if not compiled():
        print("ottla's hot modules run interpreted: these are not its figures", file=sys.stderr)
    kinds = {"batch": batch, "stream": stream}
    results: dict[str, dict[str, list[Run]]] = {}
    spark = session()
    with ApacheKafka() if options.broker == "kafka" else Broker() as broker:
        for label in options.sizes.split(","):
            size, count = (QUICK if options.quick else SIZES)[label]
            topic = f"bench-{size}"
            fill(broker.bootstrap_servers, topic, size, count, options.partitions)
            for kind in options.kinds.split(","):
                runs: dict[str, list[Run]] = {source: [] for source in options.sources.split(",")}
                for number in range(rounds + 2):
                    for source, taken in runs.items():
                        run = kinds[kind](spark, source, broker.bootstrap_servers, topic)
                        if number > 1:  # the first ones warm up: the JVM compiles, Python's workers start
                            taken.append(run)
                results[f"{kind} {label}"] = runs
                show(f"{kind} {label}", runs, count)
    spark.stop()
    OUT.mkdir(parents=True, exist_ok=True)
    for case, runs in results.items():
        found = {source: [run._asdict() for run in taken] for source, taken in runs.items()}
        Path(OUT, f"pipelines {case}.json").write_text(json.dumps(found, indent=1))


def show(case: str, runs: dict[str, list[Run]], count: int) -> None:
    rates = {source: count / statistics.median(run.seconds for run in taken) for source, taken in runs.items()}
    costs = {source: statistics.median(run.cpu_seconds for run in taken) / count * 1e6 for source, taken in runs.items()}
    starts = {source: statistics.median(run.start_seconds for run in taken) for source, taken in runs.items()}
    for what, found, shape in (
        ("rows/s", rates, "{:,.0f}"),
        ("CPU s per million rows", costs, "{:.2f}"),
        ("s to start a query", starts, "{:.2f}"),
    ):
        shown = ", ".join(f"{source} {shape.format(value)}" for source, value in found.items())
        print(f"{case:14} {what:23} {shown}", flush=True)


if __name__ == "__main__":
    main()
