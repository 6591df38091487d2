"""The follower's side of incremental fetch sessions (KIP-227): to name in each request only what is new.

Owns what the leader was told last. Never sends.

1. After any doubt (an error of the session, a lost connection) the next request is full, and asks for a new session.
2. A request that got no reply counts as unknown: `failed` must be called before the next one is made.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from ottla.replication.fetch_session import INITIAL_EPOCH, NO_SESSION, next_epoch

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class SessionRequest(Generic[K, V]):
    session_id: int
    epoch: int
    wanted: Mapping[K, V]
    """To be named: all, or what changed."""
    forgotten: list[K]


class FollowerSession(Generic[K, V]):
    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._told: dict[K, V] = {}

    def request(self, wanted: Mapping[K, V]) -> SessionRequest[K, V]:
        """What to send so that the leader reads `wanted`."""
        told = self._told
        if self._id == NO_SESSION:
            self._told = dict(wanted)
            return SessionRequest(NO_SESSION, self._epoch, wanted, [])
        changed = {key: value for key, value in wanted.items() if told.get(key) != value}
        forgotten = [key for key in told if key not in wanted]
        told.update(changed)
        for key in forgotten:
            del told[key]
        return SessionRequest(self._id, self._epoch, changed, forgotten)

    @property
    def told(self) -> Mapping[K, V]:
        """What the leader reads: all that a reply may speak of."""
        return self._told

    def replied(self, session_id: int) -> None:
        """The leader answered without an error, and names the session it keeps (0: none)."""
        if session_id == NO_SESSION:
            self._id, self._epoch = NO_SESSION, INITIAL_EPOCH
        else:
            self._id, self._epoch = session_id, next_epoch(self._epoch)

    def failed(self) -> None:
        """Nobody knows what the leader knows."""
        self._id, self._epoch = NO_SESSION, INITIAL_EPOCH
