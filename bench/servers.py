"""The two brokers under the same conditions, and their CPU and memory as the kernel counts them.

Both get an empty directory on the same disk, one PLAINTEXT listener on loopback, and default settings except SETTINGS. Apache
Kafka runs with the JVM options of its own start script.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kit.peers import KAFKA_4, START_SCRIPT_JVM, ApacheKafka, Service, free_ports, run_tool, serves

# The same for both, where a default would have the benchmark wait: for more members, for the next assignment.
SETTINGS: dict[str, Any] = {
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.assignment.interval.ms": 0,
}


class Ottla(Service):
    """`ottla serve` of this checkout, or of another source tree (`--ottla-src`)."""

    name = "ottla"

    def __init__(self, source: Path | None = None, tls: dict[str, str] | None = None) -> None:
        """`tls`: settings of an SSL listener beside the other."""
        super().__init__()
        self.source = source
        self.data_dir = self.dir / "data"
        self.tls = tls or {}
        self.port, tls_port = free_ports(2)
        self.bootstrap_servers = f"127.0.0.1:{self.port}"
        self.tls_bootstrap_servers = f"127.0.0.1:{tls_port}"

    def command(self) -> list[str]:
        listeners = f"PLAINTEXT://{self.bootstrap_servers}" + (f",SSL://{self.tls_bootstrap_servers}" if self.tls else "")
        settings = [f"listeners={listeners}", *(f"{name}={value}" for name, value in (SETTINGS | self.tls).items())]
        # `env` rather than a changed environment: the command in a log can be repeated as it stands.
        path = ["env", f"PYTHONPATH={self.source}"] if self.source else []
        words = [word for setting in settings for word in ("--set", setting)]
        return [*path, sys.executable, "-P", "-m", "ottla", "serve", "--data-dir", str(self.data_dir), *words]

    def prepare(self) -> None:
        """There is nothing to do before a first start."""

    def is_ready(self) -> bool:
        return serves(self.port)


class Kafka(ApacheKafka):
    name = "kafka"

    def __init__(self, tls: dict[str, str] | None = None) -> None:
        """`tls`: settings of an SSL listener beside the other."""
        super().__init__(KAFKA_4, jvm=START_SCRIPT_JVM, **SETTINGS)
        (tls_port,) = free_ports(1)
        self.tls_bootstrap_servers = f"127.0.0.1:{tls_port}"
        if tls:
            plain = f"PLAINTEXT://{self.bootstrap_servers},SSL://{self.tls_bootstrap_servers}"
            both = f"{plain},CONTROLLER://{self.controller_address}"
            self.settings |= {"listeners": both, "advertised.listeners": both, **tls}
            self.settings["listener.security.protocol.map"] = "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT"

    def prepare(self) -> None:
        """Format the directory, which is done once in the life of a broker: no part of its start."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        config = self.dir / "format.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in self.properties().items()))
        run_tool(self.version, "StorageTool", "format", "--standalone", "-t", self.cluster_id, "-c", str(config), check=True)


@dataclass(frozen=True, slots=True)
class Usage:
    cpu_s: float
    rss_bytes: int


def usage(pid: int) -> Usage:
    """CPU time of all its threads so far, and resident memory."""
    clock = (~pid << 3) | 2  # of that process, by nanoseconds; /proc/PID/stat counts hundredths of a second
    return Usage(time.clock_gettime(clock), memory_bytes(pid, "VmRSS"))


def memory_bytes(pid: int, field: str) -> int:
    """Of /proc/PID/status: VmRSS is what it has, VmHWM the most it had."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(pid)
