"""What an edit of a pipeline touches: which flows, what of them, and what becomes of their state.

Compares the definitions, and Spark's analysed plans as texts without expression ids. Spark does not show the inside of Python
functions: a flow that calls one counts as edited if anything in the files is, except in other flows' functions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from ottla.pipelines.definitions import Expectation, Files, Flow, Sink, Source, Table, Target
from ottla.pipelines.frames import Frames, checked
from ottla.pipelines.reading import PACE
from ottla.pipelines.spark_jvm import PlanNode, analysed_plan
from ottla.pipelines.versions import Code

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_STATEFUL = {
    "Aggregate": "aggregate",
    "Deduplicate": "distinct rows",
    "DeduplicateWithinWatermark": "distinct rows",
    "Distinct": "distinct rows",
    "FlatMapGroupsWithState": "own state",
    "FlatMapGroupsInPandasWithState": "own state",
    "TransformWithState": "own state",
    "TransformWithStateInPySpark": "own state",
    "TransformWithStateInPandas": "own state",
    "GlobalLimit": "limit",
}
_JOIN = "join of streams"
_EXPRESSION_ID = re.compile(r"#(\d+)L?")
_WATERMARK = re.compile(r"^EventTimeWatermark .*$", re.MULTILINE)
_ACCIDENTAL = (
    (re.compile(r"@[0-9a-f]{4,}"), ""),
    (re.compile(r"(EventTimeWatermark) [0-9a-f-]{36},"), r"\1"),
    # The delay of the watermark, after each use of its column.
    (re.compile(r"(#\d+)-T\d+ms"), r"\1"),
    # What the pipeline itself counts changes no results. A user's own `observe` has the id of its DataFrame.
    (re.compile(r"^.*CollectMetrics ottla\..*\n", re.MULTILINE), ""),
    (re.compile(r"(CollectMetrics .*\]), \d+$", re.MULTILINE), r"\1"),
    # The depth follows from the nodes themselves: each has as many inputs as its kind.
    (re.compile(r"^[ :+-]*~?", re.MULTILINE), ""),
    # The options of a source: its definition says which of them count.
    (re.compile(r"(StreamingRelationV2 \S+ \S+ \S+) \[.*?\], \["), r"\1 ["),
)
"""What differs in the texts of equal plans, and what to put there."""


class Kind(StrEnum):
    UNCHANGED = "unchanged"
    EDITED = "edited"
    NEW = "new"
    REMOVED = "removed"


class State(StrEnum):
    """What the new version begins with."""

    KEPT = "kept"
    """The checkpoint of the old version."""
    CARRIED = "carried over"
    """The same checkpoint: the edit is above the topmost operator with state, which Spark allows."""
    NONE = "none"
    """A new checkpoint at the offsets of the switch: there is no state."""
    REBUILT = "rebuilt"
    """A new checkpoint that has read the topics again, without output."""


@dataclass(frozen=True)
class Shape:
    """A flow as Spark sees it."""

    flow: Flow
    inputs: tuple[Source | Files, ...]
    columns: dict[str, str]
    plan: str
    state: tuple[str, ...]
    watermarks: tuple[str, ...]
    expectations: tuple[Expectation, ...]
    code: str | None
    """The fingerprint of the Python code, if the plan calls any."""
    dead_letters: tuple[str, ...] = ()
    """The topics of records that do not parse."""


@dataclass(frozen=True)
class FlowEdit:
    flow: str
    kind: Kind
    reasons: tuple[str, ...]
    state: State
    stateful: tuple[str, ...]
    had_state: bool
    same_watermarks: bool
    """Whether both versions have the same watermark after the same records."""
    old: Flow | None
    new: Flow | None

    @property
    def keeps_checkpoint(self) -> bool:
        return self.state in (State.KEPT, State.CARRIED)

    @property
    def is_compared(self) -> bool:
        return self.kind in (Kind.EDITED, Kind.NEW)


def shapes(frames: Frames, code: Code) -> dict[str, Shape]:
    """The shapes of all queries of a plan."""
    return {flow.name: _shape(frames, flow, checked(frames, flow), code) for flow in frames.plan.queries}


def _shape(frames: Frames, flow: Flow, frame: DataFrame, code: Code) -> Shape:
    text, nodes, calls_python = analysed_plan(frame)
    streamed = [node for node in nodes if node.is_streaming]
    files = tuple(node for node in frames.plan.inputs[flow.name] if isinstance(node, Files))
    return Shape(
        flow,
        (*(_plain(source) for source in frames.sources(flow)), *files),
        {column.name: column.dataType.simpleString() for column in frame.schema.fields},
        normalised(text),
        tuple(_stateful(streamed)),
        tuple(normalised(node.text) for node in streamed if node.name == "EventTimeWatermark"),
        tuple(each for view in frames.plan.computed_in(flow) for each in view.expectations),
        code.fingerprint_of(flow.name) if calls_python else None,
        tuple(sorted({source.dead_letter for source in frames.sources(flow) if source.dead_letter is not None})),
    )


def _plain(source: Source) -> Source:
    """Without what only says where the first run starts and how much is read at a time."""
    kept = tuple(option for option in source.options if option[0].lower() not in PACE)
    return replace(source, starting="", options=kept, dead_letter=None)


def has_state(frame: DataFrame) -> bool:
    """Whether a stream has an operator that keeps state."""
    return any(_stateful([node for node in analysed_plan(frame)[1] if node.is_streaming]))


def _stateful(nodes: list[PlanNode]) -> Iterator[str]:
    joins = [number for number, node in enumerate(nodes) if node.name == "Join"]
    for number, node in enumerate(nodes):
        if node.name in _STATEFUL:
            yield _STATEFUL[node.name]
        elif number in joins and _is_join_of_streams(nodes, number):
            yield _JOIN


def _is_join_of_streams(nodes: list[PlanNode], number: int) -> bool:
    return sum(node.name.startswith("StreamingRelation") for node in nodes[number:]) > 1


def normalised(text: str) -> str:
    """A plan's text with expressions counted from 1 in the order they appear, and without other ids."""
    numbers: dict[str, int] = {}

    def number(match: re.Match[str]) -> str:
        return f"#{numbers.setdefault(match[1], len(numbers) + 1)}"

    text = _EXPRESSION_ID.sub(number, text)
    for pattern, instead in _ACCIDENTAL:
        text = pattern.sub(instead, text)
    return text


