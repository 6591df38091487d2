"""Whether a driver may write: the version it runs must be live, and no upgrade may hold the flow.

A driver asks after InitProducerId, before each batch. The rules are in docs/adr/0010.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping

from ottla.client.blocking import BrokerAway, Client
from ottla.client.offsets import committed_offsets
from ottla.client.options import ClientOptions
from ottla.client.transactions import init_producer_id
from ottla.errors import KafkaError
from ottla.pipelines.definitions import Flow
from ottla.pipelines.failure import Superseded
from ottla.pipelines.marker import Marker, is_replaced, live, marker_in, number_of

logger = logging.getLogger("ottla.pipelines")

_POLL_S = 0.2
_WATCH_S = 5.0
_REACH_TIMEOUT_S = 2.0
"""Of the look: a connection that is lost for a moment is no outage."""
_HOLD_MAX_S = 90.0
"""A driver waits no longer, whatever the clocks of two machines say."""
_SWITCH_TIMEOUT_MS = 60_000


def markers_of(client: Client, group_id: str) -> list[Marker]:
    """All markers in a group, when no transaction holds offsets of it open."""
    committed = committed_offsets(client, group_id, require_stable=True)
    return [each for each in (marker_in(entry.metadata) for entry in committed.values()) if each is not None]


def superseded(flow: Flow, version: str, by: Marker) -> Superseded:
    return Superseded(
        f"flow {flow.name!r}: version {number_of(by.version)} of the pipeline is live; this driver ran version "
        f"{number_of(version)} and ends",
        flow.place,
        hint="nothing is lost: run the code of the live version, or `ottla pipeline rollback`",
    )


class Claim:
    """The right of one driver to write one flow."""

    def __init__(self, flow: Flow, group_id: str, switch_id: str, version: str, closing: threading.Event) -> None:
        self.flow, self.group_id, self.switch_id, self.version, self.closing = flow, group_id, switch_id, version, closing
        self._has_run = False
        """Whether this driver has written the flow: then a hold is meant for it."""

    def markers(self, client: Client) -> list[Marker]:
        """The markers of the group. Superseded if this driver must end. Waits while an upgrade holds the flow."""
        found, last = self._look(client)
        if last is not None and last.hold is not None:
            if self._has_run:
                raise Superseded(
                    f"flow {self.flow.name!r}: the pipeline is being upgraded to version {number_of(last.hold.version)}; this "
                    f"driver ran version {number_of(self.version)} and ends",
                    self.flow.place,
                    hint="nothing is lost: if the upgrade does not finish, run the pipeline again",
                )
            return self._take_over(client, last)
        self._has_run = True
        return found

    def _look(self, client: Client) -> tuple[list[Marker], Marker | None]:
        found = markers_of(client, self.group_id)
        last = live(found)
        if last is not None and is_replaced(self.version, last):
            raise superseded(self.flow, self.version, last)
        return found, last

    def _take_over(self, client: Client, held: Marker) -> list[Marker]:
        """Wait for the upgrade, then make sure that it cannot commit any more."""
        assert held.hold is not None
        logger.warning(
            "Flow %s: an upgrade to version %d holds it; waiting for it to finish", self.flow.name, number_of(held.hold.version)
        )
        until = time.monotonic() + _HOLD_MAX_S
        last: Marker | None = held
        while last is not None and last.hold is not None and time.time() * 1000 < last.hold.until_ms:
            if self.closing.wait(_POLL_S) or time.monotonic() >= until:
                break
            _, last = self._look(client)
        # Completes a commit that is decided, and fences the upgrade otherwise.
        init_producer_id(client, self.switch_id, _SWITCH_TIMEOUT_MS)
        found, _ = self._look(client)
        logger.warning("Flow %s: the upgrade did not finish; version %d goes on", self.flow.name, number_of(self.version))
        return found


class VersionWatch:
    """Checks periodically which version is live and whether a broker answers, in a thread: a driver without new records runs no
    batch that would ask, and flows wait for a broker without a word."""

    def __init__(self, options: ClientOptions, version: str, flows: Mapping[str, Flow], stopping: threading.Event) -> None:
        """`flows` by their groups."""
        self.found: tuple[str, Superseded] | None = None
        """The first flow that another version has, and the error that ends this driver."""
        self.away: str | None = None
        """Why no broker answered the last look; None if one did."""
        self._options, self._version, self._flows, self._stopping = options, version, flows, stopping
        threading.Thread(target=self._run, name="ottla-version-watch", daemon=True).start()

    def _run(self) -> None:
        while not self._stopping.wait(_WATCH_S) and self.found is None:
            try:
                with Client(self._options) as client:
                    client.reach(_REACH_TIMEOUT_S)
                    self.away = None
                    self._look(client)
            except BrokerAway as error:
                self.away = str(error)
            except (KafkaError, OSError) as error:
                logger.debug("The live version is not known: %s", error)

    def _look(self, client: Client) -> None:
        for group_id, flow in self._flows.items():
            last = live(markers_of(client, group_id))
            if last is not None and is_replaced(self._version, last) and self.found is None:
                self.found = flow.name, superseded(flow, self._version, last)
