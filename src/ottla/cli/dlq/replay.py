"""Writes dead letters back to the topics they came from, each exactly once. Never prints.

A transaction holds the records and, as committed offsets of the group on the dead-letter topic, which letters they are
(`progress`). Letters that are not chosen, or that have no topic to go to, stay for a later replay.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla.cli.copying.transfer import Committed, Transfer
from ottla.cli.dlq.choice import Box, Choice
from ottla.cli.dlq.letters import Letter
from ottla.cli.dlq.progress import METADATA_MAX, Progress
from ottla.cli.failure import Failure
from ottla.cli.formats import Outgoing
from ottla.cli.positions import TopicIndex
from ottla.cli.reading import Reader

_COMMIT_S = 1.0
_COMMIT_RECORDS = 10_000


@dataclass(slots=True)
class Target:
    """Where letters go: to their source, or all to one topic."""

    partitions: Mapping[str, int]
    """The number of partitions of each topic."""
    topic: str | None = None

    def of(self, letter: Letter) -> tuple[str, int | None] | None:
        """Topic and partition; None as partition leaves the choice to the key. None: there is nowhere to go."""
        topic = self.topic or letter.own_topic
        if topic is None or topic not in self.partitions or topic == letter.record.topic:
            return None
        index = letter.source_partition
        kept = self.topic is None and index is not None and index < self.partitions[topic]
        return topic, index if kept else None


@dataclass(slots=True)
class Replayed:
    to: Counter[str] = field(default_factory=Counter)
    left: int = 0
    """Letters that are not chosen."""
    stuck: Counter[str] = field(default_factory=Counter)
    """Chosen letters that have no topic to go to, by the topic that they name ("" if none; `east:orders` of another cluster)."""
    limited: bool = False

    @property
    def records(self) -> int:
        return sum(self.to.values())


class Replay:
    def __init__(self, box: Box, choice: Choice, target: Target, transfer: Transfer | None, count_max: int | None = None) -> None:
        """Without a transfer it only counts."""
        self._box = box
        self._choice = choice
        self._target = target
        self._transfer = transfer
        self._count_max = count_max
        self._scanned = dict(box.bounds.start)
        """The offset behind the last letter that was seen, of each partition."""
        self.replayed = Replayed()
        """As far as it is. Another thread may look at it."""
        self._told_to_stop = False

    def stop(self) -> None:
        """End after the present batch, as if a limit were reached. For another thread."""
        self._told_to_stop = True

    def run(self) -> Replayed:
        replayed = self.replayed
        reader = Reader(self._box.connection, self._box.bounds)
        committed = time.monotonic()
        pending = 0
        for letters in self._box.letters(reader):
            for letter in letters:
                if replayed.limited:
                    break
                pending += self._see(letter, replayed)
                replayed.limited = self._told_to_stop or (self._count_max is not None and replayed.records >= self._count_max)
            if replayed.limited:
                break
            if pending and (pending >= _COMMIT_RECORDS or time.monotonic() - committed >= _COMMIT_S):
                self._commit()
                pending, committed = 0, time.monotonic()
        if not replayed.limited:
            for key, position in reader.positions.items():
                self._pass(key, position)
        self._commit()
        return replayed

    def _see(self, letter: Letter, replayed: Replayed) -> int:
        """The number of records sent for a letter."""
        record = letter.record
        key = (record.topic, record.partition)
        self._pass(key, record.offset)
        self._scanned[key] = record.offset + 1
        progress = self._box.progress[key]
        if progress.done(record.offset):
            return 0
        if not self._choice.takes(letter):
            replayed.left += 1
            return 0
        where = self._target.of(letter)
        if where is None:
            cluster = "" if letter.cluster is None else f"{letter.cluster}:"
            replayed.stuck[f"{cluster}{letter.source_topic}" if letter.source_topic is not None else ""] += 1
            return 0
        topic, partition = where
        if self._transfer is not None:
            self._transfer.send(
                topic, record.key, record.value, letter.headers, partition=partition, timestamp_ms=record.timestamp_ms
            )
        replayed.to[topic] += 1
        progress.add(record.offset, record.offset + 1)
        return 1

    def _pass(self, key: TopicIndex, position: int) -> None:
        """Offsets between letters hold markers, or what was aborted or deleted: nothing is left to do for them."""
        self._box.progress[key].add(self._scanned[key], position)
        self._scanned[key] = max(self._scanned[key], position)

    def _commit(self) -> None:
        if self._transfer is not None:
            self._transfer.commit(committed_progress(self._box.progress))


def committed_progress(progress: Mapping[TopicIndex, Progress]) -> dict[TopicIndex, Committed]:
    """What a transaction commits so that a later replay takes no letter twice."""
    committed = {key: Committed(each.next_offset, each.metadata()) for key, each in progress.items()}
    for (topic, partition), each in committed.items():
        if len(each.metadata) > METADATA_MAX:
            raise Failure(
                f"the letters chosen of {topic}-{partition} lie too scattered to remember which were replayed",
                "replay without a filter, or fewer at a time with --until or -n",
                code="PROGRESS_TOO_LARGE",
            )
    return committed


def replay_edited(box: Box, letter: TopicIndex, offset: int, edited: Outgoing, to: str, transfer: Transfer) -> None:
    """Write a record in the place of a letter, which is then replayed. The transfer has begun. Failure if it was already."""
    progress = box.progress[letter]
    if progress.done(offset):
        raise Failure(
            f"the letter at offset {offset} of {letter[0]}-{letter[1]} was replayed already",
            "produce the record instead, if it is to be written again",
            code="ALREADY_REPLAYED",
        )
    progress.add(offset, offset + 1)
    transfer.send(to, edited.key, edited.value, edited.headers, partition=edited.partition, timestamp_ms=edited.timestamp_ms)
    transfer.commit(committed_progress({letter: progress}))
