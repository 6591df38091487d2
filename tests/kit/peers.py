"""Other implementations that tests and benchmarks run: Apache Kafka's jars and brokers, ZooKeeper, kcat, Chromium.

Owns: where they are kept (`~/.cache/ottla`, or `OTTLA_CACHE`), how they are fetched once, how they are started and stopped.
Never skips a test: what is missing raises `MissingCounterpart`, which says what to install.

1. A folder of jars in the cache is complete: it is filled under another name and renamed.
2. What is in the cache needs no network.
3. Every process started here ends with its context manager, also when the test fails, and with this process, even when killed.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import uuid
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ottla.runtime.free_ports import free_port

KAFKA_4 = "4.3.0"
KAFKA_3 = "3.9.2"  # the last with ZooKeeper; its jars are in the same folder

QUICK_JVM = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
# The options of Kafka's own start script, for benchmarks.
START_SCRIPT_JVM = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>ottla</groupId><artifactId>peers</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{version}</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{version}</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
"""
STREAMS_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>ottla</groupId><artifactId>peers</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-streams</artifactId><version>{version}</version></dependency>
  </dependencies>
</project>
"""
AVRO = "1.12.1"
AVRO_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>ottla</groupId><artifactId>peers</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.avro</groupId><artifactId>avro</artifactId><version>{version}</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>2.0.17</version></dependency>
  </dependencies>
</project>
"""


class MissingCounterpart(RuntimeError):
    """A program or jar that a test needs is not on this machine; the text says how to get it."""


def cache_dir() -> Path:
    path = Path(os.environ.get("OTTLA_CACHE") or "~/.cache/ottla").expanduser()
    path.mkdir(parents=True, exist_ok=True)
    return path


