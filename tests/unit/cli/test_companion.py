"""A process beside a broker that ends before it has read its settings."""

from __future__ import annotations

import threading

import pytest

from ottla.cli.companion import Companion
from tests.kit.wait import until


def test_one_that_ends_at_once_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C at a terminal reaches both processes."""
    raised: list[object] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    before = threading.active_count()
    companion = Companion(lambda _: ["-c", "pass"], b"settings" * 1_000_000)
    until(lambda: threading.active_count() == before, "the settings are sent or given up")
    companion.close()
    assert raised == []
