"""Reads what a plan asks for, and tells how far it is. Ends by itself only when all is scanned, a limit or a budget is reached,
and then says which and where to go on."""

from __future__ import annotations

import time
from typing import Any, Final

from ottla.cli.connection import Connection
from ottla.cli.find.scan import Scan
from ottla.cli.formats import Incoming
from ottla.console.records.choosing import reading_of, takes_seen
from ottla.console.records.continuing import word_of
from ottla.console.records.documents import Showing
from ottla.console.records.plan import Plan
from ottla.console.records.stream import Outlet
from ottla.console.sse import EVENT_S

_RECORDS_MAX: Final = 200
"""Records of one event."""


class _OverBudget(Exception):
    pass


class Search:
    """One search in the thread of a stream."""

    def __init__(self, connection: Connection, plan: Plan, showing: Showing, outlet: Outlet) -> None:
        self._connection = connection
        self._plan = plan
        self._showing = showing
        self._outlet = outlet
        self._found = 0
        self._pending: list[dict[str, Any]] = []
        self._sent_s = 0.0
        self._told_s = time.monotonic()
        self._last_ms: int | None = None

    def run(self) -> None:
        plan = self._plan
        bounds, notes = plan.bounds(self._connection)
        self._outlet.send(
            "begin",
            {
                "partitions": [
                    {"topic": topic, "partition": index, "start": start, "end": end}
                    for (topic, index), (start, end) in sorted(bounds.items())
                ],
                "notes": notes,
                "order": "newest" if plan.newest_first else "oldest",
            },
        )
        selection = plan.selection
        with Scan(
            self._connection,
            bounds,
            selection,
            newest_first=plan.newest_first,
            isolation=plan.isolation,
            yielded=plan.yielded,
            reading=reading_of(selection, self._showing),
        ) as scan:
            scan.on_chunk = self._after_chunk
            self._outlet.scanned = scan.tally
            reason = "done"
            try:
                for record in scan:
                    self._take(record)
                    if self._found >= plan.limit and not scan.complete:
                        reason = "limit"
                        break
            except _OverBudget:
                reason = "budget"
                for record in scan.rest():
                    self._take(record)
            self._flush()
            self._outlet.send("end", self._end(scan, reason))

    def _take(self, record: Incoming) -> None:
        self._outlet.check()
        if not takes_seen(self._plan.selection, self._showing, record):
            return
        self._found += 1
        self._last_ms = record.timestamp_ms
        self._pending.append(self._showing.document(record))
        # The first one at once.
        if len(self._pending) >= _RECORDS_MAX or time.monotonic() - self._sent_s >= EVENT_S:
            self._flush()

    def _flush(self) -> None:
        if self._pending:
            pending, self._pending = self._pending, []
            self._outlet.send("records", {"records": pending})
            self._sent_s = time.monotonic()

    def _after_chunk(self, scan: Scan) -> None:
        self._outlet.check()
        now_s = time.monotonic()
        if now_s - self._told_s >= EVENT_S:
            self._told_s = now_s
            self._flush()
            self._outlet.send("progress", self._progress(scan))
        if all(reach.complete for reach in scan.reaches):
            return
        if scan.tally.size_bytes >= self._plan.budget_bytes or scan.seconds >= self._plan.budget_s:
            raise _OverBudget

    def _progress(self, scan: Scan) -> dict[str, Any]:
        return progress_of(scan, self._found, self._last_ms)

    def _end(self, scan: Scan, reason: str) -> dict[str, Any]:
        return {
            **self._progress(scan),
            "reason": reason,
            "complete": reason == "done" and scan.complete,
            "continue": word_of(scan.left()),
            "partitions": [
                {
                    "topic": reach.topic,
                    "partition": reach.partition,
                    "start": reach.start,
                    "end": reach.end,
                    "scanned_from": reach.done_from,
                    "scanned_to": reach.done_to,
                    "complete": reach.complete,
                }
                for reach in scan.reaches
            ],
        }


def progress_of(scan: Scan, found: int, at_ms: int | None) -> dict[str, Any]:
    """How far a scan is. `at_ms` is the time of the last record that was shown."""
    done, all_ = scan.offsets
    seconds = max(scan.seconds, 0.001)
    return {
        "found": found,
        "records": scan.tally.records,
        "bytes": scan.tally.size_bytes,
        "offsets_done": done,
        "offsets_all": all_,
        "partitions_done": sum(reach.complete for reach in scan.reaches),
        "partitions_all": len(scan.reaches),
        "elapsed_s": round(seconds, 3),
        "bytes_per_s": round(scan.tally.size_bytes / seconds),
        "records_per_s": round(scan.tally.records / seconds),
        "left_s": round(seconds * (all_ - done) / done, 1) if done else None,
        "at_ms": at_ms,
    }
