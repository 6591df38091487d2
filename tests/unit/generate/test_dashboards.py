"""The dashboards: what Grafana needs, and that every metric in shipped files exists."""

from __future__ import annotations

import json
import re

import pytest

from ottla.exporter import names, service
from ottla.generate.dashboards import DASHBOARDS
from ottla.generate.dashboards.grafana import Dashboard, Row, graph, stat
from ottla.generate.kinds import KINDS, file_text
from ottla.generate.recording_rules import GROUPS
from ottla.generate.scrape import Targets
from ottla.metrics.table import METRICS

EXPORTED = {family.name for families in names.FAMILIES.values() for family in families} | {each.name for each in service.FAMILIES}
OF_PIPELINES = {
    *(f"ottla_pipeline_{name}" for name in ("up", "lag", "rows_per_s", "batch_ms", "transaction_ms", "phase_ms")),
    *(f"ottla_pipeline_{name}" for name in ("state_rows", "state_bytes", "watermark_seconds", "checkpoint_age_seconds")),
    *(
        f"ottla_pipeline_{name}_total"
        for name in ("rows_in", "records_out", "dead_letters", "unmet", "late_rows", "batches", "run_again")
    ),
}
KNOWN = EXPORTED | set(METRICS) | OF_PIPELINES | {"up"}
METRIC = re.compile(r"\b((?:kafka|ottla|kminion|process)_\w+|up\b)(?![\w(]|\s*=)")


def metrics_in(expr: str) -> set[str]:
    """The metrics of an expression: not its labels, nor what is between quotes."""
    bare = re.sub(r'"[^"]*"|\b(by|on|without)\s*\([^)]*\)', "", expr)
    return {found for found in METRIC.findall(bare) if found not in ("kafka_cluster",)}


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.uid)
def test_a_dashboard_shows_only_metrics_that_exist(dashboard: Dashboard) -> None:
    for expr in dashboard.expressions():
        assert metrics_in(expr), expr
        assert metrics_in(expr) <= KNOWN, f"{expr}: {metrics_in(expr) - KNOWN}"


def test_alerts_and_rules_use_only_metrics_that_exist() -> None:
    alerts = re.findall(r"expr: (?:>-\n((?: {10}.*\n)+)|(.*)\n)", file_text("alerts.yml"))
    exprs = [block or line for block, line in alerts] + [rule.expr for rules in GROUPS.values() for rule in rules()]
    assert len(exprs) > 90
    for expr in exprs:
        assert metrics_in(expr) <= KNOWN, f"{expr}: {metrics_in(expr) - KNOWN}"


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.uid)
def test_panels_have_their_own_place(dashboard: Dashboard) -> None:
    document = json.loads(dashboard.render())
    taken: set[tuple[int, int]] = set()
    numbers = [panel["id"] for panel in document["panels"]]
    assert len(numbers) == len(set(numbers))
    for panel in document["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.uid)
def test_a_variable_is_defined_before_it_is_used(dashboard: Dashboard) -> None:
    defined = {"__rate_interval"}
    for variable in dashboard.variables:
        assert set(re.findall(r"\$(\w+)", variable.query)) <= defined
        defined.add(variable.name)
    for expr in dashboard.expressions():
        assert set(re.findall(r"\$(\w+)", expr)) <= defined, expr


def test_a_row_begins_below_the_tallest_panel() -> None:
    first = Row("first", (stat("a", "up"), graph("b", ("up", "")), stat("c", "up", width=16)))
    document = json.loads(Dashboard("u", "t", (), (first, Row("second", (stat("d", "up"),)))).render())
    places = {panel["title"]: (panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in document["panels"]}
    assert places == {"first": (0, 0), "a": (0, 1), "b": (4, 1), "c": (0, 9), "second": (0, 13), "d": (0, 14)}


def test_every_kind_writes_files() -> None:
    files = [name for write in KINDS.values() for name in write(Targets())]
    assert len(files) == len(set(files)) == 9
