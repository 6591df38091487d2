"""Which mirrors claim the topics of a cluster, so that no record is mirrored back to where it was.

Each mirror commits a claim with its progress, in the cluster that it writes to: the clusters that the records came through.
Records are not marked. Two mirrors that begin at once, each the reverse of the other, may both claim a topic. The stronger claim
stays: of the mirror that created its target topic, or else found it empty, or else has the source with the higher id.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ottla.cli.connection import Connection
from ottla.cli.copying.transfer import committed_offsets
from ottla.cli.group.view import list_groups
from ottla.cli.mirror.naming import GROUP_PREFIX
from ottla.cli.mirror.progress import Progress


@dataclass(frozen=True, slots=True)
class Claim:
    rank: int
    source: str
    """The id of the cluster that the mirror reads."""
    came_through: frozenset[str] = frozenset()

    def is_stronger_than(self, other: Claim) -> bool:
        return (self.rank, self.source) > (other.rank, other.source)


def claims(cluster: Connection, topics: Iterable[str]) -> dict[str, set[Claim]]:
    """Of each topic of a cluster, the claims of the mirrors that write it."""
    partitions = {topic: sorted(found.partitions) for topic, found in cluster.metadata().topics.items()}
    keys = [(topic, index) for topic in topics for index in partitions.get(topic, ())]
    found: dict[str, set[Claim]] = {topic: set() for topic in topics}
    for row in list_groups(cluster):
        if row["group"].startswith(GROUP_PREFIX):
            source = row["group"].removeprefix(GROUP_PREFIX).partition(".")[0]
            for (topic, _), committed in committed_offsets(cluster, row["group"], keys).items():
                progress = Progress.read(committed)
                if progress is not None:
                    found[topic].add(Claim(progress.rank, source, frozenset(progress.came_through)))
    return found
