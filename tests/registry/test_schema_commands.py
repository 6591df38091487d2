"""`ottla schema` against a registry."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.testing import Registry
from tests.registry.test_http import record


class Commands:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def __call__(self, *words: str, code: int = 0, stdin: str | None = None) -> str:
        command = [sys.executable, "-P", "-m", "ottla", "schema", *words, "--registry", self._registry.url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, input=stdin)
        assert done.returncode == code, done.stdout + done.stderr
        self.notes = done.stderr
        return done.stdout


@pytest.fixture
def schema(registry: Registry) -> Commands:
    return Commands(registry)


def test_the_life_of_a_subject(schema: Commands, subject: str, tmp_path: Path) -> None:
    first, second, wrong = (tmp_path / name for name in ("first.avsc", "second.avsc", "wrong.avsc"))
    first.write_text(record("r", "a"))
    second.write_text(record("r", "a", "b"))
    wrong.write_text('"string"')
    schema_id = int(schema("register", subject, str(first)))
    assert schema("check", subject, str(second)) == "compatible\n"
    assert "incompatible" in schema("check", subject, str(wrong), code=1)
    schema("register", subject, "-", stdin=second.read_text())
    listed = json.loads(schema("list", "--prefix", subject, "--json"))
    assert [(each["subject"], each["version"], each["type"]) for each in listed] == [(subject, 2, "AVRO")]
    shown = json.loads(schema("show", subject, "--version", "1", "--json"))
    assert (shown["id"], json.loads(shown["schema"])["name"]) == (schema_id, "r")
    assert json.loads(schema("show", "--id", str(schema_id)))["fields"][0]["name"] == "a"
    assert [line for line in schema("diff", subject, "1").splitlines() if line.startswith("+") and '"b"' in line]
    assert schema("diff", subject, "1", str(first)) == ""
    assert schema("compat", subject, "--set", "full") == "FULL\n"
    assert schema("compat", subject, "--unset") == "BACKWARD\n"
    schema("delete", subject, "--version", "1")
    schema("delete", subject)
    schema("delete", subject, code=1)
    assert "40404" in schema.notes
    schema("delete", subject, "--permanent")


def test_a_registry_that_is_away(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "ottla", "schema", "list", "--registry", "http://127.0.0.1:1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "ottla registry" in done.stderr
