"""The marker of the last micro-batch that is committed, in the offset metadata of the flow's group."""

from __future__ import annotations

import re
from typing import NamedTuple

_TEXT = re.compile(r"ottla/1 ([0-9a-f-]+) (\d+) ([0-9a-f]+)")


class Marker(NamedTuple):
    query_id: str
    """The identity of the checkpoint: a new checkpoint counts batches from 0 again."""
    batch_id: int
    fingerprint: str
    """Of the batch's offsets: a checkpoint restored from an old copy reuses batch ids for other records."""

    def __str__(self) -> str:
        return f"ottla/1 {self.query_id} {self.batch_id} {self.fingerprint}"


def marker_in(metadata: str) -> Marker | None:
    match = _TEXT.fullmatch(metadata)
    return Marker(match[1], int(match[2]), match[3]) if match else None
