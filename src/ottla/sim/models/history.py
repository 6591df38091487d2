"""What clients did and were told, and whether a log with transactions could have answered them so.

Owns: the events of a history, and the anomalies in it, each with a name and a description.
Never: talks to a broker, waits, or guesses. It works on recorded events, of simulated clients or of real processes; all times of
one history are of one clock.

1. Values identify sends: within a topic no value is sent twice. A retry of the client is the same send; an application that
   tries again writes another value.
2. An outcome without an answer (a timeout, a kill) is UNKNOWN: it may be there once or not at all, and a transaction wholly or
   not at all. A transaction without an `End` was never asked to commit: it must not be seen.
3. Losses are judged only where a reader has `Exhausted` a partition, after everything in flight has ended.
4. Readers of committed offsets ask for stable ones, and readers whose polls are `committed` read that isolation level.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, StrEnum

Place = tuple[str, int]
"""Topic and partition."""


class Outcome(Enum):
    OK = "ok"  # acknowledged; of a transaction: committed
    FAILED = "failed"  # known not to be written; of a transaction: aborted
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Send:
    """One record. Sends of one producer are in the history in the order in which it sent them."""

    producer: str
    place: Place
    value: bytes
    start: int
    end: int | None
    outcome: Outcome
    offset: int | None = None
    transaction: str | None = None


@dataclass(frozen=True, slots=True)
class End:
    """The end of a transaction that was asked to commit (or, FAILED, was aborted)."""

    transaction: str
    start: int
    end: int | None
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Seek:
    """The consumer reads from this offset on: by an assignment or a seek."""

    consumer: str
    place: Place
    offset: int


@dataclass(frozen=True, slots=True)
class Poll:
    """The records of one poll of one partition. `at_end`: there were no more."""

    consumer: str
    place: Place
    records: tuple[tuple[int, bytes], ...]
    start: int
    end: int
    committed: bool = True
    at_end: bool = False


@dataclass(frozen=True, slots=True)
class Exhausted:
    """The consumer has read the partition to its end, and nothing is in flight any more."""

    consumer: str
    place: Place


@dataclass(frozen=True, slots=True)
class Commit:
    """A committed offset of a group, by itself or in a transaction."""

    group: str
    place: Place
    offset: int
    start: int
    end: int | None
    outcome: Outcome
    transaction: str | None = None


@dataclass(frozen=True, slots=True)
class Committed:
    """The committed offset that a group was told; None: none."""

    group: str
    place: Place
    offset: int | None
    start: int
    end: int


Event = Send | End | Seek | Poll | Exhausted | Commit | Committed


class Kind(StrEnum):
    LOST = "lost write"
    DUPLICATE = "duplicate"
    ABORTED = "aborted read"
    TORN = "torn transaction"
    SKIPPED = "skipped poll"
    REPEATED = "repeated poll"
    OFFSETS = "non-monotonic offsets"
    REAL_TIME = "real-time order"
    REORDERED = "reordered sends"
    CHANGED = "changed record"
    INVENTED = "invented record"
    POSITION = "wrong committed position"


@dataclass(frozen=True, slots=True)
class Anomaly:
    kind: Kind
    detail: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}"


def anomalies(events: Iterable[Event]) -> list[Anomaly]:
    """All anomalies of the history."""
    return list(_Story(list(events)).anomalies())


class _Story:
    """The events by subject."""

    def __init__(self, events: list[Event]) -> None:
        self.events = events
        self.sends: dict[tuple[str, bytes], Send] = {}
        self.ends: dict[str, End] = {}
        self.commits: dict[tuple[str, Place], list[Commit]] = defaultdict(list)
        self.parts: dict[str, list[Send]] = defaultdict(list)  # of a transaction
        self.polls: list[Poll] = []
        self.seen: dict[Place, dict[int, bytes]] = defaultdict(dict)  # by anybody
        self.visible: dict[Place, dict[int, bytes]] = defaultdict(dict)  # to readers of what is committed
        self.exhausted: set[Place] = set()
        for event in events:
            match event:
                case Send(place=(topic, _), value=value):
                    if (topic, value) in self.sends:
                        raise ValueError(f"{value!r} is sent twice to {topic}: values must tell sends apart")
                    self.sends[topic, value] = event
                    if event.transaction is not None:
                        self.parts[event.transaction].append(event)
                case End():
                    self.ends[event.transaction] = event
                case Commit():
                    self.commits[event.group, event.place].append(event)
                case Poll():
                    self.polls.append(event)
                    for offset, value in event.records:
                        self.seen[event.place].setdefault(offset, value)
                        if event.committed:
                            self.visible[event.place].setdefault(offset, value)
                case Exhausted():
                    self.exhausted.add(event.place)
        self.found_at: dict[tuple[str, bytes], list[tuple[int, int]]] = defaultdict(list)
        for (topic, partition), records in self.seen.items():
            for offset, value in records.items():
                self.found_at[topic, value].append((partition, offset))

    def outcome(self, what: Send | Commit) -> Outcome:
        """The outcome of a send, with the end of its transaction. A producer commits only when every send was acknowledged."""
        if what.transaction is None or what.outcome is Outcome.FAILED:
            return what.outcome
        end = self.ends.get(what.transaction)
        return Outcome.FAILED if end is None else end.outcome

    def offset_of(self, send: Send) -> int | None:
        if send.offset is not None:
            return send.offset
        found = self.found_at.get((send.place[0], send.value), [])
        return found[0][1] if len(found) == 1 else None

    def anomalies(self) -> Iterator[Anomaly]:
        yield from self.records()
        yield from self.transactions()
        yield from self.consumers()
        yield from self.order()
        yield from self.real_time()
        yield from self.positions()

    def records(self) -> Iterator[Anomaly]:
        for poll in self.polls:
            for offset, value in poll.records:
                name = f"{value!r} at {_at(poll.place, offset)}"
                first = self.seen[poll.place][offset]
                send = self.sends.get((poll.place[0], value))
                if first != value:
                    yield Anomaly(Kind.CHANGED, f"{poll.consumer} read {name}, where {first!r} was read too")
                elif send is None:
                    yield Anomaly(Kind.INVENTED, f"{poll.consumer} read {name}, which nobody sent")
                elif send.place != poll.place or send.offset not in (None, offset):
                    # Duplicates are found below; this is an acknowledgement that named another offset.
                    if len(self.found_at[poll.place[0], value]) == 1:
                        yield Anomaly(Kind.CHANGED, f"{name} was acknowledged at {_at(send.place, send.offset)}")
                elif send.outcome is Outcome.FAILED or (poll.committed and self.outcome(send) is Outcome.FAILED):
                    yield Anomaly(Kind.ABORTED, f"{poll.consumer} read {name}, of transaction {send.transaction}")
        for (topic, value), places in self.found_at.items():
            if len(places) > 1:
                where = ", ".join(_at((topic, partition), offset) for partition, offset in sorted(places))
                yield Anomaly(Kind.DUPLICATE, f"{value!r} is at {where}")
        for (topic, value), send in self.sends.items():
            if send.place in self.exhausted and (topic, value) not in self.found_at and self.outcome(send) is Outcome.OK:
                yield Anomaly(Kind.LOST, f"{value!r} was acknowledged at {_at(send.place, send.offset)} and is not there")

    def transactions(self) -> Iterator[Anomaly]:
        visible = {place: set(self.visible[place].values()) for place in self.exhausted}
        for name, sends in self.parts.items():
            judged = [send for send in sends if send.place in self.exhausted and self.outcome(send) is not Outcome.FAILED]
            there = [send.value in visible[send.place] for send in judged]
            if any(there) and not all(there):
                missing = [send.value for send, seen in zip(judged, there, strict=True) if not seen]
                yield Anomaly(Kind.TORN, f"of transaction {name}, {len(missing)} of {len(judged)} are missing, as {missing[0]!r}")

    def consumers(self) -> Iterator[Anomaly]:
        sorted_visible = {place: sorted(records) for place, records in self.visible.items()}
        next_offset: dict[tuple[str, Place], int] = {}
        for event in self.events:
            if isinstance(event, Seek):
                next_offset[event.consumer, event.place] = event.offset
            if not isinstance(event, Poll):
                continue
            position = next_offset.get((event.consumer, event.place))
            known = sorted_visible.get(event.place, [])
            last = -1
            for offset, _ in event.records:
                if offset <= last:
                    yield Anomaly(Kind.OFFSETS, f"{event.consumer} got {_at(event.place, offset)} after {last} in one poll")
                elif position is not None and offset < position:
                    yield Anomaly(
                        Kind.REPEATED, f"{event.consumer} got {_at(event.place, offset)} again, its position was {position}"
                    )
                elif position is not None:
                    # Every reader that passes an offset must get what `read_committed` readers got there.
                    between = known[bisect_left(known, position) : bisect_left(known, offset)]
                    if between:
                        yield Anomaly(
                            Kind.SKIPPED,
                            f"{event.consumer} jumped from {position} to {_at(event.place, offset)}, past {between[0]}",
                        )
                last = offset
                position = max(position or 0, offset + 1)
            if position is not None:
                next_offset[event.consumer, event.place] = position

    def order(self) -> Iterator[Anomaly]:
        last: dict[tuple[str, Place], tuple[int, Send]] = {}
        for send in self.sends.values():
            offset = self.offset_of(send)
            if offset is None:
                continue
            before = last.get((send.producer, send.place))
            if before is not None and offset <= before[0]:
                yield Anomaly(
                    Kind.REORDERED,
                    f"{send.producer} sent {send.value!r} after {before[1].value!r}, it is stored before: {offset}, {before[0]}",
                )
            else:
                last[send.producer, send.place] = offset, send

    def real_time(self) -> Iterator[Anomaly]:
        """A send acknowledged before another began is stored before it. Reads see what is acknowledged, not what comes."""
        by_place: dict[Place, list[tuple[int, Send]]] = defaultdict(list)
        for send in self.sends.values():
            offset = self.offset_of(send)
            if offset is not None:
                by_place[send.place].append((offset, send))
        for sends in by_place.values():
            earliest: Send | None = None
            for offset, send in sorted(sends, key=lambda each: each[0], reverse=True):
                if earliest is not None and earliest.end is not None and earliest.end < send.start:
                    yield Anomaly(
                        Kind.REAL_TIME,
                        f"{send.value!r} was sent after {earliest.value!r} was acknowledged, and is stored before it at {offset}",
                    )
                heard = send.outcome is Outcome.OK and send.end is not None
                if heard and (earliest is None or earliest.end is None or (send.end or 0) < earliest.end):
                    earliest = send
        position: dict[tuple[str, Place], int] = {}
        acknowledged = {place: sorted(sends, key=lambda each: each[0]) for place, sends in by_place.items()}
        for event in self.events:
            if isinstance(event, Seek):
                position[event.consumer, event.place] = event.offset
            if not isinstance(event, Poll):
                continue
            for offset, value in event.records:
                read = self.sends.get((event.place[0], value))
                if read is not None and event.end < read.start:
                    yield Anomaly(Kind.REAL_TIME, f"{event.consumer} read {value!r} at {offset} before it was sent")
                position[event.consumer, event.place] = offset + 1
            if event.at_end and not event.committed:  # an open transaction hides what is behind it from `read_committed` readers
                at = position.get((event.consumer, event.place), 0)
                for offset, send in reversed(acknowledged.get(event.place, [])):
                    if offset < at:
                        break
                    if send.outcome is Outcome.OK and send.end is not None and send.end < event.start:
                        yield Anomaly(
                            Kind.REAL_TIME,
                            f"{event.consumer} was told the end is {at}, after {send.value!r} was acknowledged at {offset}",
                        )

    def positions(self) -> Iterator[Anomaly]:
        for event in self.events:
            if not isinstance(event, Committed):
                continue
            commits = self.commits.get((event.group, event.place), [])
            name = f"{event.group} was told {event.offset} for {_at(event.place)}"
            settled = [each for each in commits if self.outcome(each) is Outcome.OK]
            ends: list[int] = []  # when those began that had ended before it asked
            for each in settled:
                over = self._over(each)
                if over is not None and over < event.start:
                    insort(ends, each.start)
            possible = [
                each
                for each in commits
                if each.offset == event.offset and each.start <= event.end and self.outcome(each) is not Outcome.FAILED
            ]
            if event.offset is not None and not possible:
                aborted = any(each.offset == event.offset for each in commits)
                why = "which was aborted" if aborted else "which nobody committed"
                yield Anomaly(Kind.ABORTED if aborted else Kind.POSITION, f"{name}, {why}")
            elif ends and (event.offset is None or all((self._over(each) or event.end) < ends[-1] for each in possible)):
                yield Anomaly(Kind.POSITION, f"{name}, although a later commit was acknowledged before it asked")

    def _over(self, commit: Commit) -> int | None:
        """When it had taken effect; None: unknown."""
        if commit.transaction is None:
            return commit.end
        end = self.ends.get(commit.transaction)
        return None if end is None else end.end


def _at(place: Place, offset: int | None = None) -> str:
    return f"{place[0]}-{place[1]}" + ("" if offset is None else f":{offset}")
