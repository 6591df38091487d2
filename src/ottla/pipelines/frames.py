"""Definitions as Spark DataFrames.

`check` and a run build the same frames: what `check` accepts, a run can start. Errors of the user's code are reported at the
user's line.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ottla.client.options import InvalidOption
from ottla.pipelines import encoding, expectations, reading, spark_errors, tables
from ottla.pipelines.data_source.options import check_stream, source_options
from ottla.pipelines.definitions import DEAD_LETTER, Cluster, Files, Flow, Sink, Source, Table
from ottla.pipelines.deletes import DELETED
from ottla.pipelines.failure import PipelineError
from ottla.pipelines.graph import Node, Plan, same_path
from ottla.pipelines.loading import where_in
from ottla.pipelines.project import Project
from ottla.pipelines.spark_jvm import FileSystem, check_streaming, event_time_of, stateful_input, traced
from ottla.pipelines.values import Debezium, Json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def kafka_options(project: Project, cluster: Cluster | None = None) -> dict[str, str]:
    """The client properties of a cluster for `format("ottla")`, which reads only committed records."""
    return {"kafka.isolation.level": "read_committed", **project.kafka_options(cluster)}


@dataclass
class Frames:
    """Definitions as DataFrames. `starting` overrides the `startingOffsets` of sources, by their names."""

    spark: SparkSession
    project: Project
    plan: Plan
    starting: dict[str, str] = field(default_factory=dict)
    given: Callable[[Source | Files], DataFrame | None] | None = None
    """The rows of an input, in place of those of its topics (`reading.rows`) or files. None: those."""
    groups: dict[str, str] = field(default_factory=dict)
    """By source, the group to which the stream itself commits its offsets. Others are committed with the results."""
    bounds: dict[str, dict[str, str]] = field(default_factory=dict)
    """Options by source that replace how much it reads at a time and how far, for a run over past records."""

    def result(self, flow: Flow) -> DataFrame:
        """The DataFrame that the flow's function or query makes of its inputs. PipelineError at the user's line.

        It counts the rows that do not meet the flow's expectations, and has them all.
        """
        from pyspark.sql import DataFrame

        nodes = self.plan.inputs[flow.name]
        frames = [self._input(node) for node in nodes]
        try:
            if flow.function is not None:
                made = flow.function(*frames)
            else:
                for node, frame in zip(nodes, frames, strict=True):
                    frame.createOrReplaceTempView(node.name)
                made = self.spark.sql(flow.query or "")
        except PipelineError:
            raise
        except Exception as error:
            place = where_in(error, flow.place.file) or flow.place
            hint = spark_errors.hint_of(error, flow.name)
            if flow.function is None and "TABLE_OR_VIEW_NOT_FOUND" in str(error):
                hint = f"the tables of the query are the flow's inputs: {', '.join(node.name for node in nodes)}"
            raise PipelineError(f"flow {flow.name!r}: {spark_errors.named_first_line(error)}", place, hint=hint) from error
        if not isinstance(made, DataFrame):
            hint = "the function has to return its result" if made is None else None
            raise PipelineError(f"flow {flow.name!r} returns {type(made).__name__}, not a DataFrame", flow.place, hint=hint)
        return expectations.observed(made, flow)

    def sources(self, flow: Flow) -> tuple[Source, ...]:
        """All topics that the flow's query reads, including those that other flows write."""
        return (*self.plan.sources(flow), *(self.read_back(other) for other in self.plan.read_back(flow)))

    def read_back(self, flow: Flow) -> Source:
        """The topic that a flow writes, as a source with the columns of its result."""
        sink = flow.to
        assert isinstance(sink, Sink)
        value = sink.value
        if isinstance(value, Json):
            from pyspark.sql.types import StructType

            apart = (sink.headers, sink.timestamp, sink.partition)
            fields = [column for column in self.result(flow).schema.fields if column.name not in apart]
            value = Json(StructType(fields), value.options)
        return Source(flow.name, value, (sink.topic,), None, None, (), None, "earliest", (), flow.place, sink.cluster)

    def unmet_with_records(self, flow: Flow, raw: Callable[[Source], DataFrame]) -> DataFrame | None:
        """The rows of `expectations.refused`, and the record of each in `reading.RECORD`; None if a row may come of several.

        `raw` gives the raw records of a source, as a batch.
        """

        def given(node: Source | Files) -> DataFrame | None:
            if isinstance(node, Source):
                return reading.traced_rows(raw(node), node)
            return self.given(node) if self.given is not None else None

        frames = replace(self, given=given)
        return traced(expectations.refused(frames.result(flow), flow), reading.RECORD)

    def records_of_state(self, flow: Flow, raw: Callable[[Source], DataFrame] | None = None) -> DataFrame | None:
        """What the flow's stateful operator reads, with the record of each row in `reading.RECORD`, as a batch; None if a row may
        come of several records. Without `raw` there are no records."""
        from ottla.pipelines.data_source.columns import schema_of

        def given(node: Source | Files) -> DataFrame | None:
            if isinstance(node, Source):
                rows = raw(node) if raw is not None else self.spark.createDataFrame([], schema_of(reading.RAW))
                return reading.traced_rows(rows, node)
            return self.given(node) if self.given is not None else None

        return stateful_input(replace(self, given=given).result(flow), reading.RECORD)

    def is_traceable(self, flow: Flow) -> bool:
        """Whether each row of the flow's result comes of one record, so that the record can be the dead letter."""
        from ottla.pipelines.data_source.columns import schema_of

        return self.unmet_with_records(flow, lambda source: self.spark.createDataFrame([], schema_of(reading.RAW))) is not None

    def _input(self, node: Node) -> DataFrame:
        if isinstance(node, Flow):
            if node.to is None:
                return expectations.accepted(self.result(node), node)
            node = self.read_back(node)
        if self.given is not None and (found := self.given(node)) is not None:
            return found
        if isinstance(node, Files):
            if any(isinstance(flow.to, Table) and same_path(flow.to.path, node.path) for flow in self.plan.flows):
                # A flow of this pipeline writes these files. Before its first batch there is no directory, and Spark wants one.
                FileSystem(self.spark, node.path).make_directory(node.path)
            return reading.files(self.spark, node)
        kafka = kafka_options(self.project, node.cluster)
        if node.name in self.groups:
            kafka["kafka.group.id"] = self.groups[node.name]
        options = reading.options_of(node, kafka, self.starting.get(node.name))
        if node.name in self.bounds:
            kept = {name: value for name, value in options.items() if name.lower() not in reading.PACE}
            options = kept | self.bounds[node.name]
        options = _with_known_limits(node, options)
        try:
            # Spark would report it when the query starts, without the place.
            check_stream(source_options(options))
        except InvalidOption as error:
            raise PipelineError(f"source {node.name!r}: {error}", node.place) from None
        try:
            return reading.stream(self.spark, node, options)
        except PipelineError:
            raise
        except Exception as error:
            hint = spark_errors.hint_of(error, node.name)
            raise PipelineError(f"source {node.name!r}: {spark_errors.first_line(error)}", node.place, hint=hint) from error


