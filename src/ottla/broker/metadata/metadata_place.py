"""Chooses the directory in which a broker that is alone keeps its metadata file.

`metadata.log.dir` if it is set (as in KRaft), else the one of `log.dirs` that has the file, else the first. So the order of
`log.dirs` may change, and losing any other directory loses only its partitions (F6). If this directory is lost the broker does
not start: an empty file in its place would mean that there are no topics.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ottla.ports import Disk, StoreUnavailable
from ottla.storage.data_dir import make_durable_dir

logger = logging.getLogger(__name__)


def metadata_place(disk: Disk, file_name: str, log_dirs: Sequence[str], failed: Sequence[str], chosen: str | None) -> str:
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
