"""Starts the Spark session of a pipeline, with the settings that exactly once needs, and ships this package to executors."""

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
from ottla.pipelines.preflight import check_jars
from ottla.pipelines.spark_errors import first_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Fixed settings. `producing` says why it needs the first two.
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
    # Wide rows cross to Python in batches that stay in the processor's cache, and in memory that workers keep: by default malloc
    # returns what is large to the kernel, which has to clear each page again.
    "spark.sql.execution.arrow.maxBytesPerBatch": "1m",
    "spark.executorEnv.MALLOC_MMAP_THRESHOLD_": str(32 * 1024 * 1024),
    "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": str(64 * 1024 * 1024),
    "spark.executorEnv.ARROW_DEFAULT_MEMORY_POOL": "system",
    # For checkpoints on a local disk. Hadoop starts a process, chmod, for each file that it writes. This class writes one file
    # where the default writes two, the second with a checksum; Spark itself adds checksums to state.
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
}
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_LOCAL = {
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # A local shuffle stays in the page cache, and record batches are compressed already.
    "spark.shuffle.compress": "false",
}
_WITHOUT_LIMITS = {
    # Otherwise Spark 4.1 ends a query with Trigger.AvailableNow after one batch, which may be one that was begun before.
    "spark.sql.streaming.triggerAvailableNowWrapper.enabled": "true",
}
_PACKAGES = ("ottla", "pyspark_ottla")


def start(name: str, master: str, conf: Mapping[str, str], *, ship: bool = True) -> SparkSession:
    """The session of this process, started if there is none. PipelineError if Spark or Java is missing."""
    try:
        import pyspark
        from pyspark.sql import SparkSession
    except ImportError:
        raise PipelineError("PySpark is not installed", hint="install it with: pip install 'ottla[spark]'") from None
    check_jars(conf, pyspark.__version__)
    if master.startswith("yarn") and not {"HADOOP_CONF_DIR", "YARN_CONF_DIR"} & os.environ.keys():
        hint = "set HADOOP_CONF_DIR to the directory that holds yarn-site.xml"
        raise PipelineError("Spark does not know where YARN is", hint=hint)
    home = java_home()
    if home is not None:
        os.environ["JAVA_HOME"] = home
    if "spark.pyspark.python" in conf:
        # Without spark-submit, PySpark takes the Python of its workers from the environment alone.
        os.environ["PYSPARK_PYTHON"] = conf["spark.pyspark.python"]
    elif is_local(master):
        # Workers run the Python of this process, not the first on the PATH.
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
    if is_local(master):
        # Otherwise Spark looks for it in a Python process, which a loaded machine may start too slowly.
        with_data_source(spark)
    elif ship:
        # Executors fetch it from the driver, also those that join later.
        spark.sparkContext.addPyFile(package())
    return spark


def with_data_source(spark: SparkSession) -> SparkSession:
    """The session, in which `format("ottla")` works although another Python may be the first on the PATH."""
    from pyspark_ottla import DefaultSource

    if is_local(str(spark.sparkContext.master)):
        spark.sparkContext.pythonExec = sys.executable
    spark.dataSource.register(DefaultSource)
    return spark


def check_settings(spark: SparkSession) -> None:
    """PipelineError if the session lacks a setting that exactly once needs and that is fixed when Spark starts."""
    found = spark.sparkContext.getConf()
    for name in ("spark.speculation", "spark.stage.maxConsecutiveAttempts"):
        if found.get(name, "false" if name == "spark.speculation" else None) != _FORCED[name]:
            raise PipelineError(
                f"this Spark session has not {name}={_FORCED[name]}, which exactly once needs",
                hint="start Spark with ottla.spark.session() before any other session",
            )


def settings(master: str, conf: Mapping[str, str]) -> dict[str, str]:
    """All settings of Spark: the defaults, the user's, then the fixed ones."""
    from ottla.pipelines.data_source.read_limits import ARE_KNOWN

    java = conf.get(_JAVA_OPTIONS, "")
    return {
        **_DEFAULTS,
        **(_LOCAL if is_local(master) else {}),
        **({} if ARE_KNOWN else _WITHOUT_LIMITS),
        **conf,
        _JAVA_OPTIONS: java if "log4j" in java else f"{java} {_quiet_logs()}".strip(),
        **_FORCED,
    }


def _quiet_python() -> None:
    """Turn off PySpark's logging of errors that it also raises: the pipeline reports them in one line."""
    from pyspark.logger import PySparkLogger

    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


def is_local(master: str) -> bool:
    """Whether all tasks run on the driver's machine."""
    return master.startswith("local")


def _quiet_logs() -> str:
    """The option of Java that limits Spark's log on stderr to errors which the pipeline does not report itself."""
    file = Path(tempfile.gettempdir()) / f"ottla-log4j2-{os.getuid()}.properties"
    text = (
        "rootLogger.level = error\nrootLogger.appenderRef.stderr.ref = console\n"
        "appender.console.type = Console\nappender.console.name = console\nappender.console.target = SYSTEM_ERR\n"
        "appender.console.layout.type = PatternLayout\n"
        "appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex{short}\n"
        # Spark sets the root level from the level of this logger.
        "logger.repl.name = org.apache.spark.api.python.PythonGatewayServer\nlogger.repl.level = error\n"
        # These log stack traces of errors that the pipeline reports in one line.
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
    return f"-Dlog4j2.configurationFile=file:{file}"


def package() -> str:
    """A zip of this package for executors that have its dependencies (cramjam, crc32c, pyarrow) but not Ottla itself.

    Its modules run interpreted there: compiled modules cannot be loaded from a zip. Executors with Ottla installed are faster
    with `ship = false` in [spark].
    """
    root = Path(__file__).resolve().parents[2]
    file = Path(tempfile.mkdtemp(prefix="package-", dir=scratch.directory())) / "ottla.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in _PACKAGES:
            for source in sorted((root / name).rglob("*.py")):
                archive.write(source, source.relative_to(root))
    return str(file)
