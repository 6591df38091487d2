"""Both are told the same: what Apache Kafka 4.3 answers to the members of a group, Ottla answers too.

The members speak the bare classic protocol and say what a seed decides (`group_chance`); the transcripts are compared.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Awaitable, Callable, Iterable

import group_chance
import pytest
from subject import running

pytestmark = pytest.mark.java

SEEDS = range(12)
KINDS: dict[str, Callable[[str, int, int], Awaitable[list[str]]]] = {"classic": group_chance.converse_at_random}
Transcripts = dict[str, dict[tuple[str, int], list[str]]]


async def converse(host: str, port: int, seeds: Iterable[int]) -> dict[tuple[str, int], list[str]]:
    transcripts: dict[tuple[str, int], list[str]] = {}
    gate = asyncio.Semaphore(8)

    async def hold(kind: str, seed: int) -> None:
        async with gate:
            transcripts[kind, seed] = await KINDS[kind](host, port, seed)

    async with asyncio.TaskGroup() as tasks:
        for kind in KINDS:
            for seed in seeds:
                tasks.create_task(hold(kind, seed))
    return transcripts


def both(seeds: Iterable[int]) -> Transcripts:
    found = {}
    for name in ("ottla", "kafka-4.3.0"):
        with running(name) as subject:
            found[name] = asyncio.run(converse(subject.host, subject.port, seeds))
    return found


@pytest.fixture(scope="module")
def transcripts() -> Transcripts:
    return both(SEEDS)


def check(transcripts: Transcripts, kind: str, seed: int) -> None:
    ours, theirs = transcripts["ottla"][kind, seed], transcripts["kafka-4.3.0"][kind, seed]
    assert len(ours) > 5
    assert ours == theirs, "\n".join(difflib.unified_diff(theirs, ours, "kafka", "ottla", lineterm=""))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_answers(transcripts: Transcripts, kind: str, seed: int) -> None:
    check(transcripts, kind, seed)


@pytest.mark.slow
def test_the_same_answers_to_hundreds_of_dialogues() -> None:
    seeds = range(1_000, 1_400)
    transcripts = both(seeds)
    for kind in KINDS:
        for seed in seeds:
            check(transcripts, kind, seed)
