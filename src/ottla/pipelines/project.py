"""The settings of a pipeline: the TOML file beside it, overridden by the flags of the command line.

    [pipeline]
    name = "orders"                       # default: the file's name
    bootstrap_servers = "127.0.0.1:9092"
    storage = ".ottla/orders"             # checkpoints and state; any file system Spark knows
    trigger = "1 second"
    transaction_timeout = "10 minutes"
    metrics = "127.0.0.1:9404"            # Prometheus; off by default
    publish = true                        # plan and progress to the topic __ottla_pipelines
    restart = "on-failure"                # a flow that failed; default: never
    restart_backoff = "1 second"          # doubles with each failure, up to restart_backoff_max
    restart_backoff_max = "5 minutes"
    compact = "1 hour"                    # the interval at which small files of tables become large ones; off by default

    [alerts]                              # of flows that fail and run again, as JSON
    command = "mail-it"
    webhook = "https://example.org/hook"

    [kafka]                               # properties of the client, by Kafka's names
    "security.protocol" = "SASL_SSL"

    [clusters.east]                       # another cluster, which sources and sinks name
    "bootstrap.servers" = "east:9092"

    [spark]
    master = "local[*]"
    ship = true                           # false where Ottla is installed on the executors

    [spark.conf]
    "spark.sql.shuffle.partitions" = 8

    [env.prod.pipeline]                   # what `--env prod` changes; so does the file orders.prod.toml
    bootstrap_servers = "broker:9092"

Texts may refer to secrets (`secrets`). Errors name the file and, if known, the line.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ottla.pipelines.definitions import Cluster
from ottla.pipelines.failure import PipelineError, Place
from ottla.pipelines.marker import FIRST
from ottla.pipelines.preflight import check_master_name
from ottla.pipelines.secrets import all_resolved, resolved
from ottla.pipelines.values import option_text

_DURATION = re.compile(r"(\d+)\s*(ms|milliseconds?|s|seconds?|m|minutes?|h|hours?)")
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}
_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")
_SWITCHES = ("ship", "publish")
_DURATIONS = ("trigger", "transaction_timeout", "restart_backoff", "restart_backoff_max", "compact")
NEVER, ON_FAILURE = "never", "on-failure"
_KNOWN = {
    "pipeline": (
        *("name", "bootstrap_servers", "storage", "trigger", "transaction_timeout", "metrics", "publish"),
        *("restart", "restart_backoff", "restart_backoff_max", "compact"),
    ),
    "spark": ("master", "ship"),
    "alerts": ("command", "webhook"),
}
_ADDRESS = re.compile(r".*:\d{1,5}")

# Settings that would break exactly once.
_FORBIDDEN_CONF = {
    "spark.speculation": ("true", "two copies of a task would write the same records"),
    "spark.sql.streaming.asyncProgressTrackingEnabled": ("true", "a batch must be in the checkpoint before the next one starts"),
}


@dataclass(frozen=True)
class TimeRange:
    """The records from the first at or after `from_ms` up to the first at or after `to_ms`, in each partition."""

    from_ms: int
    to_ms: int


@dataclass(frozen=True)
class Project:
    file: Path
    name: str
    bootstrap_servers: str = "127.0.0.1:9092"
    storage: str = ""
    trigger_ms: int = 1_000
    transaction_timeout_ms: int = 600_000
    metrics: str | None = None
    publish: bool = True
    restart: str = NEVER
    restart_backoff_ms: int = 1_000
    restart_backoff_max_ms: int = 300_000
    compact_ms: int | None = None
    alert_command: str | None = None
    alert_webhook: str | None = None
    master: str = "local[*]"
    ship: bool = True
    conf: Mapping[str, str] = field(default_factory=dict)
    kafka: Mapping[str, str] = field(default_factory=dict)
    clusters: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Client properties of other clusters, by their names."""
    stretch: TimeRange | None = None
    """Of a backfill: what it reads. It ends then."""
    version: str = FIRST
    """The version of the pipeline that runs: `switch.live_project` reads it from the cluster."""
    generations: Mapping[str, str] = field(default_factory=dict)
    """Of the checkpoints of flows that an upgrade gave a new one."""

    def generation(self, flow: str) -> str:
        return self.generations.get(flow, FIRST)

    def checkpoint(self, flow: str) -> str:
        generation = self.generation(flow)
        return f"{self.storage.rstrip('/')}/{flow}{'' if generation == FIRST else f'.v{generation}'}"

    @property
    def switch_id(self) -> str:
        """The transactional id of the transaction that makes another version live. No flow has such a name."""
        return f"{self.name}.version-switch"

    def group_id(self, flow: str) -> str:
        """The consumer group that holds the flow's committed offsets, and the transactional id of its sink."""
        return f"{self.name}.{flow}"

    def kafka_options(self, cluster: Cluster | None = None) -> dict[str, str]:
        """The client properties of a cluster, by default of the pipeline's own, as options of `format("ottla")`."""
        given: Mapping[str, str] = {"bootstrap.servers": self.bootstrap_servers, **self.kafka}
        if cluster is not None:
            given = self._properties(cluster)
        return {f"kafka.{name}": value for name, value in given.items()}

    def check_declared(self, clusters: Iterable[Cluster | None]) -> None:
        """PipelineError if neither the pipeline's file nor its settings declare one of the clusters."""
        for cluster in clusters:
            if cluster is None or cluster.settings or cluster.name in self.clusters:
                continue
            known = ", ".join(sorted(self.clusters)) or "none"
            how = f'write p.cluster("{cluster.name}", …) before it, or [clusters.{cluster.name}] in the TOML'
            raise PipelineError(f"cluster {cluster.name!r} is not declared", cluster.place, hint=f"{how}; it declares: {known}")

    def _properties(self, cluster: Cluster) -> dict[str, str]:
        self.check_declared([cluster])
        try:
            declared = {name: resolved(value) for name, value in cluster.settings}
        except ValueError as error:
            raise PipelineError(f"cluster {cluster.name!r}: {error}", cluster.place) from None
        found = {**declared, **self.clusters.get(cluster.name, {})}
        if not found.get("bootstrap.servers"):
            hint = '"bootstrap.servers" names its brokers: host:port,host:port'
            raise PipelineError(f"cluster {cluster.name!r} has no bootstrap.servers", cluster.place, hint=hint)
        return found


