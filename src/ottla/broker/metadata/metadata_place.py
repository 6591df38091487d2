"""Where a broker that is alone keeps its metadata: topics, their settings, accounts, the numbers that were given away.

Owns the choice of one directory: `metadata.log.dir` if it is set (as KRaft has it), else one of `log.dirs`: the one that has the
file already, and for a new broker the first. So the order of `log.dirs` may change, and the loss of any directory but this one
takes only its own partitions (F6). The loss of this one stops the start: without it nobody knows which topics there are, and an
empty file in its place would be a promise that there were none.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ottla.ports import Disk, StoreUnavailable
from ottla.storage.data_dir import make_durable_dir

logger = logging.getLogger(__name__)


def metadata_place(disk: Disk, file_name: str, log_dirs: Sequence[str], failed: Sequence[str], chosen: str | None) -> str:
    """The directory for the file; StoreUnavailable says why there is none. `failed`: those of `log_dirs` that cannot be used."""
    usable = [path for path in log_dirs if path not in failed]
    found = [path for path in usable if disk.exists(f"{path}/{file_name}")]
    if chosen:
        return _as_chosen(disk, file_name, chosen, failed, [path for path in found if path.rstrip("/") != chosen.rstrip("/")])
    if found:
        for other in found[1:]:
            logger.warning("%s/%s is not read: the metadata is that in %s", other, file_name, found[0])
        return found[0]
    if log_dirs[0] in failed:
        raise StoreUnavailable(
            f"the metadata of this broker is kept in the first of log.dirs, {log_dirs[0]}, and that one cannot be used; "
            f"make it usable again (or, if this broker is new, name another directory first or set metadata.log.dir)"
        )
    if failed and any(_has_partitions(disk, path) for path in usable):
        raise StoreUnavailable(
            f"the metadata of this broker is in no directory that can be used, so it must be in {' or '.join(failed)}; "
            f"make that one usable again"
        )
    return log_dirs[0]


def _has_partitions(disk: Disk, path: str) -> bool:
    inside = [f"{path}/{name}" for name in disk.list(path)]
    return any(disk.is_dir(each) and disk.exists(f"{each}/partition.metadata") for each in inside)


def _as_chosen(disk: Disk, file_name: str, chosen: str, failed: Sequence[str], elsewhere: Sequence[str]) -> str:
    if chosen in failed:
        raise StoreUnavailable(f"the metadata of this broker is kept in metadata.log.dir={chosen}, which cannot be used")
    try:
        make_durable_dir(disk, chosen)
        has_file = disk.exists(f"{chosen}/{file_name}")
    except OSError as error:
        raise StoreUnavailable(f"metadata.log.dir={chosen} cannot be used: {error.strerror or error}") from error
    if elsewhere and not has_file:
        raise StoreUnavailable(
            f"metadata.log.dir={chosen} has no {file_name}, but {elsewhere[0]} has one; "
            f"move it (and what is called {file_name}-wal) there, or leave metadata.log.dir out"
        )
    return chosen
