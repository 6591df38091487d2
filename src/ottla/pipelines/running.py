"""A plan on a Spark: flows become streaming queries, are watched, and are stopped between two batches.

Owns: building DataFrames from definitions (errors of the user's own code are shown at their line) and the life of the queries.
`check` and `start` build the same frames: what `check` accepts, `start` runs.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.client.blocking import BrokerAway, Client
from ottla.client.options import ClientOptions, InvalidOption
from ottla.pipelines import dead_letters, encoding, reading, tables, topics
from ottla.pipelines.checkpoint import Checkpoint, Offsets, offsets_of
from ottla.pipelines.definitions import Files, Flow, Sink, Source, Table
from ottla.pipelines.exactly_once import ExactlyOnce, Target
from ottla.pipelines.failure import PipelineError, Place
from ottla.pipelines.graph import Node, Plan, same_path
from ottla.pipelines.loading import where_in
from ottla.pipelines.project import Project
from ottla.pipelines.source_options import check_stream, source_options
from ottla.pipelines.values import Json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_STOP_TIMEOUT_S = 120.0
_POLL_S = 0.05
# On a machine with too much to do, the process that asks a source for its offsets may start too slowly for Spark, which has no
# setting for its patience. Nothing has happened yet then.
_SLOW_WORKER = "Python worker failed to connect back"
_REVIVALS = 10

logger = logging.getLogger("ottla.pipelines")


def kafka_options(project: Project) -> dict[str, str]:
    """For `format("ottla")`: what was not committed is not read."""
    return {"kafka.isolation.level": "read_committed", **project.kafka_options}


@dataclass
class Frames:
    """Definitions as DataFrames. `starting` holds what each source's `startingOffsets` is, where it is not the definition's."""

    spark: SparkSession
    project: Project
    plan: Plan
    starting: dict[str, str] = field(default_factory=dict)

    def result(self, flow: Flow) -> DataFrame:
        """What the flow makes of its inputs. PipelineError at the user's line."""
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
            kind = "" if type(error).__name__ in ("AnalysisException", "ParseException") else f"{type(error).__name__}: "
            raise PipelineError(f"flow {flow.name!r}: {kind}{reading.first_line(error)}", place) from error
        if not isinstance(made, DataFrame):
            raise PipelineError(f"flow {flow.name!r} returns {type(made).__name__}, not a DataFrame", flow.place)
        return made

    def sources(self, flow: Flow) -> tuple[Source, ...]:
        """All topics the flow's query reads, those of other flows too."""
        return (*self.plan.sources(flow), *(self.read_back(other) for other in self.plan.read_back(flow)))

    def read_back(self, flow: Flow) -> Source:
        """The topic a flow writes, as a source with the columns it wrote."""
        sink = flow.to
        assert isinstance(sink, Sink)
        value = sink.value
        if isinstance(value, Json):
            from pyspark.sql.types import StructType

            apart = (sink.headers, sink.timestamp, sink.partition)
            fields = [column for column in self.result(flow).schema.fields if column.name not in apart]
            value = Json(StructType(fields), value.options)
        return Source(flow.name, value, (sink.topic,), None, None, (), None, "earliest", (), flow.place)

    def _input(self, node: Node) -> DataFrame:
        if isinstance(node, Files):
            if any(isinstance(flow.to, Table) and same_path(flow.to.path, node.path) for flow in self.plan.flows):
                # A table of this very pipeline, which may not have its first batch yet.
                reading.make_directory(self.spark, node.path)
            return reading.files(self.spark, node)
        if isinstance(node, Flow) and node.to is None:
            return self.result(node)
        source = node if isinstance(node, Source) else self.read_back(node)
        options = reading.options_of(source, kafka_options(self.project), self.starting.get(source.name))
        try:
            # Spark would ask the source only when the query starts, and say it less well.
            check_stream(source_options(options))
        except InvalidOption as error:
            raise PipelineError(f"source {source.name!r}: {error}", source.place) from None
        return reading.stream(self.spark, source, options)


def check(spark: SparkSession, project: Project, plan: Plan) -> dict[str, DataFrame]:
    """Build everything that `start` would, and start nothing: the result of each query, by the flow's name."""
    frames = Frames(spark, project, plan)
    return {flow.name: checked(frames, flow) for flow in plan.queries}


def checked(frames: Frames, flow: Flow) -> DataFrame:
    """The flow's result, if it can go where it is sent. PipelineError says why not."""
    frame = frames.result(flow)
    if not frame.isStreaming:
        raise PipelineError(f"flow {flow.name!r} makes a table that does not grow", flow.place)
    if isinstance(flow.to, Sink):
        frame.select(*encoding.columns(frame, flow.to, flow.name))
    elif isinstance(flow.to, Table):
        tables.check(frames.spark, flow.to)
    _check_streaming(frame, flow)
    return frame


