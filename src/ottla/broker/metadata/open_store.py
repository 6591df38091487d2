"""Opens the metadata store: ZooKeeper in a cluster, a file for a broker alone.

The directory of the file is `metadata.log.dir` if it is set (as in KRaft), else the one of `log.dirs` that has the file, else the
first. So the order of `log.dirs` may change, and losing any other directory loses only its partitions (F6). If this directory is
lost the broker does not start: an empty file in its place would mean that there are no topics.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

from ottla.cluster.settings import BrokerSettings
from ottla.ports import Disk, MetadataStore, StoreUnavailable
from ottla.storage.data_dir import make_durable_dir

logger = logging.getLogger(__name__)


async def open_zookeeper(settings: BrokerSettings) -> MetadataStore:
    # Imported here, as below: a start loads only the store that it opens.
    from ottla.runtime.zookeeper_store import ZooKeeperStore

    connect = settings.str("zookeeper.connect")
    session_ms = settings.int("zookeeper.session.timeout.ms")
    connection_ms = settings.value("zookeeper.connection.timeout.ms")
    # This may take as long as the connection timeout, 18 s in Kafka's own server.properties.
    logger.info("Connecting to ZooKeeper at %s", connect)
    return await ZooKeeperStore.open(
        connect,
        session_timeout_ms=session_ms,
        connection_timeout_ms=connection_ms if isinstance(connection_ms, int) else session_ms,
    )


def open_embedded(
    settings: BrokerSettings, disk: Disk, failed_paths: Sequence[str]
) -> tuple[MetadataStore, Callable[[], Awaitable[None]]]:
    """The store, and a function that makes durable what was written since. `failed_paths`: unusable ones of `log.dirs`."""
    from ottla.runtime.embedded_store import FILE_NAME, EmbeddedStore

    place = _directory(disk, FILE_NAME, settings.log_dirs(), failed_paths, settings.optional_str("metadata.log.dir"))
    store = EmbeddedStore.open(f"{place}/{FILE_NAME}", durable=False)
    return store, store.make_durable


def _directory(disk: Disk, file_name: str, log_dirs: Sequence[str], failed: Sequence[str], chosen: str | None) -> str:
    """The directory of the file; StoreUnavailable if there is none. `failed`: those of `log_dirs` that cannot be used."""
    usable = [path for path in log_dirs if path not in failed]
    found = [path for path in usable if disk.exists(f"{path}/{file_name}")]
    if chosen:
        return _as_chosen(disk, file_name, chosen, failed, [path for path in found if path.rstrip("/") != chosen.rstrip("/")])
    if found:
        for other in found[1:]:
            logger.warning("Ignoring %s/%s: the metadata is read from %s", other, file_name, found[0])
        return found[0]
    if log_dirs[0] in failed:
        raise StoreUnavailable(
            f"the metadata of this broker is in the first of log.dirs, {log_dirs[0]}, which cannot be used; "
            f"make it usable again (for a new broker: name another directory first, or set metadata.log.dir)"
        )
    if failed and any(_has_partitions(disk, path) for path in usable):
        raise StoreUnavailable(
            f"the metadata of this broker must be in {' or '.join(failed)}, which cannot be used; make it usable again"
        )
    return log_dirs[0]


def _has_partitions(disk: Disk, path: str) -> bool:
    inside = [f"{path}/{name}" for name in disk.list(path)]
    return any(disk.is_dir(each) and disk.exists(f"{each}/partition.metadata") for each in inside)


def _as_chosen(disk: Disk, file_name: str, chosen: str, failed: Sequence[str], elsewhere: Sequence[str]) -> str:
    if chosen in failed:
        raise StoreUnavailable(f"the metadata of this broker is in metadata.log.dir={chosen}, which cannot be used")
    try:
        make_durable_dir(disk, chosen)
        has_file = disk.exists(f"{chosen}/{file_name}")
    except OSError as error:
        raise StoreUnavailable(f"metadata.log.dir={chosen} cannot be used: {error.strerror or error}") from error
    if elsewhere and not has_file:
        raise StoreUnavailable(
            f"metadata.log.dir={chosen} has no {file_name}, but {elsewhere[0]} has one; "
            f"move it (and {file_name}-wal) there, or leave metadata.log.dir out"
        )
    return chosen
