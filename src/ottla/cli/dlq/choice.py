"""Which dead letters a command takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ottla.cli.connection import Connection
from ottla.cli.consume import Bounds, incoming
from ottla.cli.dlq.letters import Letter, read_letter
from ottla.cli.dlq.progress import Progress
from ottla.cli.formats import Incoming
from ottla.cli.positions import TopicIndex
from ottla.cli.reading import Reader
from ottla.cli.selection import Selection


@dataclass(frozen=True, slots=True)
class Choice:
    reason: str | None = None
    """A part of the reason, in any case."""
    flow: str | None = None
    source: str | None = None
    """A topic."""
    selection: Selection = field(default_factory=Selection)
    """Of --where and --grep. Sees all headers."""
    places: frozenset[tuple[int, int]] | None = None
    """Only these, by partition and offset."""
    visible: Callable[[Incoming], Incoming] | None = None
    """Leaves of a letter's record what may be looked at. None: all of it may."""

    def takes(self, letter: Letter) -> bool:
        if self.visible is not None and (seen := self.visible(letter.record)) is not letter.record:
            letter = read_letter(seen)
        return (
            (self.reason is None or self.reason.lower() in (letter.reason or "").lower())
            and (self.flow is None or self.flow == letter.flow)
            and (self.source is None or self.source == letter.source_topic)
            and (self.places is None or (letter.record.partition, letter.record.offset) in self.places)
            and self.selection.takes(letter.record)
        )


@dataclass(slots=True)
class Box:
    """The letters of a dead-letter topic within bounds, and how far it was replayed."""

    connection: Connection
    bounds: Bounds
    progress: dict[TopicIndex, Progress]

    def done(self, letter: Letter) -> bool:
        return self.progress[letter.record.topic, letter.record.partition].done(letter.record.offset)

    def letters(self, reader: Reader | None = None) -> Iterator[list[Letter]]:
        for messages in (reader or Reader(self.connection, self.bounds)).batches():
            yield [read_letter(incoming(message)) for message in messages]
