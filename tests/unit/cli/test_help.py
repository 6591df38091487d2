"""What `--help` shows."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from ottla.cli.app import app


@pytest.mark.parametrize("words", [[], ["topic"], ["topic", "delete"], ["log-dirs"], ["serve"], ["consume"]])
def test_a_flag_has_no_type_as_if_it_took_a_value(words: list[str]) -> None:
    shown = CliRunner().invoke(app, [*words, "--help"])
    assert shown.exit_code == 0
    assert "--help" in shown.output
    assert "<bool>" not in shown.output
