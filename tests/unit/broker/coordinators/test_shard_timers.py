"""Timers of shards on a loop whose time stands still while a callback runs."""

from __future__ import annotations

import asyncio
from typing import Any

from ottla.broker.coordinators.shard_host import HostedShard
from ottla.broker.coordinators.shard_timers import ShardTimers
from ottla.coordinator.shard import SetTimer
from ottla.sim.kernel.loop import new_loop
from ottla.sim.kernel.machine import SimClock
from ottla.types import TopicPartition

FIRINGS_MAX = 10


def test_a_timer_set_anew_for_the_rest_of_a_millisecond_waits_for_it() -> None:
    """Simulator seed 15: a deadline a fraction of a millisecond away was set and due in one breath, without end."""
    loop = new_loop()
    fired = []

    async def main() -> None:
        clock = SimClock(loop)
        hosted = HostedShard(TopicPartition("t", 0), 0, lambda hosted, decision: None)  # type: ignore[var-annotated]

        def on_due(hosted: Any, key: Any) -> None:
            fired.append(loop.time())
            assert len(fired) < FIRINGS_MAX, "it fires without time passing"
            if len(fired) < 3:
                timers.set(hosted, [SetTimer(key, int(clock.monotonic() * 1000) + 1)])

        timers = ShardTimers(loop, clock, on_due)
        timers.set(hosted, [SetTimer(("session",), int(clock.monotonic() * 1000) + 5)])
        await asyncio.sleep(1)

    loop.run_until_complete(main())
    loop.close()
    assert len(fired) == 3
    assert fired == sorted(set(fired)), "time passes in between"


def test_a_clock_that_is_set_moves_no_timer() -> None:
    loop = new_loop()
    fired = []

    async def main() -> None:
        clock = SimClock(loop)
        timers = ShardTimers(loop, clock, lambda hosted, key: fired.append((key, round(loop.time() - begin, 2))))
        hosted = HostedShard(TopicPartition("t", 0), 0, lambda hosted, decision: None)  # type: ignore[var-annotated]
        begin = loop.time()
        for step_ms in (3_600_000, -3_600_000):
            due_ms = int(clock.monotonic() * 1000) + 5000
            clock.skew_ms = step_ms
            timers.set(hosted, [SetTimer((str(step_ms),), due_ms)])
            clock.skew_ms *= -1
        await asyncio.sleep(10)

    loop.run_until_complete(main())
    loop.close()
    assert fired == [(("3600000",), 5.0), (("-3600000",), 5.0)]
