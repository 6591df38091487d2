"""Both are told the same: what Apache Kafka 4.3 answers to the members of a group, Ottla answers too.

The members speak the bare protocol, the classic one (`group_chance`) or the new one (`consumer_chance`), and say what a seed
decides; the transcripts are compared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial

import pytest

from tests.compat.groups import consumer_chance, group_chance
from tests.kit.dialogues import Transcripts, both, check

pytestmark = pytest.mark.java

SEEDS = range(12)
KINDS = {"classic": group_chance.converse_at_random, "consumer": consumer_chance.converse_at_random}


async def converse(host: str, port: int, seeds: Iterable[int], *, routed: bool = False) -> dict[str, list[str]]:
    transcripts: dict[str, list[str]] = {}
    gate = asyncio.Semaphore(8)

    async def hold(kind: str, seed: int) -> None:
        async with gate:
            transcripts[f"{kind} {seed}"] = await KINDS[kind](host, port, seed, routed=routed)

    async with asyncio.TaskGroup() as tasks:
        for seed in seeds:
            for kind in KINDS:
                tasks.create_task(hold(kind, seed))
    return transcripts


@pytest.fixture(scope="module")
def transcripts() -> Transcripts:
    return both(converse, SEEDS, **consumer_chance.SETTINGS)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_answers(transcripts: Transcripts, kind: str, seed: int) -> None:
    check(transcripts, f"{kind} {seed}")


@pytest.mark.slow
@pytest.mark.parametrize("first", [1_000, 1_100, 1_200, 1_300])
def test_the_same_answers_to_hundreds_of_dialogues(first: int) -> None:
    seeds = range(first, first + 100)
    transcripts = both(converse, seeds, **consumer_chance.SETTINGS)
    for seed in seeds:
        for kind in KINDS:
            check(transcripts, f"{kind} {seed}")


@pytest.mark.slow
def test_the_same_answers_of_three_brokers() -> None:
    """Each request goes to the broker it belongs to; one Apache Kafka is told the same."""
    seeds = range(2_000, 2_020)
    transcripts = both(partial(converse, routed=True), seeds, brokers=3, **consumer_chance.SETTINGS)
    for seed in seeds:
        for kind in KINDS:
            check(transcripts, f"{kind} {seed}")
