"""Through which clusters the records of a topic came, so that no record is mirrored back to where it was.

Each mirror commits this with its progress, in the cluster that it writes to. No record is marked.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.cli.connection import Connection
from ottla.cli.copying.transfer import committed_offsets
from ottla.cli.group.view import list_groups
from ottla.cli.mirror.naming import GROUP_PREFIX
from ottla.cli.mirror.progress import Progress


def origins(source: Connection, topics: Iterable[str]) -> dict[str, set[str]]:
    """For each topic of a cluster, the ids of the clusters from which mirrors brought it."""
    partitions = {topic: sorted(found.partitions) for topic, found in source.metadata().topics.items()}
    keys = [(topic, index) for topic in topics for index in partitions.get(topic, ())]
    found: dict[str, set[str]] = {topic: set() for topic in topics}
    for row in list_groups(source):
        if row["group"].startswith(GROUP_PREFIX):
            for (topic, _), committed in committed_offsets(source, row["group"], keys).items():
                progress = Progress.read(committed)
                if progress is not None:
                    found[topic].update(progress.came_through)
    return found
