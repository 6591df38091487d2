"""The plan of a pipeline: which flow takes what, and in which order. Needs no Spark.

Resolves names and refuses what cannot run. Errors name the definitions and their lines.

Invariants of a Plan
1. Every input of a flow is a source, files, or a flow of the plan. No names are left.
2. Flow names are unique, and so are the names of a flow's inputs.
3. No flow depends on itself, neither through views nor through topics.
4. A table of files has one writer. A topic may have several, each with its own transactions.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ottla.pipelines.definitions import DEAD_LETTER, Cluster, Files, Flow, Sink, Source, Table
from ottla.pipelines.failure import PipelineError
from ottla.pipelines.values import Json

Node = Source | Files | Flow


@dataclass(frozen=True)
class Plan:
    flows: tuple[Flow, ...]
    """All flows, each after the flows it depends on."""
    inputs: dict[str, tuple[Node, ...]]
    """By flow name, in the order of the function's parameters."""

    @property
    def queries(self) -> tuple[Flow, ...]:
        """The flows that write: each is one streaming query."""
        return tuple(flow for flow in self.flows if flow.to is not None)

    def sources(self, flow: Flow) -> tuple[Source, ...]:
        """The sources that this flow's query reads, also through views. Not the topics that other flows write."""
        found: dict[str, Source] = {}
        for node in self.inputs[flow.name]:
            if isinstance(node, Source):
                found.setdefault(node.name, node)
            elif isinstance(node, Flow) and node.to is None:
                for each in self.sources(node):
                    found.setdefault(each.name, each)
        return tuple(found.values())

    def clusters_read(self, flow: Flow) -> tuple[Cluster | None, ...]:
        """The clusters of the topics that this flow's query reads. None is the pipeline's own."""
        found = [source.cluster for source in self.sources(flow)]
        found += [other.to.cluster for other in self.read_back(flow) if isinstance(other.to, Sink)]
        return tuple(dict.fromkeys(found))

    def home(self, flow: Flow) -> Cluster | None:
        """The cluster of this flow's transactions: that of its sink; of a flow into a table, that of its first topic."""
        if isinstance(flow.to, Sink):
            return flow.to.cluster
        return next(iter(self.clusters_read(flow)), None)

    @property
    def clusters(self) -> tuple[Cluster | None, ...]:
        """The clusters that the queries read and write."""
        found = [each for flow in self.queries for each in (*self.clusters_read(flow), self.home(flow))]
        return tuple(dict.fromkeys(found))

    def computed_in(self, flow: Flow) -> tuple[Flow, ...]:
        """The flow and the views that its query computes."""
        found = {flow.name: flow}
        for node in self.inputs[flow.name]:
            if isinstance(node, Flow) and node.to is None:
                for each in self.computed_in(node):
                    found.setdefault(each.name, each)
        return tuple(found.values())

    def first_to_read(self, flow: Flow) -> frozenset[str]:
        """The names of the sources that this flow's query reads and no query before it."""
        others = self.queries[: self.queries.index(flow)]
        return frozenset(source.name for source in self.sources(flow)) - {
            source.name for other in others for source in self.sources(other)
        }

    def refresh_ms(self, flow: Flow) -> int | None:
        """How often the static files of this flow's query are listed anew, also through views. None: never."""
        found: list[int] = []
        for node in self.inputs[flow.name]:
            each = node.refresh_ms if isinstance(node, Files) else None
            if isinstance(node, Flow) and node.to is None:
                each = self.refresh_ms(node)
            if each is not None:
                found.append(each)
        return min(found, default=None)

    def feeds_others(self, flow: Flow) -> bool:
        """Whether another query reads what this one writes."""
        return any(flow in _feeds(self.inputs[other.name], self.flows) for other in self.flows if other is not flow)

    def read_back(self, flow: Flow) -> tuple[Flow, ...]:
        """The flows whose topics this flow's query reads, also through views."""
        found: dict[str, Flow] = {}
        for node in self.inputs[flow.name]:
            if isinstance(node, Flow):
                for each in (node,) if node.to is not None else self.read_back(node):
                    found.setdefault(each.name, each)
        return tuple(found.values())


