"""Translates the committed offsets of groups, so that consumers can go on in the other cluster.

A group is changed in the target only while it has no members there, and an offset only forwards.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.cli.connection import Connection
from ottla.cli.failure import Failure
from ottla.cli.group.offsets import alter_offsets
from ottla.cli.group.plan import plan
from ottla.cli.group.view import committed_offsets, find_groups, led_log_bounds, list_groups
from ottla.cli.mirror.naming import matching_groups
from ottla.cli.mirror.offset_syncs import OffsetSyncs
from ottla.cli.positions import TopicIndex


class GroupMirror:
    def __init__(self, source: Connection, target: Connection, patterns: tuple[str, ...]) -> None:
        self._source = source
        self._target = target
        self._patterns = patterns

    def translate(self, syncs: Mapping[TopicIndex, OffsetSyncs], names: Mapping[str, str]) -> dict[str, int]:
        """Move the groups in the target. How many offsets of which group moved. `names` are those of mirrored topics."""
        names_of_groups = matching_groups((row["group"] for row in list_groups(self._source)), self._patterns)
        moved: dict[str, int] = {}
        for name in names_of_groups:
            wanted: dict[TopicIndex, int] = {}
            for (topic, index), offset in committed_offsets(self._source, name).items():
                known = syncs.get((topic, index))
                found = known.translate(offset) if known is not None else None
                if found is not None:
                    wanted[names[topic], index] = found
            count = self._move(name, wanted)
            if count:
                moved[name] = count
        return moved

    def _move(self, name: str, wanted: Mapping[TopicIndex, int]) -> int:
        (group,) = find_groups(self._target, [name], missing_ok=True)
        if group.state not in ("Empty", "Dead"):
            return 0
        there = committed_offsets(self._target, name)
        bounds = led_log_bounds(self._target, wanted)
        ahead = {key: offset for key, offset in wanted.items() if key in bounds and offset > there.get(key, -1)}
        steps = plan(ahead, there, bounds)
        if not steps:
            return 0
        try:
            alter_offsets(self._target, group, steps)
        except Failure as failure:
            if failure.code == "NON_EMPTY_GROUP":
                return 0  # its consumers have just moved
            raise
        return len(steps)
