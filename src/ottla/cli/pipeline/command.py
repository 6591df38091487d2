"""`ottla pipeline`: init, check, test, preview, run, upgrade, rollback, status, reset, compact, deploy, stop, forget."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.failure import EXIT_USAGE, Failure
from ottla.cli.forms import cell_text
from ottla.cli.options import DEFAULT_BOOTSTRAP_SERVERS, CommandConfig, Commands, Json, Yes, parse_pairs
from ottla.cli.output import counted, note, print_document, print_table
from ottla.cli.parameters import with_option_groups

if TYPE_CHECKING:
    from ottla.cli.connection import Connection
    from ottla.cli.pipeline.upgrading import UpgradeOptions
    from ottla.pipelines.definitions import Flow
    from ottla.pipelines.graph import Plan
    from ottla.pipelines.project import Project, TimeRange

app = Commands(
    help="Pipelines on Spark: init, check, test, preview, run, upgrade, rollback, status, reset, compact, deploy, stop, forget.",
    no_args_is_help=True,
)

File = Annotated[Path, typer.Argument(metavar="FILE", help="The Python file of the pipeline.")]
Settings = Annotated[
    Path | None, typer.Option("--settings", metavar="TOML", help="Its settings. (default: FILE with the suffix .toml)")
]
Env = Annotated[
    str | None,
    typer.Option(
        "--env",
        metavar="NAME",
        envvar="OTTLA_PIPELINE_ENV",
        help="The environment: [env.NAME] of the settings, and FILE.NAME.toml.",
    ),
]
Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-servers",
        "-b",
        metavar="HOST:PORT[,…]",
        envvar="OTTLA_BOOTSTRAP_SERVERS",
        help="Addresses of one or more brokers.",
    ),
]
Storage = Annotated[str | None, typer.Option("--storage", metavar="DIR", help="The directory of checkpoints and state.")]
Trigger = Annotated[str | None, typer.Option("--trigger", metavar="TIME", help="The interval of batches: '1 second'.")]
Master = Annotated[
    str | None, typer.Option("--master", metavar="URL", help="The Spark master: local[*], spark://host:7077, yarn, k8s://…")
]
Conf = Annotated[list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark (repeatable).")]
Name = Annotated[str | None, typer.Option("--name", metavar="NAME", help="The name of the pipeline, the prefix of its groups.")]
FlowNames = Annotated[list[str] | None, typer.Option("--flow", metavar="NAME", help="Only this flow (repeatable).")]

Records = Annotated[
    int, typer.Option("--records", "-n", metavar="N", min=1, help="Compare over the last N records of each source.")
]
FromTime = Annotated[str | None, typer.Option("--from", metavar="TIME", help="The records since then: 2h, 2026-11-19T10:00.")]
Sample = Annotated[int, typer.Option("--sample", metavar="N", min=0, help="Show at most N rows that differ.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Stop after the comparison: switch nothing.")]
AndRun = Annotated[bool, typer.Option("--run", help="Go on as the new driver, until Ctrl-C or SIGTERM.")]

_RUN_AGAIN = "no data is lost: run the pipeline again"


@dataclass(frozen=True)
class Given:
    """Which settings a pipeline has, and what overrides them."""

    settings: Settings = None
    env: Env = None
    bootstrap_servers: Bootstrap = None
    storage: Storage = None
    trigger: Trigger = None
    master: Master = None
    conf: Conf = None
    name: Name = None

    def project(self, file: Path, metrics: str | None = None) -> Project:
        from ottla.pipelines import project

        return project.override(
            project.read(file, self.settings, self.env),
            conf=parse_pairs(self.conf, "--conf"),
            bootstrap_servers=self.bootstrap_servers,
            storage=self.storage,
            trigger=self.trigger,
            master=self.master,
            name=self.name,
            metrics=metrics,
        )

    def loaded(self, file: Path, metrics: str | None = None) -> tuple[Project, Plan]:
        from ottla.pipelines import graph, loading

        with _explained():
            found, plan = self.project(file, metrics), graph.plan(loading.load(file))
            found.check_declared(plan.clusters)
            return found, plan


@dataclass(frozen=True)
class Comparison:
    """What `upgrade` and `rollback` compare, and what they do then."""

    records: Records = 100_000
    since: FromTime = None
    sample: Sample = 10
    dry_run: DryRun = False
    run: AndRun = False
    yes: Yes = False
    json_output: Json = False

    def options(self) -> UpgradeOptions:
        from ottla.cli.pipeline.upgrading import UpgradeOptions

        since_ms = None if self.since is None else _known_ms(self.since, "--from")
        return UpgradeOptions(self.records, since_ms, self.sample, self.dry_run, self.yes, self.run, self.json_output)


@app.add("init")
def init(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the pipeline and of its two files.")] = "orders",
) -> None:
    """Write NAME.py and NAME.toml, an example to begin with."""
    from ottla.cli.pipeline import template

    if not name.replace("_", "a").replace("-", "a").isalnum():
        raise Failure(f"{name!r} is not a name", "use letters, digits, - and _", exit_code=EXIT_USAGE)
    files = {Path(f"{name}.py"): template.PIPELINE, Path(f"{name}.toml"): template.SETTINGS}
    for file in files:
        if file.exists():
            raise Failure(f"{file} already exists", "nothing was written; choose another NAME")
    for file, text in files.items():
        file.write_text(text.format(name=name) if file.suffix == ".toml" else text.replace("{name}", name), encoding="utf-8")
        note(f"{file} written")
    note(f"next: ottla pipeline check {name}.py")


@app.add("check")
@with_option_groups
def check(
    file: File,
    given: Given,
    json_output: Json = False,
) -> None:
    """Check a pipeline: plan all its queries on Spark, read and write nothing.

    It needs no broker. With --bootstrap-servers it also checks the topics.
    """
    project, plan = given.loaded(file)
    with _explained():
        from ottla.cli.pipeline.running import spark_session
        from ottla.pipelines import frames, preflight, topics

        preflight.check_java()
        preflight.check_secrets(plan)
        creates: list[topics.MissingTopic] = []
        if given.bootstrap_servers is not None:
            topics.check(project, plan)
            creates = topics.missing(project, plan)
            preflight.check_databases(plan)
        preflight.check_master_answers(project.master)
        with spark_session(project, ship=False) as spark:
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
        print_document({"pipeline": project.name, "flows": flows, "creates": [asdict(each) for each in creates]})
        return
    for each in creates:
        count = "the broker's default number of partitions" if each.partitions is None else counted(each.partitions, "partition")
        where = "" if each.cluster is None else f" in cluster {each.cluster}"
        note(f"{each.place}: topic {each.topic} ({each.use}) does not exist{where}: run creates it with {count}")
    print_table(
        ["FLOW", "INPUTS", "TO", "COLUMNS"],
        [
            [each["flow"], ", ".join(each["inputs"]), each["to"], ", ".join(f"{n} {k}" for n, k in each["columns"].items())]
            for each in flows
        ],
    )


@app.add("run")
@with_option_groups
def run(
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="The Python files of pipelines; several share one Spark.")],
    given: Given,
    once: Annotated[bool, typer.Option("--once", help="Process the present records, then stop.")] = False,
    metrics: Annotated[
        str | None, typer.Option("--metrics", metavar="HOST:PORT", help="Serve metrics for Prometheus here.")
    ] = None,
    since: FromTime = None,
    until: Annotated[
        str | None,
        typer.Option("--to", metavar="TIME", help="Process the records from --from to this time, then stop. (default: now)"),
    ] = None,
    flow: Annotated[
        list[str] | None, typer.Option("--flow", metavar="NAME", help="With --from: only this flow (repeatable).")
    ] = None,
    json_output: Json = False,
) -> None:
    """Run pipelines until Ctrl-C or SIGTERM, which let the running batch finish.

    Several pipelines share one Spark application. One that fails stops no other.

    With --from TIME it is a backfill: it processes the records of a stretch of time beside the live pipeline, with checkpoints
    and groups of its own, and ends.
    """
    if since is None and (until is not None or flow):
        raise Failure("--to and --flow are for a backfill", "pass --from TIME", exit_code=EXIT_USAGE)
    own = {"--settings": given.settings, "--storage": given.storage, "--name": given.name, "--metrics": metrics}
    of_one = [flag for flag, value in own.items() if value is not None]
    if len(files) > 1 and of_one:
        raise Failure(f"{of_one[0]} is for one pipeline", "write it into the TOML of each", exit_code=EXIT_USAGE)
    pipelines = [given.loaded(file, metrics) for file in files]
    with _explained():
        from ottla.cli.pipeline.running import run_flows, spark_session
        from ottla.pipelines import loading, preflight, topics
        from ottla.pipelines.project import TimeRange, shared

        preflight.check_java()
        loading.refuse_shared_modules(files)
        if since is not None:
            stretch = TimeRange(_known_ms(since, "--from"), _known_ms(until or "0s", "--to"))
            pipelines = [_backfill(project, plan, stretch, flow) for project, plan in pipelines]
        together = shared([project for project, _ in pipelines])
        for project, plan in pipelines:
            preflight.check_secrets(plan)
            preflight.check_storage(project.storage)
            topics.check(project, plan)
            preflight.check_tables(plan)
        preflight.check_master_answers(together.master)
        if not json_output:
            kind = "pipeline" if len(pipelines) == 1 else "pipelines"
            note(f"{kind} {', '.join(project.name for project, _ in pipelines)}: starting Spark on {together.master}")
        with spark_session(together, ship=together.ship) as spark:
            run_flows(spark, pipelines, once=once, json_output=json_output)


@app.add("test")
def run_cases(
    file: File,
    case: Annotated[list[str] | None, typer.Option("--case", metavar="NAME", help="Only this case (repeatable).")] = None,
    update: Annotated[bool, typer.Option("--update", help="Write what comes out as what is expected.")] = False,
    settings: Settings = None,
    env: Env = None,
    conf: Conf = None,
    json_output: Json = False,
) -> None:
    """Run a pipeline on the rows of its cases and compare what it makes. Needs no broker.

    The cases of orders.py are the directories in orders.tests: rows in SOURCE.jsonl, what should come of them in
    expected/FLOW.jsonl.
    """
    project, plan = Given(settings, env, conf=conf).loaded(file)
    with _explained():
        from ottla.pipelines import trial_cases
        from ottla.testing.flows import small_spark

        found = trial_cases.cases(file, case or ())
        with small_spark(project.conf) as spark:
            outcomes = [trial_cases.run(spark, plan, each, update=update) for each in found]
    failed = [each.case for each in outcomes if each.differences]
    if json_output:
        print_document({"pipeline": project.name, "cases": [asdict(each) for each in outcomes]})
    else:
        for outcome in outcomes:
            rows = ", ".join(f"{name} {counted(count, 'row')}" for name, count in outcome.rows.items())
            print(f"{'differs' if outcome.differences else 'written' if update else 'ok':8}{outcome.case}: {rows}")
            for name, lines in outcome.differences.items():
                print(f"  {name}: - expected, + found")
                for line in lines:
                    print(f"    {line}")
    if failed:
        raise Failure(
            f"not as expected: {', '.join(failed)} ({len(failed)} of {counted(len(outcomes), 'case')})",
            "--update accepts what was found",
        )


@app.add("upgrade", changes=True)
@with_option_groups
def upgrade(
    file: File,
    given: Given,
    comparison: Comparison,
    old: Annotated[
        Path | None, typer.Option("--old", metavar="FILE", help="The code that runs now. (default: what `run` has kept)")
    ] = None,
) -> None:
    """Replace the code of a running pipeline: compare both versions over past records, then switch in one Kafka transaction.

    The driver of the old version ends at the switch. Readers with read_committed see each result once.
    """
    with _explained():
        from ottla.cli.pipeline import upgrading

        upgrading.upgrade(given.project(file), comparison.options(), old)


@app.add("rollback", changes=True)
@with_option_groups
def rollback(
    file: File,
    given: Given,
    comparison: Comparison,
    to: Annotated[int | None, typer.Option("--to", metavar="VERSION", help="An older version than the one before.")] = None,
) -> None:
    """Make the code of an older version live again, as `upgrade` does. FILE only names the pipeline: its code is not read."""
    with _explained():
        from ottla.cli.pipeline import upgrading

        upgrading.rollback(given.project(file), comparison.options(), to)


def _known_ms(text: str, option: str) -> int:
    from ottla.cli.positions import parse_time_ms

    found = parse_time_ms(text, int(time.time() * 1000))
    if found is None:
        raise Failure(f"{option} {text!r} is not a time", "write 2h, 2026-11-19T10:00 or @1763546400000", exit_code=EXIT_USAGE)
    return found


def _backfill(project: Project, plan: Plan, stretch: TimeRange, names: list[str] | None) -> tuple[Project, Plan]:
    from ottla.pipelines import backfill

    own = backfill.project_of(project, stretch)
    chosen, left_out = backfill.plan_of(plan, [each.name for each in _chosen(plan.queries, names)] if names else [])
    note(f"backfill from {backfill.time_text(stretch.from_ms)} to {backfill.time_text(stretch.to_ms)}: {own.name}")
    for each in left_out:
        note(f"flow {each.name} is left out: the live pipeline passes on what others write to its topic")
    return own, chosen


@app.add("preview")
def preview(
    file: File,
    flow: FlowNames = None,
    rows: Annotated[int, typer.Option("--rows", "-n", metavar="N", min=1, help="Rows to show of each flow.")] = 20,
    records: Annotated[
        int, typer.Option("--records", metavar="N", min=1, help="The last records to read of each source.")
    ] = 1_000,
    settings: Settings = None,
    env: Env = None,
    bootstrap_servers: Bootstrap = None,
    master: Master = None,
    conf: Conf = None,
    json_output: Json = False,
) -> None:
    """Show what flows make of the last records of their topics. Writes nothing, commits nothing.

    The records are one batch: windows are shown as they are, also open ones.
    """
    project, plan = Given(settings, env, bootstrap_servers, master=master, conf=conf).loaded(file)
    chosen = _chosen(plan.flows if flow else plan.queries, flow)
    with _explained():
        from ottla.cli.pipeline.running import spark_session
        from ottla.pipelines import preflight, topics
        from ottla.pipelines.preview import plain
        from ottla.pipelines.preview import preview as look

        preflight.check_java()
        for cluster in dict.fromkeys(each_cluster for each in chosen for each_cluster in plan.clusters_read(each)):
            topics.connect(project, cluster)
        preflight.check_master_answers(project.master)
        with spark_session(project, ship=project.ship) as spark:
            found = [look(spark, project, plan, each, rows_max=rows, records_max=records) for each in chosen]
    if json_output:
        print_document({"pipeline": project.name, "flows": [plain(asdict(each)) for each in found]})
        return
    for each in found:
        read = ", ".join(f"{counted(count, 'record')} of {source}" for source, count in each.read.items())
        print(f"{each.flow}: {counted(len(each.rows), 'row')} of {read or 'files'}")
        for reason, count in each.unparsed.items():
            note(f"{counted(count, 'record')} of its sources: {reason}")
        if each.rows:
            cells = [[plain(row[name]) for name in each.columns] for row in each.rows]
            print_table(each.columns, [[None if cell is None else cell_text(cell) for cell in row] for row in cells], none="-")


@app.add("status")
def status(
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="The Python file of the pipeline.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All pipelines of the cluster, by what they publish.")] = False,
    settings: Settings = None,
    env: Env = None,
    bootstrap_servers: Bootstrap = None,
    command_config: CommandConfig = None,
    storage: Storage = None,
    name: Name = None,
    json_output: Json = False,
) -> None:
    """Show each flow's committed offsets, lag and checkpoint.

    With --all it needs no FILE and shows the state and progress of all pipelines that publish to the cluster, also of those whose
    driver is gone.
    """
    if every:
        if file is not None or settings is not None or env is not None or storage is not None or name is not None:
            raise Failure("--all shows every pipeline of the cluster: give it no FILE", exit_code=EXIT_USAGE)
        from ottla.cli.pipeline.published import show_all

        show_all(_connection(bootstrap_servers, command_config), json_output=json_output)
        return
    if file is None:
        raise Failure("FILE is missing", "name a pipeline's file, or pass --all", exit_code=EXIT_USAGE)
    if command_config is not None:
        hint = "the client properties of a pipeline are in its TOML, section [kafka]"
        raise Failure("--command-config is for --all", hint, exit_code=EXIT_USAGE)
    project, plan = Given(settings, env, bootstrap_servers, storage, name=name).loaded(file)
    with _explained():
        from ottla.pipelines.status import status as flow_status

        found = flow_status(project, plan)
    if json_output:
        print_document({"pipeline": project.name, "flows": [each.document() for each in found]})
        return
    several = any(each is not None for each in plan.clusters)
    print_table(
        ["FLOW", *(["FROM", "TO"] if several else []), "GROUP", "VERSION", "COMMITTED", "LAG", "BATCH", "IN-SINK", "CHECKPOINT"],
        [
            [
                each.flow,
                *([", ".join(name or "-" for name in each.reads_clusters), each.cluster or "-"] if several else []),
                each.group_id,
                each.version,
                each.committed,
                "-" if each.lag is None else each.lag,
                "-" if each.batch is None else each.batch,
                "-" if each.sink_batch is None else each.sink_batch,
                each.checkpoint if each.query_id else f"{each.checkpoint} (not started)",
            ]
            for each in found
        ],
        right=["VERSION", "COMMITTED", "LAG", "BATCH", "IN-SINK"],
    )


@app.add("reset")
def reset(
    file: File,
    settings: Settings = None,
    env: Env = None,
    bootstrap_servers: Bootstrap = None,
    storage: Storage = None,
    name: Name = None,
    flow: FlowNames = None,
    to: Annotated[str | None, typer.Option("--to", metavar="earliest|latest|TIME", help="Where the next run starts.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    yes: Yes = False,
) -> None:
    """Remove the checkpoints of flows: the next run starts anew. Written records stay and may be written a second time."""
    project, plan = Given(settings, env, bootstrap_servers, storage, name=name).loaded(file)
    chosen = [each.name for each in _chosen(plan.queries, flow)]
    if not yes and not dry_run:
        if not sys.stdin.isatty():
            raise Failure("no terminal to ask for confirmation", "pass --yes", exit_code=EXIT_USAGE)
        typer.confirm(f"Remove the checkpoints of {', '.join(chosen)} in {project.storage}?", abort=True)
    with _explained():
        from ottla.pipelines.reset import reset as reset_flows

        place = to if to in (None, "earliest", "latest") else _known_ms(to, "--to")
        for line in reset_flows(project, plan, chosen, place, execute=not dry_run):
            note(line)


@app.add("compact")
def compact(
    file: File,
    settings: Settings = None,
    env: Env = None,
    master: Master = None,
    conf: Conf = None,
    name: Name = None,
    flow: FlowNames = None,
    json_output: Json = False,
) -> None:
    """Make few large files of the many small ones in tables of files. It needs no broker, and the pipeline may run meanwhile."""
    project, plan = Given(settings, env, master=master, conf=conf, name=name).loaded(file)
    with _explained():
        from ottla.cli.pipeline.running import spark_session
        from ottla.pipelines.tables import compaction

        chosen = []
        for each_flow in _chosen(plan.queries, flow):
            why = compaction.refusal(plan, each_flow)
            if why is None:
                chosen.append(each_flow)
            elif flow:
                raise Failure(f"flow {each_flow.name!r}: {why}", exit_code=EXIT_USAGE)
            else:
                note(f"flow {each_flow.name}: not compacted: {why}")
        found = []
        if chosen:
            with spark_session(project, ship=False) as spark:
                found = [compaction.compact(spark, each_flow) for each_flow in chosen]
    if json_output:
        print_document({"pipeline": project.name, "tables": [asdict(each) for each in found]})
        return
    print_table(
        ["FLOW", "TABLE", "DIRECTORIES", "FILES-BEFORE", "FILES-AFTER"],
        [[each.flow, each.table, each.directories, each.files_before, each.files_after] for each in found],
        right=["DIRECTORIES", "FILES-BEFORE", "FILES-AFTER"],
    )


@app.add("deploy")
def deploy(
    kind: Annotated[str, typer.Argument(metavar="systemd|spark-operator", help="What shall run the pipeline.")],
    file: File,
    settings: Settings = None,
    env: Env = None,
    name: Name = None,
    user: Annotated[str, typer.Option("--user", metavar="USER", help="systemd: the user that runs it.")] = "ottla",
    image: Annotated[
        str, typer.Option("--image", metavar="IMAGE", help="spark-operator: the image of driver and executors.")
    ] = "",
    namespace: Annotated[str, typer.Option("--namespace", metavar="NAME", help="spark-operator: the namespace.")] = "default",
) -> None:
    """Print a unit for systemd, or a manifest for Spark's operator on Kubernetes. Neither holds settings or secrets."""
    from ottla.pipelines import deployment

    if kind not in deployment.KINDS:
        raise Failure(f"{kind!r} is unknown", f"use {' or '.join(deployment.KINDS)}", exit_code=EXIT_USAGE)
    if kind == "spark-operator" and not image:
        raise Failure("--image is missing", "name an image with Spark, Python and ottla[spark]", exit_code=EXIT_USAGE)
    from ottla.pipelines import graph, loading
    from ottla.pipelines.project import name_of

    with _explained():
        graph.plan(loading.load(file))
        # The secrets of the settings need not be on this machine.
        named = name or name_of(file, settings, env)
    if kind == "systemd":
        print(deployment.systemd(file, named, [sys.executable, "-m", "ottla"], env, user), end="")
    else:
        print(deployment.spark_operator(file, named, image, env, namespace), end="")


