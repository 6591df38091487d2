"""Hold the same dialogues with Ottla and with Apache Kafka, and compare the transcripts."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from tests.kit.subject import REFERENCE, running

Transcripts = dict[str, dict[str, list[str]]]
"""By broker and dialogue."""
Converse = Callable[[str, int, Iterable[int]], Coroutine[Any, Any, dict[str, list[str]]]]
"""Holds the dialogues of these seeds with a host and port."""


def both(converse: Converse, seeds: Iterable[int], brokers: int = 1, **settings: Any) -> Transcripts:
    """Hold the dialogues with `brokers` of Ottla and with one broker of Apache Kafka."""
    found = {}
    for name in ("ottla", REFERENCE):
        with running(name, brokers=brokers if name == "ottla" else 1, **settings) as subject:
            found[name] = asyncio.run(converse(subject.host, subject.port, seeds))
    return found


def check(transcripts: Transcripts, dialogue: str) -> None:
    ours, theirs = transcripts["ottla"][dialogue], transcripts[REFERENCE][dialogue]
    assert len(ours) > 5
    assert ours == theirs, "\n".join(difflib.unified_diff(theirs, ours, "kafka", "ottla", lineterm=""))
