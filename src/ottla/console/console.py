"""The parts of a console, and how long they live."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

from ottla.cli.connection import Connection, split_servers
from ottla.cli.console.settings import ConsoleSettings
from ottla.cli.profile.chosen import Chosen, in_use
from ottla.client.brokers import Brokers
from ottla.console.access import Access
from ottla.console.audit import Audit
from ottla.console.jobs import Jobs
from ottla.console.published import Published
from ottla.console.records.masks import Masks
from ottla.console.records.stream import Streams
from ottla.console.records.writing import Writers
from ottla.console.registry import Registry
from ottla.console.watch import Watch
from ottla.exporter.cluster_reader import ClusterReader
from ottla.metrics import Counters
from ottla.runtime.network import RealNetwork

_ASK_TIMEOUT_S = 30.0


class Console:
    def __init__(self, settings: ConsoleSettings) -> None:
        """Failure if the client properties are invalid. Connects to nothing yet."""
        self.settings = settings
        # The settings have the profile resolved; the environment of this process must not choose another one.
        with in_use(Chosen(None, servers_named=True)):
            self.connection = Connection(settings.bootstrap_servers, None, dict(settings.properties))
        self.brokers = Brokers(
            RealNetwork(Counters()),
            split_servers(self.connection.bootstrap_servers),
            self.connection.security,
            client_id="ottla-console",
            timeout_s=_ASK_TIMEOUT_S,
        )
        self.watch = Watch(self.brokers, ClusterReader(self.brokers, time.time))
        self.access = Access(settings, self.connection)
        self.audit = Audit(self.connection, settings.audit_topic)
        self.masks = Masks(settings.masks)
        self.registry = Registry(settings.registry)
        self.streams = Streams()
        self.writers = Writers()
        self.jobs = Jobs()
        self.published = Published(self.connection)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Watches the cluster meanwhile."""
        watching = asyncio.get_running_loop().create_task(self.watch.run())
        try:
            yield
        finally:
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching
            self.brokers.close()
