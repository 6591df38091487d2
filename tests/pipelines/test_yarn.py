"""A pipeline on YARN: a ResourceManager and a NodeManager of Hadoop, as they come in the jar for tests of its clients (F77, F79).

The executors' Python comes as an archive, as the documentation says it; it is a script that calls this one.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

import pyspark
import pytest

from tests.kit.wait import until

if TYPE_CHECKING:
    from ottla.testing import Broker
    from tests.pipelines.conftest import ReadTopic

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.timeout(3600)]

RECORDS = 5_000
COPY = """
from ottla import pipelines as p

orders = p.source("yarn.in", p.json("id long, customer string"), name="orders", options={"maxOffsetsPerTrigger": 1000})


@p.flow(orders, to=p.sink("yarn.out", key="customer"))
def copy(orders):
    return orders.repartition(4)
"""
SETTINGS = """
[spark]
master = "yarn"

[spark.conf]
"spark.executor.instances" = 2
"spark.executor.memory" = "512m"
"spark.archives" = "env.tar.gz#env"
"spark.pyspark.python" = "env/bin/python"
"spark.sql.shuffle.partitions" = 4
"spark.driver.host" = "127.0.0.1"
"""
# Those of the Hadoop that is in PySpark, and what the jar for tests leaves to whoever uses it.
ARTIFACTS = (
    "org.apache.hadoop:hadoop-client-minicluster:3.5.0",
    "org.bouncycastle:bcprov-jdk18on:1.82",
    "org.bouncycastle:bcpkix-jdk18on:1.82",
    "org.bouncycastle:bcutil-jdk18on:1.82",
)
FROM_SPARK = ("hadoop-client-api", "hadoop-client-runtime", "slf4j-api", "log4j-", "jcl-over-slf4j", "commons-lang3")
PORTS = (
    "resourcemanager.address",
    "resourcemanager.scheduler.address",
    "resourcemanager.resource-tracker.address",
    "resourcemanager.admin.address",
    "resourcemanager.webapp.address",
    "nodemanager.address",
    "nodemanager.localizer.address",
    "nodemanager.webapp.address",
)


class Yarn:
    def __init__(self, folder: Path) -> None:
        from tests.kit.peers import free_ports, single_jars

        self.folder, self.conf = folder, folder / "conf"
        self.conf.mkdir()
        addresses = {name: f"127.0.0.1:{port}" for name, port in zip(PORTS, free_ports(len(PORTS)), strict=True)}
        self.page = addresses["resourcemanager.webapp.address"]
        yarn = {
            **addresses,
            "resourcemanager.hostname": "127.0.0.1",
            "nodemanager.hostname": "127.0.0.1",
            "nodemanager.local-dirs": str(folder / "local"),
            "nodemanager.log-dirs": str(folder / "logs"),
            "nodemanager.resource.memory-mb": "6144",
            "nodemanager.resource.cpu-vcores": "4",
            "nodemanager.vmem-check-enabled": "false",
            "nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "99.9",
            "scheduler.minimum-allocation-mb": "256",
            "scheduler.capacity.root.queues": "default",
            "scheduler.capacity.root.default.capacity": "100",
            "scheduler.capacity.maximum-am-resource-percent": "0.5",
        }
        self._write("yarn-site.xml", {f"yarn.{name}": value for name, value in yarn.items()})
        self._write("core-site.xml", {"fs.defaultFS": "file:///", "hadoop.tmp.dir": str(folder / "tmp")})
        jars = sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar"))
        needed = [*single_jars("hadoop", ARTIFACTS), *(jar for jar in jars if jar.name.startswith(FROM_SPARK))]
        self._classpath = ":".join(map(str, [self.conf, *needed]))
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        self._start("resourcemanager.ResourceManager")
        self._start("nodemanager.NodeManager")

        def registered() -> bool:
            ended = [process.args for process in self._processes if process.poll() is not None]
            assert not ended, self.logs()
            return self._nodes() >= 1

        until(registered, self.logs, 300, every_s=0.5)

    def _write(self, name: str, settings: dict[str, str]) -> None:
        rows = [f"<property><name>{key}</name><value>{escape(value)}</value></property>" for key, value in settings.items()]
        (self.conf / name).write_text(f"<configuration>{''.join(rows)}</configuration>")

    def _start(self, name: str) -> None:
        words = ["java", "-Xmx384m", "-XX:+UseSerialGC", "--add-opens=java.base/java.lang=ALL-UNNAMED"]
        words += ["-cp", self._classpath, f"org.apache.hadoop.yarn.server.{name}"]
        with (self.folder / f"{name}.log").open("wb") as log:
            self._processes.append(subprocess.Popen(words, stdout=log, stderr=log, cwd=self.folder, start_new_session=True))

    def _nodes(self) -> int:
        with suppress(OSError), urllib.request.urlopen(f"http://{self.page}/ws/v1/cluster/metrics", timeout=10) as reply:
            return int(json.load(reply)["clusterMetrics"]["activeNodes"])
        return 0

    def logs(self) -> str:
        files = [*self.folder.glob("*.log"), *self.folder.glob("logs/**/stderr")]
        return "\n".join(f"{file}:\n{file.read_text(errors='replace')[-2000:]}" for file in files)

    def executors(self) -> list[int]:
        """Java processes of executors in containers of this cluster."""
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                command = (entry / "cmdline").read_bytes()
                java = command.split(b"\0")[0].endswith(b"java")
                if java and b"YarnCoarseGrainedExecutorBackend" in command and str(self.folder).encode() in command:
                    found.append(int(entry.name))
        return found

    def close(self) -> None:
        for pid in self.executors():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in reversed(self._processes):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(60)


@pytest.fixture
def yarn(tmp_path: Path) -> Iterator[Yarn]:
    found = Yarn(tmp_path)
    try:
        found.start()
        yield found
    finally:
        found.close()


def pack_python(folder: Path) -> None:
    """env.tar.gz for the executors, and env/ beside it: the driver asks sources for offsets with the same Python."""
    python = folder / "env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    # The script's own place is what is shown to be used: Python itself is that of the tests.
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    with tarfile.open(folder / "env.tar.gz", "w:gz") as archive:
        archive.add(folder / "env", ".")


def test_yarn_runs_a_pipeline_and_loses_an_executor(
    tmp_path: Path, yarn: Yarn, ottla_broker: Broker, read_topic: ReadTopic
) -> None:
    from confluent_kafka import Producer

    for name in ("yarn.in", "yarn.out"):
        ottla_broker.create_topic(name, 3)
    producer = Producer({"bootstrap.servers": ottla_broker.bootstrap_servers, "log_level": 0})
    for number in range(RECORDS):
        producer.produce("yarn.in", key=str(number), value=json.dumps({"id": number, "customer": f"c{number % 50}"}))
        producer.poll(0)
    assert producer.flush(60) == 0
    pack_python(tmp_path)
    (tmp_path / "shop.py").write_text(COPY)
    (tmp_path / "shop.toml").write_text(SETTINGS)
    command = [sys.executable, "-m", "ottla", "pipeline", "run", "shop.py", "--once", "--json"]
    command += ["-b", ottla_broker.bootstrap_servers]
    environment = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    environment["HADOOP_CONF_DIR"] = str(yarn.conf)
    with (tmp_path / "errors").open("w+") as errors:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment, cwd=tmp_path) as run:
            assert run.stdout is not None
            run.stdout.readline()
            victims = yarn.executors()
            for pid in victims[:1]:
                os.kill(pid, signal.SIGKILL)
            run.communicate(timeout=1800)
        errors.seek(0)
        assert run.returncode == 0, errors.read() + yarn.logs()
    assert victims, "it did not run in containers"
    messages = read_topic(ottla_broker.bootstrap_servers, "yarn.out")
    assert Counter(json.loads(message.value())["id"] for message in messages) == Counter(range(RECORDS))
