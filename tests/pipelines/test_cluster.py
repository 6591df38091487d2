"""A pipeline on a standalone Spark cluster: a master and two workers from the pyspark package (F77, F79)."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

from tests.kit.wait import until

if TYPE_CHECKING:
    from ottla.testing import Broker
    from tests.pipelines.conftest import ReadTopic

SPARK = Path(pyspark.__file__).parent
COPY = """
from pyspark.sql import functions as F
from ottla import pipelines as p

orders = p.source("cluster.in", p.json("id long, customer string"), name="orders", options={"maxOffsetsPerTrigger": 2000})


@p.flow(orders, to=p.sink("cluster.out", key="customer"))
def copy(orders):
    return orders.repartition(4)
"""


class Cluster:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            **os.environ,
            "SPARK_HOME": str(SPARK),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_WORKER_DIR": str(folder / "work"),
        }
        self.processes: list[subprocess.Popen[bytes]] = []
        self._start("master", "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        self.url = self.wait_for("master", r"(spark://127\.0\.0\.1:\d+)")
        self.workers = [self._worker(number) for number in range(2)]
        for number in range(2):
            self.wait_for(f"worker{number}", r"(Successfully registered)")

    def _worker(self, number: int) -> subprocess.Popen[bytes]:
        words = ("--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", "0", self.url)
        return self._start(f"worker{number}", "org.apache.spark.deploy.worker.Worker", *words)

    def _start(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("wb") as log:
            command = [str(SPARK / "bin" / "spark-class"), *words]
            process = subprocess.Popen(command, stdout=log, stderr=log, env=self.environment, start_new_session=True)
        self.processes.append(process)
        return process

    def wait_for(self, name: str, pattern: str) -> str:
        def log() -> str:
            return (self.folder / f"{name}.log").read_text(errors="replace")

        found = until(lambda: re.search(pattern, log()), log, 120, every_s=0.2)
        assert found is not None
        return found[1]

    def close(self) -> None:
        for process in reversed(self.processes):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    found = Cluster(tmp_path)
    yield found
    found.close()


@pytest.mark.slow
def test_a_cluster_runs_a_pipeline_and_loses_a_worker(
    tmp_path: Path, cluster: Cluster, ottla_broker: Broker, read_topic: ReadTopic
) -> None:
    """The package is shipped to the executors; a worker that is killed costs time and nothing else."""
    from confluent_kafka import Producer

    for name in ("cluster.in", "cluster.out"):
        ottla_broker.create_topic(name, 3)
    producer = Producer({"bootstrap.servers": ottla_broker.bootstrap_servers, "log_level": 0})
    for number in range(20_000):
        producer.produce("cluster.in", key=str(number), value=json.dumps({"id": number, "customer": f"c{number % 50}"}))
        producer.poll(0)
    producer.flush(30)
    file = tmp_path / "shop.py"
    file.write_text(COPY)
    command = [sys.executable, "-m", "ottla", "pipeline", "run", str(file), "--once", "--json"]
    command += ["-b", ottla_broker.bootstrap_servers, "--master", cluster.url, "--conf", "spark.executor.memory=512m"]
    command += ["--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.sql.shuffle.partitions=4"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=cluster.environment) as run:
        assert run.stdout is not None
        run.stdout.readline()
        os.killpg(cluster.workers[0].pid, signal.SIGKILL)
        _, stderr = run.communicate(timeout=400)
        assert run.returncode == 0, stderr
    messages = read_topic(ottla_broker.bootstrap_servers, "cluster.out")
    assert Counter(json.loads(message.value())["id"] for message in messages) == Counter(range(20_000))
