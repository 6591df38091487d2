"""Runs rounds at an interval and keeps the text of the last one.

1. `text` never waits: it is the last text and the exporter's own metrics as of now.
2. A round that fails keeps the text of the round before, and `ottla_exporter_up` is 0. Text older than `STALE_ROUNDS` intervals,
   at least `STALE_S`, is dropped: old numbers would hide that the cluster is away.
3. Why a round failed, or what it lacked, is logged when it changes, and once when all is well again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ottla import __version__
from ottla.client.brokers import BrokerFailed
from ottla.exporter.cluster_reader import ClusterReader
from ottla.exporter.consumption import Consumption
from ottla.exporter.exposition import Page, counter, gauge
from ottla.exporter.names import WRITERS, kminion, render
from ottla.exporter.names.view import View
from ottla.exporter.reading import ClusterReading

logger = logging.getLogger("ottla.exporter")

STALE_ROUNDS: Final = 10
STALE_S: Final = 300.0

UP = gauge("ottla_exporter_up", "1 if the last round read everything; 0 says the log why")
AGE = gauge("ottla_exporter_data_age_seconds", "Time since the data of this page were read")
ROUND_SECONDS = gauge("ottla_exporter_round_seconds", "Duration of the last round that succeeded")
ROUNDS = counter("ottla_exporter_rounds_total", "Rounds by result: ok, partial, failed", ("result",))
INFO = gauge("ottla_exporter_build_info", "1", ("version",))
FAMILIES = (UP, AGE, ROUND_SECONDS, ROUNDS, INFO)

OK, PARTIAL, FAILED = "ok", "partial", "failed"


@dataclass(frozen=True, slots=True)
class Shape:
    """What of a round is written."""

    cluster_name: str | None = None
    """Default: the cluster id."""
    per_partition: bool = True
    spellings: tuple[str, ...] = tuple(WRITERS)


class Exporter:
    def __init__(
        self,
        reader: ClusterReader,
        *,
        interval_s: float = 15.0,
        shape: Shape = Shape(),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reader = reader
        self._interval_s = interval_s
        self._shape = shape
        self._clock = clock
        self._consumption = Consumption()
        self._rounds = {OK: 0, PARTIAL: 0, FAILED: 0}
        self._last_result: str | None = None
        self._round_s: float | None = None
        self._read_at = 0.0
        self._body: bytes | None = None
        self._complaints: list[str] | None = None

    async def run(self) -> None:
        """Run rounds until cancelled."""
        while True:
            began = self._clock()
            await self.round()
            await asyncio.sleep(max(self._interval_s - (self._clock() - began), 0.0))

    async def round(self) -> None:
        began = self._clock()
        try:
            reading = await self._reader.read()
            # Writing takes as long as reading: other tasks go on meanwhile.
            self._body = await asyncio.to_thread(self._write, reading)
        except BrokerFailed as failure:
            self._end(FAILED, [f"no broker answers: {failure}"])
        except Exception as error:
            # An answer that nobody expected must not end a service that watches others.
            logger.exception("Round failed")
            self._end(FAILED, [f"{type(error).__name__}: {error}"])
        else:
            self._read_at = began
            self._round_s = round(self._clock() - began, 4)
            self._end(PARTIAL if reading.problems else OK, [*reading.problems, *reading.notes])

    def text(self) -> bytes:
        """The page as of now."""
        body, age_s = self._body, self._clock() - self._read_at
        stale = body is None or age_s > max(STALE_S, STALE_ROUNDS * self._interval_s)
        page = Page()
        page.add(UP, [((), int(self._last_result == OK))])
        page.add(AGE, [((), None if body is None else round(age_s, 3))])
        page.add(ROUND_SECONDS, [((), self._round_s)])
        page.add(ROUNDS, [((result,), count) for result, count in self._rounds.items()])
        page.add(INFO, [((__version__,), 1)])
        if "kminion" in self._shape.spellings:
            page.add(kminion.UP, [((__version__,), int(self._last_result == OK))])
        own = page.text().encode()
        return own if body is None or stale else own + body

    def _write(self, reading: ClusterReading) -> bytes:
        groups = self._consumption.add(reading)
        shape = self._shape
        view = View(reading, groups, shape.cluster_name or reading.cluster_id, per_partition=shape.per_partition)
        return render(view, shape.spellings).encode()

    def _end(self, result: str, complaints: list[str]) -> None:
        self._rounds[result] += 1
        self._last_result = result
        if complaints == self._complaints:
            return
        before, self._complaints = self._complaints, complaints
        for complaint in complaints:
            if before is None or complaint not in before:
                logger.warning("Round %s: %s", {OK: "ok, but", PARTIAL: "partial", FAILED: "failed"}[result], complaint)
        if not complaints:
            logger.info("%s the whole cluster in %.3f s", "Read" if before is None else "Read again", self._round_s or 0.0)