def _check_streaming(frame: DataFrame, flow: Flow) -> None:
    """What Spark would refuse at the start of the query (a join without a bound, an aggregate without a watermark)."""
    jvm: Any = frame.sparkSession._jvm
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    mode = {"append": modes.Append, "update": modes.Update, "complete": modes.Complete}[flow.output_mode]()
    jdf: Any = frame._jdf
    try:
        checker.checkForStreaming(jdf.queryExecution().analyzed(), mode)
    except Exception as error:
        raise PipelineError(f"flow {flow.name!r}: {reading.first_line(error)}", flow.place) from None


class Flows:
    """The running queries of a pipeline: `with flows: flows.start() …`, which ends with `stop`."""

    def __init__(self, spark: SparkSession, project: Project, plan: Plan, *, once: bool = False) -> None:
        self.spark, self.project, self.plan, self.once = spark, project, plan, once
        self.sinks: dict[str, ExactlyOnce] = {}
        self.queries: dict[str, StreamingQuery] = {}
        self.stopping = threading.Event()
        self._options: ClientOptions | None = None
        self._writers: dict[str, DataStreamWriter] = {}
        self._revived: dict[str, int] = {}
        self._ended: set[str] = set()
        """Queries that ended, and somebody looked how."""

    def __enter__(self) -> Flows:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        """What went wrong first is what is told; that a query does not stop after it is noted there."""
        try:
            self.stop()
        except Exception as later:
            if error is None:
                raise
            error.add_note(str(later))

    def start(self) -> None:
        """Start every query, in the order data flows. PipelineError if one cannot; those started before run until `stop`."""
        self._options = topics.connect(self.project)
        for file in modules_beside(self.plan):
            self.spark.sparkContext.addPyFile(file)
        # All of them first: a mistake in one is known before another has begun.
        self._writers = {flow.name: self._prepared(flow) for flow in self.plan.queries}
        for flow in self.plan.queries:
            if self.stopping.is_set():
                break
            try:
                self.queries[flow.name] = self._writers[flow.name].start()
            except Exception as error:
                raise PipelineError(f"flow {flow.name!r}: {reading.first_line(error)}", flow.place) from error
            if self.once and self.plan.feeds_others(flow):
                # What is there now includes what this flow makes of it.
                while not self.stopping.is_set() and not self._has_ended(flow.name):
                    self.stopping.wait(_POLL_S)

    def _prepared(self, flow: Flow) -> DataStreamWriter:
        assert self._options is not None
        spark, project, target = self.spark, self.project, flow.to
        frames = Frames(spark, project, self.plan)
        checkpoint = Checkpoint(spark, project.checkpoint(flow.name))
        sources = frames.sources(flow)
        inputs = inputs_of(self.plan, flow, sources)
        note = checkpoint.mine(project.name, flow.name, inputs) or {}
        starting = note.get("starting") or self._resolved(sources)
        frames.starting = {name: str(entry["option"]) for name, entry in starting.items()}
        result = checked(frames, flow)
        # Nothing was left anywhere up to here: a mistake that is mended may mend the inputs too.
        if not note:
            checkpoint.write_note({"pipeline": project.name, "flow": flow.name, "inputs": inputs, "starting": starting})
        if isinstance(target, Sink):
            topics.have(self._options, target.topic, target.place)
        for source in sources:
            if source.dead_letter is not None:
                topics.have(self._options, source.dead_letter, source.place)
        offsets: Offsets = {}
        for entry in starting.values():
            offsets.update(offsets_of(json.dumps(entry["offsets"])))
        sink = ExactlyOnce(
            flow,
            project.group_id(flow.name),
            self._options,
            checkpoint,
            self._target(flow, result),
            dead_letters.letters(spark, flow, sources, kafka_options(project), checkpoint),
            offsets,
            project.transaction_timeout_ms,
        )
        writer = result.writeStream.queryName(project.group_id(flow.name)).outputMode(flow.output_mode)
        writer = writer.option("checkpointLocation", checkpoint.location).foreachBatch(sink.write)
        writer = (
            writer.trigger(availableNow=True)
            if self.once
            else writer.trigger(processingTime=f"{project.trigger_ms} milliseconds")
        )
        self.sinks[flow.name] = sink
        return writer

    def _target(self, flow: Flow, result: DataFrame) -> Target:
        target = flow.to
        if isinstance(target, Sink):
            sink = target
            columns = encoding.columns(result, sink, flow.name)
            return lambda frame, marker, transaction: transaction.send(frame.select(*columns), sink.topic, sink.compression)
        assert isinstance(target, Table)
        return tables.target(self.spark, flow, target, self.project.group_id(flow.name))

    def _resolved(self, sources: tuple[Source, ...]) -> dict[str, Any]:
        """Where each source begins that has no checkpoint yet, in offsets: "latest" must mean the same after a crash."""
        assert self._options is not None
        with Client(self._options) as client:
            return {source.name: topics.resolve(client, source, source.starting) for source in sources}

    # The life of the queries

    @property
    def running(self) -> bool:
        """Whether there is something to `wait` for: a query that runs, or one that ended and nobody has looked yet how."""
        if self.stopping.is_set():
            return any(query.isActive for query in self.queries.values())
        return not self._ended >= self.queries.keys()

    def wait(self, seconds: float) -> None:
        """Until a query ended, somebody asked to stop, or the time is over. PipelineError if a query failed."""
        until = time.monotonic() + seconds
        while True:
            for name in self.queries:
                self._has_ended(name)
            if time.monotonic() >= until or self.stopping.is_set() or not self.running:
                return
            self.stopping.wait(_POLL_S)

    def _has_ended(self, name: str) -> bool:
        """Well, and for good. PipelineError if it failed."""
        if name not in self._ended and not self.queries[name].isActive and not self._is_revived(name):
            self._ended.add(name)
        return name in self._ended

    def _is_revived(self, name: str) -> bool:
        """A query that is not active: whether it is again. PipelineError if it failed."""
        stop = self.sinks[name].stop
        if stop is not None:
            raise stop
        failure = self.queries[name].exception()
        if failure is not None and not self.stopping.is_set():
            if _SLOW_WORKER in str(failure) and self._revived.get(name, 0) < _REVIVALS:
                self._revived[name] = self._revived.get(name, 0) + 1
                logger.warning("flow %s is started again: Spark's Python worker was not ready within Spark's ten seconds", name)
                self.queries[name] = self._writers[name].start()
                return True
            raise explained(failure, next(flow for flow in self.plan.flows if flow.name == name))
        return False

    def stop(self) -> None:
        """End between two batches: one that is being written is finished, another is not begun. All queries are stopped, then
        the first error of those that could not be is raised."""
        self.stopping.set()
        for sink in self.sinks.values():
            sink.closing.set()
        failures: list[Exception] = []
        for name in self.queries:
            try:
                self._stop(name)
            except Exception as error:
                failures.append(error)
        for sink in self.sinks.values():
            sink.close()
        if failures:
            raise failures[0]

    def _stop(self, name: str) -> None:
        query, sink = self.queries[name], self.sinks[name]
        until = time.monotonic() + _STOP_TIMEOUT_S
        while query.isActive and not sink.settled(query) and time.monotonic() < until:
            time.sleep(_POLL_S)
        try:
            query.stop()
        except Exception as error:
            raise PipelineError(
                f"flow {name!r} does not stop: {reading.first_line(error)}", hint="nothing is lost: run it again"
            ) from error


