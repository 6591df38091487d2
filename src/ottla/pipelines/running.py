"""The run of a pipeline: its flows become streaming queries, are watched, and are stopped between two batches."""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.client.blocking import Client
from ottla.client.options import ClientOptions
from ottla.pipelines import alerts, dead_letters, edits, encoding, reading, spark_errors, switching, tables, topics
from ottla.pipelines.alerts import Alerts
from ottla.pipelines.checkpoint import Checkpoint, PartitionOffsets, inputs_of, offsets_of
from ottla.pipelines.dead_letters import Refusals
from ottla.pipelines.definitions import Cluster, Flow, Sink, Source, Table
from ottla.pipelines.exactly_once import ExactlyOnceSink, WriteRows
from ottla.pipelines.failure import PipelineError, Superseded
from ottla.pipelines.frames import Frames, checked, kafka_options
from ottla.pipelines.graph import Plan
from ottla.pipelines.housekeeping import Housekeeping
from ottla.pipelines.project import ON_FAILURE, Project
from ottla.pipelines.published import documents
from ottla.pipelines.restarts import Restarts
from ottla.pipelines.spark_jvm import refresh_files
from ottla.pipelines.tables import compaction
from ottla.pipelines.takeover import VersionWatch
from ottla.pipelines.versions import Versions, code_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_STOP_TIMEOUT_S = 120.0
_POLL_S = 0.05
_RESTARTS_MAX = 10

logger = logging.getLogger("ottla.pipelines")


