"""`ottla pipeline run`: the Spark session, the signals, and what the terminal shows while flows run."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

from ottla.cli.output import note, print_line
from ottla.pipelines import progress, progress_metrics, progress_table, running, session
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


def run_flows(spark: SparkSession, project: Project, plan: Plan, *, once: bool, json_output: bool) -> None:
    run = running.PipelineRun(spark, project, plan, once=once)
    live = sys.stdout.isatty() and not json_output
    tell = None if live else (_print_now if json_output else lambda found: print(progress_table.line(found), flush=True))
    watch = progress.Watch(f"{project.name}.", run.sinks, tell)
    described = documents.Run(run.project, plan)
    if project.metrics is not None:
        progress_metrics.serve_metrics(project.metrics, lambda: documents.of_flows(described, run, watch).values())

    def stop(number: int, frame: object) -> None:
        run.stopping.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    listener = progress.listen(spark, watch)
    names = [flow.name for flow in plan.queries]
    try:
        with _published(described, run, watch), run:
            run.start()
            if live:
                _watch_live(run, watch, project.name, names)
            else:
                while run.running and not run.stopping.is_set():
                    run.wait(3600)
            stopped = run.stopping.is_set()
            if stopped and not json_output:
                note("stopping after the running batch")
    finally:
        progress.unlisten(spark, listener)
        for number, handler in before.items():
            signal.signal(number, handler)
    if not json_output:
        totals = [f"{name} {sink.totals.records:,}" for name, sink in run.sinks.items()]
        note(f"pipeline {project.name}: {'stopped' if stopped else 'done'}; records written: {', '.join(totals)}")


def _published(described: documents.Run, run: PipelineRun, watch: Watch) -> AbstractContextManager[object]:
    if not described.project.publish:
        return nullcontext()
    return Publisher(run.options, described, lambda error: documents.of_flows(described, run, watch, error))


def _print_now(found: dict[str, Any]) -> None:
    print_line(found)
    sys.stdout.flush()


def _watch_live(run: PipelineRun, watch: Watch, name: str, names: list[str]) -> None:
    from rich.live import Live

    with Live(progress_table.table(name, names, watch), refresh_per_second=4) as live:
        while run.running and not run.stopping.is_set():
            run.wait(0.5)
            live.update(progress_table.table(name, names, watch, "Ctrl-C stops after the running batch", live.console.width))
