"""docs/settings.md is generated from the table, and the table says truly what is used."""

from __future__ import annotations

import re
from pathlib import Path

from ottla.cluster.settings import BROKER_SETTINGS, TOPIC_SETTINGS
from ottla.cluster.settings.page import render

ROOT = Path(__file__).parents[4]


def test_the_page_is_current() -> None:
    page = (ROOT / "docs" / "settings.md").read_text()
    assert page == render(), "run: python -m ottla.cluster.settings.page > docs/settings.md"


def test_what_the_code_reads_is_marked_as_used() -> None:
    """A setting that has an effect must not be announced as having none."""
    table = {**TOPIC_SETTINGS, **BROKER_SETTINGS}
    asked = re.compile(r"\.(?:int|float|bool|str|list|optional_str)\(\s*\"([a-z0-9.]+\.[a-z0-9.]+)\"\s*\)")
    seen: set[str] = set()
    for path in (ROOT / "src" / "ottla").rglob("*.py"):
        seen.update(asked.findall(path.read_text()))
    assert seen, "the search finds nothing any more"
    assert not {name for name in seen if name not in table}
    assert not {name for name in seen if name in table and not table[name].used}
