"""The files of each kind, by name. A new kind is a line in `KINDS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Final

from ottla.generate import recording_rules, scrape
from ottla.generate.dashboards import DASHBOARDS

Files = dict[str, str]
"""Text by file name."""


def file_text(name: str) -> str:
    return files("ottla.generate").joinpath("files", name).read_text(encoding="utf-8")


def _scrape(targets: scrape.Targets) -> Files:
    return {"prometheus.yml": scrape.render(targets)}


def _rules(targets: scrape.Targets) -> Files:
    return {"ottla-rules.yml": recording_rules.render()}


def _alerts(targets: scrape.Targets) -> Files:
    return {"ottla-alerts.yml": file_text("alerts.yml")}


def _dashboards(targets: scrape.Targets) -> Files:
    return {f"{dashboard.uid}.json": dashboard.render() for dashboard in DASHBOARDS}


def _systemd(targets: scrape.Targets) -> Files:
    return {name: file_text(name) for name in ("ottla.service", "ottla-exporter.service")}


KINDS: Final[Mapping[str, Callable[[scrape.Targets], Files]]] = {
    "scrape": _scrape,
    "rules": _rules,
    "alerts": _alerts,
    "dashboards": _dashboards,
    "systemd": _systemd,
}
