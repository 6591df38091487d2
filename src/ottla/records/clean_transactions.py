"""Compaction and transactions: which batches are aborted, and when a marker may be removed (L09).

Tracks transactions while a pass reads the log from its start. The aborted ones are known from the transaction indexes.

1. Records of an aborted transaction are removed at once: no read_committed consumer sees them.
2. A marker is kept while its transaction has batches, even empty ones, which would otherwise count as open. Then it gets a delete
   horizon like a tombstone, so that consumers that are reading still see it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.records.batch import BatchInfo
from ottla.records.control import ABORT, COMMIT

Aborted = tuple[int, int, int, int]
"""Producer id, first offset, marker offset, last stable offset."""


class TransactionSieve:
    def __init__(self, aborted: Sequence[Aborted]) -> None:
        self._aborted = sorted(aborted, key=lambda entry: entry[1])
        self._next = 0
        self._ongoing: dict[int, Aborted] = {}
        """By producer id: its current transaction, if it is aborted."""
        self._met: set[int] = set()
        """Producers with batches since their last marker."""
        self.kept: list[Aborted] = []
        """Aborted transactions whose markers are kept, for the new index."""

    def is_aborted(self, info: BatchInfo) -> bool:
        """Whether a transactional batch is aborted. Call in log order."""
        while self._next < len(self._aborted) and self._aborted[self._next][1] <= info.last_offset:
            entry = self._aborted[self._next]
            self._ongoing[entry[0]] = entry
            self._next += 1
        self._met.add(info.producer_id)
        found = self._ongoing.get(info.producer_id)
        return found is not None and found[1] <= info.base_offset <= found[2]

    def is_done(self, info: BatchInfo, kind: int) -> bool:
        """Whether the transaction of a marker has no batches left."""
        if kind not in (ABORT, COMMIT):
            return False
        if info.producer_id not in self._met:
            return True
        self._met.discard(info.producer_id)
        entry = self._ongoing.pop(info.producer_id, None)
        if kind == ABORT and entry is not None and entry[2] == info.base_offset:
            self.kept.append(entry)
        return False
