"""Documents that follow the cluster: a snapshot, then what changed, by key, at most four times a second."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ottla.cli.failure import Failure
from ottla.client.brokers import BrokerFailed
from ottla.console.failures import error_document
from ottla.console.sse import EVENT_S, Event
from ottla.console.watch import Watch

Row = Mapping[str, Any]
_CHANGE_S = 5.0
"""How long to wait for a round before saying again that somebody looks."""


@dataclass(frozen=True, slots=True)
class View:
    """What a page shows at one moment."""

    head: Row = field(default_factory=dict)
    rows: Mapping[str, Row] = field(default_factory=dict)

    def snapshot(self) -> dict[str, Any]:
        return {"head": dict(self.head), "rows": dict(self.rows), "order": list(self.rows)}

    def delta_from(self, before: View) -> dict[str, Any] | None:
        """What makes `before` into this. None if they are equal."""
        head = changed_fields(before.head, self.head)
        rows = {
            key: difference
            for key, row in self.rows.items()
            if (difference := changed_fields(before.rows[key], row) if key in before.rows else dict(row))
        }
        gone = [key for key in before.rows if key not in self.rows]
        order = list(self.rows)
        moved = order != list(before.rows)
        if not head and not rows and not gone and not moved:
            return None
        delta: dict[str, Any] = {"head": head, "rows": rows, "gone": gone}
        return {**delta, "order": order} if moved else delta


def changed_fields(before: Row, after: Row) -> dict[str, Any]:
    return {name: value for name, value in after.items() if name not in before or before[name] != value}


async def follow(watch: Watch, view: Callable[[], Awaitable[View]], every_s: float | None = None) -> AsyncIterator[Event]:
    """The events of a view: with each round of the watch, or every so many seconds. They end when its user logs out."""
    before: View | None = None
    told: str | None = None
    while not watch.ended:
        watch.look()
        trouble = watch.trouble
        try:
            now = await view()
        except (BrokerFailed, Failure) as failure:
            trouble = str(failure)
        else:
            if before is None:
                yield "snapshot", now.snapshot()
            elif (delta := now.delta_from(before)) is not None:
                yield "delta", delta
            before = now
        if trouble != told:
            yield ("trouble", {"message": trouble}) if trouble is not None else ("well", {})
            told = trouble
        if every_s is None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(watch.changed(), _CHANGE_S)
            await asyncio.sleep(EVENT_S)
        else:
            await asyncio.sleep(max(every_s, EVENT_S))
    yield "failed", error_document(Failure("log in first", code="LOGIN_REQUIRED"))
