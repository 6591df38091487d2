"""The client at the other end of a connection, as log lines name it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Peer:
    host: str
    port: int
    listener_name: str
    client_id: str | None
    """Of its last request; None: it sent none that could be read."""

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        client_id = f" (client id {self.client_id})" if self.client_id else ""
        return f"{self.address}{client_id} on {self.listener_name}"

    def log_fields(self) -> dict[str, object]:
        fields: dict[str, object] = {"client": self.address, "listener": self.listener_name}
        return {**fields, "client_id": self.client_id} if self.client_id else fields
