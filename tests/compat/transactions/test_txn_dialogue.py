"""One dialogue, two brokers: what Apache Kafka 4.3 answers to a transactional producer, Ottla answers too.

The producer speaks the bare protocol (`txn_speaker`), in both generations, and does much that no library would: repeats,
contradicts itself, comes back from the dead. The transcripts are compared. Some dialogues are written down, others are thrown
(`txn_chance`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

import pytest

from ottla.client.connection import ClientConnection
from ottla.metrics import Counters
from ottla.protocol.messages.list_transactions import ListTransactionsRequest
from ottla.runtime.network import RealNetwork
from tests.compat.transactions.txn_chance import converse_at_random
from tests.kit.dialogues import Transcripts, both, check
from tests.kit.router import Router
from tests.kit.txn_speaker import Speaker, ready

pytestmark = pytest.mark.java

Connection = ClientConnection | Router


async def first_generation(speaker: Speaker) -> None:
    nobody = (123456, 0)
    await speaker.end(nobody, True)
    await speaker.add(nobody, 0)
    producer = await speaker.init()
    await speaker.end(producer, True)
    await speaker.end(producer, False)
    await speaker.add(producer, 0, 9)
    await speaker.add(producer, 0, topic="absent")
    await speaker.produce(producer, 0)
    await speaker.produce(producer, 0, version=11)
    await speaker.add(producer, 0)
    await speaker.describe()
    await speaker.produce(producer, 0, 3)
    await speaker.produce(producer, 0, 3)
    await speaker.produce(producer, 7)
    await speaker.produce(producer, 0, partition=1)
    await speaker.read()
    await speaker.end(producer, True)
    await speaker.settled()
    await speaker.end(producer, True)
    await speaker.end(producer, False)
    await speaker.read()
    await speaker.add(producer, 0, 1)
    await speaker.produce(producer, 3, 2)
    await speaker.produce(producer, 0, 1, partition=1)
    await speaker.end(producer, False)
    await speaker.settled()
    await speaker.end(producer, False)
    await speaker.end(producer, True)
    await speaker.read()
    await speaker.read(1)
    await speaker.describe()


async def fencing(speaker: Speaker) -> None:
    old = await speaker.init(version=2)
    await speaker.add(old, 0)
    await speaker.produce(old, 0)
    new = await speaker.init()
    for version in (0, 1, 2, 3):
        await speaker.add(old, 0, version=version)
    for version in (0, 1, 2, 4, 5):
        await speaker.end(old, True, version=version)
        await speaker.end(old, False, version=version)
    for version in (1, 2):
        await speaker.add_offsets(old, version=version)
    for version in (9, 11, 12):
        await speaker.produce(old, 1, version=version)
    for version in (3, 4, 5):
        await speaker.init(old, version=version)
    await speaker.add((new[0], new[1] + 1), 0)
    await speaker.end((new[0] + 99, 0), True)
    await speaker.add((new[0] + 99, 0), 0)
    bumped = await speaker.init(new)
    await speaker.init(new)
    await speaker.init(new)
    await speaker.init(bumped)
    await speaker.init(new)
    await speaker.init((77777, 3))
    for timeout_ms in (0, -5, 900_000, 900_001):
        await speaker.init(timeout_ms=timeout_ms)
    await speaker.describe()


async def second_generation(speaker: Speaker) -> None:
    producer = await speaker.init()
    await speaker.end(producer, True, version=5)
    producer = await speaker.end(producer, False, version=5)
    await speaker.end(producer, False, version=5)
    producer = (producer[0], producer[1] + 1)
    await speaker.produce(producer, 0, version=12)
    await speaker.describe()
    following = await speaker.end(producer, True, version=5)
    await speaker.settled()
    await speaker.end(producer, True, version=5)
    await speaker.end(producer, False, version=5)
    await speaker.end(following, True, version=5)
    await speaker.produce(producer, 1, version=12)
    await speaker.produce(following, 5, version=12)
    await speaker.produce(following, 0, version=12)
    await speaker.produce(producer, 1, version=12)
    await speaker.end(producer, True, version=5)
    await speaker.end(producer, False, version=5)
    third = await speaker.end(following, False, version=5)
    await speaker.settled()
    await speaker.end(following, False, version=5)
    await speaker.end(following, True, version=5)
    await speaker.read()
    # An empty one that is aborted, and the next of the other generation.
    fourth = await speaker.end(third, False, version=5)
    await speaker.settled()
    await speaker.add(fourth, 0)
    await speaker.produce(fourth, 0)
    await speaker.end(fourth, True)
    await speaker.settled()
    await speaker.end(fourth, True)
    await speaker.end(fourth, True, version=5)
    await speaker.end(fourth, False, version=5)
    await speaker.describe()
    await speaker.read()


async def offsets(speaker: Speaker) -> None:
    producer = await speaker.init()
    await speaker.committed()
    for version in (0, 3, 4):
        await speaker.commit_offset(producer, 5, version=version)
    await speaker.add_offsets(producer)
    for version in range(5):
        await speaker.commit_offset(producer, 10 + version, version=version)
    await speaker.committed()
    await speaker.committed(stable=False)
    await speaker.commit_offset(producer, 6, generation_id=5, member_id="m")
    await speaker.commit_offset(producer, 6, topic="absent")
    await speaker.commit_offset(producer, 6, metadata="x" * 5000)
    await speaker.commit_offset((producer[0], producer[1] + 1), 6)
    await speaker.end(producer, True)
    await speaker.committed()
    await speaker.add_offsets(producer)
    await speaker.commit_offset(producer, 99)
    await speaker.end(producer, False)
    await speaker.committed()
    await speaker.commit_offset(producer, 100, version=5)
    following = await speaker.end(producer, True, version=5)
    await speaker.committed()
    await speaker.commit_offset(producer, 101, version=5)
    await speaker.commit_offset(following, 102, version=5)
    await speaker.committed()
    await speaker.init()
    await speaker.committed()
    await speaker.commit_offset(following, 103, version=5)
    await speaker.describe()


async def listing(speaker: Speaker) -> None:
    for filters, version in (
        ({}, 0),
        ({"state_filters": ["Ongoing"]}, 0),
        ({"state_filters": ["Nonsense", "Empty"]}, 0),
        ({"state_filters": ["Nonsense"]}, 0),
        ({"duration_filter": 3_600_000}, 1),
        ({"transactional_id_pattern": "first.*"}, 2),
        ({"transactional_id_pattern": "irst"}, 2),
        ({"transactional_id_pattern": "("}, 2),
        ({"producer_id_filters": [999999]}, 0),
    ):
        answer = await speaker.connection.call("list_transactions", version, ListTransactionsRequest(**filters))
        found = sorted((each.transactional_id, each.transaction_state) for each in answer.transaction_states)
        speaker.tell(f"list {filters}", answer.error_code, answer.unknown_state_filters, found)


WRITTEN = (first_generation, fencing, second_generation, offsets, listing)
SEEDS = range(8)


async def converse(host: str, port: int, seeds: Iterable[int], *, routed: bool = False) -> dict[str, list[str]]:
    """Those that are thrown at once, each on a connection of its own: they have nothing in common. `routed`: there are several
    brokers, and each is asked what is its own."""
    transcripts: dict[str, list[str]] = {}
    network = RealNetwork(Counters())
    gate = asyncio.Semaphore(8)

    async def hold(name: str, dialogue: Callable[[Connection], Awaitable[list[str]]]) -> None:
        async with gate:
            connection = await (Router.open(host, port) if routed else ClientConnection.open(network, host, port))
            try:
                transcripts[name] = await dialogue(connection)
            finally:
                connection.close()

    async def written(dialogue: Callable[[Speaker], Awaitable[None]], connection: Connection) -> list[str]:
        speaker = Speaker(connection, dialogue.__name__)
        await ready(connection, speaker.topic, [speaker.name], speaker.group)
        await dialogue(speaker)
        return speaker.said

    for dialogue in WRITTEN:
        await hold(dialogue.__name__, partial(written, dialogue))
    async with asyncio.TaskGroup() as tasks:
        for seed in seeds:
            tasks.create_task(hold(f"seed {seed}", partial(converse_at_random, seed=seed)))
    return transcripts


@pytest.fixture(scope="module")
def transcripts() -> Transcripts:
    return both(converse, SEEDS)


@pytest.mark.parametrize("dialogue", [*(each.__name__ for each in WRITTEN), *(f"seed {seed}" for seed in SEEDS)])
def test_the_same_answers(transcripts: Transcripts, dialogue: str) -> None:
    check(transcripts, dialogue)


@pytest.mark.slow
def test_the_same_answers_by_three_brokers() -> None:
    """Coordinators and leaders are different brokers, and each partition has three replicas."""
    seeds = range(24)
    transcripts = both(partial(converse, routed=True), seeds, brokers=3)
    for dialogue in [*(each.__name__ for each in WRITTEN), *(f"seed {seed}" for seed in seeds)]:
        check(transcripts, dialogue)


@pytest.mark.slow
def test_the_same_answers_to_hundreds_of_dialogues() -> None:
    seeds = range(1_000, 1_300)
    transcripts = both(converse, seeds)
    for seed in seeds:
        check(transcripts, f"seed {seed}")
