"""The cluster as one user reaches it: the connections of that user, what they read last, what pipelines have published.

The console has one, and each user of the cluster who is logged in has one too: brokers then decide by the ACLs of the user what
that user sees.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from ottla.cli.connection import Connection, split_servers
from ottla.client.brokers import Brokers
from ottla.console.published import Published
from ottla.console.watch import Watch
from ottla.exporter.cluster_reader import ClusterReader
from ottla.metrics import Counters
from ottla.runtime.network import RealNetwork

_ASK_TIMEOUT_S: Final = 30.0


class Cluster:
    def __init__(self, connection: Connection, *, always: bool = True) -> None:
        """Connects to nothing yet. Not `always`: it is read only for some minutes after somebody looked."""
        self.connection = connection
        self.brokers = Brokers(
            RealNetwork(Counters()),
            split_servers(connection.bootstrap_servers),
            connection.security,
            client_id="ottla-console",
            timeout_s=_ASK_TIMEOUT_S,
        )
        self.watch = Watch(self.brokers, ClusterReader(self.brokers, time.time), always=always)
        self.published = Published(connection)
        self._watching: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to read, if it has not begun."""
        if self._watching is None:
            self._watching = asyncio.get_running_loop().create_task(self.watch.run())

    def close(self) -> None:
        """Stop reading, and close the streams of all pages."""
        self.watch.end()
        if self._watching is not None:
            self._watching.cancel()
        self.brokers.close()
        self.published.close()
