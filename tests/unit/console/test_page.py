"""docs/http-api.md is what the endpoints say."""

from __future__ import annotations

from ottla.console.page import render
from tests.kit import ROOT


def test_the_page_is_current() -> None:
    page = (ROOT / "docs" / "http-api.md").read_text()
    assert page == render(), "run: python -m ottla.console.page > docs/http-api.md"
