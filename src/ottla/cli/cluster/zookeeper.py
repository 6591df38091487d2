"""Where a ZooKeeper server comes from on this machine, and the command that runs it.

Looked for in this order: Debian's package, the folders of the cache (`OTTLA_CACHE`, else ~/.cache/ottla), and at last Maven,
which fills such a folder once. Never installs anything else. A folder in the cache is whole: it is filled under another name and
renamed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ottla.cli.failure import Failure
from ottla.cli.output import note

VERSION = "3.8.4"
DEBIAN_JARS = Path("/usr/share/java")
MAIN_CLASS = "org.apache.zookeeper.server.ZooKeeperServerMain"
JVM = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

INSTALL_JAVA = "install a Java runtime, 11 or newer (Debian: `apt-get install default-jre-headless`)"
INSTALL = (
    "install ZooKeeper (Debian: `apt-get install zookeeper`, which starts no service) or Maven (`apt-get install maven`), which"
    " fetches its jars once; or name one that runs with --zookeeper HOST:PORT/CHROOT"
)

_DEBIAN = ("zookeeper", "zookeeper-jute", "slf4j-api", "slf4j-log4j12", "log4j-1.2", "metrics-core", "snappy-java", "commons-cli")
# The last two the server needs and does not name as dependencies of its own.
_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>ottla</groupId><artifactId>zookeeper</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.zookeeper</groupId><artifactId>zookeeper</artifactId><version>{VERSION}</version></dependency>
    <dependency><groupId>io.dropwizard.metrics</groupId><artifactId>metrics-core</artifactId><version>4.1.12.1</version></dependency>
    <dependency><groupId>org.xerial.snappy</groupId><artifactId>snappy-java</artifactId><version>1.1.10.5</version></dependency>
  </dependencies>
</project>
"""


def cache_dir() -> Path:
    return Path(os.environ.get("OTTLA_CACHE") or "~/.cache/ottla").expanduser()


def find() -> list[Path]:
    """The jars of a server; fetched if there are none. Failure: there is no way to get them, and what to install."""
    found = from_debian(DEBIAN_JARS) or from_cache(cache_dir())
    return found or _fetch(cache_dir() / f"zookeeper-{VERSION}")


def from_debian(directory: Path) -> list[Path]:
    jars = [directory / f"{name}.jar" for name in _DEBIAN]
    jars += [jar for jar in sorted(directory.glob("netty-*.jar")) if ".Final" not in jar.name]  # each is there by two names
    found = [jar for jar in jars if jar.exists()]
    return found if directory / "zookeeper.jar" in found else []


def from_cache(directory: Path) -> list[Path]:
    """A folder of ours, or one of Apache Kafka's, up to 3.9, which has a ZooKeeper among its jars."""
    for folder in [*sorted(directory.glob("zookeeper-*"), reverse=True), *sorted(directory.glob("kafka-3*"), reverse=True)]:
        # One logger is enough, and slf4j complains of two.
        jars = [jar for jar in sorted(folder.glob("*.jar")) if not jar.name.startswith(("kafka", "slf4j-simple"))]
        if any(jar.name.startswith("zookeeper-3") for jar in jars):
            return jars
    return []


def _fetch(folder: Path) -> list[Path]:
    maven = shutil.which("mvn")
    if maven is None:
        raise Failure("there is no ZooKeeper on this machine, and no Maven to fetch it", INSTALL)
    note(f"fetching ZooKeeper {VERSION} with Maven into {folder} (once)")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".zookeeper.") as scratch:
        pom, new = Path(scratch, "pom.xml"), Path(scratch, "jars")
        pom.write_text(_POM)
        command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={new}"]
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        if done.returncode or not (new / f"zookeeper-{VERSION}.jar").exists():
            said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
            raise Failure(f"Maven could not fetch ZooKeeper: {said[0] if said else 'it says nothing'}", INSTALL)
        if not folder.exists():
            new.rename(folder)
    return sorted(folder.glob("*.jar"))


def server_command(jars: Sequence[Path], directory: Path, port: int) -> list[str]:
    """Writes the server's files into `directory` and gives the command that runs it there, on loopback."""
    java = shutil.which("java")
    if java is None:
        raise Failure("ZooKeeper needs Java, and there is none", INSTALL_JAVA)
    directory.mkdir(parents=True, exist_ok=True)
    config = directory / "zoo.cfg"
    config.write_text(
        f"dataDir={directory.absolute() / 'data'}\nclientPort={port}\nclientPortAddress=127.0.0.1\n"
        # A session that is over is noticed at the next tick; ticks of seconds are for the members of an ensemble.
        "tickTime=250\nminSessionTimeout=1000\nmaxSessionTimeout=60000\n"
        "maxClientCnxns=0\nadmin.enableServer=false\n4lw.commands.whitelist=ruok,srvr\n"
        "autopurge.snapRetainCount=3\nautopurge.purgeInterval=1\n"
    )
    # Which of the two loggers there is depends on where the jars come from.
    log4j, logback = directory / "log4j.properties", directory / "logback.xml"
    log4j.write_text(
        "log4j.rootLogger=WARN, out\nlog4j.appender.out=org.apache.log4j.ConsoleAppender\n"
        "log4j.appender.out.layout=org.apache.log4j.PatternLayout\nlog4j.appender.out.layout.ConversionPattern=%d %p %m%n\n"
    )
    logback.write_text(
        '<configuration><appender name="out" class="ch.qos.logback.core.ConsoleAppender"><encoder><pattern>%d %p %m%n</pattern>'
        '</encoder></appender><root level="WARN"><appender-ref ref="out"/></root></configuration>\n'
    )
    logging = (f"-Dlog4j.configuration=file:{log4j.absolute()}", f"-Dlogback.configurationFile={logback.absolute()}")
    return [java, *JVM, *logging, "-cp", ":".join(map(str, jars)), MAIN_CLASS, str(config.absolute())]
