"""The end of tasks."""

from __future__ import annotations

import asyncio
import contextlib

from ottla.runtime.loop import end


def test_a_task_that_loses_a_cancellation_is_ended() -> None:
    """`ottla exporter` ran on after a Ctrl-C in the midst of a round."""

    async def case() -> None:
        lost = 0

        async def loses_one() -> None:
            nonlocal lost
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            lost += 1
            await asyncio.Event().wait()

        task = asyncio.get_running_loop().create_task(loses_one())
        await asyncio.sleep(0)
        await end(task)
        assert task.cancelled()
        assert lost == 1

    asyncio.run(case())