def compare(old: dict[str, Shape], new: dict[str, Shape]) -> list[FlowEdit]:
    """One entry for each flow of either version, in the order of the new one."""
    found = []
    for name, shape in new.items():
        before = old.get(name)
        if before is None:
            state = State.REBUILT if shape.state else State.NONE
            found.append(FlowEdit(name, Kind.NEW, (), state, shape.state, False, False, None, shape.flow))
            continue
        reasons, same_query = _reasons(before, shape)
        kind = Kind.EDITED if reasons else Kind.UNCHANGED
        if same_query:
            state = State.KEPT
        elif shape.state:
            state = State.CARRIED if _makes_same_state(before, shape) else State.REBUILT
        else:
            state = State.NONE
        found.append(
            FlowEdit(
                name,
                kind,
                tuple(reasons),
                state,
                shape.state,
                bool(before.state),
                _clock(before) == _clock(shape),
                before.flow,
                shape.flow,
            )
        )
    for name, shape in old.items():
        if name not in new:
            found.append(FlowEdit(name, Kind.REMOVED, (), State.KEPT, shape.state, bool(shape.state), True, shape.flow, None))
    return found


def with_readers(found: list[FlowEdit], reads: Mapping[str, list[str]]) -> list[FlowEdit]:
    """Say of unchanged flows which edited ones they read: their results change too. `found` is in the order of the data flow."""
    changed: set[str] = set()
    told = []
    for edit in found:
        above = [name for name in reads.get(edit.flow, ()) if name in changed]
        if edit.kind is Kind.UNCHANGED and above:
            edit = replace(edit, reasons=(f"reads the results of {', '.join(above)}",))
        if edit.reasons:
            changed.add(edit.flow)
        told.append(edit)
    return told


def _reasons(old: Shape, new: Shape) -> tuple[list[str], bool]:
    """What differs, and whether the query itself is the same: then its checkpoint fits."""
    query: list[str] = []
    if old.inputs != new.inputs:
        query.append("sources")
    if old.columns != new.columns:
        query.append("columns: " + ", ".join(_columns(old.columns, new.columns)))
    if old.watermarks != new.watermarks:
        query.append(f"watermark: {_delays(old)} to {_delays(new)}")
    if old.flow.output_mode != new.flow.output_mode:
        query.append(f"output mode: {old.flow.output_mode} to {new.flow.output_mode}")
    if _WATERMARK.sub("", old.plan) != _WATERMARK.sub("", new.plan) and old.columns == new.columns:
        query.append("query")
    if old.code != new.code:
        query.append("Python code")
    output = []
    if old.expectations != new.expectations:
        output.append("expectations")
    if old.flow.to != new.flow.to:
        output.append(f"output: {_targets(old.flow.to, new.flow.to)}")
    if old.dead_letters != new.dead_letters:
        output.append(f"dead letters: {', '.join(old.dead_letters) or 'none'} to {', '.join(new.dead_letters) or 'none'}")
    if old.flow.late != new.flow.late:
        output.append(f"late records: {old.flow.late or 'none'} to {new.flow.late or 'none'}")
    return query + output, not query


def _makes_same_state(old: Shape, new: Shape) -> bool:
    same = (old.inputs, old.flow.output_mode, old.code) == (new.inputs, new.flow.output_mode, new.code)
    return same and old.state == new.state and _below_state(old) == _below_state(new)


def _below_state(shape: Shape) -> str:
    """The plan from the topmost operator with state."""
    names = [*_STATEFUL, *(["Join"] if _JOIN in shape.state else [])]
    found = re.search(rf"^({'|'.join(names)})\b", shape.plan, re.MULTILINE)
    return shape.plan if found is None else normalised(shape.plan[found.start() :])


def _clock(shape: Shape) -> str:
    """The part of the plan that watermarks depend on."""
    found = _WATERMARK.search(shape.plan)
    return "" if found is None else normalised(shape.plan[found.start() :])


def _delays(shape: Shape) -> str:
    return ", ".join(text.rpartition(", ")[2] for text in shape.watermarks) or "none"


def _columns(old: dict[str, str], new: dict[str, str]) -> Iterator[str]:
    for name in {**old, **new}:
        if name not in new:
            yield f"-{name}"
        elif name not in old:
            yield f"+{name} {new[name]}"
        elif old[name] != new[name]:
            yield f"{name} {old[name]} to {new[name]}"
    if list(old) != list(new) and set(old) == set(new):
        yield "their order"


def _targets(old: Target | None, new: Target | None) -> str:
    if _target(old) != _target(new):
        return f"{_target(old)} to {_target(new)}"
    assert old is not None
    # Names only: the options of a table may hold passwords.
    changed = [each.name for each in fields(old) if each.compare and getattr(old, each.name) != getattr(new, each.name)]
    return f"{_target(old)}, changed {', '.join(changed)}"


def _target(target: Target | None) -> str:
    if isinstance(target, Sink):
        return f"topic {target.topic}" + (f" in cluster {target.cluster.name!r}" if target.cluster is not None else "")
    return f"{target.format} {target.path}" if isinstance(target, Table) else "nothing"
