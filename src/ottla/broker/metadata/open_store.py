"""Opens the metadata store: ZooKeeper in a cluster, a file for a broker alone."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

from ottla.broker.startup_error import StartupError
from ottla.cluster.settings import BrokerSettings
from ottla.ports import Disk, MetadataStore, StoreError

logger = logging.getLogger(__name__)


async def open_zookeeper(settings: BrokerSettings) -> MetadataStore:
    # Imported here, as below: a start loads only the store that it opens.
    from ottla.runtime.zookeeper_store import ZooKeeperStore

    connect = settings.str("zookeeper.connect")
    session_ms = settings.int("zookeeper.session.timeout.ms")
    connection_ms = settings.value("zookeeper.connection.timeout.ms")
    # This may take as long as the connection timeout, 18 s in Kafka's own server.properties.
    logger.info("Connecting to ZooKeeper at %s", connect)
    try:
        return await ZooKeeperStore.open(
            connect,
            session_timeout_ms=session_ms,
            connection_timeout_ms=connection_ms if isinstance(connection_ms, int) else session_ms,
        )
    except StoreError as error:
        raise StartupError(str(error)) from error


def open_embedded(
    settings: BrokerSettings, disk: Disk, failed_paths: Sequence[str]
) -> tuple[MetadataStore, Callable[[], Awaitable[None]]]:
    """The store, and a function that makes durable what was written since. `failed_paths`: unusable ones of `log.dirs`."""
    from ottla.broker.metadata.metadata_place import metadata_place
    from ottla.runtime.embedded_store import FILE_NAME, EmbeddedStore

    try:
        place = metadata_place(disk, FILE_NAME, settings.log_dirs(), failed_paths, settings.optional_str("metadata.log.dir"))
        store = EmbeddedStore.open(f"{place}/{FILE_NAME}", durable=False)
    except StoreError as error:
        raise StartupError(str(error)) from error
    return store, store.make_durable
