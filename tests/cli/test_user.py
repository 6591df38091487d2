"""`ottla user`: SCRAM credentials, and where passwords come from."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

from tests.kit.ottla_command import Ottla


@pytest.fixture
def name() -> str:
    return f"user-{uuid.uuid4().hex[:8]}"


def test_add_list_password_remove(ottla: Ottla, name: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("from-a-file\n")
    ottla.ok("user", "add", name, "--password-file", str(secret))
    listed = json.loads(ottla.ok("user", "list", name, "--json"))
    assert [(each["mechanism"], each["iterations"]) for each in listed] == [("SCRAM-SHA-256", 8192), ("SCRAM-SHA-512", 8192)]
    assert name in ottla.ok("user", "list")
    assert "exists already" in ottla.fails("user", "add", name, "--password-file", str(secret))
    ottla.ok("user", "password", name, "--password-file", "-", "--iterations", "4096", stdin="from-stdin\n")
    assert json.loads(ottla.ok("user", "list", name, "--json"))[0]["iterations"] == 4096
    ottla.ok("user", "remove", name, "--mechanism", "scram-sha-256")
    assert [each["mechanism"] for each in json.loads(ottla.ok("user", "list", name, "--json"))] == ["SCRAM-SHA-512"]
    ottla.ok("user", "remove", name)
    assert f"user {name} does not exist" in ottla.fails("user", "list", name)


def test_what_cannot_be_done(ottla: Ottla, name: str) -> None:
    assert "no terminal" in ottla.fails("user", "add", name, code=2)
    assert "password is empty" in ottla.fails("user", "add", name, "--password-file", "-", stdin="\n", code=2)
    assert "no SCRAM mechanism" in ottla.fails("user", "add", name, "-m", "PLAIN", "--password-file", "-", stdin="x", code=2)
    assert "does not exist" in ottla.fails("user", "password", name, "--password-file", "-", stdin="x")
    assert "does not exist" in ottla.fails("user", "remove", name)
