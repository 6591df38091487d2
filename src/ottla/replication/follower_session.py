"""Incremental fetch sessions (KIP-227), the follower's side: each request has only the partitions that changed.

1. After a session error or a lost connection the next request is a full one, and requests a new session.
2. After a request without a response `failed` must be called before the next one.
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
    """All partitions, or those that changed."""
    forgotten: list[K]


class FollowerSession(Generic[K, V]):
    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._told: dict[K, V] = {}

    def request(self, wanted: Mapping[K, V]) -> SessionRequest[K, V]:
        """The request after which the leader's session has exactly the partitions `wanted`."""
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
        """The partitions of the leader's session."""
        return self._told

    def replied(self, session_id: int) -> None:
        """The leader responded without an error, with this session id (0: none)."""
        if session_id == NO_SESSION:
            self._id, self._epoch = NO_SESSION, INITIAL_EPOCH
        else:
            self._id, self._epoch = session_id, next_epoch(self._epoch)

    def failed(self) -> None:
        """The state of the leader's session is unknown: the next request is a full one."""
        self._id, self._epoch = NO_SESSION, INITIAL_EPOCH