@app.add("stop", changes=True)
def stop(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the pipeline, as `status --all` shows it.")],
    bootstrap_servers: Bootstrap = None,
    command_config: CommandConfig = None,
) -> None:
    """Stop a running pipeline between two batches, wherever its driver is. Run again, it goes on where it stopped."""
    from ottla.cli.pipeline import published

    published.stop(_connection(bootstrap_servers, command_config), name)


@app.add("forget", changes=True)
def forget(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the pipeline, as `status --all` shows it.")],
    bootstrap_servers: Bootstrap = None,
    command_config: CommandConfig = None,
) -> None:
    """Remove a stopped pipeline from `status --all`. Its topics, groups and checkpoints stay."""
    from ottla.cli.pipeline import published

    published.forget(_connection(bootstrap_servers, command_config), name)


def _chosen(flows: Sequence[Flow], names: list[str] | None) -> list[Flow]:
    """The flows of these names, or all."""
    known = [each.name for each in flows]
    for each in names or []:
        if each not in known:
            raise Failure(f"flow {each!r} does not exist", f"the flows are {', '.join(known)}", exit_code=EXIT_USAGE)
    return [each for each in flows if not names or each.name in names]


def _connection(bootstrap_servers: str | None, command_config: Path | None) -> Connection:
    from ottla.cli.connection import Connection

    return Connection(bootstrap_servers or DEFAULT_BOOTSTRAP_SERVERS, command_config)


@contextmanager
def _explained() -> Iterator[None]:
    """Turn errors of a pipeline, of its broker and of Spark's Java process into a Failure."""
    from ottla.client.blocking import BrokerAway
    from ottla.errors import KafkaError
    from ottla.pipelines import PipelineError
    from ottla.pipelines.spark_jvm import has_ended

    try:
        yield
    except PipelineError as error:
        # Notes hold later errors, such as a query that does not stop.
        said = [*([error.hint] if error.hint else []), *getattr(error, "__notes__", ())]
        raise Failure(str(error), "; ".join(said) or None) from error
    except (BrokerAway, KafkaError) as error:
        raise Failure(str(error), _RUN_AGAIN) from error
    except Exception as error:
        # Python meets different errors then, depending on its next call into Java.
        if has_ended(error):
            raise Failure("Spark's Java process ended (killed, or out of memory?)", _RUN_AGAIN) from error
        raise


def _target(target: Any) -> str:
    from ottla.pipelines.definitions import Sink

    if isinstance(target, Sink):
        return f"topic {target.topic}" + ("" if target.cluster is None else f" of {target.cluster.name}")
    return f"{target.format} {target.path}"
