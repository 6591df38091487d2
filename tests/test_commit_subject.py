"""The hook for commit messages: which subjects it takes."""

from __future__ import annotations

import pytest

from tools.commit_subject import problems

GOOD = [
    "storage: split Log into LocalLog and UnifiedLog",
    "broker, sim: group the flat modules into packages",
    "tests/kit: pass the root to scripts\n\nWhy, with the figure.",
    "coordinator: process heartbeats in order",
    "Merge branch 'main'",
    "fixup! storage: split Log",
]
BAD = {
    "Split Log into LocalLog": "area: imperative",
    "Storage: split Log": "area: imperative",
    "storage: splits Log": "not imperative",
    "storage: splitting Log": "not imperative",
    "storage: renamed Log": "not imperative",
    "storage: split Log.": "full stop",
    "storage: split Log into " + "x" * 60: "84 characters",
    "storage: split Log\nand more": "blank line",
    "": "area: imperative",
}


@pytest.mark.parametrize("message", GOOD)
def test_a_good_subject(message: str) -> None:
    assert problems(message) == []


@pytest.mark.parametrize("message", BAD)
def test_a_bad_subject(message: str) -> None:
    assert any(BAD[message] in problem for problem in problems(message)), problems(message)
