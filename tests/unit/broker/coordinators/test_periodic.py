"""Work that is repeated at an interval of the settings."""

from __future__ import annotations

import asyncio

from ottla.broker.coordinators.shard_timers import Periodic
from ottla.sim.kernel.loop import new_loop


def test_the_interval_is_read_again_for_each_round() -> None:
    loop = new_loop()
    rounds: list[float] = []
    interval_ms = 1_000

    def work() -> None:
        nonlocal interval_ms
        rounds.append(round(loop.time() - begun, 2))
        interval_ms = 3_000

    async def main() -> None:
        periodic = Periodic(lambda: interval_ms, work)
        periodic.start()
        periodic.start()
        await asyncio.sleep(8.5)
        periodic.stop()
        await asyncio.sleep(10)

    begun = loop.time()
    loop.run_until_complete(main())
    loop.close()
    assert rounds == [1.0, 2.0, 5.0, 8.0], "a round is scheduled before its work, and once"
