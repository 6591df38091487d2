"""The proposed assignment of replicas, and the JSON of kafka-reassign-partitions. Pure: no requests, no output.

A plan moves as few replicas as possible. Its rules, strongest first:
1. The replicas of a partition are on different brokers, among those given.
2. If all brokers have a rack, no rack has two replicas of a partition while another has none.
3. The number of replicas of two brokers differs by at most one, as far as 1 and 2 allow.
4. The number of preferred leaders of two brokers differs by at most one, as far as the replicas allow.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from ottla.cli.failure import EXIT_USAGE, Failure
from ottla.cli.output import counted
from ottla.cli.positions import TopicIndex

Assignment = dict[TopicIndex, list[int]]


def plan(
    current: Mapping[TopicIndex, list[int]], brokers: Mapping[int, str | None], replication_factor: int | None = None
) -> Assignment:
    """The new replicas of each partition, the preferred leader first. `brokers` holds the rack of each broker id."""
    racks = brokers if all(rack is not None for rack in brokers.values()) else dict.fromkeys(brokers)
    load = dict.fromkeys(sorted(brokers), 0)
    target: Assignment = {}
    for key, replicas in current.items():
        wanted = replication_factor or len(replicas)
        if wanted > len(brokers):
            raise Failure(
                f"{key[0]}-{key[1]} needs {counted(wanted, 'broker')} for its replicas, but only {len(brokers)} are given",
                "name more brokers, or a smaller --replication-factor",
            )
        kept: list[int] = []
        # Two passes: a second replica in a rack may stay if every rack has one.
        for broker in (*replicas, *replicas):
            if broker in brokers and broker not in kept and len(kept) < wanted and _fits(broker, kept, racks):
                kept.append(broker)
        target[key] = sorted(kept, key=replicas.index)
        for broker in kept:
            load[broker] += 1
    for key, kept in target.items():
        wanted = replication_factor or len(current[key])
        while len(kept) < wanted:
            candidates = [broker for broker in load if broker not in kept and _fits(broker, kept, racks)]
            broker = min(candidates, key=lambda broker: (load[broker], broker not in current[key], broker))
            kept.append(broker)
            load[broker] += 1
    _level(target, load, racks)
    _lead(target)
    return target


def _fits(broker: int, others: Collection[int], racks: Mapping[int, str | None]) -> bool:
    """Whether rule 2 allows a replica on this broker."""
    if racks[broker] is None:
        return True
    used = {racks[other] for other in others}
    return racks[broker] not in used or len(used) >= len(set(racks.values()))


def _level(target: Assignment, load: dict[int, int], racks: Mapping[int, str | None]) -> None:
    """Move replicas from the fullest to the emptiest brokers, one at a time, until rule 3 holds."""

    def step() -> bool:
        for source in sorted(load, key=lambda broker: -load[broker]):
            for goal in sorted(load, key=lambda broker: load[broker]):
                if load[source] - load[goal] < 2:
                    break
                for replicas in target.values():
                    others = [broker for broker in replicas if broker != source]
                    if source in replicas and goal not in replicas and _fits(goal, others, racks):
                        replicas[replicas.index(source)] = goal
                        load[source] -= 1
                        load[goal] += 1
                        return True
        return False

    while step():
        pass


def _lead(target: Assignment) -> None:
    """Change preferred leaders until rule 4 holds, also through chains of changes."""
    first: dict[int, int] = {broker: 0 for replicas in target.values() for broker in replicas}
    for replicas in target.values():
        first[replicas[0]] += 1

    def step() -> bool:
        for source in sorted(first, key=lambda broker: -first[broker]):
            # Breadth-first search for a broker that leads at least two fewer, over "could lead instead".
            came: dict[int, tuple[int, list[int]]] = {}
            queue = [source]
            seen = {source}
            for broker in queue:
                if first[source] - first[broker] >= 2:
                    while broker != source:
                        before, replicas = came[broker]
                        replicas.remove(broker)
                        replicas.insert(0, broker)
                        first[broker] += 1
                        first[before] -= 1
                        broker = before
                    return True
                for replicas in target.values():
                    if replicas[0] == broker:
                        for other in replicas[1:]:
                            if other not in seen:
                                seen.add(other)
                                came[other] = (broker, replicas)
                                queue.append(other)
        return False

    while step():
        pass


# Kafka's file


def document_of(assignment: Mapping[TopicIndex, list[int]]) -> dict[str, Any]:
    return {
        "version": 1,
        "partitions": [
            {"topic": topic, "partition": index, "replicas": replicas, "log_dirs": ["any"] * len(replicas)}
            for (topic, index), replicas in assignment.items()
        ],
    }


def parse_document(text: str, source: str) -> Assignment:
    """The assignment in a file. Failure if it is not a reassignment."""

    def wrong(why: str) -> Failure:
        return Failure(f"{source}: {why}", "write one with `ottla reassign plan`", exit_code=EXIT_USAGE)

    try:
        document = json.loads(text)
    except ValueError as error:
        raise wrong(f"not JSON ({error})") from None
    if not isinstance(document, dict) or not isinstance(document.get("partitions"), list):
        raise wrong("not a reassignment: `partitions` is missing")
    if document.get("version", 1) != 1:
        raise wrong(f"version {document['version']!r} is unknown")
    found: Assignment = {}
    for entry in document["partitions"]:
        if not isinstance(entry, dict):
            raise wrong(f"{entry!r} is not a partition")
        topic, index, replicas = entry.get("topic"), entry.get("partition"), entry.get("replicas")
        if not isinstance(topic, str) or not _is_id(index) or not isinstance(replicas, list) or not replicas:
            raise wrong(f"{json.dumps(entry)} needs topic, partition and replicas")
        if not all(_is_id(broker) for broker in replicas) or len(set(replicas)) != len(replicas):
            raise wrong(f"{topic}-{index}: {json.dumps(replicas)} is not a list of different broker ids")
        if any(directory != "any" for directory in entry.get("log_dirs") or []):
            raise wrong(f"{topic}-{index}: use kafka-reassign-partitions to move replicas between data directories (log_dirs)")
        assert isinstance(index, int)
        if (topic, index) in found:
            raise wrong(f"{topic}-{index} is listed twice")
        found[topic, index] = replicas
    if not found:
        raise wrong("it lists no partitions")
    return found


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31