def modules_beside(plan: Plan) -> list[str]:
    """The user's own modules that the pipeline imported: single files beside it, which workers need too."""
    folders = {Path(flow.place.file).resolve().parent for flow in plan.flows}
    found = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name != "__main__" and file and file.endswith(".py") and Path(file).resolve().parent in folders and "." not in name:
            found.append(file)
    return sorted(found)


def inputs_of(plan: Plan, flow: Flow, sources: tuple[Source, ...] | None = None) -> list[str]:
    """What a flow reads, in words: another list means another checkpoint."""
    read = plan.sources(flow) if sources is None else sources
    inputs = sorted(source.pattern or ",".join(source.topics) for source in read)
    return inputs + sorted(node.path for node in plan.inputs[flow.name] if isinstance(node, Files))


def explained(failure: BaseException, flow: Flow) -> PipelineError:
    """What ended a query, in one line, with the user's line if it is his code that failed."""
    import re

    text = str(failure)
    place = flow.place
    frames = re.findall(r'File "([^"]+)", line (\d+)', text)
    for file, line in reversed(frames):
        if file == flow.place.file:
            place = Place(file, int(line))
            break
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("at ")]
    # What our source met, under whatever Spark says about it.
    ours = [match for line in lines if (match := re.match(r"(?:[A-Za-z.]*Exception: )*ottla\.[\w.]+\.(\w+): (.+)", line))]
    if ours:
        hint = "nothing is lost: run it again" if ours[-1][1] == BrokerAway.__name__ else None
        return PipelineError(f"flow {flow.name!r}: {ours[-1][2][:600]}", place, hint=hint)
    what = _raised(text) or next(
        (line for line in lines if re.match(r"[A-Za-z_.]*(Error|Exception)\b", line)), "".join(lines[:1])
    )
    target = flow.to
    if isinstance(target, Sink) and what.startswith(refused := f"RuntimeError: topic {target.topic}: "):
        # The broker did not take what `producing` sent: nothing of the user's code failed.
        return PipelineError(f"flow {flow.name!r} (topic {target.topic!r}): {what.removeprefix(refused)[:600]}", target.place)
    return PipelineError(f"flow {flow.name!r}: {what.removeprefix('pyspark.errors.exceptions.captured.')[:600]}", place)


def _raised(text: str) -> str | None:
    """What was raised in a Python worker: the first line after its stack. None where it was somewhere else."""
    _, marker, worker = text.partition("\n=== Streaming Query ===")[0].rpartition("thrown from the Python worker:")
    stack = worker.rpartition("Traceback (most recent call last):")[2].splitlines() if marker else []
    return next((line for line in stack if line and not line[0].isspace()), None)
