"""Access to Spark's JVM objects through py4j. The only module that touches them.

These are parts of Spark, Hadoop and JDBC that PySpark has no Python API for.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from subprocess import TimeoutExpired
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ottla.pipelines.spark_errors import first_line, is_incompatible_class

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, Observation, SparkSession
    from pyspark.sql.types import DataType


def _jvm(spark: SparkSession) -> Any:
    return cast(Any, spark._jvm)


class FileSystem:
    """The Hadoop file system that holds `location`: the local disk, HDFS, S3 or any other that Spark is configured for."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        self._jvm = _jvm(spark)
        self._files = self._path(location).getFileSystem(cast(Any, spark)._jsc.hadoopConfiguration())
        self._is_local = str(self._files.getUri().getScheme()) == "file"

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(path)

    def exists(self, path: str) -> bool:
        return bool(self._files.exists(self._path(path)))

    def read_text(self, path: str) -> str | None:
        """The file's text, or None if there is no such file."""
        if self._is_local and path.startswith(("/", "file:/")):
            # Without five calls into the JVM.
            try:
                return Path("/" + path.removeprefix("file:").lstrip("/")).read_text(encoding="utf-8")
            except FileNotFoundError:
                return None
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

    def names(self, path: str) -> list[str]:
        """The names in a directory; none if there is no such directory."""
        if not self.exists(path):
            return []
        return [str(status.getPath().getName()) for status in self._files.listStatus(self._path(path))]

    def files_below(self, path: str) -> list[str]:
        """The files below a directory, by their paths relative to it."""
        root = str(self._files.makeQualified(self._path(path)).toUri().getPath()).rstrip("/")
        found, files = [], self._files.listFiles(self._path(path), True)
        while files.hasNext():
            found.append(str(files.next().getPath().toUri().getPath()).removeprefix(root).lstrip("/"))
        return found

    def delete(self, path: str) -> None:
        """Remove a file, or a directory with all it holds."""
        self._files.delete(self._path(path), True)

    def make_directory(self, path: str) -> None:
        self._files.mkdirs(self._path(path))


