"""docs/metrics.md is generated from the table, and every event that code counts has a row."""

from __future__ import annotations

import re

from ottla.metrics.page import render
from ottla.metrics.table import EVENTS, METRICS
from tests.kit import ROOT


def test_the_page_is_current() -> None:
    assert (ROOT / "docs" / "metrics.md").read_text() == render(), "run: make docs"


def test_every_event_has_a_row_and_every_row_an_event() -> None:
    counted: set[str] = set()
    for path in (ROOT / "src" / "ottla").rglob("*.py"):
        counted.update(re.findall(r"counters\.add\(\s*\"(\w+)\"", path.read_text()))
    counted.discard("bytes_out")  # the example of its docstring
    assert counted == EVENTS.keys()


def test_names_are_as_prometheus_wants_them() -> None:
    for name, metric in METRICS.items():
        assert re.fullmatch(r"[a-z][a-z0-9_]*", name)
        assert metric.help.endswith(".")
        assert "jvm" not in name
