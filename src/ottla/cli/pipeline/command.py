"""`ottla pipeline`: pipelines on Spark, from a first file to a running one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.failure import EXIT_USAGE, Failure, guarded
from ottla.cli.options import Json, Yes, parse_pairs
from ottla.cli.output import note, print_document, print_line, print_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.pipelines.failure import PipelineError
    from ottla.pipelines.graph import Plan
    from ottla.pipelines.project import Project

app = typer.Typer(help="Pipelines on Spark: check, run, watch, begin anew.", no_args_is_help=True)

File = Annotated[Path, typer.Argument(metavar="FILE", help="The pipeline, a Python file.")]
Settings = Annotated[Path | None, typer.Option("--settings", metavar="TOML", help="Default: FILE with the ending .toml.")]
Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-servers", "-b", metavar="HOST:PORT[,…]", envvar="OTTLA_BOOTSTRAP_SERVERS", help="Where the cluster is."
    ),
]
Storage = Annotated[str | None, typer.Option("--storage", metavar="DIR", help="For checkpoints and state.")]
Trigger = Annotated[str | None, typer.Option("--trigger", metavar="TIME", help="How often a batch begins: '1 second'.")]
Master = Annotated[str | None, typer.Option("--master", metavar="URL", help="local[*], spark://host:7077, yarn, k8s://…")]
Conf = Annotated[list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="One setting of Spark.")]
Name = Annotated[str | None, typer.Option("--name", metavar="NAME", help="Of the pipeline: its groups begin with it.")]
FlowNames = Annotated[list[str] | None, typer.Option("--flow", metavar="NAME", help="Only this one; may be given again.")]

_EXAMPLE = '''"""{name}: orders become revenue by customer, every ten seconds."""

from pyspark.sql import functions as F

from ottla import pipelines as p

orders = p.source(
    "orders",
    p.json("order_id string, customer string, amount double, at timestamp"),
    dead_letter="orders.dlq",
)


@p.flow(orders, to=p.sink("revenue", key="customer"))
def revenue(orders):
    windows = orders.withWatermark("at", "1 minute").groupBy(F.window("at", "10 seconds"), "customer")
    return windows.agg(F.sum("amount").alias("total"))


p.sql(orders, to=p.sink("big_orders", key="order_id"), query="SELECT * FROM orders WHERE amount > 1000")
'''
_SETTINGS = """# How {name}.py runs. Every line can be overridden on the command line.
[pipeline]
bootstrap_servers = "127.0.0.1:9092"
storage = ".ottla/{name}"        # checkpoints and state: keep it
trigger = "1 second"

[spark]
master = "local[*]"

