"""Access to Spark's JVM objects through py4j. The only module that touches them.

These are parts of Spark, Hadoop and JDBC that PySpark has no Python API for.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from subprocess import TimeoutExpired
from typing import TYPE_CHECKING, Any, cast

from ottla.pipelines.spark_errors import is_incompatible_class

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def _jvm(spark: SparkSession) -> Any:
    return cast(Any, spark._jvm)


class FileSystem:
    """The Hadoop file system that holds `location`: the local disk, HDFS, S3 or any other that Spark is configured for."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        self._jvm = _jvm(spark)
        self._files = self._path(location).getFileSystem(cast(Any, spark)._jsc.hadoopConfiguration())

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(path)

    def exists(self, path: str) -> bool:
        return bool(self._files.exists(self._path(path)))

    def read_text(self, path: str) -> str | None:
        """The file's text, or None if there is no such file."""
        if not self.exists(path):
            return None
        stream = self._files.open(self._path(path))
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream)).decode()
        finally:
            stream.close()

    def write_text(self, path: str, text: str) -> None:
        stream = self._files.create(self._path(path), True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def rename(self, path: str, to: str) -> bool:
        return bool(self._files.rename(self._path(path), self._path(to)))

    def make_directory(self, path: str) -> None:
        self._files.mkdirs(self._path(path))


class JdbcConnection:
    """A database connection of the JVM, by Spark's JDBC options. One transaction at a time, no auto-commit."""

    def __init__(self, spark: SparkSession, options: Mapping[str, str]) -> None:
        jvm = _jvm(spark)
        properties = jvm.java.util.Properties()
        for name, value in options.items():
            if name not in ("url", "driver"):
                properties.setProperty(name, value)
        if "driver" in options:
            jvm.org.apache.spark.sql.execution.datasources.jdbc.DriverRegistry.register(options["driver"])
        self._connection = jvm.java.sql.DriverManager.getConnection(options["url"], properties)
        self._connection.setAutoCommit(False)
        # Quotes names as Spark does when it creates the table: MySQL has quotes of its own.
        self._dialect = jvm.org.apache.spark.sql.jdbc.JdbcDialects.get(options["url"])

    def quoted(self, names: Iterable[str]) -> str:
        return ", ".join(self._dialect.quoteIdentifier(name) for name in names)

    def has_table(self, name: str) -> bool:
        tables = self._connection.getMetaData()
        # Databases store unquoted names in upper or lower case.
        for spelt in {name, name.upper(), name.lower()}:
            found = tables.getTables(None, None, spelt, None)
            try:
                if found.next():
                    return True
            finally:
                found.close()
        return False

    def execute(self, statement: str, *parameters: str | int) -> None:
        if parameters:
            self._prepared(statement, parameters).executeUpdate()
        else:
            self._connection.createStatement().executeUpdate(statement)

    def text_and_number(self, query: str, *parameters: str | int) -> tuple[str, int] | None:
        """The two columns of the first row, or None if there is no row."""
        found = self._prepared(query, parameters).executeQuery()
        return (found.getString(1), int(found.getLong(2))) if found.next() else None

    def _prepared(self, statement: str, parameters: tuple[str | int, ...]) -> Any:
        prepared = self._connection.prepareStatement(statement)
        for index, value in enumerate(parameters, 1):
            if isinstance(value, str):
                prepared.setString(index, value)
            else:
                prepared.setLong(index, value)
        return prepared

    def commit(self) -> None:
        self._connection.commit()

    def rollback(self) -> None:
        self._connection.rollback()

    def close(self) -> None:
        self._connection.close()


def check_streaming(frame: DataFrame, output_mode: str) -> None:
    """Raises what Spark raises at the start of a query it cannot run (an unbounded join, an aggregate without a watermark)."""
    jvm = _jvm(frame.sparkSession)
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    mode = {"append": modes.Append, "update": modes.Update, "complete": modes.Complete}[output_mode]()
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    checker.checkForStreaming(cast(Any, frame._jdf).queryExecution().analyzed(), mode)


def is_in_one_task(frame: DataFrame) -> bool:
    """Whether the frame is a micro-batch of a single task. Spark represents a micro-batch as an RDD of known partitions."""
    leaves = cast(Any, frame._jdf).queryExecution().logical().collectLeaves()
    if leaves.size() != 1 or leaves.head().nodeName() != "LogicalRDD":
        return False
    return int(leaves.head().rdd().getNumPartitions()) == 1


def observed_metrics(spark: SparkSession, query_id: str, names: Iterable[str]) -> dict[str, list[int]]:
    """The counts of the observed metrics in the micro-batch that the query runs or ran last. A metric may be missing before.

    `spark` must be the session that started the query.
    """
    query: Any = spark.streams.get(query_id)
    assert query is not None, f"query {query_id} is not running"
    metrics = query._jsq.streamingQuery().lastExecution().observedMetrics()
    rows = {name: metrics.get(name).get() for name in names if metrics.contains(name)}
    return {name: [int(row.getLong(index)) for index in range(row.size())] for name, row in rows.items()}


def metrics_add_up(spark: SparkSession) -> bool:
    """Whether observed metrics sum the attempts at a batch. Since Spark 4.3 they are those of the last attempt."""
    return tuple(int(part) for part in spark.version.split(".")[:2]) < (4, 3)


# Plan nodes with one child that make each row of one row of the child.
_ASKS_THE_CLOCK = re.compile(r"\b(now|current_timestamp|current_date|current_time|localtimestamp|unix_timestamp)\(")
_BY_ROW = frozenset({"Filter", "SubqueryAlias", "Generate", "EventTimeWatermark", "CollectMetrics", "ResolvedHint"})
_JOINS_BY_LEFT_ROW = frozenset({"Inner", "Cross", "LeftOuter", "LeftSemi", "LeftAnti"})


def traced(frame: DataFrame, column: str) -> DataFrame | None:
    """The frame with a column that its input has but the query on it left out. None if its rows do not each come of one row.

    Adds the column to each projection between. Aggregations, windows, functions over partitions and others end the search, and
    so does a query that may have other rows when it runs again.
    """
    plan = cast(Any, frame._jdf).queryExecution().analyzed()
    if frame.isStreaming or not plan.deterministic() or _ASKS_THE_CLOCK.search(plan.toString()):
        return None
    found = _traced(_jvm(frame.sparkSession), plan, column)
    if found is None:
        return None
    from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

    spark: Any = frame.sparkSession
    return ClassicDataFrame(spark._jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, found[0]), spark)


