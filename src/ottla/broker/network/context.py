"""What a handler knows besides the request itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.broker.app import Broker
    from ottla.broker.network.connection import Connection


@dataclass(slots=True)
class RequestContext:
    """One request's circumstances.

    Memoryviews in a request are valid only until `handle` returns (for a coroutine: not at all). What is needed later is copied.
    """

    broker: Broker
    version: int
    api_key: int
    client_id: str | None
    listener_name: str
    client_host: str
    connection: Connection


class CloseConnection(Exception):
    """A handler's last word where the protocol leaves no other: an error of a request that gets no reply."""
