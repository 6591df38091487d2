"""The progress of a mirrored partition: what the mirror commits with its records, as an offset with metadata.

The offset is the next one to read in the source. The metadata is JSON: ids of both topics, so that a topic that was deleted and
made again begins anew; the clusters its records came through; and the offset syncs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from ottla.cli.copying.transfer import Committed
from ottla.cli.mirror.offset_syncs import OffsetSyncs


@dataclass(slots=True)
class Progress:
    next_offset: int
    source_id: str
    target_id: str
    came_through: tuple[str, ...] = ()
    """Ids of clusters, the nearest first."""
    syncs: OffsetSyncs = field(default_factory=OffsetSyncs)

    def committed(self) -> Committed:
        document = {
            "mirror": 1,
            "source": self.source_id,
            "target": self.target_id,
            "via": list(self.came_through),
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
            return cls(committed.offset, document["source"], document["target"], tuple(document["via"]), syncs)
        except (ValueError, KeyError, TypeError, IndexError):
            return None