class JdbcConnection:
    """A database connection of the JVM, by Spark's JDBC options. One transaction at a time, no auto-commit."""

    def __init__(self, spark: SparkSession, options: Mapping[str, str]) -> None:
        self._jvm = jvm = _jvm(spark)
        self._spark = spark
        given = jvm.java.util.HashMap()
        for name, value in options.items():
            given.put(name, value)
        # Without the options of Spark itself: some drivers refuse properties that they do not know.
        of_spark = jvm.org.apache.spark.sql.execution.datasources.jdbc.JDBCOptions
        as_map = jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(given)
        properties = of_spark(options["url"], "none", as_map).asConnectionProperties()
        if "driver" in options:
            jvm.org.apache.spark.sql.execution.datasources.jdbc.DriverRegistry.register(options["driver"])
        self._connection = jvm.java.sql.DriverManager.getConnection(options["url"], properties)
        self._connection.setAutoCommit(False)
        # Quotes names and names types as Spark does when it creates a table: MySQL has words of its own.
        self._dialect = jvm.org.apache.spark.sql.jdbc.JdbcDialects.get(options["url"])

    def quoted(self, names: Iterable[str]) -> str:
        return ", ".join(self._dialect.quoteIdentifier(name) for name in names)

    def type_of(self, kind: DataType) -> str:
        """The database's type for a type of Spark's."""
        of_jvm = cast(Any, self._spark)._jsparkSession.parseDataType(kind.json())
        utils = self._jvm.org.apache.spark.sql.execution.datasources.jdbc.JdbcUtils
        return str(utils.getJdbcType(of_jvm, self._dialect).databaseTypeDefinition())

    def has(self, table: str) -> bool:
        """Whether the table can be read. Ends the transaction."""
        statement = self._connection.createStatement()
        try:
            statement.executeQuery(f"SELECT 1 FROM {table} WHERE 1 = 0").close()
            return True
        except Exception:
            return False
        finally:
            statement.close()
            self._connection.rollback()

    def tables_like(self, beside: str, prefix: str) -> list[str]:
        """The tables in the schema of the table `beside` whose names begin with `prefix`, in any case."""
        catalog, schema, _ = self._located(beside)
        found = self._rows(lambda about: about.getTables(catalog, schema, None, None), ("TABLE_NAME",))
        return [name for (name,) in found if name.lower().startswith(prefix.lower())]

    def unique_keys(self, table: str) -> list[list[str]]:
        """The columns of each unique index that holds for all rows."""
        catalog, schema, name = self._located(table)
        # Databases store unquoted names in upper or lower case.
        for spelt in dict.fromkeys((name, name.upper(), name.lower())):
            columns = ("INDEX_NAME", "COLUMN_NAME", "FILTER_CONDITION")
            rows = self._rows(partial(_index_info, catalog, schema, spelt), columns)
            keys: dict[str, list[str]] = {}
            for index, column, condition in rows:
                if index and column and not condition:
                    keys.setdefault(index, []).append(column)
            if keys:
                return list(keys.values())
        return []

    def _located(self, table: str) -> tuple[str | None, str | None, str]:
        """Catalog, schema and name of a table. MySQL has catalogs only."""
        place, _, name = table.replace('"', "").replace("`", "").rpartition(".")
        catalog, schema = self._connection.getCatalog(), self._connection.getSchema()
        if place:
            catalog, schema = (catalog, place) if schema is not None else (place, None)
        return catalog, schema, name

    def _rows(self, ask: Callable[[Any], Any], columns: tuple[str, ...]) -> list[tuple[str, ...]]:
        found = ask(self._connection.getMetaData())
        try:
            rows = []
            while found.next():
                rows.append(tuple(found.getString(column) or "" for column in columns))
            return rows
        finally:
            found.close()

    def execute(self, statement: str, *parameters: str | int) -> int:
        """The number of rows that the statement changed."""
        prepared = self._prepared(statement, parameters)
        try:
            return int(prepared.executeUpdate())
        finally:
            prepared.close()

    def text_and_number(self, query: str, *parameters: str | int) -> tuple[str, int] | None:
        """The two columns of the first row, or None if there is no row."""
        prepared = self._prepared(query, parameters)
        try:
            found = prepared.executeQuery()
            return (found.getString(1), int(found.getLong(2))) if found.next() else None
        finally:
            prepared.close()

    def number(self, query: str) -> int:
        prepared = self._prepared(query, ())
        try:
            found = prepared.executeQuery()
            found.next()
            return int(found.getLong(1))
        finally:
            prepared.close()

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


def _index_info(catalog: str | None, schema: str | None, table: str, about: Any) -> Any:
    return about.getIndexInfo(catalog, schema, table, True, True)


def delta_transaction(spark: SparkSession, path: str, app_id: str) -> int | None:
    """The last version that an application has committed to a Delta table, -1 if it has none. None if there is no table."""
    jvm = _jvm(spark)
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(cast(Any, spark)._jsparkSession, path)
    none = jvm.scala.Option.empty()
    snapshot = log.update(False, none, none)
    if not log.tableExists():
        return None
    found = snapshot.transactions().get(app_id)
    return int(found.get()) if found.isDefined() else -1


