"""What the members' own notes prove.

Owns: reading them, and from them the spans of time in which a member owned a partition beyond doubt.
Never does: guess. A process that was paused, or had no CPU, may believe in a partition that the group has taken from it; that is
how Kafka means it, so its belief proves nothing. What does:

1. An accepted commit was accepted while the coordinator held the committer for a member, at some moment between its sending and
   its answer. So a partition given before the first was sent is owned at the latest when the first is answered.
2. From then on it is owned until it is given back, or the session is over. The coordinator starts the session anew at an accepted
   commit (classic protocol), so it cannot be over before the last one was sent, plus the session timeout. A kill, a pause and a
   restart of the broker change nothing about that. In the new protocol only heartbeats keep a session: there the span ends with
   the sending of the last accepted commit.
3. A member writes that it gives a partition back before it tells the coordinator, who gives it to nobody else before. All clocks
   are one (CLOCK_MONOTONIC). So spans of two members that overlap are two owners at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Span:
    partition: int
    start: int
    end: int
    member: str


@dataclass(slots=True)
class Notes:
    """One member's."""

    name: str
    moves: list[tuple[int, str, list[int]]] = field(default_factory=list)
    commits: list[tuple[int, int]] = field(default_factory=list)
    seen: dict[tuple[int, int], str] = field(default_factory=dict)

    @property
    def owned(self) -> set[int]:
        """What it believes to own at the end."""
        owned: set[int] = set()
        for _, letter, partitions in self.moves:
            if letter == "A":
                owned.update(partitions)
            else:
                owned.difference_update(partitions)
        return owned

    def spans(self, session_ns: int) -> list[Span]:
        found: list[Span] = []
        given: dict[int, int] = {}

        def close(partition: int, end: int) -> None:
            start = given.pop(partition)
            inside = [(sent, answered) for sent, answered in self.commits if sent >= start and answered <= end]
            if inside:
                found.append(Span(partition, inside[0][1], min(end, inside[-1][0] + session_ns), self.name))

        for at, letter, partitions in self.moves:
            for partition in partitions:
                if partition in given:
                    close(partition, at)
                if letter == "A":
                    given[partition] = at
        for partition in list(given):
            close(partition, 1 << 63)
        return [span for span in found if span.end > span.start]


def read(path: Path) -> Notes:
    notes = Notes(path.name)
    for line in path.read_text().split("\n")[:-1]:
        letter, _, rest = line.partition(" ")
        if letter == "S":
            for place in rest.split():
                partition, offset, value = place.split(":", 2)
                notes.seen[int(partition), int(offset)] = value
        elif letter == "C":
            sent, answered = rest.split()
            notes.commits.append((int(sent), int(answered)))
        else:
            at, _, partitions = rest.partition(" ")
            notes.moves.append((int(at), letter, [int(each) for each in partitions.split(",") if each]))
    return notes


def owned_twice(members: list[Notes], session_ns: int) -> list[str]:
    """Every overlap of two members' spans of one partition, in words."""
    spans = sorted((span for each in members for span in each.spans(session_ns)), key=lambda span: (span.partition, span.start))
    found: list[str] = []
    last: Span | None = None
    for span in spans:
        if last is not None and last.partition == span.partition and last.member != span.member and span.start < last.end:
            both = (min(last.end, span.end) - span.start) / 1e6
            found.append(f"partition {span.partition}: {last.member} and {span.member} for {both:.1f} ms at {span.start}")
        if last is None or last.partition != span.partition or span.end > last.end:
            last = span
    return found
