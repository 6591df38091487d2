"""Which log the cleaner takes next, and what it tells of those that wait."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast
from unittest.mock import Mock

from ottla.broker.replicas.logs_to_clean import LogsToClean
from ottla.metrics import Counters
from ottla.runtime.loop import run
from tests.kit.compaction import COMPACTED, put
from tests.kit.storage import NOW_MS, MemoryDisk, new_log


def test_it_tells_how_long_records_are_overdue() -> None:
    async def case() -> None:
        _, log = new_log(MemoryDisk(), replace(COMPACTED, max_compaction_lag_ms=1000))
        put(log, (b"a", b"1"))
        log.roll(NOW_MS)
        partition = cast(Any, Mock(log=log, is_offline=False))
        clock_watch = Mock()
        moves = Mock()
        moves.target_of.return_value = None
        logs = LogsToClean(cast(Any, [partition]), moves, clock_watch, Counters())
        clock_watch.now_ms.return_value = NOW_MS + 1000
        await logs.next(())
        assert logs.overdue_ms == 0
        clock_watch.now_ms.return_value = NOW_MS + 4500
        await logs.next(())
        assert logs.overdue_ms == 3500
        await logs.next((partition,))  # a pass is at work on it
        assert logs.overdue_ms == 0

    run(case())