def plan(flows: Sequence[Flow]) -> Plan:
    """The plan of these flows. PipelineError if they cannot run together."""
    by_name: dict[str, Flow] = {}
    for flow in flows:
        other = by_name.setdefault(flow.name, flow)
        if other is not flow:
            raise PipelineError(
                f"flow {flow.name!r} is declared twice, first at {other.place}", flow.place, hint="rename one with name=…"
            )
    named = _named_sources(flows)
    inputs: dict[str, tuple[Node, ...]] = {}
    for flow in flows:
        inputs[flow.name] = tuple(_resolve(each, flow, by_name, named) for each in flow.inputs)
        _check_inputs(flow, inputs[flow.name], by_name)
    _refuse_shared_tables(flows)
    _refuse_contrary_sinks(flows)
    ordered = _ordered(flows, inputs)
    found = Plan(ordered, inputs)
    for flow in ordered:
        if flow.to is None and not any(flow in inputs[other.name] for other in flows):
            raise PipelineError(
                f"flow {flow.name!r} has no target and no reader", flow.place, hint="give it to=…, or take it in another flow"
            )
    _refuse_dead_letters_into_outputs(found)
    for flow in ordered:
        _check_expectations(found, flow)
        _refuse_topics_of_two_clusters(found, flow)
    return found


def sink_of_view(view: Flow) -> Sink:
    """A target for a flow without one, to look at its rows."""
    return Sink("result", Json(), None, None, None, None, "none", None, (), view.place)


def _named_sources(flows: Iterable[Flow]) -> dict[str, Source | Files]:
    named: dict[str, Source | Files] = {}
    for flow in flows:
        for each in flow.inputs:
            if isinstance(each, Source | Files):
                other = named.setdefault(each.name, each)
                if other != each:
                    raise PipelineError(
                        f"source {each.name!r} is declared twice and differently, first at {other.place}",
                        each.place,
                        hint="rename one with name=…",
                    )
    return named


def _resolve(given: Source | Files | Flow | str, flow: Flow, flows: dict[str, Flow], named: dict[str, Source | Files]) -> Node:
    if not isinstance(given, str):
        return given
    found = flows.get(given) or named.get(given)
    if found is None:
        near = difflib.get_close_matches(given, [*flows, *named], 1)
        hint = f"did you mean {near[0]!r}?" if near else f"declared are {', '.join(map(repr, sorted([*flows, *named])))}"
        raise PipelineError(f"flow {flow.name!r} takes {given!r}, which is not declared", flow.place, hint=hint)
    return found


def _check_inputs(flow: Flow, nodes: tuple[Node, ...], flows: dict[str, Flow]) -> None:
    names: dict[str, Node] = {}
    for node in nodes:
        if isinstance(node, Flow):
            if flows.get(node.name) is not node:
                raise PipelineError(
                    f"flow {flow.name!r} takes flow {node.name!r} of another pipeline ({node.place})",
                    flow.place,
                    hint="read its topic with p.source(…)",
                )
            if isinstance(node.to, Table):
                raise PipelineError(
                    f"flow {flow.name!r} takes flow {node.name!r} ({node.place}), which writes a table",
                    flow.place,
                    hint="read the table with p.files(…), or let a flow without `to` feed both",
                )
            if node.to is not None and node.output_mode == "complete":
                raise PipelineError(
                    f"flow {flow.name!r} takes flow {node.name!r} ({node.place}), which has output mode complete",
                    flow.place,
                    hint="read its topic with p.source(…)",
                )
        other = names.setdefault(node.name, node)
        if other != node:
            raise PipelineError(f"flow {flow.name!r} takes two inputs named {node.name!r}", flow.place)
    if flow.function is not None and all(isinstance(node, Files) and node.static for node in nodes):
        raise PipelineError(
            f"flow {flow.name!r} takes only static files", flow.place, hint="a flow needs at least one streaming input"
        )


def _refuse_shared_tables(flows: Sequence[Flow]) -> None:
    writers: dict[tuple[str, str], Flow] = {}
    for flow in flows:
        if isinstance(flow.to, Table) and flow.to.format != "jdbc":
            other = writers.setdefault((flow.to.format, flow.to.path.rstrip("/")), flow)
            if other is not flow:
                raise PipelineError(
                    f"flow {flow.name!r} writes table {flow.to.path!r}, which flow {other.name!r} ({other.place}) writes too",
                    flow.place,
                )


def _refuse_contrary_sinks(flows: Sequence[Flow]) -> None:
    """PipelineError if two flows write one topic and declare it differently."""
    declared: dict[tuple[Cluster | None, str, str], tuple[object, Flow]] = {}
    for flow in flows:
        sink = flow.to
        if not isinstance(sink, Sink):
            continue
        wanted: list[tuple[str, object]] = [*sink.config]
        if sink.partitions is not None:
            wanted.append(("partitions", sink.partitions))
        for name, value in wanted:
            before, other = declared.setdefault((sink.cluster, sink.topic, name), (value, flow))
            if before != value:
                raise PipelineError(
                    f"flow {flow.name!r} declares topic {sink.topic!r} with {name} {value}, flow {other.name!r} with {before} "
                    f"({other.to.place if other.to is not None else other.place})",
                    sink.place,
                )


