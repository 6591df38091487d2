"""The server-side assignors beside Kafka's own classes: the same answer to the same group.

Where Kafka itself leaves it to the order of a hash table which partition moves (the uniform assignor with several topics that all
subscribe to), it is the number of partitions for each member and the number of moves that are compared.
"""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ottla.coordinator.group.assignors import ASSIGNORS, GroupSpec, MemberSpec
from tests.kit.peers import KAFKA_4, class_path, program

pytestmark = pytest.mark.java

CASES = 400


def groups() -> list[dict[str, Any]]:
    chance = random.Random(848)
    made = []
    for number in range(CASES):
        # Ids on both sides of the sign bit: Java compares them as signed numbers.
        ids = [str(topic) for topic in chance.sample(range(-4, 5), chance.randint(1, 5))]
        topics = {topic: chance.randint(1, 12) for topic in ids}
        free = [(topic, p) for topic, count in topics.items() for p in range(count)]
        chance.shuffle(free)
        homogeneous = number % 2 == 0
        members: dict[str, Any] = {}
        for member in range(chance.randint(1, 7)):
            assigned: dict[str, list[int]] = {}
            for topic, partition in [free.pop() for _ in range(min(len(free), chance.choice([0, 0, 1, 4, 12])))]:
                assigned.setdefault(topic, []).append(partition)
            members[f"m{chance.randint(0, 99)}-{member}"] = {
                "instance": chance.choice([None, f"i{chance.randint(0, 99)}-{member}"]),
                "topics": ids if homogeneous else chance.sample(ids, chance.randint(0, len(ids))),
                "assigned": assigned,
            }
        made.append(
            {
                "assignor": ("uniform", "range")[number // 2 % 2],
                "homogeneous": homogeneous,
                "topics": topics,
                "members": members,
            }
        )
    return made


def ours(group: dict[str, Any]) -> dict[str, dict[str, list[int]]]:
    def topic_id(number: str) -> bytes:
        return bytes(8) + int(number).to_bytes(8, "big", signed=True)

    spec = GroupSpec(
        {
            name: MemberSpec(
                frozenset(map(topic_id, member["topics"])),
                {topic_id(topic): frozenset(partitions) for topic, partitions in member["assigned"].items()},
                member["instance"],
            )
            for name, member in group["members"].items()
        },
        {topic_id(topic): count for topic, count in group["topics"].items()},
        group["homogeneous"],
    )
    return {
        name: {str(int.from_bytes(topic[8:], "big", signed=True)): sorted(partitions) for topic, partitions in parts.items()}
        for name, parts in ASSIGNORS[group["assignor"]](spec).items()
    }


def shape(group: dict[str, Any], result: dict[str, dict[str, list[int]]]) -> Any:
    """How many each member has, and how many of them it had before."""
    counted = {}
    for name, member in group["members"].items():
        has = {(topic, p) for topic, partitions in result.get(name, {}).items() for p in partitions}
        had = {(topic, p) for topic, partitions in member["assigned"].items() for p in partitions}
        counted[name] = len(has), len(has & had)
    return counted


def test_the_same_assignments_as_kafkas(tmp_path: Path) -> None:
    cases = groups()
    source = Path(__file__).with_name("AssignorOracle.java")
    javac = program("javac", "install a JDK (Debian: `apt-get install openjdk-17-jdk-headless`)")
    subprocess.run([javac, "-cp", class_path(KAFKA_4), "-d", str(tmp_path), str(source)], check=True, timeout=120)
    done = subprocess.run(
        [program("java", "install a Java 17 runtime"), "-cp", f"{tmp_path}:{class_path(KAFKA_4)}", "AssignorOracle"],
        input="\n".join(json.dumps(case) for case in cases) + "\n",
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    theirs = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(theirs) == len(cases)
    for case, said in zip(cases, theirs, strict=True):
        mine = ours(case)
        if case["assignor"] == "uniform" and case["homogeneous"] and len(case["topics"]) > 1:
            assert shape(case, mine) == shape(case, said), case
        else:
            assert mine == {name: said.get(name, {}) for name in case["members"]}, case
