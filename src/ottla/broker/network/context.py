"""What a handler knows besides the request itself."""

from __future__ import annotations

from collections.abc import Container

from ottla.broker.network.metering import Meter
from ottla.security.authorizer import Permissions
from ottla.security.principal import Session


class RequestContext:
    """The client and the API of a request. Consecutive requests with the same header share one.

    Memoryviews in a request are valid only until `handle` returns (for a coroutine: not at all). What is needed later is copied.
    """

    def __init__(
        self,
        version: int,
        api_key: int,
        client_id: str | None,
        listener_name: str,
        client_host: str,
        connection_number: int,
        session: Session,
    ) -> None:
        self.version = version
        self.api_key = api_key
        self.client_id = client_id
        self.listener_name = listener_name
        self.client_host = client_host
        self.connection_number = connection_number
        self.session = session
        self.meter: Meter | None = None
        """None: no quota applies to this API of this client."""
        self.permissions: Permissions | None = None
        """With an authorizer: what the session may do, after its first request."""
        self.denied_topics: Container[str] | None = None
        """Topics that the Fetch request under way may not read. Their partitions stay in its session and fail one by one."""


class CloseConnection(Exception):
    """Raised by a handler: the request failed, and its connection is closed without a response."""