class IcebergTable:
    """The snapshots and branches of an Iceberg table."""

    def __init__(self, spark: SparkSession, name: str) -> None:
        jvm = _jvm(spark)
        self._table = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(cast(Any, spark)._jsparkSession, name)
        self._table.refresh()

    def head(self) -> int | None:
        """The snapshot that readers see. None if the table has none yet."""
        snapshot = self._table.currentSnapshot()
        return None if snapshot is None else int(snapshot.snapshotId())

    def last_batch(self, head: int, property: str, prefix: str) -> str | None:
        """What follows the prefix in this property of the last snapshot up to `head` whose property begins with it."""
        snapshot = self._table.snapshot(head)
        while snapshot is not None:
            value = snapshot.summary().get(property)
            if value is not None and value.startswith(prefix):
                return str(value.removeprefix(prefix))
            parent = snapshot.parentId()
            snapshot = None if parent is None else self._table.snapshot(parent)
        return None

    def create_branch(self, branch: str, snapshot: int) -> None:
        self._table.manageSnapshots().createBranch(branch, snapshot).commit()

    def publish(self, branch: str) -> str | None:
        """Let readers see the branch, and remove its name. Returns why not if readers' snapshot is no longer below the branch."""
        self._table.refresh()
        try:
            self._table.manageSnapshots().fastForwardBranch("main", branch).removeBranch(branch).commit()
        except Exception as error:
            return first_line(error)
        return None

    def remove_branches(self, prefix: str) -> None:
        names = [str(name) for name in self._table.refs().keySet() if str(name).startswith(prefix)]
        for name in names:
            self._table.manageSnapshots().removeBranch(name).commit()


@contextmanager
def computed(frame: DataFrame) -> Iterator[DataFrame]:
    """The rows of a frame, computed now and once, in Spark's memory or on its disks until the end of the block."""
    rows = frame.localCheckpoint()
    try:
        yield rows
    finally:
        cast(Any, rows)._jdf.queryExecution().logical().rdd().unpersist(False)


def observed(counts: Observation, timeout_s: float = 10.0) -> dict[str, Any]:
    """The metrics of an observation whose query has ended, or none if the query did not compute its rows."""
    future = cast(Any, counts)._jo.future()
    until = time.monotonic() + timeout_s
    while not future.isCompleted():
        if time.monotonic() >= until:
            return {}
        time.sleep(0.002)
    return dict(counts.get)


def check_streaming(frame: DataFrame, output_mode: str) -> None:
    """Raises what Spark raises at the start of a query it cannot run (an unbounded join, an aggregate without a watermark)."""
    jvm = _jvm(frame.sparkSession)
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    mode = {"append": modes.Append, "update": modes.Update, "complete": modes.Complete}[output_mode]()
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    checker.checkForStreaming(cast(Any, frame._jdf).queryExecution().analyzed(), mode)


class PlanNode(NamedTuple):
    name: str
    text: str
    """Its line in Spark's explanation of the plan."""
    is_streaming: bool


def analysed_plan(frame: DataFrame) -> tuple[str, list[PlanNode], bool]:
    """Spark's analysed plan: its text, its nodes from the top, and whether it calls Python functions."""
    plan = cast(Any, frame._jdf).queryExecution().analyzed()
    nodes: list[PlanNode] = []

    def visit(node: Any) -> None:
        nodes.append(PlanNode(str(node.nodeName()), str(node.simpleString(10_000)), bool(node.isStreaming())))
        children = node.children()
        for number in range(children.size()):
            visit(children.apply(number))

    visit(plan)
    python = _jvm(frame.sparkSession).org.apache.spark.sql.catalyst.trees.TreePattern.PYTHON_UDF()
    return str(plan.toString()), nodes, bool(plan.containsPattern(python))


def refresh_files(frame: DataFrame) -> None:
    """List the files of the static tables in a query anew. The next micro-batch of the query sees them."""
    leaves = cast(Any, frame._jdf).queryExecution().analyzed().collectLeaves()
    for number in range(leaves.size()):
        leaf = leaves.apply(number)
        if leaf.nodeName().startswith("LogicalRelation") or leaf.nodeName().startswith("Relation"):
            relation = leaf.relation()
            if relation.getClass().getSimpleName() == "HadoopFsRelation":
                relation.location().refresh()


def is_in_one_task(frame: DataFrame) -> bool:
    """Whether the frame is a micro-batch of a single task. Spark represents a micro-batch as an RDD of known partitions."""
    leaves = cast(Any, frame._jdf).queryExecution().logical().collectLeaves()
    if leaves.size() != 1 or leaves.head().nodeName() != "LogicalRDD":
        return False
    return int(leaves.head().rdd().getNumPartitions()) == 1


