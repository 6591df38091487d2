"""The cluster as it was read last, and what changed over the last hour. All lists and figures of the console come from here.

One task reads the cluster in rounds, by the exporter's reader: every second or so while somebody looks, else every quarter of a
minute, so that lag in seconds has its history. A round never takes more than a part of the time: a large cluster is read less
often. Memory is bounded: one point of history per group and `POINT_S`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from ottla.client.brokers import BrokerFailed, Brokers
from ottla.exporter.cluster_reader import ClusterReader
from ottla.exporter.consumption import Consumption, GroupProgress
from ottla.exporter.reading import ClusterReading, Topic

logger = logging.getLogger("ottla.console")

HISTORY_S: Final = 3600.0
POINT_S: Final = 15.0
"""Between two points of a history."""
_IDLE_S: Final = 15.0
_WATCHED_S: Final = 1.0
_INTEREST_S: Final = 30.0
"""For how long a request counts as somebody who looks."""
_FORGOTTEN_S: Final = 600.0
_SHARE: Final = 4
"""A round waits this many times as long as the last one took."""
_RATE_S: Final = 5.0
"""Rates are over at least this long."""
_RETRY_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Point:
    """A group, or the cluster, at one time."""

    at_ms: int
    lag: int | None
    lag_s: float | None
    committed: int
    """The sum of the committed offsets."""


@dataclass(slots=True)
class History:
    """The points of the last hour, oldest first."""

    points: deque[Point] = field(default_factory=deque)

    def add(self, point: Point) -> None:
        if self.points and point.at_ms - self.points[-1].at_ms < POINT_S * 1000:
            return
        self.points.append(point)
        while self.points[0].at_ms < point.at_ms - HISTORY_S * 1000:
            self.points.popleft()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One round. Never changes."""

    reading: ClusterReading
    groups: dict[str, GroupProgress]
    rates: dict[str, float]
    """Records per second by topic."""
    complete: bool
    """False for the beginning of the first round: names, and nothing more."""
    read_s: float
    by_topic: dict[str, list[GroupProgress]]
    """The groups that have committed offsets in a topic."""

    @property
    def as_of_ms(self) -> int:
        return int(self.reading.time_s * 1000)


class Rates:
    """Records per second of each topic, from the log ends of two rounds."""

    def __init__(self) -> None:
        self._base: dict[str, tuple[float, int]] = {}
        self._last: dict[str, tuple[float, int]] = {}
        self._found: dict[str, float] = {}

    def add(self, reading: ClusterReading) -> dict[str, float]:
        for topic in reading.topics.values():
            total = end_of(topic)
            if total is None:
                continue
            base = self._base.setdefault(topic.name, (reading.time_s, total))
            passed_s = reading.time_s - base[0]
            if total < base[1]:
                self._base[topic.name] = (reading.time_s, total)  # created anew
                self._found.pop(topic.name, None)
            elif passed_s > 0:
                self._found[topic.name] = round((total - base[1]) / passed_s, 3)
                if passed_s >= _RATE_S:
                    self._base[topic.name] = self._last.get(topic.name, base)
            self._last[topic.name] = (reading.time_s, total)
        for gone in self._base.keys() - reading.topics.keys():
            for each in (self._base, self._last, self._found):
                each.pop(gone, None)
        return dict(self._found)


def end_of(topic: Topic) -> int | None:
    """The sum of the log ends; None if one is unknown."""
    return _sum(partition.log_end for partition in topic.partitions.values())


def records_of(topic: Topic) -> int | None:
    """Offsets between log start and log end."""
    return _sum(
        None if each.log_end is None or each.log_start is None else each.log_end - each.log_start
        for each in topic.partitions.values()
    )


def _sum(values: Iterator[int | None]) -> int | None:
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total


