"""A pipeline's topics, asked of the cluster by the driver: are they there, may they be seen, where does a source begin.

Owns: reaching the cluster, and one message for each topic that cannot be had, with the line that names it. Needs no Spark: `ask`
says it before one is started for nothing. Reads no records.
"""

from __future__ import annotations

import json
from typing import Any

from ottla.client.blocking import BrokerAway, Client
from ottla.client.offsets import EARLIEST, LATEST, list_offsets
from ottla.client.options import ClientOptions, InvalidOption, client_options
from ottla.errors import ErrorCode, KafkaError
from ottla.pipelines.checkpoint import NOTE, check_owner, local_folder, note_in, offsets_of
from ottla.pipelines.definitions import Flow, Sink, Source
from ottla.pipelines.failure import PipelineError, Place
from ottla.pipelines.graph import Plan, reads
from ottla.pipelines.project import Project
from ottla.types import TopicPartition

_REACH_TIMEOUT_S = 5.0
_ASK_TIMEOUT_S = 10.0
_MADE_TIMEOUT_S = 10.0
# A topic made a moment ago is not known to every broker yet.
_MISSING_TIMEOUT_S = 1.0


def connect(project: Project) -> ClientOptions:
    """How to reach the cluster; PipelineError if nobody answers there."""
    try:
        options = client_options(project.kafka_options, also=("isolation.level",))
        with Client(options) as client:
            client.reach(_REACH_TIMEOUT_S)
    except InvalidOption as error:
        raise PipelineError(str(error)) from None
    except BrokerAway as error:
        raise PipelineError(str(error), hint="nothing was read or written; is a broker running there?") from None
    except KafkaError as error:
        raise PipelineError(f"{project.bootstrap_servers}: {error}") from None
    return options


def ask(project: Project, plan: Plan) -> None:
    """PipelineError if nobody answers, if a topic that a flow would begin to read is not there, if one may not be used, or if a
    flow's checkpoint on this machine is another's.

    What `running` finds out as well, after Spark has started. Not asked: topics that a flow of this pipeline writes, which the
    broker may make then; topics of a flow that has begun already, whose loss is `failOnDataLoss`'s to judge.
    """
    with Client(connect(project)) as client:
        for flow in plan.queries:
            has_begun = _has_begun(project, flow)
            for source in plan.sources(flow):
                _ask_source(client, source, plan, may_be_gone=has_begun)
                if source.dead_letter is not None:
                    _ask(client, source.dead_letter, f"topic {source.dead_letter!r}", source.place)
            if isinstance(flow.to, Sink):
                _ask(client, flow.to.topic, f"topic {flow.to.topic!r}", flow.to.place)


def _ask_source(client: Client, source: Source, plan: Plan, *, may_be_gone: bool) -> None:
    made_here = {flow.to.topic for flow in plan.queries if isinstance(flow.to, Sink)}
    what = f"source {source.name!r}"
    for name in source.topics:
        if _ask(client, name, what, source.place) or may_be_gone or name in made_here:
            continue
        try:
            client.topic(name, timeout_s=_MISSING_TIMEOUT_S)
        except KafkaError as error:
            raise _refused(what, source.place, error, name) from None


def _ask(client: Client, topic: str, what: str, place: Place) -> bool:
    """Whether it is there. PipelineError if that may not be known."""
    try:
        return topic in client.describe([topic], timeout_s=_ASK_TIMEOUT_S)
    except KafkaError as error:
        raise _refused(what, place, error, None) from None


def _has_begun(project: Project, flow: Flow) -> bool:
    """Whether the flow has a checkpoint, or may have one: storage elsewhere is seen by Spark alone."""
    location = project.checkpoint(flow.name)
    folder = local_folder(location)
    if folder is None:
        return True
    note = folder / NOTE
    if not note.is_file():
        return False
    check_owner(note_in(note.read_text(errors="replace"), str(note)), location, project.name, flow.name)
    return True


def have(options: ClientOptions, topic: str, place: Place) -> None:
    """A topic that is written to is there, or made by the broker's own rules."""
    try:
        with Client(options) as client:
            client.topic(topic, create=True, timeout_s=_MADE_TIMEOUT_S)
    except KafkaError as error:
        raise _refused(f"topic {topic!r}", place, error, topic) from None


def resolve(client: Client, source: Source, starting: str) -> dict[str, Any]:
    """`starting` of a source as {"option": for Spark, "offsets": {topic: {partition: offset}}}."""
    try:
        names = source.topics or tuple(
            sorted(name for name, topic in client.topics().items() if not topic.is_internal and reads(source, name))
        )
        places = [TopicPartition(name, part) for name in names for part in client.topic(name).partitions]
        if starting in ("earliest", "latest"):
            wanted = dict.fromkeys(places, EARLIEST if starting == "earliest" else LATEST)
            found = {where: entry.offset for where, entry in list_offsets(client, wanted).items()}
        else:
            given = offsets_of(starting)
            if not given:
                raise PipelineError(
                    f"source {source.name!r}: starting={starting!r}",
                    source.place,
                    hint='earliest, latest, or {"topic": {"0": 17}}',
                )
            ends = {where: given.get(where, EARLIEST) for where in places}
            asked = {where: offset for where, offset in ends.items() if offset < 0}
            found = {**ends, **{where: entry.offset for where, entry in list_offsets(client, asked).items()}}
    except KafkaError as error:
        raise _refused(f"source {source.name!r}", source.place, error, source.topics[0] if source.topics else None) from None
    except BrokerAway as error:
        raise PipelineError(f"source {source.name!r}: no broker answers: {error}", source.place) from None
    offsets: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(found.items()):
        offsets.setdefault(topic, {})[str(partition)] = offset
    # As a word, earliest stays true while retention goes on; where nothing exists yet, new topics are read from their start.
    return {"option": "earliest" if starting == "earliest" or not offsets else json.dumps(offsets), "offsets": offsets}


def _refused(what: str, place: Place, error: KafkaError, topic: str | None) -> PipelineError:
    missing = topic is not None and error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return PipelineError(f"{what}: {error}", place, hint=f"`ottla topic create {topic}`" if missing else None)
