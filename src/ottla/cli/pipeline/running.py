"""`ottla pipeline run`: the Spark session, the signals, and what the terminal shows while flows run."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

from ottla.cli.output import note, print_line
from ottla.pipelines import PipelineError, progress, progress_metrics, progress_table, running, session, spark_jvm
from ottla.pipelines.published import documents
from ottla.pipelines.published.publisher import Publisher

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.pipelines.graph import Plan
    from ottla.pipelines.progress import Watch
    from ottla.pipelines.project import Project
    from ottla.pipelines.running import PipelineRun


@contextmanager
def spark_session(project: Project, *, ship: bool) -> Iterator[SparkSession]:
    spark = session.start(project.name, project.master, project.conf, ship=ship)
    try:
        yield spark
    finally:
        # The result is known by now: an ended Java process must not hide it.
        with suppress(Exception):
            spark.stop()


def run_flows(spark: SparkSession, pipelines: Sequence[tuple[Project, Plan]], *, once: bool, json_output: bool) -> None:
    """Run pipelines in one Spark application until they end, or until a signal. One that fails stops no other."""
    live = sys.stdout.isatty() and not json_output
    driven = [
        _Driven(spark, project, plan, once, _teller(project, live, json_output, len(pipelines))) for project, plan in pipelines
    ]
    if json_output:
        for each in driven:
            each.run.heard = _print_now
    stopping = threading.Event()

    def stop(number: int, frame: object) -> None:
        stopping.set()
        for each in driven:
            each.run.stopping.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        spark_jvm.ignore_sigterm(spark)
        with ExitStack() as last:
            for each in driven:
                last.callback(each.close)
                each.start()
            if live:
                _watch_live(driven, stopping)
            else:
                while any(each.is_running for each in driven) and not stopping.is_set():
                    for each in driven:
                        each.wait(3600 if len(driven) == 1 else 0.2)
            if stopping.is_set() and not json_output:
                note("stopping after the running batch")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    failed = [each.failure for each in driven if each.failure is not None]
    if failed:
        for later in failed[1:]:
            failed[0].add_note(str(later))
        raise failed[0]
    if not json_output:
        for each in driven:
            totals = ", ".join(f"{name} {sink.totals.records:,}" for name, sink in each.run.sinks.items())
            how = f"stopped: {each.asked_by} asked for it" if each.asked_by else "stopped" if stopping.is_set() else "done"
            note(f"pipeline {each.project.name}: {how}; records written: {totals}")


class _Driven:
    """A pipeline that this process runs, with what watches and publishes it."""

    def __init__(
        self, spark: SparkSession, project: Project, plan: Plan, once: bool, tell: Callable[[dict[str, Any]], None] | None
    ) -> None:
        self.spark, self.project = spark, project
        self.names = [flow.name for flow in plan.queries]
        self.run = running.PipelineRun(spark, project, plan, once=once)
        self.watch = progress.Watch(f"{project.name}.", self.run.sinks, tell)
        self.described = documents.Run(self.run.project, plan)
        self.asked_by: str | None = None
        """Who asked it to stop through the cluster."""
        self.failure: BaseException | None = None
        """Why the pipeline ended, once it is closed."""
        self._held = ExitStack()

    def start(self) -> None:
        project, described, run, watch = self.project, self.described, self.run, self.watch
        if project.metrics is not None:
            progress_metrics.serve_metrics(project.metrics, lambda: documents.of_flows(described, run, watch).values())
        self._held.callback(progress.unlisten, self.spark, progress.listen(self.spark, watch))
        self._held.enter_context(_published(described, run, watch, self._stop))
        self._held.enter_context(run)
        run.start()

    @property
    def is_running(self) -> bool:
        return self.failure is None and self.run.running

    def wait(self, seconds: float) -> None:
        if not self.is_running:
            return
        try:
            self.run.wait(seconds)
        except PipelineError as error:
            self.close(error)
        else:
            if self.asked_by is not None:
                self.close()

    def _stop(self, by: str) -> None:
        self.asked_by = by
        self.run.stopping.set()

    def close(self, error: BaseException | None = None) -> None:
        """Stop it. What went wrong is kept in `failure`."""
        error = error or sys.exception()
        try:
            self._held.__exit__(type(error) if error else None, error, error.__traceback__ if error else None)
        except BaseException as raised:
            error = raised
        self.failure = self.failure or error


def _published(
    described: documents.Run, run: PipelineRun, watch: Watch, stop: Callable[[str], object]
) -> AbstractContextManager[object]:
    if not described.project.publish:
        return nullcontext()
    return Publisher(run.published_in, described, lambda error: documents.of_flows(described, run, watch, error), stop)


def _print_now(found: dict[str, Any]) -> None:
    print_line(found)
    sys.stdout.flush()


def _teller(project: Project, live: bool, json_output: bool, pipelines: int) -> Callable[[dict[str, Any]], None] | None:
    """What prints a line for each batch; None for the live table."""
    if live:
        return None
    # Several pipelines may have flows of the same name.
    named = {"pipeline": project.name} if pipelines > 1 else {}
    prefix = f"{project.name}." if pipelines > 1 else ""
    if json_output:
        return lambda found: _print_now({**named, **found})
    return lambda found: print(f"{prefix}{progress_table.line(found)}", flush=True)


def _watch_live(driven: list[_Driven], stopping: threading.Event) -> None:
    from rich.console import Group
    from rich.live import Live

    def shown(text: str = "", width: int = 200) -> Group:
        return Group(*(progress_table.table(each.project.name, each.names, each.watch, text, width) for each in driven))

    with Live(shown(), refresh_per_second=4) as live:
        while any(each.is_running for each in driven) and not stopping.is_set():
            for each in driven:
                each.wait(0.5 / len(driven))
            live.update(shown("Ctrl-C stops after the running batch", live.console.width))
