"""The tutorial and the how-to pages, followed word for word: files are written, commands run in order, output is compared.

A console block with a title is a terminal of its own: its command runs until the page comes back to this terminal, with `^C` or
after a kill. A line below a command must occur in its output; `…` stands for anything. A pipeline runs until Ctrl-C, or until
the page stops it. Of pages that need more than one broker only the command lines are checked
(`tests/test_documented_commands.py`).
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from tests.kit import ROOT
from tests.kit.documentation import Block, blocks
from tests.kit.peers import free_ports
from tests.kit.wait import until

ADDRESS = "127.0.0.1:9092"
COMMAND_S = 300
BEFORE_PIPELINES = """
```console title="broker"
$ ottla serve
```
```console
$ ottla topic create orders -p 1
$ ottla topic create orders.dlq -p 1
$ ottla topic create revenue -p 1
$ ottla topic create big_orders -p 1
$ ottla pipeline init orders
$ mkdir -p orders.tests/large/expected
```
```json title="records.jsonl"
{"value": {"order_id": "1", "customer": "ada", "amount": 65, "at": "2026-11-19T10:00:01Z"}}
{"value": {"order_id": "2", "customer": "bob", "amount": 2000, "at": "2026-11-19T10:05:00Z"}}
```
```json title="orders.tests/large/orders.jsonl"
{"order_id": "1", "customer": "ada", "amount": 2000.0}
```
```json title="orders.tests/large/expected/big_orders.jsonl"
{"order_id": "1", "customer": "ada", "amount": 2000.0}
```
```console
$ ottla produce orders --format json -f records.jsonl
```
"""
"""What the pages on pipelines expect: a broker, the topics and the files of the example, two records."""
EDITED = """
```console
$ ottla pipeline run orders.py --once
$ sed -i 's/F.sum("amount")/F.sum(F.col("amount") * 1.2)/' orders.py
```
"""


class Walk:
    """A reader who follows a page in an empty directory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (port,) = free_ports(1)
        self._address = f"127.0.0.1:{port}"
        self._terminals: dict[str, subprocess.Popen[bytes]] = {}
        self._pipeline = ""
        """The command that ran a pipeline last: before it is stopped by another command it runs again."""
        programs = folder / "bin"
        programs.mkdir()
        for name, words in (("ottla", f"{sys.executable} -m ottla"), ("python", sys.executable)):
            (programs / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
            (programs / name).chmod(0o755)
        # What a page installs is installed, and a kill is meant for the broker of this page.
        (programs / "pip").write_text("#!/bin/sh\n")
        (programs / "pkill").write_text(f'#!/bin/sh\nexec kill "$1" "$(cat {folder}/broker.pid)"\n')
        for name in ("pip", "pkill"):
            (programs / name).chmod(0o755)
        self._environment = os.environ | {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "OTTLA_LISTENERS": f"PLAINTEXT://{self._address}",
            "OTTLA_BOOTSTRAP_SERVERS": self._address,
            "XDG_CONFIG_HOME": str(folder / "config"),
        }

    def follow(self, page: Path) -> None:
        for block in blocks(page):
            if block.language == "console" and block.title:
                self._run_in_terminal(block)
            elif block.language == "console":
                self._run_here(block)
            elif block.title:
                (self.folder / block.title).write_text(self._here("\n".join(block.lines) + "\n"))

    def end(self) -> None:
        for running in self._terminals.values():
            running.kill()
            running.wait()

    def _here(self, text: str) -> str:
        return text.replace(ADDRESS, self._address)

    def _run_in_terminal(self, block: Block) -> None:
        running = self._terminals.pop(block.title, None)
        if running is not None:
            if block.lines[0] == "^C":
                running.send_signal(signal.SIGINT)
            running.wait(COMMAND_S)
        for line in block.lines:
            if line.startswith("$ "):
                with (self.folder / f"{block.title}.log").open("ab") as log:
                    started = subprocess.Popen(
                        ["bash", "-c", f"exec {self._here(line[2:])}"],
                        cwd=self.folder,
                        env=self._environment,
                        stdout=log,
                        stderr=log,
                    )
                self._terminals[block.title] = started
                (self.folder / f"{block.title}.pid").write_text(str(started.pid))
                until(lambda: self._ready(block.title), timeout_s=COMMAND_S, what=line)

    def _ready(self, terminal: str) -> bool:
        assert self._terminals[terminal].poll() is None, (self.folder / f"{terminal}.log").read_text()
        return subprocess.run(["ottla", "topic", "list"], env=self._environment, capture_output=True).returncode == 0

    def _run_here(self, block: Block) -> None:
        commands: list[tuple[str, list[str]]] = []
        for line in block.lines:
            if line.startswith("$ "):
                commands.append((re.sub(r"\s+# .*", "", line[2:]), []))
            else:
                commands[-1][1].append(line)
        for command, expected in commands:
            if re.search(r"pipeline (reset|upgrade)", command) and not re.search("--yes|--dry-run", command):
                command += " --yes"  # at a terminal it asks
            if "pipeline run " in command and not re.search("--once|--from", command):
                self._pipeline = command
                with self._running_pipeline(command) as running:
                    running.send_signal(signal.SIGINT)
                continue
            with self._running_pipeline(self._pipeline) if "pipeline stop " in command else nullcontext():
                done = subprocess.run(
                    ["bash", "-c", self._here(command)],
                    cwd=self.folder,
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    text=True,
                    timeout=COMMAND_S,
                )
            said = done.stdout + done.stderr
            assert done.returncode == 0, f"{command}\n{said}"
            printed = sorted(line.strip() for line in said.splitlines())
            for line in expected:
                pattern = ".*".join(map(re.escape, line.strip().split("…")))
                assert any(re.fullmatch(pattern, each) for each in printed), f"{command}\nprints no line {line!r}:\n{said}"

    @contextmanager
    def _running_pipeline(self, command: str) -> Iterator[subprocess.Popen[bytes]]:
        """A `pipeline run` that has started, and ends with 0 by what is done to it."""
        log = self.folder / "run.log"
        words = ["bash", "-c", f"exec {self._here(command)}"]
        with log.open("wb") as said:
            running = subprocess.Popen(words, cwd=self.folder, env=self._environment, stdout=said, stderr=said)
        status = ["ottla", "pipeline", "status", "--all", "--json"]

        def works() -> bool:
            assert running.poll() is None, log.read_text()
            shown = subprocess.run(status, env=self._environment, capture_output=True, text=True)
            return '"state": "running"' in shown.stdout

        try:
            until(works, lambda: f"{command}: {log.read_text()}", timeout_s=COMMAND_S)
            yield running
            assert running.wait(COMMAND_S) == 0, log.read_text()
        finally:
            running.kill()
            running.wait()


@pytest.fixture
def walk(tmp_path: Path) -> Iterator[Walk]:
    walk = Walk(tmp_path)
    yield walk
    walk.end()


@pytest.mark.parametrize("page", ["tutorial", "howto/back-up", "howto/test"])
def test_a_reader_can_follow_the_page(walk: Walk, page: str) -> None:
    walk.follow(ROOT / "docs" / f"{page}.md")


@pytest.mark.slow
def test_a_reader_can_follow_the_tutorial_of_pipelines(walk: Walk) -> None:
    (walk.folder / "start.md").write_text('```console title="broker"\n$ ottla serve\n```\n')
    walk.follow(walk.folder / "start.md")
    walk.follow(ROOT / "docs" / "tutorial-pipeline.md")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "before"),
    [("pipelines", ""), ("howto/pipelines-in-production", ""), ("howto/upgrade-a-pipeline", EDITED)],
)
def test_the_commands_of_a_page_on_pipelines_run(walk: Walk, page: str, before: str) -> None:
    (walk.folder / "start.md").write_text(BEFORE_PIPELINES + before)
    walk.follow(walk.folder / "start.md")
    walk.follow(ROOT / "docs" / f"{page}.md")


def test_the_site_is_built_and_no_link_is_broken(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=COMMAND_S)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = [path.read_text() for path in (tmp_path / "site").rglob("*.html")]
    assert any("ottla acl add" in page for page in pages), "the reference of the command line"
    assert not [page for page in pages if "fonts.googleapis" in page], "a page is read without the network"
