"""Server-side assignors of the new group protocol: who of a group's members reads which partition.

An assignor is a function from a `GroupSpec` to the partitions of each member. It sees what the members subscribe to and what was
intended for them so far; it knows nothing of epochs, records or who has given up what: that is the reconciliation's business.

`range_` gives each member a run of neighbouring partitions of each topic; `uniform` balances the number of partitions over all
topics and moves as few as it can. All are deterministic: members are taken in the order of their ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from ottla.coordinator.group.assignors import range_, uniform
from ottla.coordinator.group.assignors.spec import Assignment, GroupSpec, MemberSpec

__all__ = ["ASSIGNORS", "Assignment", "GroupSpec", "MemberSpec", "enabled"]

ASSIGNORS: Final[dict[str, Callable[[GroupSpec], dict[str, Assignment]]]] = {
    "uniform": uniform.assign,
    "range": range_.assign,
}
"""By the name in `group.consumer.assignors` and in requests."""

_CLASS_NAMES: Final = {
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}
"""Kafka's class names of the assignors."""


def enabled(configured: Iterable[str]) -> list[str]:
    """The supported ones of `group.consumer.assignors`, the default first; never empty."""
    names = [_CLASS_NAMES.get(name, name) for name in configured]
    return [name for name in dict.fromkeys(names) if name in ASSIGNORS] or ["uniform"]
