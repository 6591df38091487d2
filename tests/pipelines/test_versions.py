"""Versions of a pipeline without Spark and without a broker: rows compared, code compared, markers, forged batches."""

from __future__ import annotations

import json
import random
import sys
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.cli.failure import Failure
from ottla.cli.pipeline.upgrading import _target as rollback_target
from ottla.client.blocking import Client
from ottla.client.options import plain_options
from ottla.client.transactions import CommittedOffset
from ottla.pipelines import loading
from ottla.pipelines.checkpoint import forged, offsets_of
from ottla.pipelines.comparison import Row, RowChange, compare
from ottla.pipelines.definitions import Flow, Sink
from ottla.pipelines.edits import Kind, Shape, State, normalised, with_readers
from ottla.pipelines.edits import compare as compare_shapes
from ottla.pipelines.failure import PipelineError, Place, Superseded
from ottla.pipelines.marker import Hold, Marker, is_replaced, live, marker_in, not_begun, number_of
from ottla.pipelines.project import Project
from ottla.pipelines.shadow import last
from ottla.pipelines.switching import Progress, Switch, live_project, switched
from ottla.pipelines.takeover import Claim
from ottla.pipelines.values import Json
from ottla.pipelines.versions import Code, Version, code_of, following, isolated
from ottla.testing import Broker
from ottla.types import TopicPartition

QUERY = "bb51c7d3-e101-45cd-b1c2-106cd4d679cb"
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


def row(key: str | None, **fields: object) -> Row:
    return Row(None if key is None else key.encode(), json.dumps(fields).encode())


# Rows


def test_equal_multisets_have_no_difference_in_any_order() -> None:
    rows = [row("a", n=number % 3) for number in range(20)]
    found = compare(rows, random.Random(7).sample(rows, len(rows)))
    assert found.is_empty
    assert (found.same, found.old, found.new, found.sample) == (20, 20, 20, [])


def test_a_row_too_many_is_a_difference() -> None:
    found = compare([row("a", n=1)], [row("a", n=1), row("a", n=1)])
    assert (found.same, found.changed, found.only_old, found.only_new) == (1, 0, 0, 1)
    assert found.sample == [RowChange(None, row("a", n=1))]


def test_rows_of_a_key_are_matched_by_what_they_have_in_common() -> None:
    old = [row("a", start=10, total=5), row("a", start=20, total=6), row("b", start=10, total=1)]
    new = [row("a", start=20, total=7), row("a", start=30, total=6), row("a", start=10, total=6), row("c", start=10, total=1)]
    found = compare(old, new)
    assert (found.same, found.changed, found.only_old, found.only_new) == (0, 2, 1, 2)
    changed = [change.fields() for change in found.sample if change.kind == "changed"]
    assert changed == [{"total": (5, 6)}, {"total": (6, 7)}]


def test_rows_without_a_key_are_not_matched() -> None:
    found = compare([row(None, n=1), row(None, n=2)], [row(None, n=2), row(None, n=3)])
    assert (found.same, found.changed, found.only_old, found.only_new) == (1, 0, 1, 1)


def test_values_that_are_no_json_are_compared_as_bytes() -> None:
    found = compare([Row(b"a", b"\xff")], [Row(b"a", None)])
    assert found.changed == 1
    assert found.sample[0].fields() is None


def test_headers_make_rows_differ() -> None:
    assert compare([Row(b"a", b"1", ("h",))], [Row(b"a", b"1", ("g",))]).changed == 1


def test_a_sample_has_each_kind_of_change() -> None:
    old = [row(f"k{number:03}", n=1) for number in range(100)]
    new = [row(f"k{number:03}", n=2) for number in range(99)] + [row("new", n=1)]
    found = compare(old, new, sample_max=6)
    assert Counter(change.kind for change in found.sample) == {"changed": 4, "only old": 1, "only new": 1}
    assert compare(old, new, sample_max=0).sample == []


def test_many_rows_of_one_key_are_counted_right() -> None:
    found = compare([row("a", n=number) for number in range(1000)], [row("a", n=number) for number in range(500, 1700)])
    assert (found.same, found.changed, found.only_old, found.only_new) == (500, 500, 0, 200)


# Markers


@pytest.mark.parametrize(
    "marker",
    [
        Marker(QUERY, 17, "00c0ffee"),
        Marker(QUERY, 17, "00c0ffee", "2-1a2b3c", "1"),
        Marker(QUERY, 17, "00c0ffee", "1", "1", Hold("2-1a2b3c", 1_700_000_000_000)),
        not_begun("3-ffffff", "3-ffffff"),
    ],
)
def test_a_marker_is_read_as_it_was_written(marker: Marker) -> None:
    assert marker_in(str(marker)) == marker


