from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ottla.sim.kernel.loop import Deadlock, SimLoop, TooManySteps
from ottla.sim.kernel.process import Process


def run(main: Any, loop: Any = None) -> Any:
    loop = loop or SimLoop()  # type: ignore[abstract]
    try:
        return loop.run_until_complete(main)
    finally:
        loop.close()


def test_time_jumps_to_the_next_timer_and_nothing_is_waited_for() -> None:
    async def main() -> Any:
        loop = asyncio.get_running_loop()
        before = loop.time()
        await asyncio.sleep(86_400)
        return loop.time() - before

    assert run(main()) == 86_400


def test_timers_of_one_time_run_in_the_order_they_were_set() -> None:
    order: list[Any] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for number in range(20):
            loop.call_at(2000.0, order.append, number)
        await asyncio.sleep(1001)

    run(main())
    assert order == list(range(20))


def test_everybody_waiting_for_nothing_is_a_deadlock() -> None:
    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Deadlock):
        run(main())


def test_spinning_without_time_is_an_error() -> None:
    async def main() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(TooManySteps):
        run(main(), SimLoop(steps_max=1000))  # type: ignore[abstract]


def test_gather_timeouts_and_cancellation_work_as_in_asyncio() -> None:
    async def slow(seconds: Any) -> Any:
        await asyncio.sleep(seconds)
        return seconds

    async def main() -> Any:
        assert await asyncio.gather(slow(3), slow(1), slow(2)) == [3, 1, 2]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await slow(6)
        task = asyncio.create_task(slow(9))
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return asyncio.get_running_loop().time()

    assert run(main()) == 1000.0 + 3 + 5 + 1


def test_threads_are_refused() -> None:
    async def main() -> None:
        await asyncio.to_thread(print)

    with pytest.raises(NotImplementedError):
        run(main())


def test_an_exception_nobody_takes_is_kept() -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 // 0)
        await asyncio.sleep(1)

    loop = SimLoop()  # type: ignore[abstract]
    run(main(), loop)
    assert [type(context["exception"]) for context in loop.unhandled] == [ZeroDivisionError]


def test_the_dead_run_no_further_not_even_their_finally() -> None:
    keep = []
    seen: list[Any] = []

    async def life() -> None:
        try:
            asyncio.get_running_loop().call_later(3, seen.append, "timer")
            keep.append(asyncio.create_task(grandchild()))
            await asyncio.sleep(2)
            seen.append("woke up")
        finally:
            seen.append("finally")

    async def grandchild() -> None:
        await asyncio.sleep(1.5)
        seen.append("grandchild")

    async def main() -> None:
        process = Process("p")
        task = asyncio.get_running_loop().create_task(life(), context=process.context())
        await asyncio.sleep(1)
        process.die()
        await asyncio.sleep(10)
        assert seen == []
        assert not task.done()
        process.bury()

    loop = SimLoop()  # type: ignore[abstract]
    run(main(), loop)
    assert loop.unhandled == []
