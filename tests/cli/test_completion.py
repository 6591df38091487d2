"""Names that shells complete."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from ottla.cli.app import app
from ottla.cli.completion import names as completing
from ottla.cli.completion.cache import NamesCache
from tests.kit.ottla_command import TIMEOUT_S, Ottla


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    # The limit is for people. On a machine that is busy with tests an answer may take longer.
    monkeypatch.setattr(completing, "LIMIT_S", 20.0)


def completed(ottla: Ottla, *words: str) -> list[str]:
    """What the shell is offered for the last word."""
    environment = ottla.environment | {
        "_OTTLA_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(("ottla", *words)),
        "COMP_CWORD": str(len(words)),
    }
    result = CliRunner().invoke(app, [], env=environment, prog_name="ottla")
    assert result.stderr == ""
    return result.stdout.split()


@pytest.fixture
def group(ottla: Ottla, topic: str) -> Iterator[str]:
    name = f"{topic}-readers"
    ottla.ok("produce", topic, "a")
    ottla.ok("consume", topic, "-g", name)
    yield name
    ottla.run("group", "delete", name)


def test_topics(ottla: Ottla, topic: str) -> None:
    assert completed(ottla, "topic", "describe", topic[:-1]) == [topic]
    assert completed(ottla, "consume", topic[:-1]) == [topic]
    assert completed(ottla, "find", "text", "--topics", topic[:-1]) == [topic]
    assert topic in completed(ottla, "topic", "delete", "")
    assert completed(ottla, "topic", "describe", "no-such") == []


def test_internal_topics_are_for_those_who_ask(ottla: Ottla, group: str) -> None:
    assert "__consumer_offsets" not in completed(ottla, "topic", "describe", "")
    assert "__consumer_offsets" in completed(ottla, "topic", "describe", "__")


def test_groups_and_brokers(ottla: Ottla, topic: str, group: str) -> None:
    assert completed(ottla, "group", "describe", group[:-1]) == [group]
    assert completed(ottla, "consume", topic, "--group", group[:-1]) == [group]
    assert completed(ottla, "config", "describe", "group", group[:-1]) == [group]
    (broker,) = completed(ottla, "config", "describe", "broker", "")
    assert broker.isdecimal()
    assert completed(ottla, "log-dirs", "describe", "--broker", broker[:-1]) == [broker]


def test_profiles(ottla: Ottla) -> None:
    ottla.ok("profile", "add", "stage", "-b", ottla.bootstrap_servers)
    assert completed(ottla, "profile", "use", "st") == ["stage"]
    assert completed(ottla, "topic", "list", "--profile", "s") == ["stage"]


def test_the_cluster_is_the_one_of_the_command_line(ottla: Ottla, topic: str) -> None:
    elsewhere = Ottla("127.0.0.1:1")
    assert completed(elsewhere, "topic", "describe", topic[:-1]) == []
    assert completed(elsewhere, "topic", "describe", "-b", ottla.bootstrap_servers, topic[:-1]) == [topic]
    ottla.ok("profile", "add", "stage", "-b", ottla.bootstrap_servers)
    assert completed(Ottla(""), "topic", "describe", "--profile", "stage", topic[:-1]) == [topic]


def test_a_profile_that_would_ask_for_a_password_is_not_asked(ottla: Ottla, topic: str, tmp_path: Path) -> None:
    mark = tmp_path / "asked"
    ottla.ok("profile", "add", "stage", "-b", ottla.bootstrap_servers, "--password-command", f"touch {mark}")
    assert completed(ottla, "topic", "describe", "--profile", "stage", topic[:-1]) == []
    assert not mark.exists()


def test_names_are_kept_for_a_while_for_their_owner_only(ottla: Ottla, topic: str, tmp_path: Path) -> None:
    assert completed(ottla, "topic", "describe", topic) == [topic]
    (file,) = (tmp_path / "cache/ottla").iterdir()
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    file.write_text(json.dumps(["kept", topic]))
    assert completed(ottla, "topic", "describe", "ke") == ["kept"]
    old = time.time() - 31
    os.utime(file, (old, old))
    assert completed(ottla, "topic", "describe", "ke") == []


@pytest.mark.parametrize("text", ["", "{", '"x"', "[1, null]", "\xff"])
def test_a_broken_cache_is_no_error(text: str, tmp_path: Path) -> None:
    cache = NamesCache("cluster", "topics")
    cache.write(["a"])
    (file,) = (tmp_path / "cache/ottla").iterdir()
    file.write_bytes(text.encode("latin-1"))
    assert cache.read() in (None, [])


def test_a_broker_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completing, "LIMIT_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert completed(Ottla(f"127.0.0.1:{server.getsockname()[1]}"), "topic", "describe", "a") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_there_is_a_script_for_each_shell(ottla: Ottla, shell: str) -> None:
    result = CliRunner().invoke(app, [], env={"_OTTLA_COMPLETE": f"source_{shell}"}, prog_name="ottla")
    assert "_OTTLA_COMPLETE=complete_" in result.stdout


def test_bash_completes_with_the_script(ottla: Ottla, topic: str, tmp_path: Path) -> None:
    script = tmp_path / "ottla.bash"
    command = tmp_path / "ottla"
    command.write_text('#!/bin/sh\nexec {} "$@"\n'.format(" ".join(ottla.command())))
    command.chmod(0o755)
    environment = ottla.environment | {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    made = subprocess.run([command], env=environment | {"_OTTLA_COMPLETE": "source_bash"}, capture_output=True, timeout=TIMEOUT_S)
    script.write_bytes(made.stdout)
    line = f'. {script}; COMP_WORDS=(ottla topic des); COMP_CWORD=2; _ottla_completion ottla; echo "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", line], env=environment, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.stdout.strip() == "describe", done.stderr


def test_every_parameter_that_names_a_topic_or_group_is_completed() -> None:
    lacking = []

    def look(command: Any, path: str) -> None:
        for name, inner in getattr(command, "commands", {}).items():
            look(inner, f"{path} {name}")
        for parameter in command.params:
            has_cluster = any(each.name == "bootstrap_servers" for each in command.params)
            if parameter.metavar in ("TOPIC", "GROUP") and has_cluster and parameter._custom_shell_complete is None:
                lacking.append(f"{path} {parameter.name}")

    look(typer.main.get_command(app), "ottla")
    assert lacking == []