def test_a_pipeline_that_was_never_upgraded_has_the_first_marker() -> None:
    assert str(Marker(QUERY, 17, "00c0ffee")) == f"ottla/1 {QUERY} 17 00c0ffee"


def test_the_highest_version_is_live_whatever_its_batch() -> None:
    old, new = Marker(QUERY, 900, "aa", "9-aaaaaa"), Marker(QUERY, 1, "bb", "10-bbbbbb")
    assert live([new, old]) == new
    held = old._replace(hold=Hold("10-bbbbbb", 1))
    assert live([old, held]) == held
    assert live([]) is None
    # `reset` begins another query, and leaves the marker on a topic that the flow does not read any more.
    before, mine = Marker("aaaa", 900, "aa"), Marker(QUERY, 1, "bb")
    assert live([mine, before], QUERY) == mine
    assert live([mine, before._replace(version="2-aaaaaa")], QUERY) != mine


def test_two_attempts_of_an_upgrade_have_different_names() -> None:
    one, other = following("1"), following("1")
    assert one != other
    assert number_of(one) == number_of(other) == 2


def test_the_marker_of_a_flow_that_was_removed_replaces_no_later_version() -> None:
    marker = Marker(QUERY, 3, "aa", "2-aaaaaa")
    assert is_replaced("1", marker)
    assert is_replaced("2-bbbbbb", marker)  # another attempt went live
    assert not is_replaced("2-aaaaaa", marker)
    assert not is_replaced("3-cccccc", marker)


def test_a_switch_leaves_no_older_marker() -> None:
    gone = TopicPartition("gone", 0)
    held = Progress({gone: CommittedOffset(7, str(Marker(QUERY, 3, "aa"))), P0: CommittedOffset(5)}, Marker(QUERY, 3, "aa"), gone)
    found = switched(held, not_begun("2-a", "2-a"), {P0: 5, P1: 9})
    assert {where: entry.offset for where, entry in found.items()} == {gone: 7, P0: 5, P1: 9}
    assert [where for where, entry in found.items() if marker_in(entry.metadata)] == [P0]
    kept = switched(held, Marker(QUERY, 3, "aa", "2-a"))
    assert [where for where, entry in kept.items() if marker_in(entry.metadata)] == [gone]


def test_a_flow_that_was_removed_can_come_back_versions_later(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("back.in", 1)
    place = TopicPartition("back.in", 0)
    project = Project(Path("back.py"), "back")
    with Client(plain_options(ottla_broker.bootstrap_servers)) as client:

        def switch(before: str, after: str, *flows: str) -> None:
            attempt = Switch(client, replace(project, version=before), after)
            held = {flow: attempt.hold(flow, {place: 5}, None) for flow in flows}
            attempt.commit({flow: switched(found, not_begun(after, after), {place: 7}) for flow, found in held.items()})

        switch("1", "2-a", "stays", "gone")
        switch("2-a", "3-b", "stays")
        with pytest.raises(PipelineError, match="version 3 went live meanwhile"):
            switch("2-a", "3-c", "stays")
        flow = SimpleNamespace(name="gone", place=None)
        driver = Claim(cast(Any, flow), "back.gone", project.switch_id, "3-b", threading.Event())
        assert [each.version for each in driver.markers(client)] == ["2-a"]
        with pytest.raises(Superseded, match="version 2 of the pipeline is live; this driver ran version 1"):
            Claim(cast(Any, flow), "back.gone", project.switch_id, "1", threading.Event()).markers(client)
        switch("3-b", "4-d", "stays", "gone")
        assert live_project(client, project, ["stays", "gone"]).generations == {"stays": "4-d", "gone": "4-d"}


# Code

CODE = """
from ottla import pipelines as p
RATE = 2

@p.flow("orders", to=None)
def one(orders):
    return orders

@p.flow("orders", to=None)
def other(orders):
    return orders.limit(1)
"""


def test_comments_and_layout_are_no_edit() -> None:
    changed = CODE.replace("RATE = 2", "# The rate.\nRATE   =  2")
    assert Code("a.py", {"a.py": CODE}).fingerprint() == Code("a.py", {"a.py": changed}).fingerprint()


def test_another_flows_function_is_no_edit_of_this_one() -> None:
    changed = CODE.replace("limit(1)", "limit(2)")
    before, after = Code("a.py", {"a.py": CODE}), Code("a.py", {"a.py": changed})
    assert before.fingerprint() != after.fingerprint()
    assert before.fingerprint_of("one") == after.fingerprint_of("one")
    assert before.fingerprint_of("other") != after.fingerprint_of("other")
    helper = Code("a.py", {"a.py": CODE, "helper.py": "x = 1"})
    assert helper.fingerprint_of("one") != before.fingerprint_of("one")
    constant = Code("a.py", {"a.py": CODE.replace("RATE = 2", "RATE = 3")})
    assert constant.fingerprint_of("one") != before.fingerprint_of("one")


def test_two_versions_with_a_module_of_one_name_are_loaded_beside_each_other(tmp_path: Path) -> None:
    found = []
    for number in (1, 2):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "ottla_test_helper.py").write_text(f"NUMBER = {number}\n")
        file = folder / "shop.py"
        file.write_text(
            "import ottla_test_helper\nfrom ottla import pipelines as p\n"
            "p.sql(p.source('in'), to=p.sink('out'), query=f'SELECT {ottla_test_helper.NUMBER}')\n"
        )
        with isolated(folder):
            (flow,) = loading.load(file)
            code = code_of(file)
        found.append(flow.query)
        assert code.files.keys() == {"shop.py", "ottla_test_helper.py"}
    assert found == ["SELECT 1", "SELECT 2"]
    assert "ottla_test_helper" not in sys.modules


