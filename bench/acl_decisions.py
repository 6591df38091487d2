"""The cost of one ACL decision, and of one that a session has made before, with 10,000 ACLs.

    .venv/bin/python -m bench.acl_decisions

Each row has its ACLs in another shape, to show that none of them is slow: one principal with all of them, a principal for each,
all of them on one topic, prefixes beside and inside each other. Every decision is for another topic, so that no cache helps.
"""

from __future__ import annotations

import time

import ottla.security.acl_index as compiled_or_not
from ottla.security.acl import ALLOW, EVERYONE, LITERAL, PREFIXED, READ, TOPIC, AclEntry, ResourcePattern
from ottla.security.authorizer import Authorizer

COUNT = 10_000
HOST = "10.0.0.1"
ROUNDS = 20

Rule = tuple[ResourcePattern, str]


def _shapes() -> dict[str, list[Rule]]:
    numbers = range(COUNT)
    return {
        "literal, one principal": [(ResourcePattern(TOPIC, f"topic-{n}", LITERAL), "User:u0") for n in numbers],
        "literal, 10,000 principals": [(ResourcePattern(TOPIC, f"topic-{n}", LITERAL), f"User:u{n}") for n in numbers],
        "literal, one topic": [(ResourcePattern(TOPIC, "topic-0", LITERAL), f"User:u{n}") for n in numbers],
        "prefixed, one principal": [(ResourcePattern(TOPIC, f"topic-{n}", PREFIXED), "User:u0") for n in numbers],
        "prefixed, everyone": [(ResourcePattern(TOPIC, f"topic-{n}", PREFIXED), EVERYONE) for n in numbers],
        "prefixed, nested 100 deep": [
            (ResourcePattern(TOPIC, f"{n // 100:02}" + "x" * (n % 100 + 1), PREFIXED), "User:u0") for n in numbers
        ],
    }


def _measure(rules: list[Rule]) -> tuple[float, float]:
    """Nanoseconds for a decision, and for a repeated one."""
    authorizer = Authorizer(["User:admin"])
    acls: dict[ResourcePattern, frozenset[AclEntry]] = {}
    for pattern, principal in rules:
        acls[pattern] = acls.get(pattern, frozenset()) | {AclEntry(principal, "*", READ, ALLOW)}
    authorizer.replace_all(acls)
    topics = [pattern.name for pattern, _ in rules[:1000]]
    index = authorizer.index
    index.operations("User:u0", HOST, TOPIC, topics[0])
    best = best_again = float("inf")
    for _ in range(ROUNDS):
        began = time.perf_counter_ns()
        for topic in topics:
            index.operations("User:u0", HOST, TOPIC, topic)
        best = min(best, (time.perf_counter_ns() - began) / len(topics))
        permissions = authorizer.permissions("User:u0", HOST)
        authorizer.refresh(permissions)
        authorizer.operations(permissions, TOPIC, topics[0])
        began = time.perf_counter_ns()
        for _ in topics:
            authorizer.operations(permissions, TOPIC, topics[0])
        best_again = min(best_again, (time.perf_counter_ns() - began) / len(topics))
    return best, best_again


def main() -> None:
    kind = "interpreted" if compiled_or_not.__file__.endswith(".py") else "compiled"
    print(f"{COUNT:,} ACLs, {kind}\n")
    print(f"{'ACLs':28} {'decision ns':>12} {'repeated ns':>12}")
    for name, rules in _shapes().items():
        decision, again = _measure(rules)
        print(f"{name:28} {decision:12.0f} {again:12.0f}")


if __name__ == "__main__":
    main()
