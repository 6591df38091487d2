"""The next sequence of each partition, for tasks that write with one producer id and epoch.

A broker accepts the batches of a producer in a partition only without a gap. `Own` counts for a task that has its partitions to
itself. `Shared` counts for tasks of one machine that write to the same partitions in turns: a file for each partition holds the
next sequence, and only the task that has locked the file sends, until the broker has acknowledged.

Invariants
1. A turn without an error leaves the sequence after its last acknowledged batch.
2. A turn that ends in an error or with a killed process leaves the sequence unknown: what the broker has is unknown. No further
   turn at the partition is possible, and every task that tries one fails.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from struct import Struct

from ottla.records.batch import SEQUENCE_MAX

_NEXT = Struct("<q")
_UNKNOWN = -1


class TurnLost(OSError):
    """Another task failed during its turn at the partition."""


class Turn:
    __slots__ = ("sequence",)

    def __init__(self, sequence: int) -> None:
        self.sequence = sequence
        """The sequence of the next batch."""

    def acknowledged(self, records: int) -> None:
        self.sequence = (self.sequence + records) & SEQUENCE_MAX


class Own:
    """`first` holds the sequences that do not start at 0."""

    def __init__(self, first: Mapping[int, int]) -> None:
        self._next = dict(first)

    @contextmanager
    def turn(self, partition: int) -> Iterator[Turn]:
        turn = Turn(self._next.get(partition, 0))
        yield turn
        self._next[partition] = turn.sequence


class Shared:
    """All tasks share `directory`, which is empty before the first of them."""

    def __init__(self, directory: str, first: Mapping[int, int]) -> None:
        self._directory = directory
        self._first = first

    @contextmanager
    def turn(self, partition: int) -> Iterator[Turn]:
        import fcntl  # not on every system

        file = os.open(f"{self._directory}/{partition}", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            found = os.pread(file, _NEXT.size, 0)
            turn = Turn(_NEXT.unpack(found)[0] if found else self._first.get(partition, 0))
            if turn.sequence == _UNKNOWN:
                raise TurnLost(f"another task failed while it wrote to partition {partition}")
            os.pwrite(file, _NEXT.pack(_UNKNOWN), 0)
            yield turn
            os.pwrite(file, _NEXT.pack(turn.sequence), 0)
        finally:
            os.close(file)


Sequences = Own | Shared
