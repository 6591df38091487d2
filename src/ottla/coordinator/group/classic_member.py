"""One member of a classic group."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.coordinator.shard import Token

Protocols = tuple[tuple[str, bytes], ...]
"""(name, subscription) in the member's order of preference."""


@dataclass(slots=True, eq=False)
class ClassicMember:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    join_token: Token | None = None
    """The pending JoinGroup."""
    sync_token: Token | None = None
    """The pending SyncGroup."""
    is_new: bool = False
    """Its first JoinGroup is pending: it does not know its member id yet and cannot send heartbeats."""
    deadline_ms: int = 0
    """The session expires then, unless a heartbeat comes."""
    timer_ms: int = 0
    """When the session timer fires and compares the deadline. 0: no timer is set."""

    def extend_session(self, now_ms: int) -> None:
        """A heartbeat came. It is not the member's own while its first JoinGroup is pending."""
        if not self.is_new:
            self.deadline_ms = now_ms + self.session_timeout_ms

    def subscription(self, protocol: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""
