"""The topics of a pipeline: whether they exist, whether this client may use them, where a source starts.

Runs on the driver and needs no Spark: `check` reports a problem before Spark starts. Errors name the line that names the topic.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from ottla.client.blocking import BrokerAway, Client
from ottla.client.offsets import EARLIEST, LATEST, list_offsets
from ottla.client.options import ClientOptions, InvalidOption, client_options
from ottla.client.topics import create_topic, topic_config
from ottla.errors import ErrorCode, KafkaError
from ottla.pipelines import switching
from ottla.pipelines.checkpoint import NOTE, check_owner, local_folder, note_in, offsets_of
from ottla.pipelines.data_source.offsets import nested
from ottla.pipelines.definitions import Cluster, Flow, Sink, Source
from ottla.pipelines.failure import PipelineError, Place
from ottla.pipelines.graph import Plan, reads
from ottla.pipelines.marker import number_of
from ottla.pipelines.project import Project
from ottla.types import TopicPartition

_REACH_TIMEOUT_S = 5.0
_ASK_TIMEOUT_S = 10.0
_CREATE_TIMEOUT_S = 10.0
_MISSING_TIMEOUT_S = 1.0
"""A new topic is not known to every broker at once."""


def connect(project: Project, cluster: Cluster | None = None) -> ClientOptions:
    """The client options of a cluster, by default of the pipeline's own. PipelineError if no broker answers."""
    prefix, place = ("", None) if cluster is None else (f"cluster {cluster.name!r}: ", cluster.place)
    given = project.kafka_options(cluster)
    try:
        options = client_options(given, also=("isolation.level",))
        with Client(options) as client:
            client.reach(_REACH_TIMEOUT_S)
    except InvalidOption as error:
        raise PipelineError(f"{prefix}{error}", place) from None
    except BrokerAway as error:
        hint = "nothing was read or written; check that a broker runs there"
        raise PipelineError(f"{prefix}{error}", place, hint=hint) from None
    except KafkaError as error:
        raise PipelineError(f"{prefix}{given['kafka.bootstrap.servers']}: {error}", place) from None
    return options


