"""Which sequence the next record batch of a partition has, for tasks that write under one producer id and epoch.

A broker takes the batches of a producer in one partition only without a gap. `Own` counts for a task that has its partitions to
itself. `Shared` counts for tasks of one machine that write to the same partitions, in turns: a file per partition holds the next
sequence, and whoever has it locked is the only one who sends there, until the broker has acknowledged.

Invariants
1. A turn that ends without an error leaves the sequence after the last batch that was acknowledged in it.
2. A turn that ends otherwise (an error, a killed process: the kernel lets go of its lock) leaves a mark, and there is no further
   turn at the partition: what the broker has of it cannot be known. Tasks that meet the mark fail, as the one that left it did.
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
    """Another task ended in the middle of its turn at a partition."""


class Turn:
    __slots__ = ("sequence",)

    def __init__(self, sequence: int) -> None:
        self.sequence = sequence
        """Of the next batch."""

    def acknowledged(self, records: int) -> None:
        self.sequence = (self.sequence + records) & SEQUENCE_MAX


class Own:
    """`first` are those that do not begin at 0."""

    def __init__(self, first: Mapping[int, int]) -> None:
        self._next = dict(first)

    @contextmanager
    def turn(self, partition: int) -> Iterator[Turn]:
        turn = Turn(self._next.get(partition, 0))
        yield turn
        self._next[partition] = turn.sequence


class Shared:
    """`directory` is one that all these tasks see, empty before the first of them."""

    def __init__(self, directory: str, first: Mapping[int, int]) -> None:
        self._directory = directory
        self._first = first

    @contextmanager
    def turn(self, partition: int) -> Iterator[Turn]:
        import fcntl  # only where there are such tasks: not every system has it

        file = os.open(f"{self._directory}/{partition}", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            found = os.pread(file, _NEXT.size, 0)
            turn = Turn(_NEXT.unpack(found)[0] if found else self._first.get(partition, 0))
            if turn.sequence == _UNKNOWN:
                raise TurnLost(f"another task was lost while it wrote to partition {partition}")
            os.pwrite(file, _NEXT.pack(_UNKNOWN), 0)
            yield turn
            os.pwrite(file, _NEXT.pack(turn.sequence), 0)
        finally:
            os.close(file)


Sequences = Own | Shared
