"""One log as the log world knows it, and what must hold of it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from ottla.sim.kernel.disk import SimDisk
from ottla.sim.models.log_files import FoundBatch, guaranteed_end, scan, stored_batches
from ottla.sim.models.log_model import LogModel, Written, check_contents, check_indexes, check_order
from ottla.sim.violation import require
from ottla.storage.config import LogConfig
from ottla.storage.data_dir import DataDir
from ottla.storage.log import Log
from ottla.types import ZERO_UUID, TopicPartition

ROOT: Final = "/data"


@dataclass(frozen=True, slots=True)
class BeforeRetention:
    """What retention has to decide by: size and newest timestamp of each segment, by base offset."""

    sizes: dict[int, int]
    newest: dict[int, int]
    active: int
    log_start: int
    high_watermark: int


class KeptLog:
    """One partition: what was written to it, what may be under way, and what a crash may take or bring back."""

    def __init__(self, disk: SimDisk, partition: TopicPartition, topic_id: bytes, config: LogConfig) -> None:
        self._disk = disk
        self.partition = partition
        self.topic_id = topic_id
        self.config = config
        self.model = LogModel(str(partition))
        self.epoch = 0
        self.attempt: Written | None = None
        """A batch whose append did not return."""
        self.start_attempt: int | None = None
        """How far the log start may have moved in an operation that did not return."""
        self.truncating = False
        self.ghosts: dict[int, list[Written]] = {}
        """Batches that a truncation took and a crash may bring back."""
        self.guaranteed = 0
        self.name_flushed = False
        """A flush returned since the file with the topic id was written."""
        self.log_start_checkpointed = 0
        self.log: Log | None = None
        self.epochs_from = 0
        """Below, the epoch cache may be truncated: the log once started here, though a crash brought older records back."""

    @property
    def directory(self) -> str:
        return f"{ROOT}/{self.partition}"

    def forget(self) -> None:
        """The log begins anew, empty."""
        self.model = LogModel(str(self.partition))
        self.ghosts.clear()
        self.attempt = None
        self.start_attempt = None
        self.truncating = False
        self.guaranteed = 0
        self.log_start_checkpointed = 0
        self.epochs_from = 0
        self.name_flushed = False

    def check_recovered(self, log: Log, how: str, data_dir: DataDir, damaged: Collection[str]) -> None:
        """After a start the log has all that had to survive, and nothing that was never written (L01)."""
        model, end, start = self.model, log.log_end_offset, log.log_start_offset
        name = str(self.partition)
        unnamed = self.log is None or (how == "crash" and not self.name_flushed)
        if log.topic_id == ZERO_UUID and unnamed:
            # The process died before the first flush, which makes the file with the topic id durable.
            data_dir.assign_topic_id(log, self.topic_id)
            self.name_flushed = False
        require(log.topic_id == self.topic_id, "topic-id", f"{name} has another topic id")
        self.epochs_from = max(self.epochs_from, model.log_start, self.start_attempt or 0)
        highest = model.log_end if self.attempt is None else self.attempt.last_offset + 1
        if self.attempt is not None and model.log_end == self.attempt.base_offset and end == highest:
            model.add(self.attempt)
        found = [batch for batch in stored_batches(self._disk, self.directory, start) if batch.last_offset >= start]
        start_max = model.log_start if self.start_attempt is None else self.start_attempt
        if how == "crash" or self.truncating:
            # Nothing is promised below the log start; a start that no checkpoint holds may itself be lost.
            require(
                end >= self.guaranteed or self.guaranteed <= model.log_start,
                "flushed",
                f"{name} ends at {end}, offsets below {self.guaranteed} were flushed",
            )
            require(
                self.log_start_checkpointed <= start <= start_max or start == end,
                "log-start",
                f"{name} starts at {start}, not in {self.log_start_checkpointed}..{start_max}",
            )
            self._adopt(found, start, end)
        else:
            require(end == model.log_end, "acknowledged", f"{name} ends at {end} after {how}, it was {model.log_end}")
            if how == "clean":
                require(start == model.log_start, "log-start", f"{name} starts at {start}, it was {model.log_start}")
            else:
                require(
                    self.log_start_checkpointed <= start <= start_max,
                    "log-start",
                    f"{name} starts at {start}, not in {self.log_start_checkpointed}..{start_max}",
                )
            model.log_start = start
        check_contents(self._disk, self.directory, model)
        check_indexes(self._disk, self.directory, damaged, self.model.log_start)
        self.check_epochs(log, after_start=True)
        require(
            0 <= log.high_watermark <= end, "high-watermark", f"{name}: high watermark {log.high_watermark} of {start}..{end}"
        )
        if how == "crash":
            self.ghosts.clear()
        self.attempt = None
        self.start_attempt = None
        self.truncating = False

    def _adopt(self, found: list[FoundBatch], start: int, end: int) -> None:
        """Take over what a crash left: the log may be shorter, or have truncated batches back. Each was once written there."""
        model = self.model
        check_order(found, self.directory, start, end)
        for batch in found:
            if any(ghost.data == batch.data for ghost in self.ghosts.get(batch.base_offset, ())):
                slot = model.slot(batch.base_offset)
                if slot < 0 or model.batches[slot].data != batch.data:
                    model.cut(batch.base_offset)
                    ghost = next(g for g in self.ghosts[batch.base_offset] if g.data == batch.data)
                    model.batches.append(ghost)
                    model.log_end = ghost.last_offset + 1
        require(end <= model.log_end, "offsets", f"{model.name} ends at {end}, it never ended behind {model.log_end}")
        model.cut(end)
        model.log_start = start

    def check_epochs(self, log: Log, *, after_start: bool) -> None:
        """The epoch cache agrees with the epoch in each batch, and has nothing beyond the log end (L01)."""
        batches = self.model.visible()
        for batch in batches:
            offset = max(batch.base_offset, self.model.log_start)
            if offset < self.epochs_from:
                continue
            require(
                log.epochs.epoch_at(offset) == batch.leader_epoch,
                "epochs",
                f"{self.partition}: offset {offset} is of epoch {batch.leader_epoch}, cached {log.epochs.epoch_at(offset)}",
            )
        if batches and after_start and batches[-1].last_offset >= self.epochs_from:
            require(
                log.latest_epoch == batches[-1].leader_epoch,
                "epochs",
                f"{self.partition}: the latest epoch is {batches[-1].leader_epoch}, the cache says {log.latest_epoch}",
            )
        if batches:
            epoch = batches[-1].leader_epoch
            if log.latest_epoch == epoch:
                require(
                    log.end_offset_for_epoch(epoch).offset == self.model.log_end,
                    "epochs",
                    f"{self.partition}: epoch {epoch} ends at {log.end_offset_for_epoch(epoch)}",
                )

    def check_marks(self) -> None:
        """Log start, log end and high watermark are the model's; the recovery point covers only what is durable."""
        log, model = self.log, self.model
        assert log is not None
        require(
            (log.log_start_offset, log.log_end_offset) == (model.log_start, model.log_end),
            "offsets",
            f"{model.name} is {log.log_start_offset}..{log.log_end_offset}, it must be {model.log_start}..{model.log_end}",
        )
        require(
            log.log_start_offset <= log.high_watermark <= log.log_end_offset,
            "high-watermark",
            f"{model.name}: not {log.log_start_offset} <= {log.high_watermark} <= {log.log_end_offset}",
        )
        if log.recovery_point > model.log_start:
            certain = guaranteed_end(self._disk, self.directory, model.log_start, start_is_durable=True)
            require(
                log.recovery_point <= certain,
                "recovery-point",
                f"{model.name}: recovery point {log.recovery_point}, but only offsets below {certain} survive a crash",
            )

    def before_retention(self, log: Log) -> BeforeRetention:
        bases = list(log.local.bases)
        files = {base: self._disk.contents(f"{self.directory}/{base:020d}.log") for base in bases}
        return BeforeRetention(
            sizes={base: len(data) for base, data in files.items()},
            newest={
                base: max((batch.max_timestamp for batch in scan(data, base)[0]), default=-1) for base, data in files.items()
            },
            active=bases[-1],
            log_start=self.model.log_start,
            high_watermark=log.high_watermark,
        )

    def check_retention(self, log: Log, removed: list[int], before: BeforeRetention, now_ms: int) -> None:
        """Only segments that are due are deleted, oldest first, never above the high watermark (L10)."""
        name, config, bases, start = self.partition, self.config, sorted(before.sizes), before.log_start
        require(removed == bases[: len(removed)], "retention", f"{name}: removed {removed} of {bases}")
        left = sum(before.sizes.values())
        for slot, base in enumerate(removed):
            follower = bases[slot + 1] if slot + 1 < len(bases) else self.model.log_end
            by_start = follower <= start
            by_size = config.retention_bytes >= 0 and left - before.sizes[base] >= config.retention_bytes
            by_time = config.retention_ms >= 0 and now_ms - before.newest[base] > config.retention_ms
            require(
                by_start or by_size or by_time,
                "retention",
                f"{name}: segment {base} was not due (log start {start}, {left} bytes, newest {before.newest[base]})",
            )
            require(
                follower <= before.high_watermark,
                "retention",
                f"{name}: segment {base} reaches {follower}, the high watermark is {before.high_watermark}",
            )
            require(
                base != before.active or by_time or by_start,
                "retention",
                f"{name}: the active segment {base} was deleted by size",
            )
            left -= before.sizes[base]
        require(
            log.log_start_offset >= start, "log-start", f"{name}: the log start went back from {start} to {log.log_start_offset}"
        )