# Plans


def test_ids_of_expressions_and_options_of_sources_are_no_edit() -> None:
    one, other = (
        f"~Project [a#{first}L, b#{first + 4}]\n"
        f"+- ~CollectMetrics ottla.bad.orders, [count(1) AS bad#{first + 9}L], {first}\n"
        f"   +- ~EventTimeWatermark {id}, at#{first + 4}: timestamp, 10 seconds\n"
        f"      +- ~StreamingRelationV2 org.Source, ottla, org.Table@{first:x}abcd, [subscribe=h{first}], [value#3]"
        for first, id in ((10, QUERY), (77, QUERY.replace("b", "c")))
    )
    assert normalised(one) == normalised(other)
    assert normalised(one) != normalised(other.replace("10 seconds", "20 seconds"))
    assert normalised(one) != normalised(other.replace("[a#77L, b#81]", "[b#81, a#77L]"))


def test_only_the_watermark_is_edited_though_its_delay_is_at_each_use() -> None:
    one, other = (
        f"Project [total#1]\nAggregate [window(at#2-T{delay}000ms, 10000000)], [sum(amount#3) AS total#1]\n"
        f"EventTimeWatermark at#2: timestamp, {delay} seconds\nRelation [at#2, amount#3]"
        for delay in (5, 30)
    )
    before, after = (
        replace(shape(normalised(plan), "aggregate"), watermarks=(normalised(plan.splitlines()[2]),)) for plan in (one, other)
    )
    (edit,) = compare_shapes({"sums": before}, {"sums": after})
    assert (edit.reasons, edit.state) == (("watermark: 5 seconds to 30 seconds",), State.REBUILT)


def test_a_flow_that_reads_an_edited_one_says_so() -> None:
    plans = {"first": COUNTS, "second": COUNTS, "third": COUNTS, "other": COUNTS}
    before = {name: shape(plan) for name, plan in plans.items()}
    after = before | {"first": shape(COUNTS.replace("> 5", "> 6"))}
    found = with_readers(compare_shapes(before, after), {"second": ["first"], "third": ["second", "other"]})
    assert [(edit.kind, edit.reasons) for edit in found] == [
        (Kind.EDITED, ("query",)),
        (Kind.UNCHANGED, ("reads the results of first",)),
        (Kind.UNCHANGED, ("reads the results of second",)),
        (Kind.UNCHANGED, ()),
    ]


def test_an_edited_output_says_what_of_it() -> None:
    before, after = shape(COUNTS), shape(COUNTS, key="total")
    (edit,) = compare_shapes({"sums": before}, {"sums": after})
    assert edit.reasons == ("output: topic out, changed key",)
    assert edit.state is State.KEPT
    late = replace(before, flow=replace(before.flow, late="late"), dead_letters=("bad",))
    (edit,) = compare_shapes({"sums": before}, {"sums": late})
    assert edit.reasons == ("dead letters: none to bad", "late records: none to late")


