"""The contract between a coordinator's state and its host.

A shard is the state of one partition of an internal topic. The host calls it with an event and the current time. The shard
returns a `Decision`: records to append, replies to send, timers to set. It performs nothing itself.

1. Durable state is changed by `replay` and `replay_message` only, with records that are in the log. A shard that is loaded from
   the log therefore equals the one that wrote it, without the soft state.
2. Soft state (pending requests, deadlines) may change in the request methods. It is lost with the shard.
3. Each request's token is in exactly one reply, of its own Decision or of a later one. Until then the request is pending.
4. The host appends the records of a Decision as one batch, replays them at once, and sends the replies when the batch is
   committed. A Decision without records waits until what is in the log is committed.
5. If the append fails, the host discards the shard, fails all pending requests and loads the shard again. If the Decision is
   `pure`, only its own replies fail.
6. No clock and no randomness: the time and new ids are arguments. Durations are measured by `Now.ms`, which is monotonic: setting
   the clock forward ends no sessions. `Now.wall_ms` is for timestamps in records. Setting a timer key again replaces its due
   time. A shard ignores timers that no longer matter.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

from ottla.types import NO_PRODUCER_ID, ProducerIdAndEpoch

Token = Hashable
"""Identifies one pending request. Created by the host, opaque to the shard."""
TimerKey = tuple[str, ...]
"""Owner, purpose, group and member: ("classic", "session", group id, member id)."""


# The `__init__` of these classes is written by hand: the one of `dataclass` would not be compiled.


@dataclass(init=False)
class Now:
    ms: int
    """Monotonic."""
    wall_ms: int

    def __init__(self, ms: int, wall_ms: int) -> None:
        self.ms = ms
        self.wall_ms = wall_ms


@dataclass(init=False)
class CoordinatorRecord:
    """One record for the log, in Kafka's format."""

    key: bytes
    value: bytes | None
    """None: a tombstone."""
    message: Any = field(default=None, compare=False)
    """The decoded record, for `replay_message`: saves decoding key and value again."""

    def __init__(self, key: bytes, value: bytes | None, message: object = None) -> None:
        self.key = key
        self.value = value
        self.message = message

    @property
    def size_bytes(self) -> int:
        return len(self.key) + (0 if self.value is None else len(self.value))


@dataclass
class SetTimer:
    key: TimerKey
    due_ms: int
    """By `Now.ms`."""


@dataclass
class CancelTimer:
    key: TimerKey


@dataclass(init=False)
class Decision:
    """What the host has to do. Mutable, so that the steps of one event can add to it."""

    records: list[CoordinatorRecord]
    replies: list[tuple[Token, Any]]
    timers: list[SetTimer | CancelTimer]
    effects: list[Any]
    """Performed by the host after the replies, once the records are committed. Their type depends on the kind of shard."""
    producer: ProducerIdAndEpoch | None
    """The records are part of this producer's open transaction."""
    pure: bool
    """No soft state was changed: if the append fails, the shard is still valid."""
    message: Any
    """All records together in decoded form: `replay_message` is called once with it instead of once per record."""

    def __init__(
        self,
        records: list[CoordinatorRecord] | None = None,
        replies: list[tuple[Token, Any]] | None = None,
        timers: list[SetTimer | CancelTimer] | None = None,
        effects: list[Any] | None = None,
        producer: ProducerIdAndEpoch | None = None,
        pure: bool = False,
        message: object = None,
    ) -> None:
        self.records = records if records is not None else []
        self.replies = replies if replies is not None else []
        self.timers = timers if timers is not None else []
        self.effects = effects if effects is not None else []
        self.producer = producer
        self.pure = pure
        self.message = message

    def reply(self, token: Token, response: object) -> Decision:
        self.replies.append((token, response))
        return self

    def set_timer(self, key: TimerKey, due_ms: int) -> None:
        self.timers.append(SetTimer(key, due_ms))

    def cancel_timer(self, key: TimerKey) -> None:
        self.timers.append(CancelTimer(key))

    def add(self, other: Decision) -> Decision:
        self.records += other.records
        self.replies += other.replies
        self.timers += other.timers
        self.effects += other.effects
        return self


def replied(token: Token, response: object) -> Decision:
    """The Decision of a request that writes no records."""
    return Decision(None, [(token, response)])


class Shard(Protocol):
    def replay(self, key: bytes, value: bytes | None, producer_id: int = NO_PRODUCER_ID) -> None:
        """Apply one record of the log, while loading or just appended. MalformedInput if it cannot be decoded.

        With a producer id it is part of a transaction that is still open.
        """
        ...

    def replay_message(self, message: object, producer_id: int = NO_PRODUCER_ID) -> None:
        """As `replay`, with the decoded form of records that this shard has written. The result must be the same."""
        ...

    def replay_end_transaction_marker(self, producer_id: int, *, commit: bool) -> None:
        """Apply the marker that ends the producer's transaction in this partition."""
        ...

    def on_loaded(self, now: Now) -> Decision:
        """The log is replayed: this broker coordinates from now on."""
        ...

    def on_timer(self, key: TimerKey, now: Now) -> Decision: ...


def string_hash(text: str) -> int:
    """String.hashCode, as an unsigned number of 32 bits."""
    units = text.encode("utf-16-be", "surrogatepass")
    code = 0
    for at in range(0, len(units), 2):
        code = (31 * code + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return code


@lru_cache(maxsize=16_384)
def positive_hash(text: str) -> int:
    """Kafka's Utils.abs of the hash: the absolute value, and 0 for the smallest int."""
    code = string_hash(text)
    signed = code - (1 << 32) if code & 0x80000000 else code
    return 0 if signed == -(1 << 31) else abs(signed)