def read(pipeline: str | Path, settings: str | Path | None = None, env: str | None = None) -> Project:
    """The project of a pipeline's file. Its TOML may be missing, unless `settings` names it.

    With `env` the section [env.NAME] of the TOML, and the file NAME.toml beside it (`orders.prod.toml`), change its settings.
    """
    file = _pipeline_file(pipeline)
    toml = Path(settings) if settings is not None else file.with_suffix(".toml")
    overlay = toml.with_suffix(f".{env}.toml") if env is not None else toml
    found = Project(file, file.stem)
    names: list[str] = []
    if toml.is_file():
        text, document = _parsed(toml)
        envs = document.pop("env", {})
        if not isinstance(envs, dict) or not all(isinstance(each, dict) for each in envs.values()):
            raise PipelineError("env is not a section", Place(str(toml), 1), hint="write [env.prod.pipeline]")
        names = sorted(envs)
        found = _from(found, toml, text, document)
        if env in envs:
            found = _from(found, toml, text, envs[env])
    elif settings is not None:
        raise PipelineError(f"{toml}: no such file")
    if env is not None and overlay.is_file():
        found = _from(found, overlay, *_parsed(overlay))
    elif env is not None and env not in names:
        beside = [path.name.split(".")[-2] for path in sorted(toml.parent.glob(f"{toml.stem}.*.toml"))]
        known = ", ".join([*names, *beside]) or "none"
        raise PipelineError(
            f"--env {env}: {toml} has no section [env.{env}], and {overlay} does not exist", hint=f"declared: {known}"
        )
    return _complete(found)


