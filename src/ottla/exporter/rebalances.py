"""Rebalances of groups, counted from outside.

A group of the consumer protocol counts them itself: its epoch. A classic group does not tell. Each round compares its members and
their assignments with those of the last round in which it was stable: a difference is one rebalance. Several between two rounds
count as one, and one that changes nothing is not seen.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.exporter.reading import Group

_AT_REST = frozenset({"Stable", "Empty"})


class Rebalances:
    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._seen: dict[str, object] = {}

    def observe(self, groups: Iterable[Group]) -> None:
        for group in groups:
            mark = _mark(group)
            if mark is None:
                continue
            before = self._seen.get(group.name)
            self._seen[group.name] = mark
            grown = 0
            if isinstance(mark, int) and isinstance(before, int):
                grown = max(mark - before, 0)
            elif before is not None:
                grown = int(mark != before)
            self._counts[group.name] = self._counts.get(group.name, 0) + grown

    def forget_others(self, names: Iterable[str]) -> None:
        """Keep only these groups."""
        kept = set(names)
        for name in [name for name in self._seen if name not in kept]:
            del self._seen[name], self._counts[name]

    def of(self, group: str) -> int | None:
        """Since the exporter first saw the group. None if it could not be told yet."""
        return self._counts.get(group)


def _mark(group: Group) -> object | None:
    """What a rebalance changes; None if the group is not at rest, or its members are unknown."""
    if group.epoch is not None:
        return group.epoch
    if group.members is None or group.state not in _AT_REST:
        return None
    return frozenset(
        (member.member_id, tuple(sorted((topic, tuple(parts)) for topic, parts in member.assignment.items())))
        for member in group.members
    )
