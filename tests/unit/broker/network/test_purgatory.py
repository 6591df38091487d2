"""Waiting for a condition or a deadline (F76)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from ottla.broker.network.purgatory import Purgatory
from ottla.runtime.loop import run


def in_purgatory(case: Any) -> None:
    async def main() -> None:
        purgatory = Purgatory(asyncio.get_running_loop())
        try:
            await case(purgatory)
        finally:
            purgatory.close()

    coroutine: Coroutine[Any, Any, None] = main()
    run(coroutine)


def test_a_wake_answers_at_once_if_the_condition_holds() -> None:
    async def case(purgatory: Purgatory) -> None:
        state = {"ready": False}
        waiting = purgatory.wait(["a", "b"], 60_000, lambda: state["ready"], lambda: "answer")
        purgatory.wake("a")
        assert not waiting.done(), "woken, but the condition does not hold"
        state["ready"] = True
        purgatory.wake("c")
        assert not waiting.done(), "another key"
        purgatory.wake("b")
        assert waiting.done()
        assert await waiting == "answer"
        assert len(purgatory) == 0
        assert purgatory.watched_keys == 0

    in_purgatory(case)


def test_the_deadline_answers_too() -> None:
    async def case(purgatory: Purgatory) -> None:
        order: list[str] = []
        late = purgatory.wait(["a"], 30, lambda: False, lambda: order.append("late"))
        early = purgatory.wait(["a"], 5, lambda: False, lambda: order.append("early"))
        await asyncio.gather(late, early)
        assert order == ["early", "late"]
        assert purgatory.watched_keys == 0

    in_purgatory(case)


def test_waiters_of_a_key_are_answered_in_the_order_they_came() -> None:
    async def case(purgatory: Purgatory) -> None:
        order: list[int] = []
        for number in range(5):
            purgatory.wait(["a"], 60_000, lambda: True, lambda number=number: order.append(number))  # type: ignore[misc]
        purgatory.wake("a")
        assert order == [0, 1, 2, 3, 4]

    in_purgatory(case)


def test_a_cancelled_waiter_leaves_nothing_behind() -> None:
    async def case(purgatory: Purgatory) -> None:
        waiting = purgatory.wait(["a"], 60_000, lambda: True, lambda: pytest.fail("answered"))
        waiting.cancel()
        await asyncio.sleep(0)
        assert len(purgatory) == 0
        assert purgatory.watched_keys == 0
        purgatory.wake("a")

    in_purgatory(case)


def test_a_failing_condition_fails_its_waiter_only() -> None:
    async def case(purgatory: Purgatory) -> None:
        def broken() -> bool:
            raise RuntimeError("a bug")

        bad = purgatory.wait(["a"], 60_000, broken, lambda: None)
        good = purgatory.wait(["a"], 60_000, lambda: True, lambda: "good")
        purgatory.wake("a")
        assert await good == "good"
        with pytest.raises(RuntimeError, match="a bug"):
            await bad
        assert len(purgatory) == 0

    in_purgatory(case)


def test_answered_waiters_do_not_pile_up_behind_long_deadlines() -> None:
    async def case(purgatory: Purgatory) -> None:
        for _ in range(10_000):
            purgatory.wait(["a"], 3_600_000, lambda: True, lambda: None)
            purgatory.wake("a")
        assert len(purgatory._deadlines) < 200

    in_purgatory(case)


def test_closing_cancels_all_and_nobody_waits() -> None:
    async def case(purgatory: Purgatory) -> None:
        waiting = [purgatory.wait(["a"], 60_000, lambda: False, lambda: None) for _ in range(3)]
        purgatory.close()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert all(future.cancelled() for future in waiting)
        assert len(purgatory) == 0

    in_purgatory(case)
