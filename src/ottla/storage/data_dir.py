"""One of `log.dirs`: its lock, meta.properties, checkpoints, and logs.

A directory is online until a write or flush fails. It then stays offline until the broker restarts, because the content of the
disk is unknown; other directories are not affected.

1. Only one process has a directory open (`.lock`).
2. `.kafka_cleanshutdown` exists only while the files are as `close` left them: it is removed before anything changes.
3. A recovery point in the checkpoint never exceeds what was flushed, and no checkpoint has entries of a deleted log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from ottla.errors import ErrorCode, KafkaError
from ottla.ports import Disk, File, Random
from ottla.storage.checkpoint import (
    CorruptCheckpoint,
    drop_offsets,
    read_offsets,
    read_properties,
    read_swap_mark,
    write_clean_shutdown,
    write_offsets,
    write_partition_metadata,
    write_properties,
)
from ottla.storage.config import LogConfig
from ottla.storage.log import Log
from ottla.storage.names import (
    CLEAN_SHUTDOWN,
    CLEANED_OFFSETS,
    DELETE_DIR,
    HIGH_WATERMARKS,
    LOCK,
    LOG_STARTS,
    META_PROPERTIES,
    METADATA_DIR,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    REPLICA_SWAP,
    future_dir,
    is_deleted_dir,
    parse_future_dir,
    parse_partition_dir,
    partition_dir,
)
from ottla.storage.recovery import LogCheckpoints, new_log, open_log
from ottla.storage.segment_cache import SegmentCache
from ottla.types import ZERO_UUID, TopicPartition

OFFSETS_OF: dict[str, Callable[[Iterable[Log]], dict[TopicPartition, int]]] = {
    RECOVERY_POINTS: lambda logs: {log.topic_partition: log.recovery_point for log in logs},
    LOG_STARTS: lambda logs: {
        log.topic_partition: log.log_start_offset for log in logs if log.log_start_offset > log.first_base_offset
    },
    HIGH_WATERMARKS: lambda logs: {log.topic_partition: log.high_watermark for log in logs},
    CLEANED_OFFSETS: lambda logs: {log.topic_partition: log.cleaned_offset for log in logs if log.cleaned_offset is not None},
}
"""The entries of each checkpoint file."""


class DataDirRefused(Exception):
    """The directory belongs to another broker or cluster, or its files are invalid. The message is for the user."""


_CACHE_OF_A_THREAD = 16


@dataclass(frozen=True, slots=True)
class Checkpoints:
    recovery_points: dict[TopicPartition, int]
    log_starts: dict[TopicPartition, int]
    high_watermarks: dict[TopicPartition, int]
    cleaned: dict[TopicPartition, int]

    def partitions(self) -> set[TopicPartition]:
        return self.recovery_points.keys() | self.log_starts.keys() | self.high_watermarks.keys() | self.cleaned.keys()


Opener = Callable[[SegmentCache, list[str]], Log]
"""Opens one log, and adds a message to the list for each repair."""


class Loading:
    """The logs of a directory that are being opened. Several threads may run `work` concurrently."""

    def __init__(self, checkpoints: Checkpoints, found: list[tuple[TopicPartition, bool, Opener]]) -> None:
        self.checkpoints = checkpoints
        self.given_up = False
        """Set to stop the workers after their current log."""
        self.opened: list[tuple[TopicPartition, bool, Log]] = []
        self.notices: list[str] = []
        """Messages about repairs, for the operator."""
        self.losses: list[str] = []
        """Messages about lost records."""
        self._count = len(found)
        self._left = iter(found)

    def __len__(self) -> int:
        return self._count

    def work(self) -> None:
        cache = SegmentCache(_CACHE_OF_A_THREAD)
        for partition, future, open_it in self._left:
            own = SegmentCache(_CACHE_OF_A_THREAD) if future else cache
            self.opened.append((partition, future, open_it(own, self.notices)))
            if self.given_up:
                break


class DataDir:
    def __init__(
        self,
        disk: Disk,
        path: str,
        lock: File,
        random: Random,
        broker_id: int | None,
        cluster_id: str | None,
        cache: SegmentCache,
    ) -> None:
        self._disk = disk
        self._lock = lock
        self._random = random
        self._cache = cache
        self.path = path
        self.broker_id = broker_id
        self.cluster_id = cluster_id
        self.logs: dict[TopicPartition, Log] = {}
        self.futures: dict[TopicPartition, Log] = {}
        """Logs that are being moved into this directory (AlterReplicaLogDirs)."""
        self.swapped: set[TopicPartition] = set()
        """Logs that were moved into this directory, and whose source may still exist under the same name."""
        self.error: OSError | None = None
        """Why the directory is offline."""
        self._gone: set[TopicPartition] = set()
        """Deleted partitions that may have entries in the checkpoints."""
        self.deleted: list[TopicPartition] = []
        """Deleted logs, in order: a worker that writes a checkpoint finds out what was deleted meanwhile."""
        self.was_clean = False
        """Whether the last shutdown was clean; set by `load`."""
        self.is_new = False
        """The directory is new: it has no meta.properties."""

    @classmethod
    def open(
        cls,
        disk: Disk,
        path: str,
        broker_id: int | None,
        cluster_id: str | None,
        random: Random,
        cache: SegmentCache | None = None,
    ) -> DataDir:
        """Create the directory if necessary, lock it, and check or adopt the broker and cluster id of meta.properties.

        BlockingIOError: another process uses it. DataDirRefused: it belongs to another broker or cluster.
        """
        make_durable_dir(disk, path)
        lock = disk.lock(f"{path}/{LOCK}")
        try:
            known_broker_id, known_cluster_id = _read_identity(disk, path)
            if known_broker_id is not None and broker_id is not None and known_broker_id != broker_id:
                raise DataDirRefused(f"{path} belongs to broker {known_broker_id}, this is broker {broker_id}")
            if known_cluster_id is not None and cluster_id is not None and known_cluster_id != cluster_id:
                raise DataDirRefused(f"{path} belongs to cluster {known_cluster_id}, this is cluster {cluster_id}")
            broker_id = known_broker_id if broker_id is None else broker_id
            cluster_id = known_cluster_id if cluster_id is None else cluster_id
            data_dir = cls(disk, path, lock, random, broker_id, cluster_id, cache if cache is not None else SegmentCache())
            data_dir.is_new = not disk.exists(f"{path}/{META_PROPERTIES}")
            if known_broker_id is None or known_cluster_id is None:
                data_dir.write_identity()
            return data_dir
        except BaseException:
            lock.close()
            raise

    def write_identity(self) -> None:
        """Write meta.properties, if broker and cluster id are known and not in it already."""
        if self.broker_id is None or self.cluster_id is None:
            return
        path = f"{self.path}/{META_PROPERTIES}"
        stored = read_properties(self._disk, path)
        properties = stored or {"version": "0"}
        id_key = "node.id" if properties.get("version") == "1" else "broker.id"
        properties = {**properties, "cluster.id": self.cluster_id, id_key: str(self.broker_id)}
        if properties != stored:
            write_properties(self._disk, path, properties)

    # --- logs

    def load(self, config_of: Callable[[str], LogConfig], now_ms: int) -> list[Log]:
        """Open all logs. `config_of` gives the settings of a topic."""
        loading = self.start_loading(config_of, now_ms)
        loading.work()
        return self.loaded(loading)

    def start_loading(self, config_of: Callable[[str], LogConfig], now_ms: int) -> Loading:
        """List the logs. Then run `work` in one or more threads, and call `loaded`."""
        marker = f"{self.path}/{CLEAN_SHUTDOWN}"
        self.was_clean = self._disk.exists(marker)
        if self.was_clean:
            self._disk.remove(marker)
            self._disk.flush_dir(self.path)
        checkpoints = Checkpoints(*map(self._read_checkpoint, (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, CLEANED_OFFSETS)))

        def opener(path: str, partition: TopicPartition, future: bool) -> Opener:
            return lambda cache, notices: self._open(
                path, partition, future, config_of(partition.topic), checkpoints, cache, now_ms, notices
            )

        found: list[tuple[TopicPartition, bool, Opener]] = []
        for name in self._disk.list(self.path):
            path = f"{self.path}/{name}"
            if is_deleted_dir(name) and self._disk.is_dir(path):
                self._disk.remove_tree(path)
                continue
            future = parse_future_dir(name)
            partition = future or parse_partition_dir(name)
            if partition is None or name == METADATA_DIR or not self._disk.is_dir(path):
                continue
            found.append((partition, future is not None, opener(path, partition, future is not None)))
        return Loading(checkpoints, found)

    def _open(
        self,
        path: str,
        partition: TopicPartition,
        future: bool,
        config: LogConfig,
        checkpoints: Checkpoints,
        cache: SegmentCache,
        now_ms: int,
        notices: list[str],
    ) -> Log:
        if future:
            # It has no checkpoints: after an unclean shutdown it is recovered from its first record.
            found = LogCheckpoints(self.was_clean)
            return open_log(self._disk, self._random, path, partition, config, found, cache, now_ms, notices)
        log_start = checkpoints.log_starts.get(partition, 0)
        try:
            swapped = read_swap_mark(self._disk, f"{path}/{REPLICA_SWAP}")
        except CorruptCheckpoint:
            swapped = 0
        if swapped is not None:
            self.swapped.add(partition)
            log_start = max(log_start, swapped)
        recovery_point = checkpoints.recovery_points.get(partition, 0)
        cleaned_offset, has_checkpoints = checkpoints.cleaned.get(partition), partition in checkpoints.recovery_points
        found = LogCheckpoints(self.was_clean, recovery_point, log_start, cleaned_offset, has_checkpoints)
        log = open_log(self._disk, self._random, path, partition, config, found, cache, now_ms, notices)
        log.high_watermark = checkpoints.high_watermarks.get(partition, 0)
        return log

    def loaded(self, loading: Loading) -> list[Log]:
        """All logs are open."""
        for partition, future, log in loading.opened:
            if future and partition in self.futures:
                self._disk.remove_tree(log.dir)  # left from a move that was restarted
                continue
            if not future:
                log.local.use_cache(self._cache)
            if not self.was_clean:
                log.flushes.metadata_written()  # it may not be flushed
            (self.futures if future else self.logs)[partition] = log
        checkpoints = loading.checkpoints
        self._gone = checkpoints.partitions() - self.logs.keys()
        vouched = checkpoints.recovery_points
        loading.losses += [loss for log in self.logs.values() if (loss := _loss_of(log, checkpoints)) is not None]
        if any(log.recovery_point < vouched.get(key, 0) for key, log in self.logs.items()):
            # New records at these offsets are not flushed, so the checkpoint must not cover them.
            for name in (LOG_STARTS, RECOVERY_POINTS):
                self._write_checkpoint(name, self.logs.values())
        return list(self.logs.values())

    def _read_checkpoint(self, name: str) -> dict[TopicPartition, int]:
        """A corrupt checkpoint counts as empty: all logs are recovered from their first segment."""
        try:
            return read_offsets(self._disk, f"{self.path}/{name}")
        except CorruptCheckpoint:
            return {}

    def create_log(self, topic_partition: TopicPartition, topic_id: bytes, config: LogConfig, now_ms: int) -> Log:
        """Create an empty log, or return the existing one of the same topic id."""
        self.check_online()
        log = self.logs.get(topic_partition)
        if log is not None and not log.closed:
            if ZERO_UUID not in (log.topic_id, topic_id) and log.topic_id != topic_id:
                raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID, f"{topic_partition} exists with another topic id")
            return log
        self.forget_deleted(topic_partition)
        log = self.make_log(topic_partition, topic_id, config, now_ms)
        self.add_log(log)
        return log

    def add_log(self, log: Log) -> None:
        """Add a log that `make_log` created."""
        log.local.use_cache(self._cache)
        self.logs[log.topic_partition] = log

    def forget_deleted(self, topic_partition: TopicPartition) -> None:
        """Remove the entries of deleted logs from the checkpoints, before a log of the same name is created: after a crash its
        recovery point and log start offset would be applied to the new log."""
        if topic_partition in self._gone:
            for name in (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, CLEANED_OFFSETS):
                drop_offsets(self._disk, f"{self.path}/{name}", self._gone)
            self._gone.clear()

    def make_log(self, topic_partition: TopicPartition, topic_id: bytes, config: LogConfig, now_ms: int) -> Log:
        """Create the files of a new log, without adding it to `logs`: safe in a worker. Call `forget_deleted` before.

        Nothing is flushed before the first records are. If a crash removes the empty directory, it is created again.
        """
        path = f"{self.path}/{partition_dir(topic_partition)}"
        return self._make_log(path, topic_partition, topic_id, config, now_ms)

    def make_future_log(self, topic_partition: TopicPartition, topic_id: bytes, config: LogConfig, now_ms: int) -> Log:
        """Create the log to which a log of another directory is copied. It has its own cache, as a worker uses it."""
        self.check_online()
        self.forget_deleted(topic_partition)
        path = f"{self.path}/{future_dir(topic_partition, self._random.bytes(16))}"
        log = self._make_log(path, topic_partition, topic_id, config, now_ms)
        self.futures[topic_partition] = log
        return log

    def _make_log(self, path: str, topic_partition: TopicPartition, topic_id: bytes, config: LogConfig, now_ms: int) -> Log:
        cache = SegmentCache(_CACHE_OF_A_THREAD)
        if self._disk.exists(path):  # left from a failed attempt
            log = open_log(self._disk, self._random, path, topic_partition, config, LogCheckpoints(clean=True), cache, now_ms)
        else:
            log = new_log(self._disk, self._random, path, topic_partition, config, cache, now_ms)
        if topic_id != ZERO_UUID:
            self.assign_topic_id(log, topic_id)  # before any record: records must not be attributed to another topic
        return log

    def promote(self, topic_partition: TopicPartition) -> Log:
        """Rename the future log to its final name, durably. `ReplicaCopy.flush_and_mark` comes before."""
        log = self.futures[topic_partition]
        log.rename_dir(f"{self.path}/{partition_dir(topic_partition)}")
        self._disk.flush_dir(self.path)
        del self.futures[topic_partition]
        log.local.use_cache(self._cache)
        self.logs[topic_partition] = log
        self.swapped.add(topic_partition)
        return log

    def drop_future(self, topic_partition: TopicPartition) -> str:
        """Cancel a move. Returns the renamed directory, for `remove_tree`."""
        self._gone.add(topic_partition)
        return self.futures.pop(topic_partition).delete()

    def assign_topic_id(self, log: Log, topic_id: bytes) -> None:
        """Write the topic id of a log that has none."""
        write_partition_metadata(self._disk, f"{log.dir}/{PARTITION_METADATA}", topic_id)
        log.flushes.metadata_written()
        log.topic_id = topic_id

    def delete_log(self, topic_partition: TopicPartition, suffix: str = DELETE_DIR) -> str:
        """Close a log and rename its directory. Returns the new path, for `remove_tree` after `file.delete.delay.ms`. A log that
        belongs to no topic gets the suffix STRAY_DIR, and is kept."""
        log = self.logs.pop(topic_partition)
        self.deleted.append(topic_partition)
        self._gone.add(topic_partition)
        return log.delete(suffix)

    # --- checkpoints

    def write_checkpoints(self, logs: Iterable[Log] | None = None) -> None:
        """Write the recovery points, log start offsets, high watermarks and first dirty offsets. `logs`: None for all."""
        self.check_online()
        alive = [log for log in (self.logs.values() if logs is None else logs) if not log.closed]
        for log in alive:
            log.epochs.write(log.log_end_offset)
        if any(log.cleaned_offset is not None for log in alive):
            # Written after a truncation too: recovery attributes gaps before the first dirty offset to compaction.
            self._write_checkpoint(CLEANED_OFFSETS, alive)
        for name in (LOG_STARTS, RECOVERY_POINTS, HIGH_WATERMARKS):
            self._write_checkpoint(name, alive)

    def _write_checkpoint(self, name: str, logs: Iterable[Log]) -> None:
        write_offsets(self._disk, f"{self.path}/{name}", OFFSETS_OF[name](logs))

    # --- failure and shutdown

    @property
    def online(self) -> bool:
        return self.error is None

    def mark_offline(self, error: OSError) -> None:
        """A disk operation failed: nothing is written to this directory from now on."""
        if self.error is None:
            self.error = error

    def check_online(self) -> None:
        if self.error is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the data directory {self.path} is offline: {self.error}")

    def close(self, clean: bool = True, broker_epoch: int = -1) -> None:
        """Flush and close all logs, write the checkpoints and `.kafka_cleanshutdown`; unless unclean or offline."""
        try:
            if clean and self.error is None:
                logs = [log for log in self.logs.values() if not log.closed]
                every_log = [*logs, *self.futures.values()]
                for log in every_log:
                    log.take_snapshot()
                self._flush_last(every_log)
                for log in every_log:
                    log.close()
                for name in (LOG_STARTS, RECOVERY_POINTS, HIGH_WATERMARKS):
                    self._write_checkpoint(name, logs)
                write_clean_shutdown(self._disk, f"{self.path}/{CLEAN_SHUTDOWN}", broker_epoch)
        finally:
            self._lock.close()

    def _flush_last(self, logs: list[Log]) -> None:
        """Flush all logs concurrently, step by step, each directory once: a disk merges concurrent flushes."""
        staged = [log.epochs for log in logs if log.stage_epochs()]
        self._disk.at_once([epochs.flush_staged for epochs in staged])
        for epochs in staged:
            epochs.put_staged()
        plans = [(log, log.flushes.closing_plan()) for log in logs]
        dirs = {path for _, plan in plans for path in plan.dirs}
        for _, plan in plans:
            plan.dirs.clear()
        self._disk.at_once([plan.run for _, plan in plans])
        self._disk.at_once([partial(self._disk.flush_dir, path) for path in sorted(dirs)])
        for log, plan in plans:
            log.flushes.completed(plan)


def _loss_of(log: Log, checkpoints: Checkpoints) -> str | None:
    """What to tell the operator of a log that ends before its checkpoints: records are lost that were committed or flushed."""
    end_offset = log.log_end_offset
    high_watermark = checkpoints.high_watermarks.get(log.topic_partition, 0)
    recovery_point = checkpoints.recovery_points.get(log.topic_partition, 0)
    expected = max(high_watermark, recovery_point)
    if end_offset >= expected:
        return None
    return (
        f"{log.topic_partition} lost offsets {end_offset} to {expected - 1} ({expected - end_offset} in all): the log in "
        f"{log.dir} ends at offset {end_offset}, the checkpointed high watermark was {high_watermark}, the recovery point "
        f"{recovery_point}. Files are missing or corrupt"
    )


def least_used(dirs: Iterable[DataDir]) -> DataDir:
    """The online directory with the fewest logs, for a new partition."""
    online = [data_dir for data_dir in dirs if data_dir.online]
    if not online:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "all log directories are offline")
    return min(online, key=lambda data_dir: len(data_dir.logs))


def find_leftover_copies(dirs: Sequence[DataDir]) -> list[tuple[DataDir, Log]]:
    """Partitions that exist in two directories after a move: returns the source copies, for `delete_log`.

    DataDirRefused if both hold records and neither is marked as moved. Empty logs and other topic ids are ignored.
    """
    leftovers: list[tuple[DataDir, Log]] = []
    first: dict[TopicPartition, tuple[DataDir, Log]] = {}
    for data_dir in dirs:
        if not data_dir.online:
            continue
        for partition, log in data_dir.logs.items():
            other_dir, other = first.setdefault(partition, (data_dir, log))
            if other is log or 0 in (log.log_end_offset, other.log_end_offset):
                continue
            if ZERO_UUID not in (log.topic_id, other.topic_id) and log.topic_id != other.topic_id:
                continue
            if (partition in data_dir.swapped) == (partition in other_dir.swapped):
                raise DataDirRefused(
                    f"{partition} exists in {other.dir} and in {log.dir}, and both hold records; "
                    f"remove the one on the disk that failed last, and restart"
                )
            leftovers.append((other_dir, other) if partition in data_dir.swapped else (data_dir, log))
            if partition in data_dir.swapped:
                first[partition] = (data_dir, log)
    return leftovers


def make_durable_dir(disk: Disk, path: str) -> None:
    """Create a directory and its parents, and make their names durable."""
    made: list[str] = []
    while path and not disk.exists(path):
        made.append(path)
        path = path.rstrip("/").rpartition("/")[0]
    for missing in reversed(made):
        disk.make_dirs(missing)
        disk.flush_dir(missing.rstrip("/").rpartition("/")[0] or ("/" if missing.startswith("/") else "."))


def _read_identity(disk: Disk, path: str) -> tuple[int | None, str | None]:
    """(broker id, cluster id) of meta.properties, version 0 (ZooKeeper) or 1 (KRaft)."""
    try:
        properties = read_properties(disk, f"{path}/{META_PROPERTIES}")
    except CorruptCheckpoint as error:
        raise DataDirRefused(str(error)) from error
    if not properties:
        return None, None
    version = properties.get("version")
    if version not in ("0", "1"):
        raise DataDirRefused(f"{path}/{META_PROPERTIES} has version {version!r}; 0 and 1 are supported")
    number = properties.get("broker.id" if version == "0" else "node.id")
    if number is not None and not number.lstrip("-").isdecimal():
        raise DataDirRefused(f"{path}/{META_PROPERTIES} has the broker id {number!r}, which is not a number")
    return (int(number) if number is not None else None), properties.get("cluster.id")
