"""Both are told the same: what Apache Kafka 4.3 answers about topics, records and settings, Ottla answers too (W02-W07, L10).

The visitors speak the bare protocol in all versions and say what a seed decides (`log_chance`, and of fetch sessions
`session_chance`); the transcripts are compared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from tests.compat.log import log_chance
from tests.compat.log.session_chance import FIRST_SEED, Fetcher
from tests.kit.dialogues import Transcripts, both, check

pytestmark = pytest.mark.java

SEEDS = range(12)


async def converse(host: str, port: int, seeds: Iterable[int]) -> dict[str, list[str]]:
    transcripts: dict[str, list[str]] = {}
    gate = asyncio.Semaphore(8)

    async def hold(seed: int) -> None:
        async with gate:
            kind = Fetcher if seed >= FIRST_SEED else log_chance.Visitor
            transcripts[f"seed {seed}"] = await log_chance.converse(kind(host, port, seed))

    async with asyncio.TaskGroup() as tasks:
        for seed in seeds:
            tasks.create_task(hold(seed))
    return transcripts


@pytest.fixture(scope="module")
def transcripts() -> Transcripts:
    return both(converse, SEEDS)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_answers(transcripts: Transcripts, seed: int) -> None:
    check(transcripts, f"seed {seed}")


@pytest.mark.slow
@pytest.mark.parametrize("first", [1_000, 1_060, 1_120, FIRST_SEED])
def test_the_same_answers_to_hundreds_of_dialogues(first: int) -> None:
    seeds = range(first, first + 60)
    transcripts = both(converse, seeds)
    for seed in seeds:
        check(transcripts, f"seed {seed}")
