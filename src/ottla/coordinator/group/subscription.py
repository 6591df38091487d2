"""The topics that members of consumer groups subscribe to, by name or regular expression, and the metadata hash of these topics.

A client's expression is matched against all topic names on the event loop, so matching must take linear time. Kafka uses RE2/J.
RE2 has the same syntax and the same bound, which Python's `re` lacks. `re2` is imported with the first expression.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from ottla.coordinator.group.group import Topic, Topics
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.coordinator.group.consumer_group import ResolvedPattern
    from ottla.coordinator.group.consumer_member import ConsumerMember

NO_TOPICS_HASH: Final = 0
_HASH_BYTES: Final = 8


PATTERN_CHARS_MAX: Final = 4096
_PROGRAM_BYTES_MAX: Final = 1 << 20


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


def check_pattern(pattern: str) -> None:
    """KafkaError if the expression is invalid."""
    _compiled(pattern)


def matching_names(pattern: str, names: Iterable[str]) -> frozenset[str]:
    """The names that the expression matches entirely. An invalid one, which the log may have, matches nothing."""
    try:
        match = _compiled(pattern).fullmatch
    except KafkaError:
        return frozenset()
    return frozenset(name for name in names if match(name) is not None)


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = _PROGRAM_BYTES_MAX
    if len(pattern) > PATTERN_CHARS_MAX:
        raise _invalid(pattern[:64] + "…", f"{len(pattern)} characters, at most {PATTERN_CHARS_MAX} are allowed")
    try:
        return re2.compile(pattern, options)
    except (re2.error, UnicodeEncodeError) as error:
        reason = error.args[0] if isinstance(error, re2.error) else error
        raise _invalid(pattern, reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)) from None


def _invalid(pattern: str, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        f"{pattern!r} is not a valid RE2 regular expression: {reason}",
    )