def arrow_rows(frame: DataFrame) -> pa.Table | None:
    """The rows of a frame, in the driver. None if there are more than Spark hands to a driver."""
    try:
        return frame.toArrow()
    except Exception as error:
        if "spark.driver.maxResultSize" not in str(error):
            raise
        return None


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


_STATEFUL_BY_TIME = frozenset({"Aggregate", "Deduplicate", "DeduplicateWithinWatermark"})
_WATERMARK = "spark.watermarkDelayMs"


@dataclass(frozen=True)
class EventTime:
    """The column by which an operator drops late rows: a time, or the end of a window."""

    name: str
    is_window: bool


def event_time_of(frame: DataFrame) -> EventTime | None:
    """By which column the first stateful operator of a stream drops late rows. None if it drops none, or by other rules."""
    node = _stateful(cast(Any, frame._jdf).queryExecution().analyzed())
    if node is None:
        return None
    child = _items(node.child().output())
    keys: set[Any] = set()
    kind = node.nodeName()
    for key in _items(node.groupingExpressions()) if kind == "Aggregate" else _items(node.keys()):
        keys |= {attribute.exprId().id() for attribute in _items(key.references().toSeq())}
    timed = [each for each in child if each.metadata().contains(_WATERMARK)]
    found = [each for each in timed if each.exprId().id() in keys]
    if not found and kind != "Aggregate":
        found = timed
    if not found:
        return None
    return EventTime(found[0].name(), found[0].dataType().typeName() == "struct")


def stateful_input(frame: DataFrame, column: str) -> DataFrame | None:
    """What the first stateful operator of a batch query reads, with a column of its input as `traced` finds it; or None."""
    node = _stateful(cast(Any, frame._jdf).queryExecution().analyzed())
    if node is None:
        return None
    from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

    spark: Any = frame.sparkSession
    rows = ClassicDataFrame(spark._jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, node.child()), spark)
    return traced(rows, column)


def _stateful(node: Any) -> Any:
    """The first stateful operator below plan nodes of one child."""
    while node.nodeName() not in _STATEFUL_BY_TIME:
        children = _items(node.children())
        if len(children) != 1:
            return None
        node = children[0]
    return node


def late_watermark_ms(spark: SparkSession, query_id: str) -> int | None:
    """The watermark behind which the micro-batch that the query ran last has dropped rows; None if it has dropped none."""
    query: Any = spark.streams.get(query_id)
    assert query is not None, f"query {query_id} is not running"
    nodes = [query._jsq.streamingQuery().lastExecution().executedPlan()]
    while nodes:
        node = nodes.pop()
        metric = node.metrics().get("numRowsDroppedByWatermark")
        if metric.isDefined() and metric.get().value() > 0:
            return int(node.eventTimeWatermarkForLateEvents().get())
        nodes += _items(node.children())
    return None


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


def ignore_sigterm(spark: SparkSession) -> None:
    """Let Spark's Java process ignore SIGTERM if this process started it. Then a signal to the process group stops the flows
    between two batches: this process has Java end last, and its death ends Java too. Python workers have a group of their own."""
    if _java_process() is not None:
        jvm = _jvm(spark)
        jvm.sun.misc.Signal.handle(jvm.sun.misc.Signal("TERM"), jvm.sun.misc.SignalHandler.SIG_IGN)


def _java_process() -> Any:
    """Spark's Java process if this process started it; None where Java started this process, as spark-submit does."""
    from pyspark import SparkContext

    return getattr(SparkContext._gateway, "proc", None)


def has_ended(error: BaseException, timeout_s: float = 5) -> bool:
    """Whether `error` comes from the end of Spark's Java process. Its connections break a moment before the process ends."""
    if "pyspark" not in sys.modules or not (isinstance(error, OSError) or type(error).__module__.startswith("py4j")):
        return False
    process = _java_process()
    try:
        return process is not None and process.wait(timeout_s) is not None
    except TimeoutExpired:
        return False