class Clients:
    """A client for each cluster of a pipeline, connected when it is first asked for: `with Clients(project) as clients: …`."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._clients: dict[Cluster | None, Client] = {}

    def of(self, cluster: Cluster | None) -> Client:
        """PipelineError if no broker of the cluster answers."""
        found = self._clients.get(cluster)
        if found is None:
            found = self._clients[cluster] = Client(connect(self._project, cluster))
        return found

    def live_project(self, plan: Plan, *, takes_over: bool = False) -> Project:
        """The project with the live version of the pipeline and its checkpoints: each flow's marker is in its home.

        With `takes_over` a transaction that a dead driver left open is aborted; without it, what it holds is not seen.
        """
        project = self._project
        flows: dict[Cluster | None, list[str]] = {}
        for flow in plan.queries:
            flows.setdefault(plan.home(flow), []).append(flow.name)
        if takes_over:
            for home, names in flows.items():
                switching.end_dead_transactions(self.of(home), project, names)
        found = [switching.live_project(self.of(home), project, names, stable=takes_over) for home, names in flows.items()]
        newest = max(found, key=lambda each: number_of(each.version), default=project)
        return replace(newest, generations={name: value for each in found for name, value in each.generations.items()})

    def __enter__(self) -> Clients:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        for client in self._clients.values():
            client.close()


def check(project: Project, plan: Plan) -> None:
    """PipelineError if no broker answers, if a topic that a new flow reads does not exist, if this client may not use a topic, if
    a sink's topic is not as declared, or if a checkpoint on this machine belongs to another flow.

    Topics that a flow of this pipeline writes need not exist. Nor those of a flow that has a checkpoint: `failOnDataLoss` says
    what happens if they are gone.
    """
    with Clients(project) as clients:
        for flow in plan.queries:
            has_run = _has_run(project, flow)
            home = clients.of(plan.home(flow))
            for source in plan.sources(flow):
                _check_source(clients.of(source.cluster), source, plan, may_be_gone=has_run)
                if source.dead_letter is not None:
                    _exists(home, source.dead_letter, f"topic {source.dead_letter!r}", source.place)
            if isinstance(flow.to, Sink) and _exists(home, flow.to.topic, f"topic {flow.to.topic!r}", flow.to.place):
                _compare(home, flow.to)


def _check_source(client: Client, source: Source, plan: Plan, *, may_be_gone: bool) -> None:
    sinks = [flow.to for flow in plan.queries if isinstance(flow.to, Sink)]
    written_here = {sink.topic for sink in sinks if sink.cluster == source.cluster}
    what = f"source {source.name!r}"
    for name in source.topics:
        if _exists(client, name, what, source.place) or may_be_gone or name in written_here:
            continue
        try:
            client.topic(name, timeout_s=_MISSING_TIMEOUT_S)
        except KafkaError as error:
            raise _refused(what, source.place, error, name) from None


def _exists(client: Client, topic: str, what: str, place: Place) -> bool:
    """Whether the topic exists. PipelineError if this client may not know."""
    try:
        return topic in client.describe([topic], timeout_s=_ASK_TIMEOUT_S)
    except KafkaError as error:
        raise _refused(what, place, error, None) from None


def _has_run(project: Project, flow: Flow) -> bool:
    """Whether the flow has a checkpoint, or may have one: only Spark can look into remote storage."""
    location = project.checkpoint(flow.name)
    folder = local_folder(location)
    if folder is None:
        return True
    note = folder / NOTE
    if not note.is_file():
        return False
    check_owner(note_in(note.read_text(errors="replace"), str(note)), location, project.name, flow.name)
    return True


def ensure(options: ClientOptions, topic: str, place: Place) -> None:
    """Return when the topic exists; the broker may auto-create it. PipelineError if it cannot be had."""
    try:
        with Client(options) as client:
            client.topic(topic, create=True, timeout_s=_CREATE_TIMEOUT_S)
    except KafkaError as error:
        raise _refused(f"topic {topic!r}", place, error, topic) from None


def ensure_sink(options: ClientOptions, sink: Sink) -> None:
    """Return when the topic of a sink exists, as it is declared. PipelineError if it cannot be had so."""
    if sink.partitions is None and not sink.config:
        ensure(options, sink.topic, sink.place)
        return
    try:
        with Client(options) as client:
            if not client.describe([sink.topic], timeout_s=_ASK_TIMEOUT_S):
                create_topic(client, sink.topic, partitions=sink.partitions, config=dict(sink.config))
                client.topic(sink.topic, timeout_s=_CREATE_TIMEOUT_S)
            _compare(client, sink)
    except KafkaError as error:
        raise _refused(f"topic {sink.topic!r}", sink.place, error, None) from None


def _compare(client: Client, sink: Sink) -> None:
    """PipelineError if the topic is not as its sink declares."""
    if sink.partitions is None and not sink.config:
        return
    what = f"topic {sink.topic!r}"
    try:
        count = len(client.topic(sink.topic, timeout_s=_ASK_TIMEOUT_S).partitions)
        found = topic_config(client, sink.topic, dict(sink.config)) if sink.config else {}
    except KafkaError as error:
        raise _refused(what, sink.place, error, None) from None
    if sink.partitions not in (None, count):
        raise PipelineError(
            f"{what} has {count} partitions, the sink declares {sink.partitions}",
            sink.place,
            hint=f"declare {count}, or add some with `ottla topic alter {sink.topic} -p {sink.partitions}`: keys then move",
        )
    for name, value in sink.config:
        if found.get(name) != value:
            now = f"has {name}={found[name]}" if name in found else f"has no setting {name}"
            hint = f"`ottla config set topic {sink.topic} {name}={value}` changes it" if name in found else None
            raise PipelineError(f"{what} {now}, the sink declares {name}={value}", sink.place, hint=hint)


@dataclass(frozen=True)
class MissingTopic:
    """A topic that `run` creates."""

    topic: str
    use: str
    """What for: "sink" or "dead letters"."""
    partitions: int | None
    config: dict[str, str]
    place: str
    cluster: str | None = None
    """None: the pipeline's own."""


