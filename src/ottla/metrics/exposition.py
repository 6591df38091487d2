"""Metrics as text: Prometheus 0.0.4, or OpenMetrics 1.0.

The text comes in pieces of some lines, so that a broker with thousands of partitions can serve requests between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from ottla.metrics.family import Family

PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

LINES = 200
"""Of a piece: some 0.1 ms."""


def exposition(families: Iterable[Family], *, openmetrics: bool = False) -> Iterator[str]:
    """The text in pieces, some of them empty. A family without samples is left out."""
    for family in families:
        name = family.name
        head = _head(family, openmetrics)
        samples = iter(family.samples)
        while lines := [f"{name}{labels} {value}\n" for labels, value in islice(samples, LINES)]:
            yield head + "".join(lines)
            head = ""
        if head:
            yield ""
    if openmetrics:
        yield "# EOF\n"


def _head(family: Family, openmetrics: bool) -> str:
    name, kind = family.name, family.type
    if openmetrics and kind == "counter":
        # There a counter ends in _total, and its head does not.
        name, kind = (name.removesuffix("_total"), kind) if name.endswith("_total") else (name, "unknown")
    return f"# HELP {name} {_escaped_help(family.help)}\n# TYPE {name} {kind}\n"


def _escaped_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"') if "\\" in text or "\n" in text else text


def wants_openmetrics(accept: str) -> bool:
    """Whether an Accept header names OpenMetrics, without a weight below that of plain text."""
    weights = {"application/openmetrics-text": 0.0, "text/plain": 0.0}
    for each in accept.split(","):
        kind, *parameters = (part.strip() for part in each.split(";"))
        if kind in weights:
            weights[kind] = max(weights[kind], _weight(parameters))
    return weights["application/openmetrics-text"] > weights["text/plain"]


def _weight(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0