[spark.conf]
"spark.sql.shuffle.partitions" = 4
"""


@app.command("init")
@guarded
def init(name: Annotated[str, typer.Argument(metavar="NAME", help="Of the pipeline and its two files.")] = "orders") -> None:
    """Write NAME.py and NAME.toml to begin with."""
    if not name.replace("_", "a").replace("-", "a").isalnum():
        raise Failure(f"{name!r} is no name", "letters, digits, - and _", exit_code=EXIT_USAGE)
    files = {Path(f"{name}.py"): _EXAMPLE, Path(f"{name}.toml"): _SETTINGS}
    for file in files:
        if file.exists():
            raise Failure(f"{file} is there already", "nothing was written")
    for file, text in files.items():
        file.write_text(text.format(name=name) if file.suffix == ".toml" else text.replace("{name}", name), encoding="utf-8")
        note(f"{file} written")
    note(f"next: ottla pipeline check {name}.py")


@app.command("check")
@guarded
def check(
    file: File,
    settings: Settings = None,
    bootstrap_servers: Bootstrap = None,
    storage: Storage = None,
    trigger: Trigger = None,
    master: Master = None,
    conf: Conf = None,
    name: Name = None,
    json_output: Json = False,
) -> None:
    """Plan it on Spark, read and write nothing: every mistake that can be known before is found.

    It needs no broker; one that --bootstrap-servers names is asked for the topics.
    """
    project, plan = _loaded(file, settings, bootstrap_servers, storage, trigger, master, conf, name)
    with _failures():
        from ottla.pipelines import frames, topics

        if bootstrap_servers is not None:
            topics.check(project, plan)
        with _spark(project, ship=False) as spark:
            results = frames.check(spark, project, plan)
            flows: list[dict[str, Any]] = [
                {
                    "flow": flow.name,
                    "place": str(flow.place),
                    "inputs": [node.name for node in plan.inputs[flow.name]],
                    "to": _target(flow.to),
                    "columns": {column.name: column.dataType.simpleString() for column in results[flow.name].schema.fields},
                }
                for flow in plan.queries
            ]
    if json_output:
        print_document({"pipeline": project.name, "flows": flows})
        return
    print_table(
        ["FLOW", "INPUTS", "TO", "COLUMNS"],
        [
            [each["flow"], ", ".join(each["inputs"]), each["to"], ", ".join(f"{n} {k}" for n, k in each["columns"].items())]
            for each in flows
        ],
    )


@app.command("run")
@guarded
def run(
    file: File,
    settings: Settings = None,
    bootstrap_servers: Bootstrap = None,
    storage: Storage = None,
    trigger: Trigger = None,
    master: Master = None,
    conf: Conf = None,
    name: Name = None,
    once: Annotated[bool, typer.Option("--once", help="What is there now, then stop.")] = False,
    metrics: Annotated[str | None, typer.Option("--metrics", metavar="HOST:PORT", help="A page for Prometheus.")] = None,
    json_output: Json = False,
) -> None:
    """Run until SIGTERM or Ctrl-C, which let the running batch finish."""
    project, plan = _loaded(file, settings, bootstrap_servers, storage, trigger, master, conf, name, metrics=metrics)
    with _failures():
        from ottla.pipelines import topics

        topics.check(project, plan)
        if not json_output:
            note(f"pipeline {project.name}: starting Spark on {project.master}")
        with _spark(project, ship=project.ship) as spark:
            _run(spark, project, plan, once=once, json_output=json_output)


@contextmanager
def _spark(project: Project, *, ship: bool) -> Iterator[SparkSession]:
    from ottla.pipelines import session

    spark = session.start(project.name, project.master, project.conf, ship=ship)
    try:
        yield spark
    finally:
        # Everything is done or told by now: a Java that went away does not change it, and must not hide it.
        with suppress(Exception):
            spark.stop()


def _run(spark: Any, project: Project, plan: Plan, *, once: bool, json_output: bool) -> None:
    import signal

    from ottla.pipelines import progress, progress_metrics, progress_table, running

    flows = running.PipelineRun(spark, project, plan, once=once)
    live = sys.stdout.isatty() and not json_output
    tell = None if live else (_print_now if json_output else lambda found: print(progress_table.line(found), flush=True))
    watch = progress.Watch(f"{project.name}.", flows.sinks, tell)
    if project.metrics is not None:
        progress_metrics.serve_metrics(project.metrics, project.name, watch)

    def stop(number: int, frame: object) -> None:
        flows.stopping.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    listener = progress.listen(spark, watch)
    names = [flow.name for flow in plan.queries]
    try:
        with flows:
            flows.start()
            if live:
                _watch_live(flows, watch, project.name, names)
            else:
                while flows.running and not flows.stopping.is_set():
                    flows.wait(3600)
            stopped = flows.stopping.is_set()
            if stopped and not json_output:
                note("stopping: the running batch is finished first")
    finally:
        progress.unlisten(spark, listener)
        for number, handler in before.items():
            signal.signal(number, handler)
    if not json_output:
        totals = [f"{name} {sink.totals.records:,}" for name, sink in flows.sinks.items()]
        note(f"pipeline {project.name}: {'stopped' if stopped else 'done'}; records written: {', '.join(totals)}")


def _print_now(found: dict[str, Any]) -> None:
    print_line(found)
    sys.stdout.flush()


def _watch_live(flows: Any, watch: Any, name: str, names: list[str]) -> None:
    from rich.live import Live

    from ottla.pipelines import progress_table

    with Live(progress_table.table(name, names, watch), refresh_per_second=4) as live:
        while flows.running and not flows.stopping.is_set():
            flows.wait(0.5)
            live.update(progress_table.table(name, names, watch, "Ctrl-C lets the running batch finish", live.console.width))


@app.command("status")
@guarded
def status(
    file: File,
    settings: Settings = None,
    bootstrap_servers: Bootstrap = None,
    storage: Storage = None,
    name: Name = None,
    json_output: Json = False,
) -> None:
    """How far each flow is: its group's offsets and lag, its checkpoint."""
    project, plan = _loaded(file, settings, bootstrap_servers, storage, None, None, None, name)
    with _failures():
        from ottla.pipelines.status import status as flow_status

        found = flow_status(project, plan)
    if json_output:
        print_document({"pipeline": project.name, "flows": [each.document() for each in found]})
        return
    print_table(
        ["FLOW", "GROUP", "COMMITTED", "LAG", "BATCH", "IN-SINK", "CHECKPOINT"],
        [
            [
                each.flow,
                each.group_id,
                each.committed,
                "-" if each.lag is None else each.lag,
                "-" if each.batch is None else each.batch,
                "-" if each.sink_batch is None else each.sink_batch,
                each.checkpoint if each.query_id else f"{each.checkpoint} (not begun)",
            ]
            for each in found
        ],
        right=["COMMITTED", "LAG", "BATCH", "IN-SINK"],
    )


