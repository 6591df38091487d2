"""A run of flows on given rows, without a broker: what tests of pipelines do.

The rows become files, one for each micro-batch, and a real streaming query reads them in order: parsing, state, watermarks, late
rows and expectations are those of a run. Only topics and tables are replaced.

Time is in the rows. After the last of them the watermark follows from them, as in a run. `watermark` moves it further: the query
is started again from its checkpoint with that watermark and an empty batch, so that windows close and timers of event time fire.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.pipelines import encoding, reading, registry_columns, spark_errors
from ottla.pipelines.checkpoint import BatchOffsets, Checkpoint
from ottla.pipelines.dead_letters import EXPECTATION, Refusals
from ottla.pipelines.definitions import Files, Flow, Sink, Source
from ottla.pipelines.failure import PipelineError
from ottla.pipelines.frames import Frames, check_query
from ottla.pipelines.graph import Plan, plan, reads_sink, sink_of_view
from ottla.pipelines.project import Project
from ottla.pipelines.values import Avro, Framed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NO_OFFSETS = BatchOffsets({}, {}, "")


@dataclass(frozen=True)
class Record:
    """A record as it is in a topic, for rows that are more than a value."""

    value: bytes | str | None
    key: bytes | str | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp: datetime | None = None


@dataclass(frozen=True)
class DeadLetter:
    """A record that a flow did not take."""

    reason: str
    """The name of the expectation that it does not meet, or why it does not parse."""
    record: Any
    """The row as it was given; of a row that comes of several, the row that the flow made."""
    flow: str
    expectation: str | None = None
    """The condition."""


class Rows(list[dict[str, Any]]):
    """The rows that a flow writes, in the order of its batches. Timestamps are datetimes in the time zone of the session."""

    def __init__(self, rows: Sequence[dict[str, Any]] = ()) -> None:
        super().__init__(rows)
        self.dead_letters: list[DeadLetter] = []
        self.unmet: dict[str, int] = {}
        """By expectation, the number of rows that did not meet it."""
        self.late_rows: int = 0
        """Rows that the watermark dropped, as Spark counts them."""
        self.documents: list[Any] = []
        """The rows as Spark writes them in JSON."""
        self.records: list[list[Record]] = []
        """Of a flow into a topic: its records, by batch."""


Given = Mapping[str, Sequence[Any]]
"""Rows by the name of their source or topic: a list of rows, or a list of lists of rows, one for each micro-batch."""


def run_flow(spark: SparkSession, flow: Flow, given: Given, *, watermark: datetime | None = None) -> Rows:
    """Run one flow on given rows."""
    target = flow if flow.to is not None else replace(flow, to=sink_of_view(flow))
    found = plan(list(_reachable(target).values()))
    return _Trial(spark, found, given, watermark).run(target)


def run_all(spark: SparkSession, plan: Plan, given: Given, *, watermark: datetime | None = None) -> dict[str, Rows]:
    """Run all flows of a pipeline in their order. A flow that reads the topic of another gets what that one wrote."""
    trial = _Trial(spark, plan, given, watermark)
    return {flow.name: trial.run(flow) for flow in plan.queries}


def _reachable(flow: Flow) -> dict[str, Flow]:
    found: dict[str, Flow] = {}
    for each in flow.inputs:
        if isinstance(each, Flow):
            found.update(_reachable(each))
    found[flow.name] = flow
    return found


@dataclass
class _Sent:
    """Takes dead letters, in place of a transaction."""

    letters: list[Any] = field(default_factory=list)

    def send(self, records: DataFrame, topic: str, codec: str) -> tuple[int, int]:
        rows = records.collect()
        self.letters += rows
        return len(rows), 0


class _Trial:
    def __init__(self, spark: SparkSession, plan: Plan, given: Given, watermark: datetime | None) -> None:
        self.spark, self.plan, self.watermark = spark, plan, watermark
        self.written: dict[str, Rows] = {}
        """By flow, what it wrote."""
        self.given = {name: _in_batches(rows) for name, rows in given.items()}
        self._refuse_unknown()

    def _refuse_unknown(self) -> None:
        known = {name for nodes in self.plan.inputs.values() for node in nodes for name in _names(node)}
        for name in self.given.keys() - known:
            raise PipelineError(f"no flow reads {name!r}", hint=f"rows may be given for {', '.join(sorted(known))}")

    def run(self, flow: Flow) -> Rows:
        with tempfile.TemporaryDirectory(prefix="ottla-trial-", ignore_cleanup_errors=True) as folder:
            made = _Run(self, flow, Path(folder))
            try:
                rows = made.run()
            except PipelineError:
                raise
            except Exception as error:
                raise spark_errors.query_failure(error, flow) from error
        self.written[flow.name] = rows
        return rows

    def rows_of(self, node: Source | Files) -> list[list[Any]] | None:
        """The rows of an input by batch; None if there are none to give."""
        for name in _names(node):
            if name in self.given:
                return self.given[name]
        if isinstance(node, Source):
            for flow in self.plan.queries:
                if flow.name in self.written and isinstance(flow.to, Sink) and reads_sink(node, flow.to):
                    return [list(batch) for batch in self.written[flow.name].records]
        return None


class _Run:
    """One flow."""

    def __init__(self, trial: _Trial, flow: Flow, folder: Path) -> None:
        self.trial, self.flow, self.folder, self.spark = trial, flow, folder, trial.spark
        self.frames = Frames(self.spark, Project(Path(flow.place.file), "trial"), trial.plan, given=self._frame)
        # A pattern says nothing of names: the topic of given rows is called as the source.
        self.sources = tuple(_own_topic(source) for source in self.frames.sources(flow))
        self.inputs: dict[str, list[list[Any]]] = {}
        for node in self._nodes(flow):
            rows = trial.rows_of(node)
            if rows is None and not (isinstance(node, Files) and node.static):
                raise PipelineError(
                    f"flow {flow.name!r}: there are no rows for {node.name!r}", node.place, hint=f'give {{"{node.name}": […]}}'
                )
            if rows is not None:
                self.inputs[node.name] = rows
        self.batches = max((len(rows) for rows in self.inputs.values()), default=0)
        self.rows, self.sent, self._late = Rows(), _Sent(), 0

    def _nodes(self, flow: Flow) -> list[Source | Files]:
        plan = self.trial.plan
        nodes: list[Source | Files] = list(self.sources)
        for each in plan.computed_in(flow):
            nodes += [node for node in plan.inputs[each.name] if isinstance(node, Files)]
        return nodes

    def run(self) -> Rows:
        for name in self.inputs:
            for number in range(self.batches):
                self._write(name, number)
        result = self.frames.result(self.flow)
        target = self.flow.to
        columns = encoding.columns(result, target, self.flow.name) if isinstance(target, Sink) else []
        check_query(self.frames, self.flow, result)
        checkpoint = Checkpoint(self.spark, str(self.folder / "checkpoint"))
        owned = frozenset(source.name for source in self.sources)
        refusals = Refusals(self.frames, self.flow, self.sources, lambda: str(checkpoint.query_id()), self._raw, owned)
        failures: list[PipelineError] = []

        def write(frame: DataFrame, batch_id: int) -> None:
            try:
                self._batch = batch_id
                self._take(refusals.rows(frame), columns)
                refused = refusals.send(frame, _NO_OFFSETS, self.sent)
                for name, count in refused.unmet.items():
                    self.rows.unmet[name] = self.rows.unmet.get(name, 0) + count
            except PipelineError as error:
                failures.append(error)
                raise

        writer = result.writeStream.outputMode(self.flow.output_mode).foreachBatch(write)
        writer = writer.option("checkpointLocation", checkpoint.location).trigger(availableNow=True)
        try:
            self._finish(writer)
            if self.trial.watermark is not None and self.batches:
                _move_watermark(self.folder / "checkpoint", _ms(self.trial.watermark))
                for name in self.inputs:
                    self._write(name, self.batches)
                self._finish(writer)
        except Exception:
            if failures:
                raise failures[0] from None
            raise
        self.rows.dead_letters = [self._letter(row) for row in self.sent.letters]
        return self.rows

    def _finish(self, writer: Any) -> None:
        query = writer.start()
        query.awaitTermination()
        for progress in query.recentProgress:
            for operator in progress["stateOperators"]:
                self.rows.late_rows += operator.get("numRowsDroppedByWatermark") or 0

    def _take(self, frame: DataFrame, columns: list[Any]) -> None:
        from pyspark.sql import functions as F

        fields = [F.col(f"`{name}`") for name in frame.columns]
        document = F.to_json(F.struct(*fields)).alias("_ottla_document")
        table = (
            frame.select(*fields, document, F.struct(*columns).alias("_ottla_record"))
            if columns
            else frame.select(*fields, document)
        )
        if self.flow.output_mode == "complete":
            self.rows.clear()
            self.rows.documents.clear()
        found = table.toArrow().to_pylist(maps_as_pydicts="strict")
        self.rows.documents += [json.loads(row.pop("_ottla_document") or "{}") for row in found]
        records = [row.pop("_ottla_record", None) for row in found]
        if columns:
            self.rows.records.append([_record(each) for each in records])
        self.rows += found

    # Inputs

    def _frame(self, node: Source | Files) -> DataFrame | None:
        if isinstance(node, Files):
            if node.name not in self.inputs:
                return None
            read: Any = self.spark.read if node.static else self.spark.readStream.option("maxFilesPerTrigger", 1)
            if node.schema is not None:
                read = read.schema(reading.struct(node.schema, node.place))
            return read.json(str(self.folder / node.name))  # type: ignore[no-any-return]
        from ottla.pipelines.data_source.columns import schema_of

        # What is read only for its columns has no rows, and Spark wants a directory.
        (self.folder / node.name).mkdir(exist_ok=True)
        stream = self.spark.readStream.schema(schema_of(reading.RAW)).option("maxFilesPerTrigger", 1)
        return reading.rows(stream.parquet(str(self.folder / node.name)), node)

    def _raw(self, source: Source, offsets: BatchOffsets) -> DataFrame:
        from ottla.pipelines.data_source.columns import schema_of

        return self.spark.read.schema(schema_of(reading.RAW)).parquet(str(self._file(source.name, self._batch, "parquet")))

    def _file(self, name: str, number: int, kind: str) -> Path:
        return self.folder / name / f"{number:06d}.{kind}"

    def _write(self, name: str, number: int) -> None:
        """Write the rows of one batch. Spark takes the files in the order of their times."""
        batches = self.inputs[name]
        rows = batches[number] if number < len(batches) else []
        source = next((source for source in self.sources if source.name == name), None)
        file = self._file(name, number, "json" if source is None else "parquet")
        file.parent.mkdir(exist_ok=True)
        if source is None:
            file.write_text("".join(_json(row) + "\n" for row in rows), encoding="utf-8")
        else:
            first = sum(len(batch) for batch in batches[:number])
            _write_records(file, [_raw(row, source) for row in rows], source.topics[0], first)
        os.utime(file, (1_000_000_000 + number, 1_000_000_000 + number))

    def _letter(self, row: Any) -> DeadLetter:
        headers = {each["key"]: bytes(each["value"]).decode() for each in row["headers"] if each["value"] is not None}
        if "ottla.offset" in headers:
            source = next(source for source in self.sources if source.topics[0] == headers["ottla.topic"])
            rows = [each for batch in self.inputs[source.name] for each in batch]
            record = rows[int(headers["ottla.offset"])]
        else:
            record = json.loads(bytes(row["value"]))
        return DeadLetter(headers["ottla.reason"], record, headers["ottla.flow"], headers.get(EXPECTATION))


def _record(row: dict[str, Any]) -> Record:
    headers = [(each["key"], each["value"]) for each in row.get("headers") or ()]
    at = row.get("timestamp")
    return Record(row["value"], row["key"], headers, None if at is None else datetime.fromtimestamp(at / 1000, UTC))


def _names(node: Any) -> tuple[str, ...]:
    return (node.name, *node.topics) if isinstance(node, Source) else (node.name,)


def _own_topic(source: Source) -> Source:
    return replace(source, topics=(source.topics or (source.name,))[:1], pattern=None)


def _in_batches(rows: Sequence[Any]) -> list[list[Any]]:
    if isinstance(rows, Sequence) and rows and all(isinstance(each, list) for each in rows):
        return [list(batch) for batch in rows]
    return [list(rows)]


def _raw(row: Any, source: Source) -> dict[str, Any]:
    """A given row as a record: a value, a dict with the fields of the value and columns of the record, or a Record."""
    found: dict[str, Any] = {"key": None, "value": row, "headers": (), "timestamp": None}
    if isinstance(row, Record):
        found = {"key": row.key, "value": row.value, "headers": row.headers, "timestamp": row.timestamp}
    elif isinstance(row, Mapping):
        fields = dict(row)
        found.update({name: fields.pop(name) for name in source.columns if name in found and name in fields})
        found["value"] = (
            fields["value"]
            if not isinstance(source.value, Avro | Framed) and list(fields) == ["value"]
            else _encoded(fields, source)
        )
    return {**found, "key": _bytes(found["key"]), "value": _bytes(found["value"])}


def _encoded(fields: dict[str, Any], source: Source) -> bytes:
    if isinstance(source.value, Avro):
        import io

        import fastavro

        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(source.value.schema)), fields)
        return stream.getvalue()
    if isinstance(source.value, Framed):
        return registry_columns.encode_row(source.value, fields, source.place)
    return _json(fields).encode()


def _json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=_text)


def _text(value: object) -> object:
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return float(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def _bytes(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _write_records(file: Path, records: list[dict[str, Any]], topic: str, first: int) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    header = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    now = datetime.now(UTC)
    columns = {
        "key": pa.array([each["key"] for each in records], pa.binary()),
        "value": pa.array([each["value"] for each in records], pa.binary()),
        "topic": pa.array([topic] * len(records), pa.string()),
        "partition": pa.array([0] * len(records), pa.int32()),
        "offset": pa.array(range(first, first + len(records)), pa.int64()),
        "timestamp": pa.array([_aware(each["timestamp"] or now) for each in records], pa.timestamp("us", "UTC")),
        "timestampType": pa.array([0] * len(records), pa.int32()),
        "headers": pa.array([[{"key": k, "value": _bytes(v)} for k, v in each["headers"]] for each in records], header),
    }
    parquet.write_table(pa.table(columns), file)


def instant(given: datetime | str) -> datetime:
    """A time with its time zone: UTC if it has none. ValueError if it is not one."""
    return _aware(given)


def _aware(given: Any) -> datetime:
    moment = datetime.fromisoformat(given) if isinstance(given, str) else given
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def _move_watermark(checkpoint: Path, to_ms: int) -> None:
    """Make the next batch begin with this watermark: Spark reads it from the record of the last one."""
    commits = checkpoint / "commits"
    last = commits / str(max(int(each.name) for each in commits.iterdir() if each.name.isdecimal()))
    version, text = last.read_text().split("\n", 1)
    document = json.loads(text)
    document["nextBatchWatermarkMs"] = max(to_ms, document.get("nextBatchWatermarkMs") or 0)
    last.write_text(f"{version}\n{json.dumps(document)}")
    (commits / f".{last.name}.crc").unlink(missing_ok=True)
