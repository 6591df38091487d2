"""The Spark that a pipeline runs on.

Owns: building the session with what exactly once needs, and shipping this package to executors that do not have it.
"""

from __future__ import annotations

import os
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.pipelines import scratch
from ottla.pipelines.failure import PipelineError
from ottla.pipelines.java import java_home
from ottla.pipelines.reading import first_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What a user may not change: see `producing` for the first two.
_FORCED = {
    "spark.speculation": "false",
    "spark.stage.maxConsecutiveAttempts": "1",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.streaming.stopTimeout": "60s",
}
_LOCAL = {
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # A shuffle goes through the page cache here, and record batches are compressed already where that is worth it.
    "spark.shuffle.compress": "false",
}
_PACKAGES = ("ottla", "pyspark_ottla")


def start(name: str, master: str, conf: Mapping[str, str], *, ship: bool = True) -> SparkSession:
    """A session, or the one that runs already in this process. PipelineError where there is no Spark or no Java."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise PipelineError("PySpark is not installed", hint="pip install 'ottla[spark]'") from None
    if master.startswith("yarn") and not {"HADOOP_CONF_DIR", "YARN_CONF_DIR"} & os.environ.keys():
        raise PipelineError("Spark does not know where YARN is", hint="HADOOP_CONF_DIR names the directory of yarn-site.xml")
    home = java_home()
    if home is not None:
        os.environ["JAVA_HOME"] = home
    if "spark.pyspark.python" in conf:
        # PySpark looks into the environment alone; it is spark-submit that would have put it there.
        os.environ["PYSPARK_PYTHON"] = conf["spark.pyspark.python"]
    elif is_local(master):
        # The workers run this Python, whatever is first on the PATH.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    _quiet_python()
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in settings(master, conf).items():
        builder = builder.config(key, value)
    try:
        spark = builder.getOrCreate()
    except Exception as error:
        raise PipelineError(f"Spark does not start on {master}: {first_line(error)}") from error
    if ship and not is_local(master):
        # Executors of any cluster fetch it from the driver, and so does one that joins later.
        spark.sparkContext.addPyFile(package())
    return spark


def settings(master: str, conf: Mapping[str, str]) -> dict[str, str]:
    """All that Spark is told: ours, then the user's, then what nobody may change."""
    quiet = {} if "spark.driver.extraJavaOptions" in conf else _quiet_logs()
    return {**_DEFAULTS, **(_LOCAL if is_local(master) else {}), **quiet, **conf, **_FORCED}


def _quiet_python() -> None:
    """PySpark logs with a page of stack what it then raises, and we say in a line."""
    from pyspark.logger import PySparkLogger

    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


def is_local(master: str) -> bool:
    """Whether all its tasks run on the driver's machine."""
    return master.startswith("local")


def _quiet_logs() -> dict[str, str]:
    """Spark writes to stderr what it meets; a pipeline says itself what matters. Errors stay."""
    file = Path(tempfile.gettempdir()) / f"ottla-log4j2-{os.getuid()}.properties"
    text = (
        "rootLogger.level = error\nrootLogger.appenderRef.stderr.ref = console\n"
        "appender.console.type = Console\nappender.console.name = console\nappender.console.target = SYSTEM_ERR\n"
        "appender.console.layout.type = PatternLayout\n"
        "appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex{short}\n"
        # Spark takes the level of this one for that of all.
        "logger.repl.name = org.apache.spark.api.python.PythonGatewayServer\nlogger.repl.level = error\n"
        # They report with a page of stack what the pipeline's own error says in a line.
        + "".join(
            f"logger.q{number}.name = org.apache.spark.{name}\nlogger.q{number}.level = off\n"
            for number, name in enumerate(
                (
                    "sql.execution.streaming",
                    "executor.Executor",
                    "scheduler.TaskSetManager",
                    "util.SparkUncaughtExceptionHandler",
                    "sql.execution.datasources.v2",
                )
            )
        )
    )
    if not file.is_file() or file.read_text() != text:
        draft = file.with_suffix(f".{os.getpid()}")
        draft.write_text(text)
        draft.replace(file)
    return {"spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{file}"}


def package() -> str:
    """A zip of this package's Python sources, for executors that have what it needs (cramjam, crc32c, pyarrow) but not itself.

    Compiled modules cannot be loaded from a zip: there they run interpreted. Executors with Ottla installed do better with
    `ship = false` in [spark].
    """
    root = Path(__file__).resolve().parents[2]
    file = Path(tempfile.mkdtemp(prefix="package-", dir=scratch.directory())) / "ottla.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in _PACKAGES:
            for source in sorted((root / name).rglob("*.py")):
                archive.write(source, source.relative_to(root))
    return str(file)