class PipelineRun:
    """The running queries of a pipeline: `with run: run.start() …`. The end of the block stops them."""

    def __init__(self, spark: SparkSession, project: Project, plan: Plan, *, once: bool = False) -> None:
        self.spark, self.plan = spark, plan
        self.once = once or project.stretch is not None
        self._given = project
        self._options: dict[Cluster | None, ClientOptions] = {}
        self.sinks: dict[str, ExactlyOnceSink] = {}
        self.queries: dict[str, StreamingQuery] = {}
        self.stopping = threading.Event()
        self.failures: dict[str, PipelineError] = {}
        """Why a flow failed."""
        self._is_stopped = False
        self._writers: dict[str, DataStreamWriter] = {}
        self._keep_code: Callable[[], None] | None = None
        """Keeps the code of this run for upgrades, once it has written something: it may not fit the state it finds."""
        self._watches: list[VersionWatch] = []
        """One for each cluster."""
        self._restarts: dict[str, int] = {}
        self._ended: set[str] = set()
        """Queries that ended, and that `wait` has looked at."""
        self._again = Restarts(
            project.restart == ON_FAILURE and not once, project.restart_backoff_ms, project.restart_backoff_max_ms
        )
        self._results: dict[str, DataFrame] = {}
        self._housekeeping = Housekeeping(self.stopping)
        self._alerts = Alerts(project.alert_command, project.alert_webhook)
        self.heard: Callable[[dict[str, Any]], None] | None = None
        """Gets the documents of alerts too, and that flows wait for a broker."""
        self._away: str | None = None
        """Why no broker answers, as it was told last."""

    def __enter__(self) -> PipelineRun:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        """Stop. The first error wins: a query that does not stop after it becomes a note on that error. A flow that failed while
        others went on is told now."""
        first = error or next(iter(self.failures.values()), None)
        try:
            self.stop()
        except Exception as later:
            if first is None:
                raise
            first.add_note(str(later))
        finally:
            self._alerts.close()
        if error is None and first is not None:
            raise first

    def options(self, cluster: Cluster | None) -> ClientOptions:
        """The options of all clients of a cluster. PipelineError if no broker answers."""
        if cluster not in self._options:
            self._options[cluster] = topics.connect(self._given, cluster)
        return self._options[cluster]

    @cached_property
    def published_in(self) -> ClientOptions:
        """The cluster to which the run publishes its progress: the pipeline's own if it is used, else that of the first flow."""
        used = self.plan.clusters
        return self.options(None if None in used or not self.plan.queries else self.plan.home(self.plan.queries[0]))

    @cached_property
    def project(self) -> Project:
        """The project with the live version of the pipeline and its checkpoints."""
        with topics.Clients(self._given) as clients:
            return clients.live_project(self.plan, takes_over=True)

    def start(self) -> None:
        """Start all queries in the order of the data flow. PipelineError if one cannot start; `stop` stops the others."""
        for file in modules_beside(self.plan):
            self.spark.sparkContext.addPyFile(file)
        if self.project.file.is_file():  # a cell of a notebook is none
            code = code_of(self.project.file)
            versions = Versions(self.spark, self.project.storage)
            for home, flows in self._by_home().items():
                with Client(self.options(home)) as client:
                    switching.check_known(client, self.project, [flow.name for flow in flows], versions.names())
            if versions.check_running(self.project.version, code):
                self._keep_code = partial(versions.keep_running, self.project.version, code)
        # Prepare all before the first starts, so that a mistake in one flow starts none.
        self._writers = {flow.name: self._prepared(flow) for flow in self.plan.queries}
        self._keep_first_code()
        for flow in self.plan.queries:
            if self.stopping.is_set():
                break
            try:
                self.queries[flow.name] = self._writers[flow.name].start()
            except Exception as error:
                text = f"flow {flow.name!r}: {spark_errors.first_line(error)}"
                raise self._failed(flow.name, PipelineError(text, flow.place)) from error
            if self.once and self.plan.feeds_others(flow):
                # The flows that read its topic must see all its output.
                while not self.stopping.is_set() and not self._has_ended(flow.name):
                    self.stopping.wait(_POLL_S)
        if not self.once:
            homes = self._by_home()
            for cluster in self.plan.clusters:
                groups = {self.project.group_id(flow.name): flow for flow in homes.get(cluster, ())}
                self._watches.append(VersionWatch(self.options(cluster), self.project.version, groups, self.stopping))
            self._keep_house()

    def _keep_first_code(self) -> None:
        """Keep the code of a pipeline that has none yet, now that its flows can start."""
        if self._keep_code is not None and Versions(self.spark, self.project.storage).read(self.project.version) is None:
            self._keep_code()
            self._keep_code = None

    def _by_home(self) -> dict[Cluster | None, list[Flow]]:
        found: dict[Cluster | None, list[Flow]] = {}
        for flow in self.plan.queries:
            found.setdefault(self.plan.home(flow), []).append(flow)
        return found

    def _keep_house(self) -> None:
        for flow in self.plan.queries:
            if self.project.compact_ms is not None and compaction.refusal(self.plan, flow) is None:
                chore = partial(compaction.compact, self.spark, flow)
                self._housekeeping.add(f"Flow {flow.name}", self.project.compact_ms / 1000, chore)
            refresh_ms = self.plan.refresh_ms(flow)
            if refresh_ms is not None:
                self._housekeeping.add(f"Flow {flow.name}", refresh_ms / 1000, partial(refresh_files, self._results[flow.name]))
        self._housekeeping.start()

    def _prepared(self, flow: Flow) -> DataStreamWriter:
        spark, project, target = self.spark, self.project, flow.to
        frames = Frames(spark, project, self.plan)
        home, group_id = self.plan.home(flow), project.group_id(flow.name)
        options = self.options(home)
        checkpoint = Checkpoint(spark, project.checkpoint(flow.name))
        sources = frames.sources(flow)
        inputs = inputs_of(self.plan, flow, sources)
        note = checkpoint.own_note(project.name, flow.name, inputs) or {}
        starting = note.get("starting") or self._resolved(sources)
        if note and checkpoint.query_id() is None and project.stretch is None:
            # Partitions that were added since the note was written are read from their start.
            with topics.Clients(project) as clients:
                given = {name: str(entry["option"]) for name, entry in starting.items()}
                starting = {
                    source.name: topics.resolve(clients.of(source.cluster), source, given[source.name]) for source in sources
                }
        frames.starting = {name: str(entry["option"]) for name, entry in starting.items()}
        for source in sources:
            if "until" in starting[source.name]:
                pace = {name: value for name, value in source.options if name.lower() in reading.PACE}
                frames.bounds[source.name] = {**pace, "untilOffsets": json.dumps(starting[source.name]["until"])}
        # The transaction of another cluster cannot hold these offsets: they are committed after it, for lag tools.
        frames.groups = {source.name: group_id for source in sources if source.cluster != home}
        result = self._results[flow.name] = checked(frames, flow)
        with_state = edits.has_state(result)
        # The stream itself makes the records where nobody else looks at the rows: one plan less for each batch. Above an operator
        # with state that might take columns out of it, and the state in the checkpoint would not fit.
        is_encoded = not (with_state or flow.late or any(each.expectations for each in self.plan.computed_in(flow)))
        stream, write_rows = self._write_rows(flow, result, is_encoded=is_encoded)
        # Nothing is written up to here: the user may still correct the inputs.
        if not note:
            checkpoint.write_note({"pipeline": project.name, "flow": flow.name, "inputs": inputs, "starting": starting})
        if isinstance(target, Sink):
            topics.ensure_sink(options, target)
        for source in sources:
            if source.dead_letter is not None:
                topics.ensure(options, source.dead_letter, source.place)
        if flow.late is not None:
            topics.ensure(options, flow.late, flow.place)
        offsets: PartitionOffsets = {}
        for entry in starting.values():
            offsets.update(offsets_of(json.dumps(entry["offsets"])))
        records = dead_letters.batch_records(spark, lambda source: kafka_options(project, source.cluster))
        owned = self.plan.first_to_read(flow)
        refusals = Refusals(frames, flow, sources, lambda: str(checkpoint.query_id()), records, owned)
        sink = ExactlyOnceSink(
            flow,
            group_id,
            options,
            checkpoint,
            lambda frame, marker, transaction: write_rows(refusals.rows(frame), marker, transaction),
            refusals.send,
            offsets,
            project.transaction_timeout_ms,
            project.version,
            project.generation(flow.name),
            project.switch_id,
            tuple(source for source in sources if source.cluster == home),
            with_state,
        )
        writer = stream.writeStream.queryName(group_id).outputMode(flow.output_mode)
        writer = writer.option("checkpointLocation", checkpoint.location).foreachBatch(sink.write)
        self.sinks[flow.name] = sink
        if self.once:
            return writer.trigger(availableNow=True)
        return writer.trigger(processingTime=f"{project.trigger_ms} milliseconds")

    def _write_rows(self, flow: Flow, result: DataFrame, *, is_encoded: bool) -> tuple[DataFrame, WriteRows]:
        """The stream to start, and what writes its batches. If `is_encoded`, the stream of a topic has the columns of records."""
        target = flow.to
        if isinstance(target, Sink):
            sink = target
            columns = encoding.columns(result, sink, flow.name)
            if is_encoded:
                encoded = result.select(*columns)
                return encoded, lambda frame, marker, transaction: transaction.send(frame, sink.topic, sink.compression)
            return result, lambda frame, marker, transaction: transaction.send(
                frame.select(*columns), sink.topic, sink.compression
            )
        assert isinstance(target, Table)
        return result, tables.prepare(self.spark, flow, target, result, self.project.group_id(flow.name))

    def _resolved(self, sources: tuple[Source, ...]) -> dict[str, Any]:
        """The starting offsets of sources without a checkpoint. They are noted, so "latest" means the same after a crash."""
        stretch, found = self.project.stretch, {}
        with topics.Clients(self.project) as clients:
            for source in sources:
                client = clients.of(source.cluster)
                found[source.name] = (
                    topics.resolve(client, source, source.starting)
                    if stretch is None
                    else topics.resolve_between(client, source, stretch.from_ms, stretch.to_ms)
                )
        return found

    # The life of the queries

    @property
    def running(self) -> bool:
        """Whether there is something to `wait` for: a query that runs, or one whose end `wait` has not looked at."""
        if self.stopping.is_set():
            return any(query.isActive for query in self.queries.values())
        return self._again.waiting or not self._ended >= self.queries.keys()

    def wait(self, seconds: float) -> None:
        """Return when `stopping` is set, the time is over, or all queries ended: PipelineError then if one of them failed.

        A flow fails alone. It starts again if the settings say so.
        """
        until = time.monotonic() + seconds
        while True:
            for name in self.queries:
                if not self._has_ended(name):
                    self._tell_if_recovered(name)
            for name in self._again.due(time.monotonic()):
                self._begin_again(name)
            if self._keep_code is not None and any(sink.totals.batches for sink in self.sinks.values()):
                self._keep_code()
                self._keep_code = None
            if self._watches:
                self._tell_outage("; ".join(watch.away for watch in self._watches if watch.away is not None) or None)
                for watch in self._watches:
                    if watch.found is not None:
                        raise self._failed(*watch.found)
            superseded = [each for each in self.failures.values() if isinstance(each, Superseded)]
            if superseded:
                raise superseded[0]
            if not self.running and self.failures:
                raise next(iter(self.failures.values()))
            if time.monotonic() >= until or self.stopping.is_set() or not self.running:
                return
            self.stopping.wait(_POLL_S)

    def _has_ended(self, name: str) -> bool:
        """Whether the query ended. Its failure is noted."""
        if name in self._ended or self.queries[name].isActive:
            return name in self._ended
        try:
            if self._is_restarted(name):
                return False
        except PipelineError as failure:
            self._note_failure(name, failure)
        self._ended.add(name)
        return True

    def _note_failure(self, name: str, failure: PipelineError) -> None:
        self._failed(name, failure)
        restart_in_s = self._again.failed(name, failure, self.sinks[name].totals.batches, time.monotonic())
        if not isinstance(failure, Superseded):  # that driver ends on purpose
            self._tell(alerts.document(alerts.FAILED, self._given.name, name, failure, restart_in_s))
        if restart_in_s is not None:
            logger.error("Flow %s failed and starts again in %.1f s: %s", name, restart_in_s, failure)
        elif len(self._ended) + 1 < len(self.queries):
            logger.error("Flow %s failed, the others go on: %s", name, failure)

    def _tell(self, document: dict[str, Any]) -> None:
        self._alerts.send(document)
        if self.heard is not None:
            self.heard(document)

    def _begin_again(self, name: str) -> None:
        """Start the query of a flow that failed."""
        self.sinks[name].begin_again()
        try:
            self.queries[name] = self._writers[name].start()
        except Exception as error:
            flow = next(flow for flow in self.plan.flows if flow.name == name)
            failure = PipelineError(f"flow {name!r}: {spark_errors.first_line(error)}", flow.place)
            self.failures.pop(name, None)
            self._note_failure(name, failure)
            return
        self.failures.pop(name, None)
        self._ended.discard(name)

    def _tell_if_recovered(self, name: str) -> None:
        if self._again.has_recovered(name, self.sinks[name].totals.batches):
            logger.warning("Flow %s runs again", name)
            self._tell(alerts.document(alerts.RECOVERED, self._given.name, name))

    def _tell_outage(self, away: str | None) -> None:
        """Tell once that no broker answers, and once that one answers again. No alert: flows that wait have not failed."""
        if (away is None) == (self._away is None):
            return
        self._away = away
        if away is None:
            logger.warning("Pipeline %s: a broker answers again, flows go on", self._given.name)
            told = alerts.document(alerts.CONNECTED, self._given.name)
        else:
            logger.warning("Pipeline %s: flows wait: %s", self._given.name, away)
            told = alerts.document(alerts.WAITING, self._given.name, failure=PipelineError(away))
        if self.heard is not None:
            self.heard(told)

    def _is_restarted(self, name: str) -> bool:
        """Restart an ended query if only a slow Python worker ended it: no batch had begun. PipelineError if it failed."""
        failure = self.sinks[name].failure
        if failure is not None:
            raise failure
        error = self.queries[name].exception()
        if error is None or self.stopping.is_set():
            return False
        restarts = self._restarts.get(name, 0)
        if not spark_errors.is_slow_worker(error) or restarts == _RESTARTS_MAX:
            flow = next(flow for flow in self.plan.flows if flow.name == name)
            raise spark_errors.query_failure(error, flow)
        self._restarts[name] = restarts + 1
        logger.warning("Flow %s: restarting its query, Spark's Python worker did not connect within 10 s", name)
        self.queries[name] = self._writers[name].start()
        return True

    def _failed(self, name: str, failure: PipelineError) -> PipelineError:
        return self.failures.setdefault(name, failure)

    def state(self, name: str) -> str:
        """The state of a flow. Asks neither Spark nor the cluster."""
        failure = self.failures.get(name)
        if failure is not None and not isinstance(failure, Superseded):
            return documents.FAILED
        if self._is_stopped or name in self._ended or failure is not None:
            return documents.STOPPED
        return documents.RUNNING if name in self.queries else documents.STARTING

    def stop(self) -> None:
        """Stop all queries between two batches: the running batch finishes, no other starts. Raises the first error last."""
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
        self._housekeeping.join(_STOP_TIMEOUT_S)
        self._is_stopped = True
        if failures:
            raise failures[0]

    def _stop(self, name: str) -> None:
        query, sink = self.queries[name], self.sinks[name]
        until = time.monotonic() + _STOP_TIMEOUT_S
        while query.isActive and not sink.is_recorded(query) and time.monotonic() < until:
            time.sleep(_POLL_S)
        try:
            query.stop()
        except Exception as error:
            raise PipelineError(
                f"flow {name!r} does not stop: {spark_errors.first_line(error)}", hint="no data is lost: run the pipeline again"
            ) from error


def modules_beside(plan: Plan) -> list[str]:
    """The user's modules beside the pipeline's file that it imported. Workers need them too."""
    folders = {Path(flow.place.file).resolve().parent for flow in plan.flows}
    found = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name != "__main__" and file and file.endswith(".py") and Path(file).resolve().parent in folders and "." not in name:
            found.append(file)
    return sorted(found)
