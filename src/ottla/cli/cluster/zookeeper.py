"""Finds the jars of a ZooKeeper server, and builds the command that runs it.

Looks for Debian's package, then in the cache (`OTTLA_CACHE`, else ~/.cache/ottla), and finally downloads the jars into the cache
with Maven. A folder of the cache is complete: it is filled under another name and renamed.
"""

from __future__ import annotations

import os
import shlex
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
    " downloads its jars once; or use a running one with --zookeeper HOST:PORT/CHROOT"
)

_DEBIAN = ("zookeeper", "zookeeper-jute", "slf4j-api", "slf4j-log4j12", "log4j-1.2", "metrics-core", "snappy-java", "commons-cli")
# The server needs the last two without declaring them.
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
    """The jars of a server, downloaded if there are none. Failure says what to install."""
    found = from_debian(DEBIAN_JARS) or from_cache(cache_dir())
    return found or _fetch(cache_dir() / f"zookeeper-{VERSION}")


def from_debian(directory: Path) -> list[Path]:
    jars = [directory / f"{name}.jar" for name in _DEBIAN]
    jars += [jar for jar in sorted(directory.glob("netty-*.jar")) if ".Final" not in jar.name]  # each jar has two names there
    found = [jar for jar in jars if jar.exists()]
    return found if directory / "zookeeper.jar" in found else []


def from_cache(directory: Path) -> list[Path]:
    """The jars of a ZooKeeper folder, or of an Apache Kafka folder up to 3.9, which includes ZooKeeper."""
    for folder in [*sorted(directory.glob("zookeeper-*"), reverse=True), *sorted(directory.glob("kafka-3*"), reverse=True)]:
        # slf4j warns about a second logger.
        jars = [jar for jar in sorted(folder.glob("*.jar")) if not jar.name.startswith(("kafka", "slf4j-simple"))]
        if any(jar.name.startswith("zookeeper-3") for jar in jars):
            return jars
    return []


def _fetch(folder: Path) -> list[Path]:
    maven = shutil.which("mvn")
    if maven is None:
        raise Failure("found neither ZooKeeper nor Maven to download it", INSTALL)
    note(f"downloading ZooKeeper {VERSION} with Maven into {folder}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".zookeeper.") as scratch:
        pom, new = Path(scratch, "pom.xml"), Path(scratch, "jars")
        pom.write_text(_POM)
        command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={new}"]
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        if done.returncode or not (new / f"zookeeper-{VERSION}.jar").exists():
            said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
            raise Failure(f"Maven could not download ZooKeeper: {said[0] if said else 'no output'}", INSTALL)
        if not folder.exists():
            new.rename(folder)
    return sorted(folder.glob("*.jar"))


def server_command(jars: Sequence[Path], directory: Path, port: int) -> list[str]:
    """Write the server's configuration into `directory` and return the command that runs it on 127.0.0.1.

    It is a script, because the class path has a hundred jars: people shall be able to read and repeat the command.
    """
    java = shutil.which("java")
    if java is None:
        raise Failure("ZooKeeper needs Java, which is not installed", INSTALL_JAVA)
    directory.mkdir(parents=True, exist_ok=True)
    config = directory / "zoo.cfg"
    config.write_text(
        f"dataDir={directory.absolute() / 'data'}\nclientPort={port}\nclientPortAddress=127.0.0.1\n"
        # ZooKeeper expires sessions at ticks. Longer ticks are for ensembles of several servers.
        "tickTime=250\nminSessionTimeout=1000\nmaxSessionTimeout=60000\n"
        "maxClientCnxns=0\nadmin.enableServer=false\n4lw.commands.whitelist=ruok,srvr\n"
        "autopurge.snapRetainCount=3\nautopurge.purgeInterval=1\n"
    )
    # The jars have log4j or logback, depending on their source.
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
    server = [java, *JVM, *logging, "-cp", ":".join(map(str, jars)), MAIN_CLASS, str(config.absolute())]
    script = directory / "start.sh"
    script.write_text(f"exec {shlex.join(server)}\n")
    return ["sh", str(script)]
