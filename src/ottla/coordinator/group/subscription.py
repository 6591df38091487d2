"""The topics that members of consumer groups subscribe to, by name or expression, and the metadata hash of these topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from ottla.coordinator.group.group import Topic, Topics

if TYPE_CHECKING:
    from ottla.coordinator.group.consumer_group import ResolvedPattern
    from ottla.coordinator.group.consumer_member import ConsumerMember

NO_TOPICS_HASH: Final = 0
_HASH_BYTES: Final = 8


def topics_of(member: ConsumerMember, patterns: Mapping[str, ResolvedPattern]) -> frozenset[str]:
    """The topics that a member names, and those that match its regular expression."""
    if not member.pattern:
        return member.topic_names
    resolved = patterns.get(member.pattern)
    return member.topic_names if resolved is None else member.topic_names | resolved.topics


def topics_of_all(members: Iterable[ConsumerMember], patterns: Mapping[str, ResolvedPattern]) -> frozenset[str]:
    names: set[str] = set()
    for member in members:
        names |= topics_of(member, patterns)
    return frozenset(names)


def ids_of(names: Iterable[str], topics: Topics) -> frozenset[bytes]:
    """The ids of the topics that exist."""
    known = topics.topics
    return frozenset(known[name].topic_id for name in names if name in known)


def all_alike(members: Iterable[ConsumerMember]) -> bool:
    """Whether all members have the same subscription."""
    kinds = {(member.topic_names, member.pattern) for member in members}
    return len(kinds) <= 1 and not any(names and pattern for names, pattern in kinds)


class MetadataHashes:
    """A hash of the topics of a group: ids, names and partition counts.

    If it changes, the group needs a new assignment. It is stored with the group, so that a new coordinator notices changes. It is
    not Kafka's hash (XXH3, with racks, which no assignor uses): a Kafka broker that takes over finds it different and computes
    one assignment that moves nothing.
    """

    __slots__ = ("_of_topic",)

    def __init__(self) -> None:
        self._of_topic: dict[str, tuple[Topic, bytes]] = {}

    def of(self, names: Iterable[str], topics: Topics) -> int:
        digest = blake2b(digest_size=_HASH_BYTES)
        known = topics.topics
        any_known = False
        for name in sorted(names):
            topic = known.get(name)
            if topic is None:
                self._of_topic.pop(name, None)
                continue
            any_known = True
            digest.update(self._topic(name, topic))
        return int.from_bytes(digest.digest(), "big", signed=True) if any_known else NO_TOPICS_HASH

    def _topic(self, name: str, topic: Topic) -> bytes:
        cached = self._of_topic.get(name)
        if cached is not None and cached[0] is topic:
            return cached[1]
        described = b"%b%d:%b" % (topic.topic_id, len(topic.partitions), name.encode())
        self._of_topic[name] = topic, blake2b(described, digest_size=_HASH_BYTES).digest()
        return self._of_topic[name][1]
