"""The tutorial and the how-to pages, followed word for word: files are written, commands run in order, output is compared.

A console block with a title is a terminal of its own: its command runs until the page comes back to this terminal, with `^C` or
after a kill. A line below a command must occur in its output; `…` stands for anything. Of pages that need more than one broker
only the command lines are checked (`tests/test_documented_commands.py`).
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit import ROOT
from tests.kit.documentation import Block, blocks
from tests.kit.peers import free_ports
from tests.kit.wait import until

ADDRESS = "127.0.0.1:9092"
COMMAND_S = 300


class Walk:
    """A reader who follows a page in an empty directory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (port,) = free_ports(1)
        self._address = f"127.0.0.1:{port}"
        self._terminals: dict[str, subprocess.Popen[bytes]] = {}
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


def test_the_site_is_built_and_no_link_is_broken(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=COMMAND_S)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = [path.read_text() for path in (tmp_path / "site").rglob("*.html")]
    assert any("ottla acl add" in page for page in pages), "the reference of the command line"
    assert not [page for page in pages if "fonts.googleapis" in page], "a page is read without the network"
