"""Pipelines in a notebook: `orders.preview()`, `p.run(spark, revenue)`. Settings are arguments, there is no TOML file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.pipelines.definitions import Flow, Source
from ottla.pipelines.failure import PipelineError
from ottla.pipelines.graph import Plan, plan, sink_of_view
from ottla.pipelines.project import Project, override
from ottla.pipelines.values import option_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.pipelines.running import PipelineRun

_NAME = "notebook"


def preview_table(
    node: Source | Flow, rows_max: int, spark: SparkSession | None, records_max: int, settings: Mapping[str, Any]
) -> Any:
    """What a source reads or a flow makes of the last records, as a pandas DataFrame."""
    import pandas as pd  # type: ignore[import-untyped]

    from ottla.pipelines.preview import preview

    if isinstance(node, Source):
        node = Flow(f"{node.name}_preview", (node,), lambda frame: frame, None, None, "append", node.place)
    flow = node if node.to is not None else replace(node, to=sink_of_view(node))
    project = _project(flow, **settings)
    found = preview(spark or _session(), project, _plan(flow), flow, rows_max=rows_max, records_max=records_max)
    return pd.DataFrame(found.rows, columns=found.columns)


def run(spark: SparkSession, *flows: Flow, once: bool = False, **settings: Any) -> PipelineRun:
    """Start flows and return their run, which `stop` ends. With `once`, process the present records and return when it is done.

    `settings` are those of the TOML file (`bootstrap_servers`, `storage`, `name`, …), and `kafka` for client properties.
    """
    from ottla.pipelines import topics
    from ottla.pipelines.running import PipelineRun
    from ottla.pipelines.session import check_settings

    if not flows:
        raise PipelineError("no flow to run", hint="write p.run(spark, revenue)")
    check_settings(spark)
    project, found = _project(flows[0], **settings), _plan(*flows)
    project.check_declared(found.clusters)
    topics.check(project, found)
    started = PipelineRun(spark, project, found, once=once)
    try:
        started.start()
        while once and started.running:
            started.wait(1)
    except BaseException:
        started.stop()
        raise
    if once:
        started.stop()
    return started


def _plan(*flows: Flow) -> Plan:
    """The flows and the views they take, and the flows whose topics they read."""
    found: dict[str, Flow] = {}

    def add(flow: Flow) -> None:
        for each in flow.inputs:
            if isinstance(each, Flow):
                add(each)
        found[flow.name] = flow

    for flow in flows:
        add(flow)
    return plan(list(found.values()))


def _project(flow: Flow, kafka: Mapping[str, object] | None = None, **settings: Any) -> Project:
    settings.setdefault("bootstrap_servers", os.environ.get("OTTLA_BOOTSTRAP_SERVERS"))
    properties = {name: option_text(value) for name, value in (kafka or {}).items()}
    # A cell of a notebook is no file beside which checkpoints could be.
    return override(
        Project(Path.cwd() / flow.place.file, _NAME, storage=str(Path.cwd() / ".ottla" / _NAME), kafka=properties), **settings
    )


def _session() -> SparkSession:
    from pyspark.sql import SparkSession

    from ottla.pipelines import session

    active = SparkSession.getActiveSession()
    return active if active is not None else session.start(_NAME, "local[*]", {})
