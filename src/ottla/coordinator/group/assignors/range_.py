"""The range assignor: each member gets a run of neighbouring partitions of each topic it subscribes to.

1. A topic's n partitions are dealt to its m subscribers in runs of n // m, the first n % m of them one longer.
2. Static members come first, by instance id, then the others by member id. So a static member that comes back under another id
   keeps its run.
3. Where all subscribe to the same topics and these have as many partitions, each member gets the same numbers of all of them
   (co-partitioning): the runs depend on nothing but the counts.

Not sticky: a member that comes or goes shifts the runs behind it.
"""

from __future__ import annotations

from ottla.coordinator.group.assignors.spec import Assignment, GroupSpec


def assign(group: GroupSpec) -> dict[str, Assignment]:
    members = sorted(group.members, key=lambda member_id: _rank(group, member_id))
    subscribers: dict[bytes, int] = {}
    for member_id in members:
        for topic in group.members[member_id].topics:
            subscribers[topic] = subscribers.get(topic, 0) + 1
    next_partition = dict.fromkeys(subscribers, 0)
    dealt = dict.fromkeys(subscribers, 0)
    result: dict[str, Assignment] = {}
    for member_id in members:
        runs: dict[bytes, frozenset[int]] = {}
        for topic in group.members[member_id].topics:
            shortest, longer = divmod(group.partition_counts[topic], subscribers[topic])
            start = next_partition[topic]
            end = start + shortest + (1 if dealt[topic] < longer else 0)
            dealt[topic] += 1
            next_partition[topic] = end
            if start < end:
                runs[topic] = frozenset(range(start, end))
        result[member_id] = runs
    return result


def _rank(group: GroupSpec, member_id: str) -> tuple[bool, str]:
    instance_id = group.members[member_id].instance_id
    return (instance_id is None, member_id if instance_id is None else instance_id)
