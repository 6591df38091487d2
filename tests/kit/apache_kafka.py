"""A broker of Apache Kafka 3.9 in the same ZooKeeper cluster as Ottla's."""

from __future__ import annotations

import subprocess
from typing import Any

from ottla.runtime.free_ports import free_port
from tests.kit.cluster import Cluster, until
from tests.kit.zookeeper import KAFKA_3, kafka_jars, popen


class ApacheBroker:
    def __init__(self, cluster: Cluster, number: int, **settings: Any) -> None:
        """`settings` have Kafka's names."""
        self.number = number
        self._settings = settings
        self.port = free_port()
        self.directory = cluster.directory / f"apache-{number}"
        self.directory.mkdir()
        self.data = self.directory / "data"
        self._cluster = cluster
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        settings = {
            "broker.id": self.number,
            "listeners": f"PLAINTEXT://{self.address}",
            "log.dirs": self.data,
            "zookeeper.connect": self._cluster.connect,
            "zookeeper.session.timeout.ms": 6000,
            "offsets.topic.num.partitions": 5,
            "transaction.state.log.num.partitions": 5,
            "controlled.shutdown.retry.backoff.ms": 200,
            **self._settings,
        }
        properties = self.directory / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        log4j = self.directory / "log4j.properties"
        log4j.write_text(
            "log4j.rootLogger=INFO, out\nlog4j.appender.out=org.apache.log4j.ConsoleAppender\n"
            "log4j.appender.out.layout=org.apache.log4j.PatternLayout\n"
            "log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n\n"
        )
        jars = ":".join(str(jar) for jar in sorted(kafka_jars(KAFKA_3).glob("*.jar")) if "slf4j-simple" not in jar.name)
        with (self.directory / "output.log").open("ab") as output:
            command = [
                "java",
                "-Xmx400m",
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                f"-Dlog4j.configuration=file:{log4j}",
                "-cp",
                jars,
                "kafka.Kafka",
                str(properties),
            ]
            self.process = popen(command, stdout=output, stderr=output)
        until(lambda: self.number in self._cluster.live_brokers(), "Apache Kafka is registered")

    def output(self) -> str:
        return (self.directory / "output.log").read_text()

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