def _traced(jvm: Any, node: Any, column: str) -> tuple[Any, Any] | None:
    """The plan with the attribute of that name in its output, and the attribute."""
    for attribute in _items(node.output()):
        if attribute.name() == column:
            return node, attribute
    kind = node.nodeName()
    if kind == "View":
        return _traced(jvm, node.child(), column)
    children = _items(node.children())
    found = [_traced(jvm, child, column) for child in children]
    hits = [index for index, each in enumerate(found) if each is not None]
    if len(hits) != 1 or (hit := found[hits[0]]) is None:
        return None
    child, attribute = hit
    if kind == "Project":
        return jvm.org.apache.spark.sql.catalyst.plans.logical.Project(
            node.projectList().appended(attribute).toSeq(), child
        ), attribute
    if kind == "Join":
        joins = node.joinType().toString()
        if not (joins in _JOINS_BY_LEFT_ROW and hits == [0]) and joins not in ("Inner", "Cross"):
            return None
    elif kind not in _BY_ROW:
        return None
    children[hits[0]] = child
    return node.withNewChildren(_seq(jvm, children)), attribute


def _items(seq: Any) -> list[Any]:
    return [seq.apply(index) for index in range(seq.size())]


def _seq(jvm: Any, items: list[Any]) -> Any:
    given = jvm.java.util.ArrayList()
    for each in items:
        given.add(each)
    return jvm.scala.jdk.javaapi.CollectionConverters.asScala(given).toSeq()


def wait_for_listeners(spark: SparkSession, timeout_ms: int) -> None:
    """Return when Spark has delivered all queued events to its listeners."""
    cast(Any, spark.sparkContext)._jsc.sc().listenerBus().waitUntilEmpty(timeout_ms)


def has_class(spark: SparkSession, name: str) -> bool:
    """Whether the JVM finds the class. True also for a class of a jar made for another Spark release."""
    jvm = _jvm(spark)
    try:
        jvm.org.apache.spark.util.Utils.classForName(name, True, False)
        return True
    except Exception as error:
        if is_incompatible_class(error):
            return True
        try:
            jvm.java.lang.Class.forName(name)
            return True
        except Exception:
            return False


def has_ended(error: BaseException, timeout_s: float = 5) -> bool:
    """Whether `error` comes from the end of Spark's Java process. Its connections break a moment before the process ends."""
    if "pyspark" not in sys.modules or not (isinstance(error, OSError) or type(error).__module__.startswith("py4j")):
        return False
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    try:
        return process is not None and process.wait(timeout_s) is not None
    except TimeoutExpired:
        return False