def _pipeline_file(pipeline: str | Path) -> Path:
    file = Path(pipeline)
    if file.is_dir():
        raise PipelineError(f"{file} is a directory", hint="name the Python file of a pipeline")
    return file


def name_of(pipeline: str | Path, settings: str | Path | None = None, env: str | None = None) -> str:
    """The name of a pipeline, without the other settings: their secrets may be on another machine."""
    file = _pipeline_file(pipeline)
    toml = Path(settings) if settings is not None else file.with_suffix(".toml")
    name = file.stem
    if toml.is_file():
        document = _parsed(toml)[1]
        for part in (document, document.get("env", {}).get(env, {})):
            name = part.get("pipeline", {}).get("name", name)
    return str(name)


def _parsed(toml: Path) -> tuple[str, dict[str, Any]]:
    try:
        text = toml.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise PipelineError("the settings are not UTF-8", Place(str(toml), line)) from None
    except OSError as error:
        raise PipelineError(f"{toml}: {error.strerror}") from None
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"at line (\d+)", str(error))
        raise PipelineError(str(error), Place(str(toml), int(found[1]) if found else len(text.splitlines()))) from None
    return text, document


def _from(project: Project, toml: Path, text: str, document: dict[str, Any]) -> Project:
    """The project with the settings of a document, which is the whole of a TOML file or its part for an environment."""

    def place(key: str) -> Place:
        pattern = re.compile(rf"^\s*\[?[\"']?{re.escape(key)}[\"']?\s*[=.\]]")
        lines = [number for number, line in enumerate(text.splitlines(), 1) if pattern.match(line)]
        return Place(str(toml), lines[-1] if lines else 1)

    def section(name: str, within: dict[str, Any]) -> dict[str, Any]:
        found = within.pop(name, {})
        if not isinstance(found, dict):
            raise PipelineError(f"{name} is not a section", place(name), hint=f"write [{name}]")
        return found

    document = dict(document)
    pipeline, spark = section("pipeline", document), section("spark", document)
    kafka, conf, alerts = section("kafka", document), section("conf", spark), section("alerts", document)
    clusters = section("clusters", document)
    named = {name: section(name, clusters) for name in list(clusters)}
    for name in document:
        hint = "the sections are [pipeline], [spark], [kafka], [clusters.NAME], [alerts], [env.NAME]"
        raise PipelineError(f"section {name!r} is unknown", place(name), hint=hint)
    for name, given in (("pipeline", pipeline), ("spark", spark), ("alerts", alerts)):
        for key in given.keys() - set(_KNOWN[name]):
            raise PipelineError(f"{key!r} is unknown in [{name}]", place(key), hint=f"the keys are {', '.join(_KNOWN[name])}")

    def value_of(key: str, value: Any) -> Any:
        try:
            return all_resolved(value)
        except ValueError as error:
            raise PipelineError(f"{key}: {error}", place(key)) from None

    changes: dict[str, Any] = {}
    for key, value in alerts.items():
        if not isinstance(value, str) or not value:
            raise PipelineError(f"{key} = {value!r} is not a string", place(key))
        changes[f"alert_{key}"] = value_of(key, value)
    for key, value in {**pipeline, **spark}.items():
        if key in _SWITCHES:
            if not isinstance(value, bool):
                raise PipelineError(f"{key} = {value!r} is neither true nor false", place(key))
            changes[key] = value
            continue
        if not isinstance(value, str) or not value:
            raise PipelineError(f"{key} = {value!r} is not a string", place(key))
        found = value_of(key, value)
        try:
            changes.update(_setting(key, found))
        except ValueError as error:
            # What a reference stands for is not shown.
            said = str(error) if found == value else f"{value!r} does not fit"
            raise PipelineError(f"{key}: {said}", place(key)) from None
    if "storage" in changes and "://" not in changes["storage"]:
        # Relative to the TOML file, not to the working directory.
        changes["storage"] = str((toml.parent / changes["storage"]).resolve())

    def properties(given: dict[str, Any], before: Mapping[str, str], example: str) -> dict[str, str]:
        for key, value in given.items():
            if isinstance(value, dict):
                raise PipelineError(f"{key}: quote names with dots", place(key), hint=f"write {example}")
        return {**before, **{key: option_text(value_of(key, value)) for key, value in given.items()}}

    changes["conf"] = properties(conf, project.conf, '"spark.executor.memory" = "2g"')
    changes["kafka"] = properties(kafka, project.kafka, '"security.protocol" = "SASL_SSL"')
    changes["clusters"] = {
        **project.clusters,
        **{
            name: properties(given, project.clusters.get(name, {}), '"bootstrap.servers" = "east:9092"')
            for name, given in named.items()
        },
    }
    return replace(project, **changes)