def shape(
    plan: str, *state: str, mode: str = "append", code: str | None = None, to: str = "out", key: str | None = None
) -> Shape:
    place = Place("shop.py", 1)
    sink = Sink(to, Json(), key, None, None, None, "lz4", None, (), place)
    return Shape(Flow("sums", (), None, "", sink, mode, place), (), {"total": "double"}, plan, state, (), (), code)


COUNTS = "Project [total#1]\nFilter (total#1 > 5)\nAggregate [id#2], [id#2, sum(amount#3) AS total#1]\nRelation [id#2]"


@pytest.mark.parametrize(
    ("new", "state", "reasons"),
    [
        (shape(COUNTS, "aggregate"), State.KEPT, ()),
        (shape(COUNTS, "aggregate", to="other"), State.KEPT, ("output: topic out to topic other",)),
        (shape(COUNTS.replace("> 5", "> 6"), "aggregate"), State.CARRIED, ("query",)),
        (shape(COUNTS.replace("sum", "max"), "aggregate"), State.REBUILT, ("query",)),
        (shape(COUNTS.replace("> 5", "> 6"), "aggregate", code="1"), State.REBUILT, ("query", "Python code")),
        (shape(COUNTS, "aggregate", mode="update"), State.REBUILT, ("output mode: append to update",)),
        (shape("Project [id#1]\nRelation [id#1]"), State.NONE, ("query",)),
    ],
)
def test_an_edit_says_what_becomes_of_the_state(new: Shape, state: State, reasons: tuple[str, ...]) -> None:
    (found,) = compare_shapes({"sums": shape(COUNTS, "aggregate")}, {"sums": new})
    assert (found.state, found.reasons) == (state, reasons)


def test_flows_come_and_go() -> None:
    found = compare_shapes({"old": shape(COUNTS, "aggregate")}, {"new": shape(COUNTS, "aggregate")})
    assert [(each.flow, each.kind, each.keeps_checkpoint) for each in found] == [
        ("new", Kind.NEW, False),
        ("old", Kind.REMOVED, True),
    ]


# Offsets


def test_the_last_records_are_taken_in_proportion() -> None:
    begin = last({P0: 100, P1: 0}, {P0: 1100, P1: 3000}, 400)
    assert begin == {P0: 1000, P1: 2700}
    assert last({P0: 100, P1: 0}, {P0: 110, P1: 5}, 400) == {P0: 100, P1: 0}


def test_a_forged_batch_is_written_as_spark_writes_it() -> None:
    entry = 'v1\n{"batchWatermarkMs":5,"batchTimestampMs":7,"conf":{"a":"b"}}\n{"orders": {"0": 3, "1": 4}, "#orders": "id"}'
    head, metadata, line = forged(entry, {P0: 8, P1: 4, TopicPartition("others", 0): 9}, 99).split("\n")
    assert head == "v1"
    assert json.loads(metadata)["batchWatermarkMs"] == 99
    assert json.loads(metadata)["conf"] == {"a": "b"}
    assert line == '{"orders": {"0": 8, "1": 4}, "#orders": "id"}'
    assert offsets_of(line) == {P0: 8, P1: 4}


# Rollback


class Kept:
    """The kept versions of a pipeline, for `rollback`."""

    location = "/storage/.versions"

    def __init__(self, *notes: str) -> None:
        numbers = range(1, len(notes) + 1)
        self.all = {
            str(number): Version(str(number), Code("shop.py", {}), str(number - 1) if number > 1 else None, 0, note)
            for number, note in zip(numbers, notes, strict=True)
        }

    def read(self, name: str) -> Version | None:
        return self.all.get(name)

    def target(self, to: int | None = None) -> int:
        versions: Any = self
        return rollback_target(versions, list(self.all.values())[-1], to).number


def test_a_rollback_goes_to_the_version_before() -> None:
    assert Kept("", "").target() == 1
    assert Kept("", "", "").target() == 2
    assert Kept("", "", "").target(1) == 1
    with pytest.raises(Failure, match="an older version is not kept"):
        Kept("").target()
    with pytest.raises(Failure, match="version 3 is not kept"):
        Kept("", "", "").target(3)


def test_a_rollback_called_again_after_it_was_killed_does_not_undo_itself() -> None:
    """The first one may have died between the switch and its last word."""
    assert Kept("", "", "", "rollback to 2").target() == 1
    assert Kept("", "", "", "rollback to 2", "rollback to 1", "").target() == 5
    assert Kept("", "", "", "rollback to 2", "", "rollback to 4").target() == 1
    with pytest.raises(Failure, match="an older version is not kept"):
        Kept("", "", "rollback to 1").target()
    assert Kept("", "", "rollback to 1").target(2) == 2
