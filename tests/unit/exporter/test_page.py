"""docs/exporter.md is generated from the tables of names."""

from __future__ import annotations

from collections import Counter

from ottla.exporter import names
from ottla.exporter.page import render
from tests.kit import ROOT


def test_the_page_is_current() -> None:
    page = (ROOT / "docs" / "exporter.md").read_text()
    assert page == render(), "run: python -m ottla.exporter.page > docs/exporter.md"


def test_a_name_is_defined_once() -> None:
    counts = Counter(family.name for families in names.FAMILIES.values() for family in families)
    assert counts.most_common(1)[0][1] == 1
