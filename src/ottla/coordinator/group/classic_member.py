"""One member of a classic group."""

from __future__ import annotations

from ottla.coordinator.shard import Token

Protocols = tuple[tuple[str, bytes], ...]
"""(name, subscription) in the member's order of preference."""


class ClassicMember:
    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "deadline_ms",
        "instance_id",
        "is_new",
        "join_token",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_token",
        "timer_ms",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.join_token: Token | None = None
        """The pending JoinGroup."""
        self.sync_token: Token | None = None
        """The pending SyncGroup."""
        self.is_new = False
        """Its first JoinGroup is pending: it does not know its member id yet and cannot send heartbeats."""
        self.deadline_ms = 0
        """The session expires then, unless a heartbeat comes."""
        self.timer_ms = 0
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