def _with_known_limits(source: Source, options: dict[str, str]) -> dict[str, str]:
    """The options that this Spark can follow. PipelineError if the user's source has others."""
    from ottla.pipelines.data_source.read_limits import ARE_KNOWN

    if ARE_KNOWN:
        return options
    for name, _ in source.options:
        if name.lower() in reading.PACE:
            raise PipelineError(f"source {source.name!r}: {name} needs Spark 4.2 or newer", source.place, hint="leave it out")
    return {name: value for name, value in options.items() if name.lower() not in reading.PACE}


def check(spark: SparkSession, project: Project, plan: Plan) -> dict[str, DataFrame]:
    """Build all queries and start none. Returns the result of each, by the flow's name."""
    frames = Frames(spark, project, plan)
    return {flow.name: checked(frames, flow) for flow in plan.queries}


def _refuse_lost_removals(frames: Frames, flow: Flow, frame: DataFrame) -> None:
    """PipelineError if the flow upserts rows of change events and does not say which of them were removed."""
    if not isinstance(flow.to, Table) or flow.to.mode == "append" or flow.to.delete_when or DELETED in frame.columns:
        return
    if any(isinstance(source.value, Debezium) for source in frames.plan.sources(flow)):
        raise PipelineError(
            f"flow {flow.name!r} leaves out the column {DELETED} of its change events: removed rows would stay in the table",
            flow.place,
            hint=f'select {DELETED} too; if the flow means it so, write delete_when="false"',
        )


def checked(frames: Frames, flow: Flow) -> DataFrame:
    """The flow's result, if its target can take it. PipelineError says why it cannot."""
    frame = frames.result(flow)
    if not frame.isStreaming:
        raise PipelineError(f"flow {flow.name!r} returns a static DataFrame, not a stream", flow.place)
    _refuse_lost_removals(frames, flow, frame)
    twice = next((name for name in frame.columns if frame.columns.count(name) > 1), None)
    if twice is not None:
        raise PipelineError(f"flow {flow.name!r} has two columns {twice!r}", flow.place, hint="rename or leave out one of them")
    if isinstance(flow.to, Sink):
        frame.select(*encoding.columns(frame, flow.to, flow.name))
    elif isinstance(flow.to, Table):
        tables.check(frames.spark, flow.to)
    check_query(frames, flow, frame)
    return frame


def check_query(frames: Frames, flow: Flow, frame: DataFrame) -> None:
    """PipelineError if the flow's result cannot be a streaming query."""
    try:
        check_streaming(frame, flow.output_mode)
    except Exception as error:
        hint = spark_errors.hint_of(error, flow.name)
        raise PipelineError(f"flow {flow.name!r}: {spark_errors.first_line(error)}", flow.place, hint=hint) from None
    _check_dead_letters(frames, flow)
    if flow.late is not None and (event_time_of(frame) is None or frames.records_of_state(flow) is None):
        raise PipelineError(
            f"flow {flow.name!r}: Spark does not tell which of its records come late",
            flow.place,
            hint="late= needs withWatermark and one aggregation or deduplication over rows that each come of one record; without "
            "it late rows are only counted",
        )


def _check_dead_letters(frames: Frames, query: Flow) -> None:
    """PipelineError if an expectation asks for dead letters that cannot be made."""
    for flow in frames.plan.computed_in(query):
        expected = expectations.with_action(flow, DEAD_LETTER)
        if expected and flow is not query and not frames.is_traceable(flow):
            raise PipelineError(
                f"flow {flow.name!r}: the rows of this view do not each come of one record, so expectation {expected[0].name!r} "
                "has no record for its dead letter",
                expected[0].place,
                hint='give the flow a target, or use on_fail="drop"',
            )