class Watch:
    def __init__(
        self, brokers: Brokers, reader: ClusterReader, *, always: bool = True, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Not `always`: nothing is read once nobody has looked for `_FORGOTTEN_S`."""
        self.brokers = brokers
        self.reader = reader
        self._always = always
        self._clock = clock
        self._consumption = Consumption()
        self._rates = Rates()
        self._snapshot: Snapshot | None = None
        self._changed = asyncio.Event()
        self._looked_at = float("-inf")
        self._wake = asyncio.Event()
        self.ended = False
        """Nobody reads any more: the user has logged out."""
        self.trouble: str | None = None
        """Why the last round failed."""
        self.histories: dict[str, History] = {}
        self.rates: deque[tuple[int, float]] = deque()
        """Records per second of the whole cluster, of the last hour."""

    @property
    def snapshot(self) -> Snapshot | None:
        """The last round. None before the first answer of a broker."""
        return self._snapshot

    def look(self) -> None:
        """Somebody wants to see: read often for a while."""
        now_s = self._clock()
        if now_s - self._looked_at > _WATCHED_S:
            self._wake.set()
        self._looked_at = now_s

    async def first(self, timeout_s: float = 10.0) -> Snapshot:
        """The last snapshot, or the first one. BrokerFailed if there is none in time."""
        self.look()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._snapshot is None and self.trouble is None:
                    await self.changed()
        if self._snapshot is None:
            raise BrokerFailed(self.trouble or "no broker has answered yet")
        return self._snapshot

    async def complete_snapshot(self, timeout_s: float = 10.0) -> Snapshot:
        """A snapshot that is complete, if that does not take too long."""
        found = await self.first(timeout_s)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not found.complete and self.trouble is None:
                    await self.changed()
                    found = self._snapshot or found
        return found

    async def anew(self, timeout_s: float = 10.0) -> Snapshot:
        """A snapshot of a round that begins after this call: for one who has just changed something."""
        began_s = time.time()
        self._looked_at = self._clock()
        self._wake.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self.trouble is None:
                    found = self._snapshot
                    if found is not None and found.complete and found.reading.time_s - found.read_s > began_s:
                        return found
                    self._wake.set()
                    await self.changed()
        return await self.first()

    def end(self) -> None:
        self.ended = True
        self._tell()

    async def changed(self) -> None:
        """Return with the next round, good or bad."""
        await self._changed.wait()

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            began = self._clock()
            try:
                await self._round()
            except BrokerFailed as failure:
                self._fail(str(failure))
            except Exception as error:
                logger.exception("Reading the cluster failed")
                self._fail(f"{type(error).__name__}: {error}")
            self._wake.clear()
            self._tell()
            if not self._always and self._clock() - self._looked_at > _FORGOTTEN_S:
                await self._wake.wait()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), self._pause_s(self._clock() - began))
            # One who looks anew may wait for a short while, never for a broker that is away.
            if self._wake.is_set():
                await asyncio.sleep(min(self._clock() - began, _RETRY_S) if self.trouble is None else _RETRY_S)

    def _pause_s(self, took_s: float) -> float:
        if self.trouble is not None:
            return _RETRY_S
        watched = self._clock() - self._looked_at < _INTEREST_S
        return max(_SHARE * took_s, _WATCHED_S if watched else _IDLE_S)

    async def _round(self) -> None:
        began = self._clock()
        reading = await self.reader.read(self._begun)
        groups, rates = await asyncio.to_thread(self._combine, reading)
        by_topic: dict[str, list[GroupProgress]] = {}
        for progress in groups.values():
            for topic in progress.topics:
                by_topic.setdefault(topic, []).append(progress)
        self._snapshot = Snapshot(reading, groups, rates, True, self._clock() - began, by_topic)
        if self.trouble is not None:
            logger.info("The cluster answers again")
        self.trouble = None
        self._remember(self._snapshot)

    def _begun(self, reading: ClusterReading) -> None:
        """Show names before anything else is known. Later rounds replace the last snapshot only when they are complete."""
        if self._snapshot is None:
            self._snapshot = Snapshot(reading, {}, {}, False, 0.0, {})
            self._tell()

    def _combine(self, reading: ClusterReading) -> tuple[dict[str, GroupProgress], dict[str, float]]:
        return {each.group.name: each for each in self._consumption.add(reading)}, self._rates.add(reading)

    def _remember(self, snapshot: Snapshot) -> None:
        at_ms = snapshot.as_of_ms
        for name, progress in snapshot.groups.items():
            self.histories.setdefault(name, History()).add(
                Point(
                    at_ms, lag_of(progress), lag_s_of(progress), sum(each.committed for each in progress if each.committed >= 0)
                )
            )
        for gone in self.histories.keys() - snapshot.groups.keys():
            del self.histories[gone]
        if not self.rates or at_ms - self.rates[-1][0] >= POINT_S * 1000:
            self.rates.append((at_ms, round(sum(snapshot.rates.values()), 3)))
            while self.rates[0][0] < at_ms - HISTORY_S * 1000:
                self.rates.popleft()

    def _fail(self, why: str) -> None:
        if self.trouble != why:
            logger.warning("The cluster cannot be read: %s", why)
        self.trouble = why

    def _tell(self) -> None:
        """Wake those who wait for a round, each once."""
        self._changed.set()
        self._changed = asyncio.Event()


def lag_of(progress: GroupProgress) -> int | None:
    """The sum of the known lags; None if none is."""
    lags = [each.lag for each in progress if each.lag is not None and each.lag >= 0]
    return sum(lags) if lags else None


def lag_s_of(progress: GroupProgress) -> float | None:
    return max((each.lag_s for each in progress if each.lag_s is not None), default=None)


def lead_of(progress: GroupProgress) -> int | None:
    """The smallest number of records between a log start and the group: how near it is to losing data."""
    return min((each.lead for each in progress if each.lead is not None), default=None)


def lead_s_of(progress: GroupProgress) -> float | None:
    return min((each.lead_s for each in progress if each.lead_s is not None), default=None)
