"""Plans of `ottla group reset-offsets`: offsets moved into the log, scopes, durations, files (F32)."""

from __future__ import annotations

import json

import pytest

from ottla.cli.failure import EXIT_USAGE, Failure
from ottla.cli.group.plan import export_csv, export_documents, parse_duration_ms, plan, read_plan, shifted
from ottla.cli.group.view import Group, Member, PartitionView

BOUNDS = {("t", 0): (5, 20), ("t", 1): (0, 0)}


def test_offsets_outside_of_the_log_become_its_nearer_end() -> None:
    steps = plan({("t", 0): 3, ("t", 1): 7}, {("t", 0): 9}, BOUNDS)
    assert [(step.committed, step.new_offset, step.wanted) for step in steps] == [(9, 5, 3), (None, 0, 7)]
    assert steps[0].note == "offset 3 is before the start of t-0; using 5"
    assert steps[1].note == "offset 7 is after the end of t-1; using 0"


@pytest.mark.parametrize("offset", [5, 12, 20])
def test_offsets_inside_stay_without_a_word(offset: int) -> None:
    (step,) = plan({("t", 0): offset}, {}, BOUNDS)
    assert (step.new_offset, step.wanted, step.note) == (offset, None, None)
    assert step.document()["lag"] == 20 - offset


def test_without_clamping_an_offset_stays_where_it_is() -> None:
    (step,) = plan({("t", 0): 3}, {}, BOUNDS, clamp=False)
    assert (step.new_offset, step.note) == (3, None)


def test_a_shift_needs_something_to_shift() -> None:
    assert shifted([("t", 0)], {("t", 0): 9}, -4) == {("t", 0): 5}
    with pytest.raises(Failure, match="missing for t-1"):
        shifted([("t", 0), ("t", 1)], {("t", 0): 9}, -4)


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("1h30m", 5_400_000),
        ("500ms", 500),
        ("PT1H30M", 5_400_000),
        ("P1D", 86_400_000),
        ("P1DT2H3M4.5S", 93_784_500),
        ("pt10s", 10_000),
    ],
)
def test_durations(text: str, expected_ms: int) -> None:
    assert parse_duration_ms(text) == expected_ms


@pytest.mark.parametrize("text", ["", "P", "PT", "10", "1y", "P1DT", "T5M", "-1h"])
def test_durations_that_are_none(text: str) -> None:
    with pytest.raises(Failure, match="is not a duration"):
        parse_duration_ms(text)


@pytest.mark.parametrize(
    "text",
    [
        "t,0,42\nt,1,7\n",
        "t,0,42\r\n\r\nt,1,7",
        "g,t,0,42\ng,t,1,7\nother,t,0,1\n",
        '"g",t,0,42\ng,t,1,7',
        '[{"topic": "t", "partition": 0, "offset": 42}, {"topic": "t", "partition": 1, "offset": 7}]',
        '{"group": "g", "partitions": [{"topic": "t", "partition": 0, "new_offset": 42},'
        ' {"topic": "t", "partition": 1, "offset": 7}, {"group": "x", "topic": "u", "partition": 0, "offset": 0}]}',
    ],
)
def test_plans_out_of_files(text: str) -> None:
    assert read_plan(text, "g", "file") == {("t", 0): 42, ("t", 1): 7}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no offsets for group g"),
        ("x,t,0,42", "no offsets for group g"),
        ("t,0", "line 1 has 2 columns"),
        ("t,0,1\nt,zero,1", "line 2 is not a topic"),
        ("t,0,-1", "line 1 is not a topic"),
        ("[1]", "not a list of partitions"),
        ("{}", "not a list of partitions"),
        ('[{"topic": "t", "partition": 0}]', "entry 1 is not a topic"),
        ("[", "is not JSON"),
    ],
)
def test_files_that_hold_no_plan(text: str, says: str) -> None:
    with pytest.raises(Failure, match=says) as caught:
        read_plan(text, "g", "file")
    assert caught.value.exit_code == EXIT_USAGE


def test_what_is_exported_is_read_again() -> None:
    steps = plan({("t", 0): 12, ("t", 1): 0}, {}, BOUNDS)
    expected = {("t", 0): 12, ("t", 1): 0}
    assert export_csv(steps) == "t,0,12\nt,1,0\n"
    assert read_plan(export_csv(steps), "g", "file") == expected
    assert read_plan(json.dumps(export_documents(steps)), "g", "file") == expected
    document = {"group": "g", "partitions": [step.document() for step in steps]}
    assert read_plan(json.dumps(document), "g", "file") == expected


def test_lag_and_lead_need_a_committed_offset_and_a_log() -> None:
    """F71: nothing is invented where nobody knows."""
    member = Member("m", None, "c", "h", [("t", 0)], None)
    known = PartitionView("t", 0, 12, 5, 20, member)
    uncommitted = PartitionView("t", 1, None, 0, 9, None)
    gone = PartitionView("u", 0, 12, None, None, None)
    assert [(view.lag, view.lead) for view in (known, uncommitted, gone)] == [(8, 7), (None, None), (None, None)]
    group = Group("g", "classic", "Stable", "range", 1, "h:1", [member], [known, uncommitted, gone])
    assert group.document()["lag"] == 8
    assert Group("g", "classic", "Empty", "", 1, "h:1", [], [uncommitted]).lag is None
