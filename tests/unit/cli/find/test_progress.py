"""The line of progress that `ottla find` writes over at a terminal."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest

from ottla.cli.find import command
from ottla.cli.selection import Tally


class Scanning:
    """What the progress asks of a scan."""

    seconds = 10.0
    offsets = (250, 1000)
    tally = Tally(records=240, size_bytes=2048)
    on_chunk: Any = None


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_PROGRESS_S", 0.0)


def test_it_is_shown_and_cleared_at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, scan = Terminal(), Scanning()
    monkeypatch.setattr(sys, "stderr", terminal)
    progress = command._Progress(scan)  # type: ignore[arg-type]
    scan.on_chunk(scan)
    assert terminal.getvalue() == "\r\033[K240 records, 2.0 KB, 25%, 30 s left"
    progress.clear()
    progress.clear()
    assert terminal.getvalue().endswith("left\r\033[K")


def test_it_is_not_shown_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    scan = Scanning()
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    command._Progress(scan)  # type: ignore[arg-type]
    assert scan.on_chunk is None
