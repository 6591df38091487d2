"""Pipelines in processes of their own, as users start them: `ottla pipeline run`, and a script with Spark's own connector."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench.pipelines_spark import COPY, family, produce, session
from tests.kit.peers import spark_connector_jars
from tests.kit.wait import until

SETTINGS = """
[pipeline]
bootstrap_servers = "{servers}"
storage = "{storage}"
trigger = "200 ms"

[spark]
master = "local[2]"

[spark.conf]
"spark.driver.memory" = "1g"
"""
CONNECTOR = """
import sys
from pyspark.sql import SparkSession

servers, topic, out, storage, jars = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.jars", jars).config("spark.driver.memory", "1g")
spark = builder.config("spark.ui.enabled", "false").getOrCreate()
rows = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
rows = rows.option("startingOffsets", "earliest").load().select("key", "value")
writer = rows.writeStream.format("kafka").option("kafka.bootstrap.servers", servers).option("topic", out)
writer.option("checkpointLocation", storage).trigger(processingTime="200 milliseconds").start().awaitTermination()
"""
TIMEOUT_S = 180


class Alone:
    """`with Alone(source, …) as alone`: copies a topic to another until it is killed."""

    def __init__(self, source: str, servers: str, topic: str, partitions: int) -> None:
        from confluent_kafka import Consumer, TopicPartition
        from confluent_kafka.admin import AdminClient, NewTopic

        self._scratch = tempfile.TemporaryDirectory()
        self._servers, self._topic, self._partitions = servers, topic, partitions
        out = f"{topic}-out"
        admin = AdminClient({"bootstrap.servers": servers})  # kept: requests end with it
        made = admin.create_topics([NewTopic(name, partitions, 1) for name in (topic, out)])
        for done in made.values():
            done.result(30)
        folder = self._scratch.name
        if source == "ottla":
            Path(folder, "alone.py").write_text(COPY.format(topic=topic, out=out, options={}, is_expected=False))
            Path(folder, "alone.toml").write_text(SETTINGS.format(servers=servers, storage=folder))
            self._words = [sys.executable, "-m", "ottla", "pipeline", "run", f"{folder}/alone.py"]
        else:
            Path(folder, "alone.py").write_text(CONNECTOR)
            jars = ",".join(map(str, spark_connector_jars()))
            self._words = [sys.executable, f"{folder}/alone.py", servers, topic, out, folder, jars]
        self._process: subprocess.Popen[bytes] | None = None
        self._places = [TopicPartition(out, number) for number in range(partitions)]
        settings = {
            "group.id": out,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 10,
        }
        self._consumer = Consumer({"bootstrap.servers": servers, **settings})
        self._consumer.assign(self._places)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.kill()
        self._consumer.close()
        self._scratch.cleanup()

    def first_result(self) -> float:
        """Seconds from the start of a process to the result of a record that was produced before."""
        mark = b"mark-%d" % time.time_ns()
        produce(self._servers, self._topic, 1, 1, lambda number: (b"key", mark))
        began = time.perf_counter()
        with Path(self._scratch.name, "log").open("wb") as log:
            self._process = subprocess.Popen(self._words, stdout=log, stderr=log)
        while (message := self._consumer.poll(0.1)) is None or message.error() is not None or message.value() != mark:
            ended = self._process.poll() is not None or time.perf_counter() - began > TIMEOUT_S
            assert not ended, Path(log.name).read_text()[-2000:]
        return time.perf_counter() - began

    def copy(self, count: int) -> None:
        """Returns when so many more records have come out."""
        value = os.urandom(100)
        before = self._ends()
        produce(self._servers, self._topic, count, self._partitions, lambda number: (b"key-%06d" % number, value))
        until(lambda: self._ends() - before >= count, "the copy", TIMEOUT_S, every_s=0.2)
        # The last batch is recorded, and what it took is given back.
        time.sleep(2)
        for place in self._places:
            place.offset = self._consumer.get_watermark_offsets(place)[1]
        self._consumer.assign(self._places)

    def _ends(self) -> int:
        return sum(self._consumer.get_watermark_offsets(place)[1] for place in self._places)

    def memory_mb(self) -> dict[str, float]:
        """By kind of process, its proportional set size: pages that processes share count once."""
        assert self._process is not None
        found: dict[str, float] = {}
        for pid in family(self._process.pid):
            try:
                name = Path(f"/proc/{pid}/comm").read_text().strip()
                size = re.search(r"^Pss:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
            except OSError:
                continue
            kind = "driver" if pid == self._process.pid else "JVM" if name == "java" else "workers"
            found[kind] = found.get(kind, 0.0) + (int(size[1]) / 1024 if size else 0.0)
        return found

    def kill(self) -> None:
        """Kill the driver, and wait for its JVM, which ends by itself."""
        if self._process is None:
            return
        pids = [pid for pid in family(self._process.pid) if pid != self._process.pid]
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._process = None
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "the end of Spark's processes")


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