@app.command("reset")
@guarded
def reset(
    file: File,
    settings: Settings = None,
    bootstrap_servers: Bootstrap = None,
    storage: Storage = None,
    name: Name = None,
    flow: FlowNames = None,
    to: Annotated[str | None, typer.Option("--to", metavar="earliest|latest", help="Where the next start begins.")] = None,
    yes: Yes = False,
) -> None:
    """Forget how far flows are: checkpoints are removed, data is not. What was written stays, and may be written again."""
    project, plan = _loaded(file, settings, bootstrap_servers, storage, None, None, None, name)
    known = [each.name for each in plan.queries]
    for each in flow or []:
        if each not in known:
            raise Failure(f"there is no flow {each!r}", f"there are {', '.join(known)}", exit_code=EXIT_USAGE)
    chosen = flow or known
    if not yes:
        if not sys.stdin.isatty():
            raise Failure("nobody to ask", "--yes does it without asking", exit_code=EXIT_USAGE)
        typer.confirm(f"Forget the progress of {', '.join(chosen)} in {project.storage}?", abort=True)
    with _failures():
        from ottla.pipelines.reset import reset as reset_flows

        for line in reset_flows(project, plan, chosen, to):
            note(line)


def _loaded(
    file: Path,
    settings: Path | None,
    bootstrap_servers: str | None,
    storage: str | None,
    trigger: str | None,
    master: str | None,
    conf: list[str] | None,
    name: str | None,
    metrics: str | None = None,
) -> tuple[Project, Plan]:
    from ottla.pipelines import graph, loading, project

    pairs = parse_pairs(conf, "--conf")
    with _failures():
        found = project.override(
            project.read(file, settings),
            conf=pairs,
            bootstrap_servers=bootstrap_servers,
            storage=storage,
            trigger=trigger,
            master=master,
            name=name,
            metrics=metrics,
        )
        return found, graph.plan(loading.load(file))


class _failures:
    """What is wrong with a pipeline, as the command line says it."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        from ottla.client.blocking import BrokerAway
        from ottla.errors import KafkaError
        from ottla.pipelines.failure import PipelineError

        if isinstance(error, PipelineError):
            raise _failure(error) from error
        if isinstance(error, BrokerAway | KafkaError):
            raise Failure(str(error), "nothing is lost: run it again") from error
        if isinstance(error, Exception) and _java_ended(error):
            # What Python meets then depends on what it was about to ask.
            raise Failure("Spark's Java process is gone (killed, or out of memory?)", "nothing is lost: run it again") from error


def _java_ended(error: Exception) -> bool:
    if "pyspark" not in sys.modules or not (isinstance(error, OSError) or type(error).__module__.startswith("py4j")):
        return False
    from subprocess import TimeoutExpired

    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    try:
        # Its connections are gone a moment before it is.
        return process is not None and process.wait(5) is not None
    except TimeoutExpired:
        return False


def _failure(error: PipelineError) -> Failure:
    # What went wrong after it (a query that does not stop) is noted on the error.
    said = [*([error.hint] if error.hint else []), *getattr(error, "__notes__", ())]
    return Failure(str(error), "; ".join(said) or None)


def _target(target: Any) -> str:
    from ottla.pipelines.definitions import Sink

    return f"topic {target.topic}" if isinstance(target, Sink) else f"{target.format} {target.path}"
