"""The progress of a mirrored partition: what the mirror commits with its records, as an offset with metadata.

The offset is the next one to read in the source. The metadata is JSON: ids of both topics, so that a topic that was deleted and
made again begins anew; the clusters its records came through; the rank of the claim; and the offset syncs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from ottla.cli.copying.transfer import Committed
from ottla.cli.mirror.offset_syncs import OffsetSyncs

CREATED, EMPTY = 2, 1
"""The mirror created the target topic, or found it without any record."""
WITHDRAWN = Committed(0)
"""Instead of the progress of a mirror that leaves a topic out."""


@dataclass(slots=True)
class Progress:
    next_offset: int
    source_id: str
    target_id: str
    came_through: tuple[str, ...] = ()
    """Ids of clusters."""
    syncs: OffsetSyncs = field(default_factory=OffsetSyncs)
    rank: int = 0
    """Of the claim to the target topic: CREATED, EMPTY or 0."""

    def committed(self) -> Committed:
        document = {
            "mirror": 1,
            "source": self.source_id,
            "target": self.target_id,
            "via": list(self.came_through),
            "rank": self.rank,
            "syncs": self.syncs.encoded(),
        }
        return Committed(self.next_offset, json.dumps(document, separators=(",", ":")))

    @classmethod
    def read(cls, committed: Committed) -> Progress | None:
        """None if the metadata is not a mirror's."""
        try:
            document = json.loads(committed.metadata)
            if document["mirror"] != 1:
                return None
            syncs = OffsetSyncs.decoded(document["syncs"])
            via, rank = tuple(document["via"]), int(document.get("rank", 0))
            return cls(committed.offset, document["source"], document["target"], via, syncs, rank)
        except (ValueError, KeyError, TypeError, IndexError):
            return None
