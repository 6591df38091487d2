"""The contract between a coordinator's state and its host.

A shard is the state of one partition of an internal topic. The host calls it with an event and the present time; the shard
answers with a `Decision`: records to append, replies to release, timers to set. It performs nothing itself.

1. What must survive is changed by `replay` only, with records as they stand in the log, or with what a record that was just
   appended says. So a shard that was loaded from the log equals one that made the log, up to its soft state.
2. Soft state (who waits, who has not shown up yet, deadlines) may change in the handlers. It is lost with the shard.
3. A request's token is named in exactly one reply, of its own Decision or of a later one. Until then its request is parked here.
4. The host appends the records of one Decision as one batch, replays them in order at once, and releases the replies when the
   batch is committed; a Decision without records releases its replies at once.
5. If the append fails, the host throws the shard away, answers every parked request with the error, and loads the shard anew;
   unless the Decision is `pure`: then only its own replies become the error, and the shard goes on.
6. No clock and no chance: the time and new ids come in as arguments. What is measured here is measured by `Now.ms`, which no
   setting of the clock moves: an hour set forwards must not end the sessions of all members. `Now.wall_ms` is for what is
   written in records, and what is held against that. A timer that fires names its key; a key set again replaces
   the former due time. A shard may ignore a timer that means nothing any more.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from ottla.types import NO_PRODUCER_ID, ProducerIdAndEpoch

Token = Hashable
"""Names one waiting request. The host makes it; a shard only keeps it and hands it back."""

TimerKey = tuple[str, ...]
"""Who set the timer, what for, and of which group and member: ("classic", "session", group id, member id)."""


class Now(NamedTuple):
    ms: int
    """Monotonic, from a beginning of its own."""
    wall_ms: int


@dataclass(slots=True)
class CoordinatorRecord:
    """One record for the log, in Kafka's own format."""

    key: bytes
    value: bytes | None
    """None is a tombstone: the key is forgotten."""
    message: object = field(default=None, compare=False)
    """What key and value say, if the shard that made them would rather not read it out of them again (`replay_message`)."""

    @property
    def size_bytes(self) -> int:
        return len(self.key) + (0 if self.value is None else len(self.value))


@dataclass(slots=True)
class SetTimer:
    key: TimerKey
    due_ms: int
    """By `Now.ms`."""


@dataclass(slots=True)
class CancelTimer:
    key: TimerKey


@dataclass(slots=True)
class Decision:
    """What a shard wants done. Mutable, so that steps of one event can add to it in turn."""

    records: list[CoordinatorRecord] = field(default_factory=list)
    replies: list[tuple[Token, object]] = field(default_factory=list)
    timers: list[SetTimer | CancelTimer] = field(default_factory=list)
    effects: list[object] = field(default_factory=list)
    """What the host performs once the records are committed, after the replies. A kind of shard and its host know what."""
    producer: ProducerIdAndEpoch | None = None
    """The records are part of this producer's open transaction; what becomes of them is decided by its marker."""
    pure: bool = False
    """No soft state was touched, only the records would change anything: if they cannot be appended, all is as before."""
    message: object = None
    """What all the records say together: `replay_message` gets it once, instead of what each of them says."""

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
    """The Decision of a request that changes nothing durable and is answered at once."""
    return Decision([], [(token, response)], [])


class Shard(Protocol):
    def replay(self, key: bytes, value: bytes | None, producer_id: int = NO_PRODUCER_ID) -> None:
        """Take in one record, from the log at loading or just appended. MalformedInput if it cannot be one.

        With a producer id it is part of a transaction whose end the log will tell.
        """
        ...

    def replay_message(self, message: object, producer_id: int = NO_PRODUCER_ID) -> None:
        """As `replay`, of a record this shard has made and given a message. The outcome must be the same."""
        ...

    def replay_end_transaction_marker(self, producer_id: int, *, commit: bool) -> None:
        """Take in the marker that ends the producer's transaction in this partition."""
        ...

    def on_loaded(self, now: Now) -> Decision:
        """The log has been replayed; this broker coordinates from now on."""
        ...

    def on_timer(self, key: TimerKey, now: Now) -> Decision: ...
