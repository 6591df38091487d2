"""Refuses changes of metadata while the store of a cluster does not answer.

Without it a change would wait for the store, longer than its client waits for the response, and then be carried out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from ottla.errors import ErrorCode, KafkaError
from ottla.ports import Clock, MetadataStore, SessionEvent

GRACE_S: Final = 2.0
"""A store that fails over is back within this time: changes wait for it."""
CHANGES: Final = frozenset(
    {
        "create_topics",
        "delete_topics",
        "create_partitions",
        "alter_configs",
        "incremental_alter_configs",
        "alter_client_quotas",
        "alter_user_scram_credentials",
        "create_acls",
        "delete_acls",
        "create_delegation_token",
        "renew_delegation_token",
        "expire_delegation_token",
        "alter_partition_reassignments",
        "elect_leaders",
    }
)
"""The APIs that write to the store for a client."""
OF_THE_CONTROLLER: Final = frozenset(
    {
        "create_topics",
        "delete_topics",
        "create_partitions",
        "alter_user_scram_credentials",
        "alter_partition_reassignments",
        "elect_leaders",
    }
)
"""Those that other brokers answer with NOT_CONTROLLER, also while the store is away: the client then asks the controller."""

Handle = Callable[[Any, Any], Any]


class StoreOutage:
    def __init__(self, store: MetadataStore, clock: Clock, is_controller: Callable[[], bool]) -> None:
        """`is_controller`: whether this broker is the controller, as far as it knows."""
        self._clock = clock
        self._is_controller = is_controller
        self._away_since: float | None = None
        store.on_session(self._session_changed)

    def guarded(self, api_name: str, handle: Handle) -> Handle:
        """The handler of an API, behind the check if it changes metadata."""
        if api_name not in CHANGES:
            return handle
        return partial(self._handle, handle, api_name in OF_THE_CONTROLLER)

    def _handle(self, handle: Handle, of_the_controller: bool, request: Any, context: Any) -> Any:
        away_s = self._clock.monotonic() - self._away_since if self._away_since is not None else 0.0
        if away_s > GRACE_S and (self._is_controller() or not of_the_controller):
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, f"ZooKeeper has not answered this broker for {away_s:.0f} s: nothing was changed"
            )
        return handle(request, context)

    def _session_changed(self, event: SessionEvent) -> None:
        if event is SessionEvent.CONNECTED:
            self._away_since = None
        elif self._away_since is None:
            self._away_since = self._clock.monotonic()