def missing(project: Project, plan: Plan) -> list[MissingTopic]:
    """The topics of sinks and dead letters that do not exist."""
    wanted: dict[Cluster | None, dict[str, MissingTopic]] = {}
    for cluster, topic in _written(plan):
        wanted.setdefault(cluster, {})[topic.topic] = topic
    lacking: list[MissingTopic] = []
    with Clients(project) as clients:
        for cluster, topics in wanted.items():
            found = clients.of(cluster).describe(list(topics), timeout_s=_ASK_TIMEOUT_S)
            lacking += [topic for name, topic in topics.items() if name not in found]
    return lacking


def _written(plan: Plan) -> Iterator[tuple[Cluster | None, MissingTopic]]:
    for flow in plan.queries:
        home = plan.home(flow)
        name = None if home is None else home.name
        for source in plan.sources(flow):
            if source.dead_letter is not None:
                yield home, MissingTopic(source.dead_letter, "dead letters", None, {}, str(source.place), name)
        if flow.late is not None:
            yield home, MissingTopic(flow.late, "late records", None, {}, str(flow.place), name)
        if isinstance(flow.to, Sink):
            sink = flow.to
            yield home, MissingTopic(sink.topic, "sink", sink.partitions, dict(sink.config), str(sink.place), name)


def resolve(client: Client, source: Source, starting: str | int) -> dict[str, Any]:
    """Where a source starts: {"option": the value of startingOffsets, "offsets": {topic: {partition: offset}}}.

    `starting` is `earliest`, `latest`, offsets as JSON, or a time in milliseconds.
    """
    try:
        places = places_of(client, source)
        if isinstance(starting, int):
            found = _offsets_at(client, places, starting)
        elif starting in ("earliest", "latest"):
            wanted = dict.fromkeys(places, EARLIEST if starting == "earliest" else LATEST)
            found = {where: entry.offset for where, entry in list_offsets(client, wanted).items()}
        else:
            given = offsets_of(starting)
            if not given:
                raise PipelineError(
                    f"source {source.name!r}: starting={starting!r} is not a position",
                    source.place,
                    hint='use earliest, latest, or {"topic": {"0": 17}}',
                )
            ends = {where: given.get(where, EARLIEST) for where in places}
            asked = {where: offset for where, offset in ends.items() if offset < 0}
            found = {**ends, **{where: entry.offset for where, entry in list_offsets(client, asked).items()}}
    except KafkaError as error:
        raise _refused(f"source {source.name!r}", source.place, error, source.topics[0] if source.topics else None) from None
    except BrokerAway as error:
        raise PipelineError(f"source {source.name!r}: no broker answers: {error}", source.place) from None
    offsets = nested(found)
    # "earliest" stays correct while retention removes records, and new topics of a pattern are read from their start.
    return {"option": "earliest" if starting == "earliest" or not offsets else json.dumps(offsets), "offsets": offsets}


def resolve_between(client: Client, source: Source, from_ms: int, to_ms: int) -> dict[str, Any]:
    """As `resolve`, from a time, with the offsets where the source ends as "until"."""
    start = resolve(client, source, from_ms)
    end = resolve(client, source, to_ms)
    return {"option": json.dumps(start["offsets"]), "offsets": start["offsets"], "until": end["offsets"]}


def _offsets_at(client: Client, places: list[TopicPartition], time_ms: int) -> dict[TopicPartition, int]:
    """The first records at or after a time; the ends of partitions without one."""
    found = {where: entry.offset for where, entry in list_offsets(client, dict.fromkeys(places, time_ms)).items()}
    beyond = [where for where, offset in found.items() if offset < 0]
    ends = list_offsets(client, dict.fromkeys(beyond, LATEST)) if beyond else {}
    return {**found, **{where: entry.offset for where, entry in ends.items()}}


def places_of(client: Client, source: Source) -> list[TopicPartition]:
    """The partitions that a source reads now."""
    names = source.topics or tuple(
        sorted(name for name, topic in client.topics().items() if not topic.is_internal and reads(source, name))
    )
    return [TopicPartition(name, part) for name in names for part in client.topic(name).partitions]


def _refused(what: str, place: Place, error: KafkaError, topic: str | None) -> PipelineError:
    missing = topic is not None and error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return PipelineError(
        f"{what}: {error}",
        place,
        hint=f"create it with `ottla topic create {topic}`" if missing and not str(topic).startswith("__") else None,
    )
