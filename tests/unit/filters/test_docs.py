"""docs/filters.md lists what the tables have."""

from __future__ import annotations

import re

import pytest

from ottla.filters.filter import parse_filter
from ottla.filters.functions import FUNCTIONS
from ottla.filters.parsing import ARITHMETIC, COMPARISONS, DEPTH_MAX, NAMES, NODES_MAX, NOW, TEXT_CHARS_MAX
from tests.kit import ROOT

PAGE = (ROOT / "docs/filters.md").read_text()


def rows(title: str) -> dict[str, str]:
    section = PAGE.split(f"## {title}\n")[1].split("\n## ")[0]
    return dict(re.findall(r"^\| (`.*`) \| (.*) \|$", section, re.MULTILINE))


def test_names() -> None:
    found = rows("Names")
    assert list(found) == [f"`{name}`" for name in (*NAMES, NOW)]
    assert {f"`{name}`": meaning for name, (meaning, _) in NAMES.items()}.items() <= found.items()


def test_functions() -> None:
    assert rows("Functions") == {f"`{each.usage}`": each.meaning for each in FUNCTIONS.values()}


def test_operators() -> None:
    found = " ".join(rows("Operators"))
    assert set(re.findall("`(.+?)`", found)) == {sign for sign, _ in (*ARITHMETIC.values(), *COMPARISONS.values())} | {
        "and",
        "or",
        "not",
    }


def test_limits() -> None:
    assert f"{TEXT_CHARS_MAX:,} characters, {NODES_MAX} parts and {DEPTH_MAX} levels" in PAGE


SPANS = [span for span in re.findall(r"`([^`\n]+)`", PAGE) if re.search(r"\b(value|key|timestamp|now)\b.*[=<>]", span)]


@pytest.mark.parametrize("span", SPANS)
def test_expressions_of_the_page_are_allowed(span: str) -> None:
    parse_filter(span, 0)
