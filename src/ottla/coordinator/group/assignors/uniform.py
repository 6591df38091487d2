"""The uniform assignor: as many partitions for each member as for any other, moving as few as that allows.

Where all members subscribe to the same topics (the common case, here):

1. Of n partitions and m members, n % m members get n // m + 1, the others n // m.
2. A member keeps what it had, up to its quota. Those that have more already are the ones that get the larger quota, if there are
   enough of them: the larger quota goes to a member that cannot fill it only when no later one is left to take it.
3. What is free then goes to the members below their quota, in order.

Where they subscribe to different topics: `uniform_heterogeneous`.
"""

from __future__ import annotations

from ottla.coordinator.group.assignors import uniform_heterogeneous
from ottla.coordinator.group.assignors.spec import Assignment, GroupSpec, uuid_order


def assign(group: GroupSpec) -> dict[str, Assignment]:
    if not group.members:
        return {}
    if not group.homogeneous:
        return uniform_heterogeneous.assign(group)
    return _assign_homogeneous(group)


def _assign_homogeneous(group: GroupSpec) -> dict[str, Assignment]:
    members = sorted(group.members)
    topics = sorted(group.members[members[0]].topics, key=uuid_order)
    held: dict[bytes, set[int]] = {topic: set() for topic in topics}
    for spec in group.members.values():
        for topic, partitions in spec.assigned.items():
            if topic in held:
                held[topic] |= partitions
    counts = group.partition_counts
    free = [(topic, partition) for topic in topics for partition in range(counts[topic]) if partition not in held[topic]]
    quota, larger_left = divmod(sum(counts[topic] for topic in topics), len(members))

    kept: dict[str, dict[bytes, frozenset[int]]] = {}
    unfilled: list[tuple[str, int]] = []
    for place, member_id in enumerate(members):
        is_larger = larger_left > 0
        room = quota + is_larger
        keeps: dict[bytes, frozenset[int]] = {}
        for topic, partitions in sorted(group.members[member_id].assigned.items()):
            if topic not in held:
                continue
            if len(partitions) <= room:
                keeps[topic] = partitions
                room -= len(partitions)
                continue
            in_order = sorted(partitions)
            if room:
                keeps[topic] = frozenset(in_order[:room])
            free += [(topic, partition) for partition in in_order[room:]]
            room = 0
        if room and is_larger and len(members) - place > larger_left:
            # A later member may have one to keep with it.
            room -= 1
            is_larger = False
        if room:
            unfilled.append((member_id, room))
        larger_left -= is_larger
        kept[member_id] = keeps

    at = 0
    for member_id, room in unfilled:
        gains: dict[bytes, set[int]] = {}
        for topic, partition in free[at : at + room]:
            gains.setdefault(topic, set()).add(partition)
        at += room
        keeps = kept[member_id]
        for topic, gained in gains.items():
            keeps[topic] = keeps.get(topic, frozenset()) | gained
    assert at >= len(free), "partitions were left over"
    return dict(kept)
