"""Compaction and transactions: which batches were aborted, and when a marker has done its duty (L09).

Owns: the account of transactions while a pass goes through the log from its start. Knows the aborted ones beforehand, from the
transaction indexes; learns of committed ones as it meets them. Never looks into a batch.

1. A record of an aborted transaction goes at once: no reader of committed data will ever see it.
2. A marker stays while there are batches of its transaction before it, be they empty; without it they would be taken for open,
   or for another transaction's. Then it gets a horizon as a tombstone does, so that those who read now still meet it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.records.batch import BatchInfo
from ottla.records.control import ABORT, COMMIT

Aborted = tuple[int, int, int, int]
"""Producer id, first offset, offset of the marker, last stable offset then."""


class TransactionSieve:
    __slots__ = ("_aborted", "_met", "_next", "_ongoing", "kept")

    def __init__(self, aborted: Sequence[Aborted]) -> None:
        self._aborted = sorted(aborted, key=lambda entry: entry[1])
        self._next = 0
        self._ongoing: dict[int, Aborted] = {}
        """By producer: the aborted transaction it is in."""
        self._met: set[int] = set()
        """Producers of which batches have come since their last marker."""
        self.kept: list[Aborted] = []
        """Aborted transactions whose markers stay, for the new index."""

    def is_aborted(self, info: BatchInfo) -> bool:
        """Of a transactional batch. They come in the order of the log."""
        while self._next < len(self._aborted) and self._aborted[self._next][1] <= info.last_offset:
            entry = self._aborted[self._next]
            self._ongoing[entry[0]] = entry
            self._next += 1
        self._met.add(info.producer_id)
        found = self._ongoing.get(info.producer_id)
        return found is not None and found[1] <= info.base_offset <= found[2]

    def is_done(self, info: BatchInfo, kind: int) -> bool:
        """Of a marker: nothing of its transaction is left."""
        if kind not in (ABORT, COMMIT):
            return False
        if info.producer_id not in self._met:
            return True
        self._met.discard(info.producer_id)
        entry = self._ongoing.pop(info.producer_id, None)
        if kind == ABORT and entry is not None and entry[2] == info.base_offset:
            self.kept.append(entry)
        return False
