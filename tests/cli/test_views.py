"""-o and --watch of commands that print lists and descriptions."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
from typing import Any

import pytest
import typer
import yaml

from ottla.cli.app import app
from ottla.cli.views import VIEWS
from tests.kit.ottla_command import TIMEOUT_S, Ottla


def test_every_view_has_a_form_and_can_be_watched() -> None:
    """But for those without documents, whose names say so."""
    lacking, views = [], []
    root: Any = typer.main.get_command(app)
    for noun, group in root.commands.items():
        for verb, command in getattr(group, "commands", {noun: group}).items():
            if verb in VIEWS:
                views.append(f"{noun} {verb}")
                options = {name for parameter in command.params for name in parameter.opts}
                if not {"--output", "--watch", "--interval", "--json"} <= options:
                    lacking.append(f"{noun} {verb}")
    assert len(views) > 15
    assert lacking == []


def test_the_forms_of_a_list(ottla: Ottla, topic: str) -> None:
    def printed(form: str) -> str:
        return ottla.ok("topic", "list", "-o", form)

    rows = json.loads(printed("json"))
    assert json.loads(ottla.ok("topic", "list", "--json")) == rows
    assert yaml.safe_load(printed("yaml")) == rows
    assert [json.loads(line) for line in printed("jsonl").splitlines()] == rows
    assert f"\n{topic},3,1\n" in printed("csv")
    assert topic in printed("names").splitlines()
    assert printed("table") == ottla.ok("topic", "list")
    assert printed("wide").splitlines()[0].split() == ["TOPIC", "PARTITIONS", "REPLICATION-FACTOR"]


def test_the_forms_of_a_description(ottla: Ottla, topic: str) -> None:
    lines = ottla.ok("topic", "describe", topic, "-o", "csv").splitlines()
    assert lines[0].startswith("topic,topic_id,internal,replication_factor,records,config,partition,leader,replicas,isr")
    assert len(lines) == 4
    assert ottla.ok("topic", "describe", topic, "-o", "names") == f"{topic}\n"


def test_table_wins_over_json(ottla: Ottla, topic: str) -> None:
    assert ottla.ok("topic", "list", "--json", "-o", "table") == ottla.ok("topic", "list")


def test_a_failure_is_json_with_json_forms(ottla: Ottla) -> None:
    assert json.loads(ottla.fails("topic", "describe", "no-such", "-o", "jsonl"))["error"]["code"] == "UNKNOWN_TOPIC_OR_PARTITION"
    assert ottla.fails("topic", "describe", "no-such", "-o", "yaml").startswith("error: topic no-such does not exist")
    assert "xml" in ottla.fails("topic", "list", "-o", "xml", code=2)


def test_watch_prints_again_and_again(ottla: Ottla, topic: str) -> None:
    words = ottla.command("topic", "list", "-o", "jsonl", "--watch", "--interval", "0.1")
    with subprocess.Popen(words, env=ottla.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        seen = 0
        for line in process.stdout:
            seen += json.loads(line)["topic"] == topic
            if seen == 3:
                break
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=TIMEOUT_S)
    assert (seen, process.returncode) == (3, 130)


def test_watch_at_a_terminal_shows_it_in_place(ottla: Ottla, topic: str) -> None:
    ours, theirs = pty.openpty()
    words = ottla.command("topic", "list", "-w", "--interval", "0.1")
    environment = ottla.environment | {"TERM": "xterm", "COLUMNS": "100", "LINES": "500"}
    with subprocess.Popen(words, env=environment, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        shown, interrupted = b"", False
        with contextlib.suppress(OSError), os.fdopen(ours, "rb", buffering=0) as terminal:  # an error is the end of it
            while piece := terminal.read(65536):
                shown += piece
                if shown.count(topic.encode()) >= 3 and not interrupted:
                    interrupted = True
                    process.send_signal(signal.SIGINT)
    assert b"\x1b[?1049h" in shown, "the alternate screen"
    assert process.returncode == 130


@pytest.mark.parametrize("words", [("acl", "list"), ("group", "list"), ("quota", "list"), ("user", "list"), ("txn", "list")])
def test_other_views_take_the_option(ottla: Ottla, words: tuple[str, ...]) -> None:
    assert ottla.run(*words, "--output", "csv").returncode in (0, 1)