@contextmanager
def fetching(name: str) -> Iterator[Path]:
    """The path of `name` in the cache, locked against parallel fetches (pytest-xdist, two checkouts)."""
    path = cache_dir() / name
    with open(path.with_name(f".{name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield path


def program(name: str, install: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise MissingCounterpart(f"`{name}` is needed and not on the PATH: {install}")
    return found


# --- Apache Kafka's jars -------------------------------------------------------------------------------------------------


def kafka_jars(version: str = KAFKA_4) -> Path:
    """The folder of Apache Kafka's jars, fetched with Maven if it is not in the cache yet (about 40 s, once)."""
    return maven_jars(f"kafka-{version}", POM.format(version=version), lambda jars: _complete(jars, version))


def streams_jars() -> list[Path]:
    """The jars of Kafka Streams and RocksDB. Their other dependencies are among Apache Kafka's jars."""

    def complete(jars: Path) -> bool:
        return (jars / f"kafka-streams-{KAFKA_4}.jar").exists() and any(jars.glob("rocksdbjni-*.jar"))

    only = "-DincludeArtifactIds=kafka-streams,rocksdbjni"
    return sorted(maven_jars(f"kafka-streams-{KAFKA_4}", STREAMS_POM.format(version=KAFKA_4), complete, only).glob("*.jar"))


def avro_jars() -> list[Path]:
    """The jars of Avro's library for Java, the one that Confluent's registry calls."""

    def complete(jars: Path) -> bool:
        return (jars / f"avro-{AVRO}.jar").exists() and any(jars.glob("slf4j-nop-*.jar"))

    return sorted(maven_jars(f"avro-{AVRO}", AVRO_POM.format(version=AVRO), complete).glob("*.jar"))


DEBEZIUM = "3.3.1.Final"
DEBEZIUM_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>ottla</groupId><artifactId>peers</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>io.debezium</groupId><artifactId>debezium-connector-postgres</artifactId><version>{version}</version>
    </dependency>
  </dependencies>
</project>
"""


def debezium_jars() -> list[Path]:
    """Debezium's connector for PostgreSQL. What it shares with Kafka Connect is among Apache Kafka's jars."""

    def complete(jars: Path) -> bool:
        return (jars / f"debezium-connector-postgres-{DEBEZIUM}.jar").exists()

    less = "-DexcludeGroupIds=org.apache.kafka,org.slf4j,com.fasterxml.jackson.core"
    return sorted(maven_jars(f"debezium-{DEBEZIUM}", DEBEZIUM_POM.format(version=DEBEZIUM), complete, less).glob("*.jar"))


# The newest complete set, of mixed versions; it works with pyspark 4.3. Each jar is fetched by itself: Spark's parent pom names a
# repository that is not always reachable.
SPARK_CONNECTOR = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)


def spark_connector_jars() -> list[Path]:
    """The jars of Spark's own Kafka connector (`format("kafka")`), for `spark.jars`; fetched once."""
    return single_jars("spark-kafka", SPARK_CONNECTOR)


SPARK_AVRO = ("org.apache.spark:spark-avro_2.13:4.1.1",)
"""`from_avro` and `to_avro` of Spark: the newest that Maven Central has."""


def spark_avro_jars() -> list[Path]:
    return single_jars("spark-avro", SPARK_AVRO)


def single_jars(folder: str, artifacts: Sequence[str]) -> list[Path]:
    """These jars (`group:name:version`) without their dependencies; fetched once."""
    names = ["{1}-{2}.jar".format(*artifact.split(":")) for artifact in artifacts]
    with fetching(folder) as jars:
        for name, artifact in zip(names, artifacts, strict=True):
            if (jars / name).exists():
                continue
            maven = program("mvn", "install Maven (Debian: `apt-get install maven`), or copy the jars to " + str(jars))
            with tempfile.TemporaryDirectory(dir=cache_dir(), prefix=f"{folder}.") as scratch:
                command = [maven, "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={scratch}"]
                done = subprocess.run(command, capture_output=True, text=True, cwd=scratch)
                if done.returncode or not Path(scratch, name).exists():
                    raise MissingCounterpart(
                        f"{artifact} could not be fetched with Maven:\n" + (done.stdout + done.stderr)[-2000:]
                    )
                jars.mkdir(exist_ok=True)
                Path(scratch, name).rename(jars / name)
        return [jars / name for name in names]


def maven_jars(name: str, pom: str, complete: Callable[[Path], bool], *options: str) -> Path:
    jars = cache_dir() / name
    if complete(jars):
        return jars
    with fetching(name) as jars:
        if complete(jars):
            return jars
        maven = program("mvn", "install Maven (Debian: `apt-get install maven`), or copy the jars to " + str(jars))
        with tempfile.TemporaryDirectory(dir=cache_dir(), prefix=f"{name}.") as scratch:
            Path(scratch, "pom.xml").write_text(pom)
            new = Path(scratch, "jars")
            command = [maven, "-q", "-B", "-f", f"{scratch}/pom.xml", "dependency:copy-dependencies", f"-DoutputDirectory={new}"]
            done = subprocess.run([*command, *options], capture_output=True, text=True)
            if done.returncode or not complete(new):
                raise MissingCounterpart(
                    f"{name} could not be fetched with Maven into {jars} (no network?):\n" + (done.stdout + done.stderr)[-2000:]
                )
            if jars.exists():
                shutil.rmtree(jars)  # an incomplete folder that somebody made by hand
            new.rename(jars)
        return jars


def _complete(jars: Path, version: str) -> bool:
    return all((jars / f"{jar}-{version}.jar").exists() for jar in ("kafka_2.13", "kafka-clients", "kafka-tools"))


@cache
def class_path(version: str) -> str:
    # 3.9 brings its own slf4j binding beside ours; only one may be on the path.
    return ":".join(sorted(str(jar) for jar in kafka_jars(version).glob("*.jar") if "reload4j" not in jar.name))


def java_command(
    version: str,
    main_class: str,
    *args: str,
    jvm: Sequence[str] | None = None,
    log_level: str = "warn",
    jars: Iterable[Path] = (),
) -> list[str]:
    """The command that runs `main_class`, or a source file, with Kafka's jars and `jars`. Default `jvm`: for a short run."""
    java = program("java", "install a Java 17 runtime (Debian: `apt-get install openjdk-17-jre-headless`)")
    if jvm is None:
        jvm = (*QUICK_JVM, "-Xshare:auto", "-Xlog:cds*=off", f"-XX:SharedArchiveFile={_class_archive(version)}")
    logging = f"-Dorg.slf4j.simpleLogger.defaultLogLevel={log_level}"
    return [java, *jvm, logging, "-cp", ":".join([class_path(version), *map(str, jars)]), main_class, *args]


def run_tool(
    version: str,
    main_class: str,
    *args: str,
    input: str | None = None,
    timeout: float = 180,
    check: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run one of Kafka's tools. A short name is looked up in the packages of TOOLS."""
    if main_class.endswith(".ConsumerGroupCommand") and "--timeout" not in args:
        # The tool's own timeout is five seconds, too short on a busy machine.
        args += ("--timeout", "60000")
    command = java_command(version, tool_class(version, main_class), *args)
    done = subprocess.run(command, input=input, capture_output=True, text=True, timeout=timeout)
    if check and done.returncode:
        raise AssertionError(f"{main_class} {' '.join(args)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done


@cache
def _class_archive(version: str) -> Path:
    """A class data sharing archive for Kafka's tools: they start in half the time. The JVM ignores an archive it cannot use."""
    java = Path(program("java", "install a Java 17 runtime")).resolve()
    key = f"{java}:{java.stat().st_mtime_ns}:{class_path(version)}"
    with fetching(f"kafka-{version}-{hashlib.sha256(key.encode()).hexdigest()[:8]}.jsa") as archive:
        if not archive.exists():
            _archive_classes(version, archive)
    return archive


def _archive_classes(version: str, archive: Path) -> None:
    """Archive the classes that some tools load while they work."""
    from ottla.testing import Broker

    tools: list[tuple[str, tuple[str, ...], str]] = [
        ("TopicCommand", ("--create", "--topic", "t"), ""),
        ("ConfigCommand", ("--describe", "--entity-type", "topics"), ""),
        ("ConsoleProducer", ("--topic", "t"), "x\n"),
        ("ConsoleConsumer", ("--topic", "t", "--from-beginning", "--max-messages", "1"), ""),
        ("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", ("--describe", "--all-groups"), ""),
    ]
    with (
        tempfile.TemporaryDirectory(dir=cache_dir(), prefix=f"{archive.name}.") as scratch,
        Broker({"group.initial.rebalance.delay.ms": 0}) as broker,
    ):
        loaded, made = Path(scratch, "loaded"), Path(scratch, "made")
        names: dict[str, None] = {}
        for name, args, given in tools:
            words = ("--bootstrap-server", broker.bootstrap_servers, *args)
            jvm: tuple[str, ...] = (*QUICK_JVM, f"-XX:DumpLoadedClassList={loaded}")
            command = java_command(version, tool_class(version, name), *words, jvm=jvm)
            subprocess.run(command, input=given, capture_output=True, text=True, timeout=180)
            for line in loaded.read_text().splitlines():
                if not line.startswith("#") and " source: " not in line:
                    names[line.partition(" id: ")[0]] = None  # without the id, which differs in each list
        loaded.write_text("\n".join(names))
        jvm = (*QUICK_JVM, "-Xshare:dump", f"-XX:SharedClassListFile={loaded}", f"-XX:SharedArchiveFile={made}")
        subprocess.run(java_command(version, "-version", jvm=jvm), capture_output=True, timeout=300)
        if made.exists():
            made.rename(archive)


# Tools that are not simply `org.apache.kafka.tools.<name>`; the second entry is where 3.9 still has them.
TOOLS: Mapping[str, tuple[str, str]] = {
    "AclCommand": ("org.apache.kafka.tools.AclCommand", "kafka.admin.AclCommand"),
    "BrokerApiVersionsCommand": ("org.apache.kafka.tools.BrokerApiVersionsCommand", "kafka.admin.BrokerApiVersionsCommand"),
    "ConfigCommand": ("org.apache.kafka.tools.ConfigCommand", "kafka.admin.ConfigCommand"),
    "ConsoleConsumer": ("org.apache.kafka.tools.consumer.ConsoleConsumer",) * 2,
    "ConsoleProducer": ("org.apache.kafka.tools.ConsoleProducer", "kafka.tools.ConsoleProducer"),
    "DumpLogSegments": ("org.apache.kafka.tools.DumpLogSegments", "kafka.tools.DumpLogSegments"),
    "StorageTool": ("kafka.tools.StorageTool",) * 2,
}


def tool_class(version: str, name: str) -> str:
    if "." in name:
        return name
    candidates: list[str] = [*TOOLS.get(name, ()), f"org.apache.kafka.tools.{name}"]
    for candidate in candidates:
        if _has_class(version, candidate):
            return candidate
    raise MissingCounterpart(f"no tool {name} in the jars of Apache Kafka {version}")


@cache
def _has_class(version: str, name: str) -> bool:
    entry = name.replace(".", "/") + ".class"
    for jar in (f"kafka-tools-{version}.jar", f"kafka_2.13-{version}.jar", f"kafka-server-{version}.jar"):
        path = kafka_jars(version) / jar
        if path.exists():
            with zipfile.ZipFile(path) as content:
                if entry in content.namelist():
                    return True
    return False


# --- Debian's programs ---------------------------------------------------------------------------------------------------


def kcat() -> str:
    """The path of kcat, installed from Debian's package if possible."""
    return debian_program("kcat", "kcat")


def chromium() -> str:
    """The path of the browser Chromium, installed from Debian's package if possible."""
    return debian_program("chromium", "chromium")


@cache
def debian_program(name: str, package: str) -> str:
    """The path of a program, installed from its Debian package if it is missing and this process may do so."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    found = shutil.which(name, path=path)
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        with fetching(package):
            quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            # Another test may be installing another package.
            wait = ["-o", "DPkg::Lock::Timeout=300"]
            subprocess.run(["apt-get", *wait, "install", "-y", "-q", package], capture_output=True, env=quiet)
        found = shutil.which(name, path=path)
    return found or program(name, f"install it (Debian: `apt-get install {package}`)")


# --- processes -----------------------------------------------------------------------------------------------------------


def free_ports(count: int) -> list[int]:
    return [free_port() for _ in range(count)]


def _ends_with_us(command: Sequence[str]) -> list[str]:
    """The command with PR_SET_PDEATHSIG: the kernel kills it when the thread that started it ends, also by a kill."""
    setpriv = program("setpriv", "it is part of util-linux (Debian: `apt-get install util-linux`)")
    return [setpriv, "--pdeathsig", "KILL", *command]


_starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="starts processes")


def halt(process: subprocess.Popen[bytes]) -> None:
    """Send SIGSTOP and wait until the process has stopped: on a busy machine it runs on for a while."""
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)


def popen(command: Sequence[str], *, here: bool = False, **options: Any) -> subprocess.Popen[bytes]:
    """Start a process that ends with this one. A thread that lives as long as this process starts it; with `here` the calling
    thread does, and the process ends with that thread."""
    start: Callable[[], subprocess.Popen[bytes]] = partial(subprocess.Popen, _ends_with_us(command), **options)  # type: ignore[assignment]
    return start() if here else _starter.submit(start).result()


class Running:
    """A context manager that starts on entry and closes on exit, also if the start fails."""

    def start(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class Service(Running):
    """A server process with its own directory; its output goes to `dir/output.log`."""

    name = "service"
    ready_timeout_s = 180.0

    def __init__(self, dir: str | Path | None = None) -> None:
        self._own_dir = dir is None
        self.dir = Path(dir) if dir is not None else Path(tempfile.mkdtemp(prefix=f"ottla-{self.name}-"))
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self.process is not None, f"{self.name} is not running"
        return self.process.pid

    @property
    def output(self) -> str:
        path = self.dir / "output.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def command(self) -> list[str]:
        raise NotImplementedError

    def is_ready(self) -> bool:
        raise NotImplementedError

    def start(self) -> None:
        self.launch()
        self.await_ready()

    def launch(self) -> None:
        with open(self.dir / "output.log", "ab") as log:
            # Its own session: Ctrl-C reaches pytest only, and stop() ends the processes in order.
            self.process = popen(self.command(), stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)

    def await_ready(self) -> None:
        assert self.process is not None
        deadline = time.monotonic() + self.ready_timeout_s
        while not self.is_ready():
            code = self.process.poll()
            if code is not None or time.monotonic() > deadline:
                why = f"ended with {code}" if code is not None else f"was not ready in {self.ready_timeout_s:.0f} s"
                text = self.output[-4000:]
                self.kill()
                raise RuntimeError(f"{self.name} {why}:\n{text}")
            time.sleep(0.05)

    def stop(self, timeout: float = 30) -> int:
        """Stop with SIGTERM, or kill after the timeout. Return the exit code."""
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout)
            except subprocess.TimeoutExpired:
                self.process.kill()
        code = self.process.wait()
        self.process = None
        return code

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def close(self) -> None:
        self.stop()
        if self._own_dir:
            shutil.rmtree(self.dir, ignore_errors=True)


class ZooKeeper(Service):
    """ZooKeeper 3.8.4, from the jars of Kafka 3.9.2."""

    name = "zookeeper"

    def __init__(self, dir: str | Path | None = None) -> None:
        super().__init__(dir)
        (self.port,) = free_ports(1)
        self.connect = f"127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        config = self.dir / "zoo.cfg"
        config.write_text(
            f"dataDir={self.dir}/data\nclientPort={self.port}\nclientPortAddress=127.0.0.1\n"
            "tickTime=250\nminSessionTimeout=1000\nmaxSessionTimeout=60000\n"  # as `ottla cluster up` sets it
            "admin.enableServer=false\n4lw.commands.whitelist=ruok,srvr\nmaxClientCnxns=0\n"
        )
        return java_command(KAFKA_3, "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(config))

    def is_ready(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"ruok")
                return connection.recv(4) == b"imok"
        except OSError:
            return False


class ApacheKafka(Service):
    """One real broker: 4.x as its own KRaft controller, 3.x on a ZooKeeper started with it.

    Settings are Kafka's, as keywords with `_` for `.`, or with their own names: `ApacheKafka("4.3.0", **{"num.partitions": 3})`.
    `data_dir` (log.dirs) survives stop() and start(), and is kept after the context if it was given.
    """

    name = "kafka"

    def __init__(
        self,
        version: str = KAFKA_4,
        *,
        data_dir: str | Path | None = None,
        jvm: Sequence[str] | None = None,
        zookeeper: str | None = None,
        broker_id: int = 1,
        **settings: Any,
    ) -> None:
        super().__init__()
        kafka_jars(version)
        self.version = version
        self.jvm = jvm
        self.broker_id = broker_id
        self.data_dir = Path(data_dir) if data_dir is not None else self.dir / "data"
        self.settings = {name.replace("_", "."): str(value) for name, value in settings.items()}
        self.kraft = int(version.split(".")[0]) >= 4
        self.port, self._controller_port = free_ports(2)
        self.bootstrap_servers = f"127.0.0.1:{self.port}"
        self.zookeeper: ZooKeeper | None = None
        self.zookeeper_connect = zookeeper
        self.voters: str | None = None  # controllers of one quorum share a cluster id
        self.cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes)[:22].decode().replace("-", "a")

    @property
    def controller_address(self) -> str:
        return f"127.0.0.1:{self._controller_port}"

    def properties(self) -> dict[str, str]:
        plain = f"PLAINTEXT://127.0.0.1:{self.port}"
        base = {
            "log.dirs": str(self.data_dir),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
        }
        if self.kraft:
            controller = self.controller_address
            quorum = "controller.quorum.bootstrap.servers" if self.voters is None else "controller.quorum.voters"
            base |= {
                "process.roles": "broker,controller",
                "node.id": str(self.broker_id),
                quorum: self.voters or controller,
                "listeners": f"{plain},CONTROLLER://{controller}",
                "advertised.listeners": f"{plain},CONTROLLER://{controller}",
                "controller.listener.names": "CONTROLLER",
                "share.coordinator.state.topic.replication.factor": "1",
                "share.coordinator.state.topic.min.isr": "1",
            }
        else:
            base |= {"broker.id": str(self.broker_id), "listeners": plain, "zookeeper.connect": str(self.zookeeper_connect)}
        return base | self.settings

    def launch(self) -> None:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        if not self.kraft and self.zookeeper_connect is None:
            self.zookeeper = ZooKeeper(self.dir / "zookeeper")
            self.zookeeper.dir.mkdir()
            self.zookeeper.start()
            self.zookeeper_connect = self.zookeeper.connect
        self.config = self.dir / "server.properties"
        self.config.write_text("".join(f"{name}={value}\n" for name, value in self.properties().items()))
        if self.kraft and not (self.data_dir / "meta.properties").exists():
            alone = ["--standalone"] if self.voters is None else []
            run_tool(self.version, "StorageTool", "format", *alone, "-t", self.cluster_id, "-c", str(self.config), check=True)
        super().launch()

    def command(self) -> list[str]:
        return java_command(self.version, "kafka.Kafka", str(self.config), jvm=self.jvm)

    def is_ready(self) -> bool:
        return serves(self.port)

    def close(self) -> None:
        self.stop()
        if self.zookeeper is not None:
            self.zookeeper.close()
        super().close()


class ApacheCluster(Running):
    """Several real brokers: 4.x as their own KRaft quorum, 3.x on one ZooKeeper. Settings as ApacheKafka has them."""

    def __init__(
        self,
        version: str = KAFKA_4,
        count: int = 3,
        *,
        jvm: Sequence[str] | None = None,
        dir: str | Path | None = None,
        **settings: Any,
    ) -> None:
        copies = min(3, count)
        shared: dict[str, Any] = {
            "default.replication.factor": copies,
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": min(2, copies),
        }
        self.version = version
        self._dir = Path(tempfile.mkdtemp(prefix="ottla-kafkas-", dir=dir))
        self.zookeeper = None if int(version.split(".")[0]) >= 4 else ZooKeeper()
        self.brokers = [
            ApacheKafka(
                version,
                jvm=jvm,
                data_dir=self._dir / f"data-{number}",
                broker_id=number,
                zookeeper=self.zookeeper.connect if self.zookeeper is not None else None,
                **(shared | settings),
            )
            for number in range(1, count + 1)
        ]
        if self.zookeeper is None:
            voters = ",".join(f"{broker.broker_id}@{broker.controller_address}" for broker in self.brokers)
            for broker in self.brokers:
                broker.voters, broker.cluster_id = voters, self.brokers[0].cluster_id
        self.bootstrap_servers = ",".join(broker.bootstrap_servers for broker in self.brokers)

    @property
    def output(self) -> str:
        return "".join(broker.output for broker in self.brokers)

    def start(self) -> None:
        if self.zookeeper is not None:
            self.zookeeper.start()
        for broker in self.brokers:
            broker.launch()
        for broker in self.brokers:
            broker.await_ready()

    def close(self) -> None:
        for broker in self.brokers:
            broker.kill()
            broker.close()
        if self.zookeeper is not None:
            self.zookeeper.close()
        shutil.rmtree(self._dir, ignore_errors=True)


class OttlaCluster(Service):
    """`ottla cluster up` of this checkout: a ZooKeeper and brokers, in a directory of its own."""

    name = "ottla-cluster"
    ready_timeout_s = 180.0

    def __init__(self, count: int = 3, *, dir: str | Path | None = None, source: Path | None = None, **settings: Any) -> None:
        super().__init__(dir)
        kafka_jars(KAFKA_3)  # where `up` finds a ZooKeeper
        self.count = count
        self.source = source
        # With many tests at once a process may get no CPU for longer than a session of `up`.
        self.settings = {"zookeeper.session.timeout.ms": "6000"}
        self.settings |= {name.replace("_", "."): str(value) for name, value in settings.items()}

    def command(self) -> list[str]:
        # Variables that choose the broker under test are not settings.
        path = ["env", "-u", "OTTLA_COMPAT_BROKERS", "-u", "OTTLA_COMPAT_BROKER"]
        path += [f"PYTHONPATH={self.source}"] if self.source else []
        words = [word for name, value in self.settings.items() for word in ("--set", f"{name}={value}")]
        up = [
            sys.executable,
            "-P",
            "-m",
            "ottla",
            "cluster",
            "up",
            "--json",
            "--brokers",
            str(self.count),
            "-d",
            f"{self.dir}/data",
        ]
        return [*path, *up, "--port", "0", "--zookeeper-port", "0", *words]

    @property
    def told(self) -> dict[str, Any] | None:
        """The output of `up` when all brokers are registered."""
        text = self.output
        begin, end = text.find("{\n"), text.find("\n}\n")
        if begin < 0 or end < 0:
            return None
        found: dict[str, Any] = json.loads(text[begin : end + 2])
        return found

    def is_ready(self) -> bool:
        return self.told is not None

    @property
    def bootstrap_servers(self) -> str:
        assert self.told is not None
        return str(self.told["bootstrap_servers"])

    @property
    def broker_logs(self) -> str:
        return "".join(path.read_text(errors="replace") for path in sorted(self.dir.glob("data/broker-*/broker.log")))


def serves(port: int) -> bool:
    """Whether a broker on 127.0.0.1 answers Metadata and lists itself."""
    body = struct.pack(">hhih", 3, 1, 7, -1) + struct.pack(">i", 0)  # Metadata v1, no topics: brokers only
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            connection.sendall(struct.pack(">i", len(body)) + body)
            reply = b""
            while len(reply) < 12:
                part = connection.recv(4096)
                if not part:
                    return False
                reply += part
        correlation, brokers = struct.unpack_from(">ii", reply, 4)
        return bool(correlation == 7 and brokers > 0)
    except OSError:
        return False
