"""Grafana's dashboards from short descriptions: rows of panels with PromQL expressions, as the JSON that Grafana imports.

Owns the layout (panels fill rows of 24 columns from the left) and what all panels share. A description says what is shown.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

_COLUMNS: Final = 24
_SCHEMA_VERSION: Final = 39
_DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Query:
    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    queries: tuple[Query, ...]
    unit: str = "short"
    """Grafana's name of it: `s`, `ms`, `bytes`, `Bps`, `percentunit`, `short`."""
    kind: str = "timeseries"
    """`timeseries`, `stat` or `table`."""
    width: int = 8
    height: int = 8
    about: str = ""
    red_from: float | None = None
    """A stat is red from this value on, else green."""
    red_below: float | None = None
    decimals: int | None = None

    def document(self, number: int, x: int, y: int) -> Json:
        defaults: Json = {"unit": self.unit, "thresholds": {"mode": "absolute", "steps": self._steps()}}
        if self.decimals is not None:
            defaults["decimals"] = self.decimals
        return {
            "id": number,
            "type": self.kind,
            "title": self.title,
            "description": self.about,
            "datasource": _DATASOURCE,
            "gridPos": {"x": x, "y": y, "w": self.width, "h": self.height},
            "fieldConfig": {"defaults": defaults, "overrides": []},
            "options": self._options(),
            "targets": [self._target(position, query) for position, query in enumerate(self.queries)],
            **({"transformations": _TABLE} if self.kind == "table" else {}),
        }

    def _steps(self) -> list[Json]:
        if self.red_below is not None:
            return [{"color": "red", "value": None}, {"color": "green", "value": self.red_below}]
        steps: list[Json] = [{"color": "green", "value": None}]
        return steps if self.red_from is None else [*steps, {"color": "red", "value": self.red_from}]

    def _options(self) -> Json:
        if self.kind == "stat":
            return {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value", "graphMode": "area"}
        if self.kind == "table":
            return {"showHeader": True, "cellHeight": "sm"}
        legend = {"displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull", "max"]}
        return {"legend": legend, "tooltip": {"mode": "multi"}}

    def _target(self, position: int, query: Query) -> Json:
        table = self.kind == "table"
        return {
            "refId": chr(ord("A") + position),
            "expr": query.expr,
            "legendFormat": query.legend or "__auto",
            "datasource": _DATASOURCE,
            "instant": table,
            "range": not table,
            "format": "table" if table else "time_series",
        }


_TABLE: Final = [{"id": "organize", "options": {"excludeByName": {"Time": True, "job": True, "instance": True}}}]


@dataclass(frozen=True, slots=True)
class Variable:
    """A choice at the top of the dashboard, out of the values of a label."""

    name: str
    query: str
    """`label_values(METRIC, LABEL)`."""
    all: bool = True

    def document(self) -> Json:
        return {
            "type": "query",
            "name": self.name,
            "label": self.name,
            "query": {"query": self.query, "refId": self.name},
            "definition": self.query,
            "datasource": _DATASOURCE,
            "refresh": 2,
            "sort": 1,
            "includeAll": self.all,
            "multi": self.all,
            "allValue": ".*" if self.all else None,
            "current": {"text": "All", "value": "$__all"} if self.all else {},
        }


@dataclass(frozen=True, slots=True)
class Row:
    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Dashboard:
    uid: str
    """Also the name of its file."""
    title: str
    variables: tuple[Variable, ...]
    rows: tuple[Row, ...]
    tags: tuple[str, ...] = field(default=("kafka", "ottla"))

    def expressions(self) -> list[str]:
        """All PromQL in it, with its variables."""
        return [query.expr for row in self.rows for panel in row.panels for query in panel.queries]

    def render(self) -> str:
        return json.dumps(self._document(), indent=2) + "\n"

    def _document(self) -> Json:
        datasource = {"type": "datasource", "name": "datasource", "label": "data source", "query": "prometheus"}
        return {
            "uid": self.uid,
            "title": self.title,
            "tags": list(self.tags),
            "schemaVersion": _SCHEMA_VERSION,
            "editable": True,
            "refresh": "30s",
            "time": {"from": "now-1h", "to": "now"},
            "templating": {"list": [datasource, *(variable.document() for variable in self.variables)]},
            "panels": list(self._panels()),
        }

    def _panels(self) -> Iterator[Json]:
        number, y = 1, 0
        for row in self.rows:
            yield {"id": number, "type": "row", "title": row.title, "collapsed": False, "gridPos": _whole_line(y), "panels": []}
            number, y = number + 1, y + 1
            for line in _lines(row.panels):
                x = 0
                for panel in line:
                    yield panel.document(number, x, y)
                    number, x = number + 1, x + panel.width
                y += max(panel.height for panel in line)


def _whole_line(y: int) -> Json:
    return {"x": 0, "y": y, "w": _COLUMNS, "h": 1}


def _lines(panels: Sequence[Panel]) -> Iterator[list[Panel]]:
    line: list[Panel] = []
    for panel in panels:
        if sum(each.width for each in line) + panel.width > _COLUMNS:
            yield line
            line = []
        line.append(panel)
    if line:
        yield line


# Words that descriptions use


def stat(title: str, expr: str, unit: str = "short", **more: Any) -> Panel:
    return Panel(title, (Query(expr),), unit, "stat", **{"width": 4, "height": 4, **more})


def graph(title: str, *queries: tuple[str, str], unit: str = "short", **more: Any) -> Panel:
    """Queries are (expression, legend)."""
    return Panel(title, tuple(Query(expr, legend) for expr, legend in queries), unit, **more)


def table(title: str, expr: str, unit: str = "short", **more: Any) -> Panel:
    return Panel(title, (Query(expr),), unit, "table", **{"width": 12, **more})