def _setting(key: str, value: str) -> dict[str, Any]:
    if key in _DURATIONS:
        return {f"{key}_ms": duration_ms(value)}
    if key == "restart" and value not in (NEVER, ON_FAILURE):
        raise ValueError(f"{value!r} is neither {NEVER} nor {ON_FAILURE}")
    if key == "master":
        check_master_name(value)
    if key == "metrics" and not _ADDRESS.fullmatch(value):
        raise ValueError(f"{value!r} is not an address: write 127.0.0.1:9404")
    if key == "name" and not _NAME.fullmatch(value):
        raise ValueError(f"{value!r} is not a name: use letters, digits, '.', '_' and '-'")
    return {key: value}


def override(project: Project, *, conf: Mapping[str, str] | None = None, **flags: str | None) -> Project:
    """The project with the flags of the command line, by the names of the TOML's keys."""
    changes: dict[str, Any] = {}
    for key, value in flags.items():
        if value is None:
            continue
        try:
            changes.update(_setting(key, value))
        except ValueError as error:
            raise PipelineError(f"--{key.replace('_', '-')}: {error}") from None
    if "storage" in changes and "://" not in changes["storage"]:
        changes["storage"] = str(Path(changes["storage"]).resolve())
    return _complete(replace(project, conf={**project.conf, **(conf or {})}, **changes))


def shared(projects: Sequence[Project]) -> Project:
    """The project whose master and settings of Spark are those of all. PipelineError if the projects cannot share one Spark."""
    first = projects[0]
    conf: dict[str, str] = {}
    for project in projects:
        if [other.name for other in projects].count(project.name) > 1:
            raise PipelineError(f"two pipelines are named {project.name!r}", hint="name one of them in its TOML: name = …")
        if (project.master, project.ship) != (first.master, first.ship):
            raise PipelineError(
                f"pipelines {first.name!r} and {project.name!r} have different masters: {first.master}, {project.master}",
                hint="give both the same [spark] settings, or run them apart",
            )
        for key, value in project.conf.items():
            if conf.setdefault(key, value) != value:
                raise PipelineError(f"pipeline {project.name!r} has another {key} than the others", hint="run it apart")
    return replace(first, name=first.name if len(projects) == 1 else "+".join(project.name for project in projects), conf=conf)


def _complete(project: Project) -> Project:
    for key, (value, reason) in _FORBIDDEN_CONF.items():
        if project.conf.get(key, "").lower() == value:
            raise PipelineError(f"{key}={value}: {reason}", hint="remove it from the settings")
    if not project.storage:
        return replace(project, storage=str(project.file.resolve().parent / ".ottla" / project.name))
    return project


def duration_ms(text: str) -> int:
    """Parse `500 ms`, `1 second`, `10 minutes`, `2h`."""
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        raise ValueError(f"{text!r} is not a duration: write 500 ms, 1 second, 10 minutes")
    unit = "ms" if match[2].startswith(("ms", "milli")) else match[2][0]
    return int(match[1]) * _UNITS_MS[unit]
