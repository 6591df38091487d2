"""The parts of a console, and how long they live."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from ottla.cli.connection import Connection
from ottla.cli.console.settings import ConsoleSettings
from ottla.cli.profile.chosen import Chosen, in_use
from ottla.console.access import Access
from ottla.console.audit import Audit
from ottla.console.cluster import Cluster
from ottla.console.jobs import Jobs
from ottla.console.measuring import Counts
from ottla.console.records.masks import Masks
from ottla.console.records.stream import Streams
from ottla.console.records.writing import Writers
from ottla.console.registry import Registry
from ottla.console.runs import Runs


class Console:
    def __init__(self, settings: ConsoleSettings) -> None:
        """Failure if the client properties are invalid. Connects to nothing yet."""
        self.settings = settings
        # The settings have the profile resolved; the environment of this process must not choose another one.
        with in_use(Chosen(None, servers_named=True)):
            connection = Connection(settings.bootstrap_servers, None, dict(settings.properties))
        self.cluster = Cluster(connection)
        """As the console's own user reaches it."""
        self.access = Access(settings, self.cluster)
        self.audit = Audit(connection, settings.audit_topic)
        self.masks = Masks(settings.masks)
        self.registry = Registry(settings.registry)
        self.streams = Streams()
        self.counts = Counts()
        self.writers = Writers()
        self.runs = Runs(settings.pipelines, connection.bootstrap_servers)
        self.jobs = Jobs()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Reads the cluster meanwhile."""
        self.cluster.start()
        try:
            yield
        finally:
            self.access.close()
            self.cluster.close()
