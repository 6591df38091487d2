"""Passwords that are set are not shown again (CV05): the output of a command stays in logs of CI."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from ottla.cli import config
from ottla.cli.app import app


@pytest.mark.parametrize("json_output", [False, True])
def test_cv05_a_password_that_is_set_is_not_shown(monkeypatch: pytest.MonkeyPatch, json_output: bool) -> None:
    sent: dict[str, str] = {}

    def alter(connection: object, kind: str, name: str, changes: dict[str, str], removals: list[str]) -> None:
        sent.update(changes)

    monkeypatch.setattr(config, "alter_settings", alter)
    names = ("listener.name.a.ssl.keystore.password", "listener.name.a.ssl.keystore.key", "plugin.password")
    pairs = [f"{name}=planted" for name in names]
    pairs.append("delegation.token.max.lifetime.ms=5")
    shown = CliRunner().invoke(app, ["config", "set", "broker", "1", *pairs, *(["--json"] if json_output else [])])
    assert shown.exit_code == 0, shown.output
    assert list(sent.values()) == ["planted", "planted", "planted", "5"]
    assert "planted" not in shown.output
    assert "delegation.token.max.lifetime.ms" in shown.output
