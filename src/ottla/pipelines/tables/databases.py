"""Tables of databases, through JDBC.

A batch is written to a staging table by Spark's tasks, and brought into the target in one database transaction, together with the
batch's number in the table `ottla_batches`.

Invariants
1. The first statement of the transaction claims the batch number: of two drivers one waits for the other, and then finds the
   number taken.
2. A staging table belongs to one attempt of one batch: its name ends with the producer id and epoch. A suspended driver that
   wakes up cannot write into the staging table of its successor.
3. The row `FLOW#fence` of `ottla_batches` has a producer id and epoch: attempts with an older one are refused. An upgrade writes
   it when it holds the flow, so that a driver that is in the midst of a batch does not bring it in afterwards.
4. A staging table is dropped after its batch. What killed drivers left is dropped before the next first batch of the flow.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING
from zlib import crc32

from ottla.pipelines import deletes, spark_errors
from ottla.pipelines.definitions import Flow, Table
from ottla.pipelines.deletes import DELETED
from ottla.pipelines.exactly_once import BatchTransaction
from ottla.pipelines.failure import PipelineError, Place
from ottla.pipelines.marker import Marker
from ottla.pipelines.secrets import resolved
from ottla.pipelines.spark_jvm import JdbcConnection, has_class
from ottla.pipelines.tables import changes, merge
from ottla.pipelines.tables.merge import VALID_FROM, Dialect
from ottla.types import ProducerIdAndEpoch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

BATCHES = "ottla_batches"
"""The database table that holds the last batch of each flow."""
_BATCHES_COLUMNS = "flow VARCHAR(400) NOT NULL PRIMARY KEY, query_id VARCHAR(40), batch_id BIGINT"


class DatabaseTable:
    """The target of one flow. `prepare` is called before the first batch."""

    def __init__(self, spark: SparkSession, flow: Flow, table: Table, group_id: str) -> None:
        self.spark, self.flow, self.table, self.group_id = spark, flow, table, group_id
        self.options = jdbc_options(spark, table.options, f"table {table.path!r}", table.place)
        self.dialect = merge.dialect_of(resolved(dict(table.options)["url"]))
        self._spelling: dict[str, str] = {}
        """Of the columns in the database, by the flow's names."""
        self._swept = False

    # Before the first batch

    def prepare(self, frame: DataFrame) -> None:
        """Create the table, or compare it with what the flow writes. PipelineError says what does not fit; nothing is written."""
        table = self.table
        if table.mode == "append":
            return
        dialect = self._dialect()
        changes.check(self.flow, table, frame)
        connection = JdbcConnection(self.spark, self.options)
        try:
            if not connection.has(table.path):
                self._create(connection, dialect, frame)
            found = self._columns_in_database()
            self._compare(connection, frame, found)
        finally:
            connection.close()

    def _dialect(self) -> Dialect:
        if self.dialect is None:
            raise PipelineError(
                f"mode={self.table.mode!r} is not supported for {dict(self.table.options)['url'].split('/')[0]}",
                self.table.place,
                hint="it works with PostgreSQL, MySQL, MariaDB, H2 and SQL Server",
            )
        return self.dialect

    def _create(self, connection: JdbcConnection, dialect: Dialect, frame: DataFrame) -> None:
        """As Spark would, with a primary key. Columns that only say whether a row deletes are left out."""
        given = column_types(self.options.get("createTableColumnTypes", ""))
        columns = []
        for name in deletes.data_columns(frame, self.table.delete_when):
            kind = frame.schema[name].dataType
            text = given.get(name.lower()) or self._type(connection, dialect, kind, is_key=name in self.table.key)
            columns.append((name, text))
        connection.execute(merge.create_table(dialect, self.table.path, columns, self.table.key, history=self.table.history))
        connection.commit()

    def _type(self, connection: JdbcConnection, dialect: Dialect, kind: DataType, *, is_key: bool) -> str:
        name = kind.simpleString()
        if is_key and name == "string":
            return dialect.key_text
        if name == "timestamp" and dialect in (merge.MYSQL, merge.MARIADB):
            return dialect.timestamp  # Spark's type there has no fractions of a second
        return connection.type_of(kind)

    def _columns_in_database(self) -> dict[str, str]:
        """Spark's types of the table's columns."""
        reader = self.spark.read.format("jdbc").options(**self.options).option("dbtable", self.table.path)
        return {field.name: field.dataType.simpleString() for field in reader.load().schema.fields}

    def _compare(self, connection: JdbcConnection, frame: DataFrame, found: Mapping[str, str]) -> None:
        table = self.table
        self._spelling = changes.columns_of(self.flow, table, frame, found, str.lower)
        uniques = [{name.lower() for name in columns} for columns in connection.unique_keys(table.path)]
        key = {name.lower() for name in table.key}
        names = ", ".join(table.key)
        if table.history:
            if any(unique <= key for unique in uniques):
                raise PipelineError(
                    f"table {table.path!r} has a unique key on {names}: it cannot hold several versions of a row",
                    table.place,
                    hint=f"make it ({names}, {VALID_FROM})",
                )
        elif key not in uniques:
            raise PipelineError(
                f"table {table.path!r} has no unique key on {names}",
                table.place,
                hint=f"add one: ALTER TABLE {table.path} ADD PRIMARY KEY ({names})",
            )

    # A batch

    def write(self, frame: DataFrame, marker: Marker, transaction: BatchTransaction) -> bool:
        """Write the batch, unless the database has it. Returns whether it was written."""
        table = self.table
        connection = JdbcConnection(self.spark, self.options)
        staging = ""
        try:
            if self._last_batch(connection, marker):
                frame.write.format("noop").mode("overwrite").save()
                return False
            self._sweep(connection)
            prefix, _, name = table.path.rpartition(".")
            place = f"{prefix}." if prefix else ""
            staging = (
                f"{place}{self._staging_prefix(name)}{transaction.producer.producer_id:x}_{transaction.producer.producer_epoch}"
            )
            columns, rows = self._stage(connection, frame, staging)
            self._check_staged(connection, staging, rows)
            if not self._claim(connection, marker):
                return False
            self._check_fence(connection, transaction.producer)
            for statement in self._statements(connection, staging, columns):
                connection.execute(statement)
            connection.commit()
            return True
        finally:
            with suppress(Exception):
                connection.rollback()
            if staging:
                # The batch is in, or failed for another reason: neither depends on this.
                with suppress(Exception):
                    connection.execute(f"DROP TABLE {staging}")
                    connection.commit()
            connection.close()

    def _staging_prefix(self, name: str) -> str:
        plain = re.sub(r"[^A-Za-z0-9_]", "", name)[:24]
        return f"{plain}_ottla_{crc32(self.group_id.encode()):08x}_"

    def _sweep(self, connection: JdbcConnection) -> None:
        if self._swept:
            return
        prefix, _, name = self.table.path.rpartition(".")
        for left in connection.tables_like(self.table.path, self._staging_prefix(name)):
            with suppress(Exception):
                connection.execute(f"DROP TABLE {prefix + '.' if prefix else ''}{left}")
            connection.commit()
        self._swept = True

    def _last_batch(self, connection: JdbcConnection, marker: Marker) -> bool:
        """Whether the database has this batch."""
        self._have_batches(connection)
        last = connection.text_and_number(f"SELECT query_id, batch_id FROM {BATCHES} WHERE flow = ?", self.group_id)
        connection.rollback()
        return last is not None and last[0] == marker.query_id and last[1] >= marker.batch_id

    def _have_batches(self, connection: JdbcConnection) -> None:
        if connection.has(BATCHES):
            return
        try:
            connection.execute(f"CREATE TABLE {BATCHES} ({_BATCHES_COLUMNS})")
            connection.commit()
        except Exception:
            # Another flow has made it meanwhile.
            connection.rollback()
            if not connection.has(BATCHES):
                raise

    def _claim(self, connection: JdbcConnection, marker: Marker) -> bool:
        """Put the batch's number in. False if another driver has done so. Holds a lock until the end of the transaction."""
        changed = connection.execute(
            f"UPDATE {BATCHES} SET query_id = ?, batch_id = ? WHERE flow = ? AND (query_id <> ? OR batch_id < ?)",
            marker.query_id,
            marker.batch_id,
            self.group_id,
            marker.query_id,
            marker.batch_id,
        )
        if changed:
            return True
        if connection.text_and_number(f"SELECT query_id, batch_id FROM {BATCHES} WHERE flow = ?", self.group_id) is not None:
            return False
        # Of two that insert, the primary key lets one pass.
        statement = f"INSERT INTO {BATCHES} (query_id, batch_id, flow) VALUES (?, ?, ?)"
        connection.execute(statement, marker.query_id, marker.batch_id, self.group_id)
        return True

    def _check_fence(self, connection: JdbcConnection, producer: ProducerIdAndEpoch) -> None:
        """Refuse an attempt from before the fence. The claim is held: a fence is in already, or comes after this batch."""
        found = connection.text_and_number(f"SELECT query_id, batch_id FROM {BATCHES} WHERE flow = ?", self._fence)
        if found is not None and (producer.producer_id, producer.producer_epoch) < (int(found[0]), found[1]):
            raise spark_errors.retry_batch("an upgrade holds the flow")

    @property
    def _fence(self) -> str:
        return f"{self.group_id}#fence"

    def fence(self, producer: ProducerIdAndEpoch) -> tuple[str, int] | None:
        """Refuse attempts that are older than this producer. The query and the number of the last batch that is in, if there is
        one."""
        connection = JdbcConnection(self.spark, self.options)
        try:
            self._have_batches(connection)
            # The same lock as a batch's claim.
            if not connection.execute(f"UPDATE {BATCHES} SET batch_id = batch_id WHERE flow = ?", self.group_id):
                connection.execute(f"INSERT INTO {BATCHES} (query_id, batch_id, flow) VALUES (?, ?, ?)", "", -1, self.group_id)
            last = connection.text_and_number(f"SELECT query_id, batch_id FROM {BATCHES} WHERE flow = ?", self.group_id)
            given = str(producer.producer_id), producer.producer_epoch, self._fence
            if not connection.execute(f"UPDATE {BATCHES} SET query_id = ?, batch_id = ? WHERE flow = ?", *given):
                connection.execute(f"INSERT INTO {BATCHES} (query_id, batch_id, flow) VALUES (?, ?, ?)", *given)
            connection.commit()
            return last if last is not None and last[1] >= 0 else None
        finally:
            with suppress(Exception):
                connection.rollback()
            connection.close()

    def _stage(self, connection: JdbcConnection, frame: DataFrame, staging: str) -> tuple[list[str], int]:
        """Write the rows to the staging table. Returns the target's columns that it has, and the number of its rows."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        table = self.table
        if table.mode == "append":
            columns = list(frame.columns)
        else:
            frame, columns = self._with_changes(frame)
            connection.execute(merge.create_staging(self._dialect(), table.path, staging, columns, history=table.history))
            connection.commit()
        counted = Observation()
        no_key = F.lit(False)
        for name in table.key:
            no_key = no_key | F.col(f"`{self._spelling[name]}`").isNull()
        frame = frame.observe(counted, F.count(F.lit(1)).alias("rows"), F.count_if(no_key).alias("no_key"))
        writer = frame.write.format("jdbc").options(**self.options).option("dbtable", staging)
        # Without it Spark would drop the table and make one with its own types.
        writer.mode("errorifexists" if table.mode == "append" else "append").save()
        if table.mode == "append" and not connection.has(table.path):
            frame.limit(0).write.format("jdbc").options(**self.options).option("dbtable", table.path).mode("append").save()
        found = counted.get
        if found["no_key"]:
            raise changes.without_key(self.flow, table, found["no_key"])
        return columns, int(found["rows"])

    def _with_changes(self, frame: DataFrame) -> tuple[DataFrame, list[str]]:
        """The rows with their order, and whether they delete; with history, from when to when they are valid."""
        from pyspark.sql import functions as F

        columns = list(self._spelling.values())
        found = changes.ordered(self.table, frame, self._spelling)
        if self.table.history:
            found = changes.versions(found, columns, [self._spelling[name] for name in self.table.key])
        return found.withColumn(DELETED, F.col(changes.DELETES).cast("int")).drop(changes.DELETES), columns

    def _check_staged(self, connection: JdbcConnection, staging: str, rows: int) -> None:
        found = connection.number(f"SELECT COUNT(*) FROM {staging}")
        connection.rollback()
        if found != rows:
            # A task that was attempted twice, or a table that somebody else touched.
            raise spark_errors.retry_batch(f"{staging} has {found} rows, {rows} were written")

    def _statements(self, connection: JdbcConnection, staging: str, columns: list[str]) -> list[str]:
        table = self.table
        if table.mode == "append":
            names = connection.quoted(columns)
            return [f"INSERT INTO {table.path} ({names}) SELECT {names} FROM {staging}"]
        key = [self._spelling[name] for name in table.key]
        made = merge.history if table.history else merge.upsert
        return made(self._dialect(), table.path, staging, columns, key)


def jdbc_options(spark: SparkSession, given: tuple[tuple[str, str], ...], what: str, place: Place) -> dict[str, str]:
    """Spark's JDBC options, with the driver by the URL if none is given and Spark finds one."""
    try:
        options = {name: resolved(value) for name, value in given}
    except ValueError as error:
        raise PipelineError(f"{what}: {error}", place) from None
    dialect = merge.dialect_of(options["url"])
    if dialect is not None and "driver" not in options:
        driver = next((name for name in dialect.drivers if has_class(spark, name)), None)
        if driver is None:
            raise PipelineError(
                f"no driver of {dialect.name} is installed: Spark finds no class {dialect.drivers[0]}",
                place,
                hint="put the database's JDBC jar into spark.jars in [spark.conf]",
            )
        options["driver"] = driver
    if dialect is merge.MARIADB:
        # Spark knows the words of MySQL by this form of the address only.
        rest = options["url"].partition(":mariadb:")[2]
        options["url"] = f"jdbc:mysql:{rest}{'&' if '?' in rest else '?'}permitMysqlScheme"
    return options


def column_types(text: str) -> dict[str, str]:
    """Spark's option `createTableColumnTypes`: types by the lower-case names of columns."""
    parts = re.findall(r"\s*[`\"]?(\w+)[`\"]?\s+((?:[^,(]|\([^)]*\))+)", text)
    return {name.lower(): kind.strip() for name, kind in parts}
