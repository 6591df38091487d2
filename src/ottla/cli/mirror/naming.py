"""Which topics are mirrored, and under which names."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from dataclasses import dataclass

GROUP_PREFIX = "ottla-mirror."
"""Progress groups of mirrors begin with it."""


@dataclass(frozen=True, slots=True)
class Naming:
    patterns: tuple[str, ...]
    excluded: tuple[str, ...] = ()
    prefix: str = ""

    def sources(self, topics: Iterable[str]) -> list[str]:
        """The topics to mirror. Internal ones are never mirrored."""
        return [
            topic
            for topic in sorted(topics)
            if not topic.startswith("__") and _matches(topic, self.patterns) and not _matches(topic, self.excluded)
        ]

    def target(self, topic: str) -> str:
        return self.prefix + topic


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def matching_groups(groups: Iterable[str], patterns: tuple[str, ...]) -> list[str]:
    """The groups whose offsets are translated. Groups of mirrors themselves never are."""
    return [group for group in sorted(groups) if not group.startswith(GROUP_PREFIX) and _matches(group, patterns)]