def _feeds(nodes: tuple[Node, ...], flows: Sequence[Flow]) -> list[Flow]:
    """The flows that feed these inputs: taken by name, or writing a topic or files that an input reads."""
    feeding = [node for node in nodes if isinstance(node, Flow)]
    for node in nodes:
        if isinstance(node, Source):
            feeding += [other for other in flows if isinstance(other.to, Sink) and reads_sink(node, other.to)]
        elif isinstance(node, Files):
            feeding += [other for other in flows if isinstance(other.to, Table) and same_path(node.path, other.to.path)]
    return feeding


def same_path(path: str, other: str) -> bool:
    return path.removeprefix("file://").rstrip("/") == other.removeprefix("file://").rstrip("/")


def reads(source: Source, topic: str) -> bool:
    return topic in source.topics or (source.pattern is not None and re.fullmatch(source.pattern, topic) is not None)


def reads_sink(source: Source, sink: Sink) -> bool:
    return source.cluster == sink.cluster and reads(source, sink.topic)


def _ordered(flows: Sequence[Flow], inputs: dict[str, tuple[Node, ...]]) -> tuple[Flow, ...]:
    done: dict[str, Flow] = {}
    path: list[Flow] = []

    def visit(flow: Flow) -> None:
        if flow.name in done:
            return
        if flow in path:
            circle = [*path[path.index(flow) :], flow]
            raise PipelineError(
                "flows form a cycle: " + " -> ".join(f"{each.name!r} ({each.place})" for each in reversed(circle)),
                flow.place,
                hint="a flow cannot depend on itself, not even through a topic",
            )
        path.append(flow)
        for other in _feeds(inputs[flow.name], flows):
            visit(other)
        path.pop()
        done[flow.name] = flow

    for flow in flows:
        visit(flow)
    return tuple(done.values())


def _check_expectations(plan: Plan, flow: Flow) -> None:
    for each in flow.expectations:
        if each.on_fail != DEAD_LETTER:
            continue
        sources = plan.sources(flow)
        if not sources:
            raise PipelineError(
                f"flow {flow.name!r} reads no source, so expectation {each.name!r} has no dead-letter topic",
                each.place,
                hint='move the expectation to the flow that reads the source, or use on_fail="drop"',
            )
        for source in sources:
            if source.dead_letter is None:
                raise PipelineError(
                    f"expectation {each.name!r} needs a dead-letter topic, and source {source.name!r} has none ({source.place})",
                    each.place,
                    hint='give the source dead_letter="…"',
                )


def _refuse_topics_of_two_clusters(plan: Plan, flow: Flow) -> None:
    """Offsets of a batch are by topic: one query cannot read topics of the same name in two clusters."""
    read: list[tuple[Source | None, tuple[str, ...], Cluster | None]] = [
        (source, source.topics, source.cluster) for source in plan.sources(flow)
    ]
    read += [(None, (other.to.topic,), other.to.cluster) for other in plan.read_back(flow) if isinstance(other.to, Sink)]
    for at, (source, topics, cluster) in enumerate(read):
        for other, other_topics, other_cluster in read[:at]:
            if cluster == other_cluster:
                continue
            shared = [each for each in topics if each in other_topics or (other is not None and reads(other, each))]
            shared += [each for each in other_topics if source is not None and reads(source, each)]
            if shared or not (topics or other_topics):
                what = f"topic {shared[0]!r} of two clusters" if shared else "topics of two clusters by patterns"
                raise PipelineError(
                    f"flow {flow.name!r} reads {what}",
                    flow.place,
                    hint="read each cluster in a flow of its own; both may write one topic",
                )


def _refuse_dead_letters_into_outputs(plan: Plan) -> None:
    outputs = {(flow.to.cluster, flow.to.topic): flow for flow in plan.queries if isinstance(flow.to, Sink)}
    for flow in plan.queries:
        home = plan.home(flow)
        for source in plan.sources(flow):
            is_home = source.cluster == home
            if is_home and flow.late is not None and reads(source, flow.late):
                raise PipelineError(f"flow {flow.name!r} reads its own topic of late records {flow.late!r}", flow.place)
            letters = source.dead_letter
            if letters is None:
                continue
            if is_home and reads(source, letters):
                raise PipelineError(f"source {source.name!r} reads its own dead-letter topic {letters!r}", source.place)
            target = outputs.get((home, letters))
            if target is not None:
                raise PipelineError(
                    f"the dead-letter topic {letters!r} of source {source.name!r} is the target of flow "
                    f"{target.name!r} ({target.place})",
                    source.place,
                )
