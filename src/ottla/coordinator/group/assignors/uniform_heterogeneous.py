"""The uniform assignor where members subscribe to different topics.

1. A member keeps what it had of the topics it still subscribes to.
2. What is free is dealt topic by topic, each partition to the subscriber that has the fewest. Topics with many partitions for
   each subscriber come first: with them the choice is smallest.
3. Then topic by topic partitions move from the subscribers that have the most to those that have the fewest, while these differ
   by more than one; until a whole round changes nothing, or `ROUNDS_MAX` are over.

The result is balanced among the subscribers of each topic. Over topics whose subscribers overlap only in part it is nearly so.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ottla.coordinator.group.assignors.spec import Assignment, GroupSpec, uuid_order

ROUNDS_MAX: Final = 16
"""Each round about halves what is out of balance."""
_NOBODY: Final = -1


def assign(group: GroupSpec) -> dict[str, Assignment]:
    return _Dealing(group).deal()


class _Dealing:
    """One computation. Members are numbers: their places in the order of ids."""

    def __init__(self, group: GroupSpec) -> None:
        self.member_ids = sorted(group.members)
        self.counts = group.partition_counts
        self.loads = [0] * len(self.member_ids)
        """How many partitions each member has."""
        self.subscribers: dict[bytes, list[int]] = {}
        for member, member_id in enumerate(self.member_ids):
            for topic in group.members[member_id].topics:
                self.subscribers.setdefault(topic, []).append(member)
        self.owners: dict[bytes, list[int]] = {topic: [_NOBODY] * self.counts[topic] for topic in self.subscribers}
        for member, member_id in enumerate(self.member_ids):
            spec = group.members[member_id]
            for topic, partitions in spec.assigned.items():
                if topic in spec.topics:
                    for partition in partitions:
                        self.owners[topic][partition] = member
                    self.loads[member] += len(partitions)

    def deal(self) -> dict[str, Assignment]:
        self._deal_free()
        self._balance()
        result: dict[str, dict[bytes, set[int]]] = {member_id: {} for member_id in self.member_ids}
        for topic, owners in self.owners.items():
            for partition, member in enumerate(owners):
                result[self.member_ids[member]].setdefault(topic, set()).add(partition)
        return {
            member_id: {topic: frozenset(partitions) for topic, partitions in topics.items()}
            for member_id, topics in result.items()
        }

    def _in_order(self, topics: Iterable[bytes]) -> list[bytes]:
        def order(topic: bytes) -> tuple[float, int, tuple[int, int]]:
            subscribers = len(self.subscribers[topic])
            return (-self.counts[topic] / subscribers, subscribers, uuid_order(topic))

        return sorted(topics, key=order)

    def _give(self, topic: bytes, partition: int, member: int) -> None:
        owner = self.owners[topic][partition]
        if owner != _NOBODY:
            self.loads[owner] -= 1
        self.owners[topic][partition] = member
        self.loads[member] += 1

    def _deal_free(self) -> None:
        for topic in self._in_order(topic for topic, owners in self.owners.items() if _NOBODY in owners):
            levels = _Levels(self.subscribers[topic], self.loads)
            for partition, owner in enumerate(self.owners[topic]):
                if owner == _NOBODY:
                    self._give(topic, partition, levels.next_least())

    def _balance(self) -> None:
        topics = self._in_order(topic for topic, subscribers in self.subscribers.items() if len(subscribers) > 1)
        last_changed = -1
        for _ in range(ROUNDS_MAX):
            for place, topic in enumerate(topics):
                if place == last_changed:
                    # A whole round without a change.
                    return
                if self._balance_topic(topic) or last_changed == -1:
                    last_changed = place

    def _balance_topic(self, topic: bytes) -> bool:
        """Move partitions of a topic from loaded members to idle ones. Returns whether one moved."""
        levels = _Levels(self.subscribers[topic], self.loads)
        if levels.spread <= 1:
            return False
        to_give: dict[int, list[int]] = {}
        for partition, owner in enumerate(self.owners[topic]):
            to_give.setdefault(owner, []).append(partition)
        moved = False
        while not levels.is_balanced:
            giver = levels.next_most()
            while giver is not None and not to_give.get(giver):
                levels.exclude_most()
                giver = levels.next_most()
            if giver is None:
                break
            partition = to_give[giver].pop()
            taker = levels.next_least()
            if levels.is_balanced:
                break
            self._give(topic, partition, taker)
            moved = True
        return moved


class _Levels:
    """The subscribers of a topic by their loads, with two ranges that grow towards each other.

    The first `low_end` have the least, all the same; each is given one in turn, and when all have it, their level rises and
    those who were at it already join them. Likewise those in [high_start, high_end) have the most, and each gives one in turn.
    Behind `high_end` stand those who have nothing to give.
    """

    __slots__ = ("_high_at", "_high_end", "_high_level", "_high_start", "_loads", "_low_at", "_low_end", "_low_level", "_order")

    def __init__(self, members: list[int], loads: list[int]) -> None:
        self._loads = loads
        self._order = order = sorted(members, key=lambda member: (loads[member], member))
        self._low_end = self._low_at = 0
        self._low_level = loads[order[0]] - 1
        self._high_start = self._high_end = len(order)
        self._high_level = loads[order[-1]] + 1
        self._high_at = len(order) - 1

    @property
    def spread(self) -> int:
        return self._loads[self._order[-1]] - self._loads[self._order[0]]

    @property
    def is_balanced(self) -> bool:
        return self._high_level - self._low_level <= 1

    def next_least(self) -> int:
        """Who is to be given the next partition."""
        order = self._order
        if self._low_at >= self._low_end:
            self._low_level += 1
            while self._low_end < len(order) and self._loads[order[self._low_end]] == self._low_level:
                self._low_end += 1
            self._low_at = 0
        self._low_at += 1
        return order[self._low_at - 1]

    def next_most(self) -> int | None:
        """Who is to give one; None if nobody is left who could."""
        order = self._order
        if self._high_at < self._high_start:
            if self._high_end <= self._high_start and self._high_start > 0:
                # All of the range were excluded: go on with the one that has the most of the others.
                self._high_level = self._loads[order[self._high_start - 1]]
            else:
                self._high_level -= 1
            while self._high_start > 0 and self._loads[order[self._high_start - 1]] == self._high_level:
                self._high_start -= 1
            self._high_at = self._high_end - 1
        if self._high_at < 0:
            return None
        self._high_at -= 1
        return order[self._high_at + 1]

    def exclude_most(self) -> None:
        """The one named last has nothing to give."""
        at, last = self._high_at + 1, self._high_end - 1
        self._order[at], self._order[last] = self._order[last], self._order[at]
        self._high_end -= 1
