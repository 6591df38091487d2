"""The spellings of one round: `kafka_exporter`, `kminion` and `lag_exporter` as the exporters of these names have them, `own`
what none of them has. Each module is a table of families and a function that writes them; `view` has the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ottla.exporter.exposition import Page
from ottla.exporter.names import kafka_exporter, kminion, lag_exporter, own
from ottla.exporter.names.view import View
from ottla.metrics.family import Metric

WRITERS: Final[Mapping[str, Callable[[Page, View], None]]] = {
    "kafka_exporter": kafka_exporter.write,
    "kminion": kminion.write,
    "lag_exporter": lag_exporter.write,
}
"""The spellings that can be left out."""

FAMILIES: Final[Mapping[str, tuple[Metric, ...]]] = {
    "kafka_exporter": kafka_exporter.FAMILIES,
    "own": own.FAMILIES,
    "kminion": kminion.FAMILIES,
    "lag_exporter": lag_exporter.FAMILIES,
}


def render(view: View, spellings: tuple[str, ...] = tuple(WRITERS)) -> str:
    page = Page()
    own.write(page, view)
    for name in spellings:
        WRITERS[name](page, view)
    return page.text()
