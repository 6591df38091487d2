"""One data directory and its logs through several lives: append, read, roll, flush, truncate, crash, damage, recover.

Owns: the scenario without a broker: a seed costs little, and every file operation may be the last.
Never: asks the product what to expect; the model in `checkers` shares no code with it.

A life ends cleanly, by a kill (the page cache stays), or by a crash (what was not flushed may be lost), between two operations or
inside one. Between two lives indexes may be damaged (L03) and bits flipped behind the recovery point (L02).
"""

from __future__ import annotations

import errno
import random
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from ottla.errors import ErrorCode, KafkaError
from ottla.records.record import build_batch
from ottla.records.validate import Rules, check
from ottla.sim.kernel.disk import Fault, SimDisk
from ottla.sim.kernel.machine import START_MS, SeededRandom
from ottla.sim.kernel.process import Process, ProcessDied
from ottla.sim.kernel.trace import Trace
from ottla.sim.models.checkers import check_producers
from ottla.sim.models.log_files import checkpoint_entries, guaranteed_end, scan
from ottla.sim.models.log_model import Written, check_batch, check_contents, check_indexes
from ottla.sim.violation import Violation, require
from ottla.sim.worlds.kept_log import ROOT, KeptLog
from ottla.sim.worlds.log_damage import LogDamage
from ottla.storage.config import LogConfig
from ottla.storage.data_dir import DataDir
from ottla.storage.flush import FlushPlan
from ottla.storage.log import Log
from ottla.storage.segment_cache import SegmentCache
from ottla.types import TopicPartition

DAY_MS: Final = 86_400_000
RULES: Final = Rules(timestamp_after_max_ms=1 << 62)
_OFFSET: Final = struct.Struct(">q")
_EPOCH: Final = struct.Struct(">i")


class LogWorld:
    """A run of one seed."""

    def __init__(self, seed: int, *, echo: Callable[[str], None] | None = None) -> None:
        self.rng = random.Random(f"log {seed}")
        self.disk = SimDisk(random.Random(f"disk {seed}"), page_bytes=self.rng.choice((64, 512, 4096)))
        self.now_ms = START_MS
        self.trace = Trace(lambda: (self.now_ms - START_MS) / 1000, echo=echo)
        self.random = SeededRandom(random.Random(f"ids {seed}"))
        self.kept: list[KeptLog] = []
        self.process = Process("none")
        self.data_dir: DataDir | None = None
        self.plans: list[tuple[KeptLog, FlushPlan]] = []
        self._made = 0
        self.damage = LogDamage(self.rng, random.Random(f"snapshots {seed}"), self.disk, self.kept, self.trace)
        self._unverified = False
        """A crash happened, and no start since was checked."""
        self._producers = random.Random(f"producers {seed}")
        self._timestamp_style = self.rng.choice(("rising", "rising", "equal", "wild"))

    def run(self) -> None:
        for name in self.rng.sample(("a", "b-2", "c.d_e"), self.rng.randint(1, 3)):
            self.kept.append(
                KeptLog(self.disk, TopicPartition(name, self.rng.randint(0, 2)), self.random.bytes(16), self._config())
            )
        how = "new"
        for life in range(self.rng.randint(2, 5)):
            how = self._life(life, how)
        self._life(99, how, last=True)

    def _config(self) -> LogConfig:
        rng = self.rng
        return LogConfig(
            segment_bytes=rng.choice((300, 700, 2000, 10_000)),
            segment_ms=rng.choice((5_000, DAY_MS, 7 * DAY_MS)),
            segment_jitter_ms=rng.choice((0, 0, 1000)),
            index_bytes_max=rng.choice((48, 1 << 20, 1 << 20)),
            index_interval_bytes=rng.choice((0, 1, 100, 400, 4096)),
            retention_ms=rng.choice((-1, 20_000, 7 * DAY_MS)),
            retention_bytes=rng.choice((-1, -1, 1000, 4000)),
            file_delete_delay_ms=rng.choice((0, 10_000)),
        )

    # --- a life

    def _life(self, number: int, how: str, last: bool = False) -> str:
        """From start to end; returns how it ended."""
        self.process = Process(f"life {number}")
        self.trace.add(f"life {number} after {how}")
        if self.rng.random() < 0.2 and how != "new" and not last:
            self.disk.crash_after(self.rng.randint(1, 30), self.process.die)
        try:
            self._start(how)
            self.disk.forget_crash_point()
            if last:
                self._check_all()
                return how
            self._plan_faults()
            for _ in range(self.rng.randint(5, 60)):
                self._step()
            return self._end()
        except ProcessDied:
            return self._died()
        except OSError as error:
            # A broker would take the directory offline, until it is restarted.
            require(bool(self.disk.faults) or self.disk.capacity_bytes is not None, "no-fault", f"unexpected {error!r}")
            self.trace.add(f"offline: {errno.errorcode[error.errno or 0]}")
            self.process.die()
            return self._died()
        finally:
            self.disk.faults.clear()
            self.disk.capacity_bytes = None

    def _start(self, how: str) -> None:
        view = self.disk.view(self.process)
        self.plans.clear()
        # Sometimes so small that files and indexes of sealed segments are evicted and opened again.
        cache = SegmentCache(self.rng.choice((1, 3, 512)), self.rng.choice((4, 4 << 20)))
        self.data_dir = DataDir.open(view, ROOT, 1, "cluster-id", self.random, cache)
        configs = {kept.partition.topic: kept.config for kept in self.kept}
        logs = {log.topic_partition: log for log in self.data_dir.load(lambda topic: configs[topic], self.now_ms)}
        for kept in self.kept:
            log = logs.pop(kept.partition, None)
            if how == "new" or log is None:
                if how not in ("new", "crash") and kept.log is not None:
                    raise Violation("acknowledged", f"{kept.partition} is missing after {how}")
                require(kept.guaranteed <= kept.model.log_start, "flushed", f"{kept.partition} is missing")
                log = self.data_dir.create_log(kept.partition, kept.topic_id, kept.config, self.now_ms)
                kept.forget()
            else:
                self.trace.add(
                    f"{kept.partition} {log.log_start_offset}..{log.log_end_offset} of "
                    f"{kept.model.log_start}..{kept.model.log_end}, guaranteed {kept.guaranteed}"
                )
                kept.check_recovered(log, how, self.data_dir, self.damage.damaged)
                check_producers(self.disk, log)
            kept.log = log
            log.high_watermark = log.log_end_offset
        self._unverified = False
        require(not logs, "stray", f"logs that nobody created: {sorted(map(str, logs))}")

    # --- the end of a life

    def _end(self) -> str:
        kind = self.rng.random()
        if kind < 0.25:
            assert self.data_dir is not None
            self.disk.forget_crash_point()
            self.data_dir.close(clean=True)
            for kept in self.kept:
                kept.name_flushed = kept.name_flushed or kept.model.log_end > 0
            self.process.die()
            self.disk.kill(self.process)
            self.damage.damage("clean")
            return "clean"
        self.process.die()
        return self._died()

    def _died(self) -> str:
        """The process is dead: alone (kill), or with its machine (crash)."""
        self.disk.forget_crash_point()
        for kept in self.kept:
            kept.guaranteed = min(guaranteed_end(self.disk, kept.directory, kept.model.log_start), kept.model.log_end)
        # After a failed flush the page cache holds what the disk does not: only a crash shows it.
        flush_failed = any(fault.operation == "flush" and fault.raised for fault in self.disk.faults)
        if self.rng.random() < 0.35 and not flush_failed:
            self.disk.kill(self.process)
            self.trace.add("kill")
            how = "crash" if self._unverified else "kill"
        else:
            self.trace.add(f"crash {self.disk.crash()}")
            how = "crash"
            self._unverified = True
        self._check_checkpoints()
        self.damage.damage(how)
        self.now_ms += self.rng.choice((0, 1000, 3_600_000))
        return how

    def _check_checkpoints(self) -> None:
        """Each checkpoint file is whole, the old one or the new one (L11)."""
        for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint"):
            if self.disk.find(f"{ROOT}/{name}") is not None:
                checkpoint_entries(self.disk, f"{ROOT}/{name}")

    # --- what a life does

    def _plan_faults(self) -> None:
        rng = self.rng
        kind = rng.random()
        if kind < 0.35:
            self.disk.crash_after(rng.randint(1, 120), self.process.die)
        elif kind < 0.42:
            self.disk.capacity_bytes = self.disk.used_bytes + rng.randint(0, 3000)
        elif kind < 0.49:
            self.disk.faults.append(Fault("write", ROOT, after=rng.randint(0, 40)))
        elif kind < 0.56:
            self.disk.faults.append(Fault("flush", ROOT, after=rng.randint(0, 5)))

    def _step(self) -> None:
        rng = self.rng
        kept = rng.choice(self.kept)
        log = kept.log
        assert log is not None
        kind = rng.random()
        if kind < 0.45:
            self._append(kept, log)
        elif kind < 0.60:
            self._read(kept, log)
        elif kind < 0.68:
            self._look_up(kept, log)
        elif kind < 0.76:
            self._flush(kept, log)
        elif kind < 0.81:
            self._write_checkpoints()
        elif kind < 0.83:
            log.roll(self.now_ms)
            self.trace.add(f"{kept.partition} roll")
        elif kind < 0.88:
            self._retention(kept, log)
        elif kind < 0.92:
            self._delete_records(kept, log)
        elif kind < 0.94:
            self._take_deleted(log)
        elif kind < 0.95:
            self._truncate(kept, log)
        elif kind < 0.97:
            kept.epoch += rng.randint(1, 3)
            log.epochs.assign(kept.epoch, log.log_end_offset)
            self.trace.add(f"{kept.partition} epoch {kept.epoch}")
        elif kind < 0.975:
            self._delete_and_create(kept, log)
        elif kind < 0.985:
            kept.config = replace(self._config(), segment_bytes=kept.config.segment_bytes)
            log.config = kept.config
        else:
            self._check_all()
        kept.check_marks()

    def _append(self, kept: KeptLog, log: Log) -> None:
        rng, model = self.rng, kept.model
        count = rng.choice((1, 1, 2, 5))
        records = []
        for _ in range(count):
            self._made += 1
            value = b"%d:" % self._made + rng.randbytes(rng.choice((0, 10, 60)))
            records.append((rng.choice((None, b"k")), value, (), self._next_timestamp()))
        codec = rng.choice((0, 0, 0, 1, 2, 3, 4))
        producer_id, epoch, sequence = self._producer(log)
        batch = build_batch(records, codec=codec, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        if len(batch) > kept.config.segment_bytes:
            return
        base = model.log_end
        stored = _OFFSET.pack(base) + batch[8:12] + _EPOCH.pack(kept.epoch) + batch[16:]
        written = Written(base, base + count - 1, kept.epoch, tuple(record[3] for record in records), stored)
        kept.attempt = written
        self.trace.add(f"{kept.partition} append {base}..{written.last_offset} {len(batch)} bytes")
        try:
            if rng.random() < 0.2:
                info = log.append_as_follower(stored, self.now_ms)
            else:
                info = log.append(check(bytearray(batch), RULES, self.now_ms), kept.epoch, self.now_ms)
        except OSError:
            self._check_failed_append(kept, log)
            raise
        require(
            (info.first_offset, info.last_offset) == (base, written.last_offset),
            "offsets",
            f"{model.name}: appended at {info.first_offset}..{info.last_offset}, it must be {base}..{written.last_offset}",
        )
        model.add(written)
        kept.attempt = None
        if rng.random() < 0.9:
            log.high_watermark = log.log_end_offset
        self.now_ms += rng.choice((0, 1, 50, 3000))

    def _producer(self, log: Log) -> tuple[int, int, int]:
        """Half of the batches are of idempotent producers, with the sequence that the log expects."""
        chance = self._producers
        if chance.random() < 0.5:
            return -1, -1, -1
        producer_id = chance.randrange(3)
        known = log.producers.get(producer_id)
        return producer_id, 0, known.next_sequence if known is not None else 0

    def _check_failed_append(self, kept: KeptLog, log: Log) -> None:
        """A failed write leaves the log as it was (L06)."""
        require(
            log.log_end_offset == kept.model.log_end,
            "false-success",
            f"{kept.partition} ends at {log.log_end_offset} after a failed append at {kept.model.log_end}",
        )

    def _next_timestamp(self) -> int:
        if self._timestamp_style == "rising":
            return self.now_ms + self.rng.randint(0, 3)
        if self._timestamp_style == "equal":
            return START_MS + (self.now_ms - START_MS) // 10_000 * 10_000
        return self.now_ms + self.rng.randint(-100_000, 100_000)

    def _read(self, kept: KeptLog, log: Log) -> None:
        rng, model = self.rng, kept.model
        if rng.random() < 0.1:
            self._read_outside(kept, log)
            return
        offset = rng.randint(model.log_start, model.log_end)
        max_bytes = rng.choice((1, 100, 1000, 1 << 20))
        end_offset = rng.choice((log.high_watermark, model.log_end))
        min_one = rng.random() < 0.8
        info = log.read(offset, max_bytes, end_offset, min_one)
        data = b"".join(part.file.read(part.position, part.size) for part in info.ranges)
        require(len(data) == info.size, "read", f"{model.name}: a read of {info.size} bytes gave {len(data)}")
        found, end = scan(data)
        require(end == len(data), "read", f"{model.name}: a read at {offset} gave {len(data) - end} bytes that are no batch")
        for batch in found:
            check_batch(model, batch.base_offset, batch.data)
            require(
                batch.last_offset < end_offset,
                "read-bound",
                f"{model.name}: read up to {end_offset} gave offset {batch.last_offset}",
            )
        if found:
            first = found[0]
            require(
                first.base_offset <= offset <= first.last_offset,
                "read",
                f"{model.name}: a read at {offset} began with {first.base_offset}..{first.last_offset}",
            )
            require(
                len(data) <= max_bytes or (min_one and len(found) == 1),
                "read",
                f"{model.name}: a read of at most {max_bytes} bytes gave {len(data)}",
            )
            require(
                info.records_end_offset == found[-1].last_offset + 1,
                "read",
                f"{model.name}: read says it ends at {info.records_end_offset}, it ends at {found[-1].last_offset + 1}",
            )
        else:
            wanted = model.batches[model.slot(offset)] if offset < model.log_end else None
            require(
                wanted is None or wanted.last_offset >= end_offset or (not min_one and len(wanted.data) > max_bytes),
                "read",
                f"{model.name}: a read at {offset} up to {end_offset} gave nothing",
            )

    def _read_outside(self, kept: KeptLog, log: Log) -> None:
        model = kept.model
        offset = model.log_end + self.rng.randint(1, 3) if self.rng.random() < 0.5 else model.log_start - 1
        if offset < 0:
            return
        try:
            log.read(offset, 1000, model.log_end, True)
        except KafkaError as error:
            require(error.code is ErrorCode.OFFSET_OUT_OF_RANGE, "read-bound", f"{model.name}: {error}")
        else:
            raise Violation("read-bound", f"{model.name}: read at {offset}, outside of {model.log_start}..{model.log_end}")

    def _look_up(self, kept: KeptLog, log: Log) -> None:
        """Look up an offset by time, as a scan would find it (L03, W06)."""
        model = kept.model
        target = self._next_timestamp() - self.rng.choice((0, 1, 1000, 20_000))
        expected = model.first_at_or_after(target)
        found = log.offset_for_timestamp(target)
        require(
            (found is None) == (expected is None) and (found is None or (found[0], found[1]) == expected),
            "time-lookup",
            f"{model.name}: the first record at or after {target} is {expected}, the log says {found}",
        )
        if model.log_start == 0:
            newest = log.offset_of_max_timestamp()
            require(
                (None if newest is None else (newest[0], newest[1])) == model.max_timestamp(),
                "time-lookup",
                f"{model.name}: the largest timestamp is {model.max_timestamp()}, the log says {newest}",
            )

    def _flush(self, kept: KeptLog, log: Log) -> None:
        """Plan a flush, or run one that was planned: other operations come in between."""
        rng = self.rng
        if self.plans and rng.random() < 0.7:
            owner, plan = self.plans.pop(0)
            owner_log = owner.log
            assert owner_log is not None
            plan.run()
            owner.name_flushed = True
            owner_log.flushes.completed(plan, self.now_ms)
            self.trace.add(f"{owner.partition} flushed {plan.end_offset}, recovery point {owner_log.recovery_point}")
            owner.check_marks()
        elif not any(owner is kept for owner, _ in self.plans):
            made = log.flushes.plan()
            if made is not None:
                self.plans.append((kept, made))

    def _write_checkpoints(self) -> None:
        assert self.data_dir is not None
        self.data_dir.write_checkpoints([kept.log for kept in self.kept if kept.log is not None])
        self.trace.add("checkpoints")
        for kept in self.kept:
            kept.log_start_checkpointed = kept.model.log_start

    def _retention(self, kept: KeptLog, log: Log) -> None:
        model = kept.model
        self.now_ms += self.rng.choice((0, 1000, 30_000, 8 * DAY_MS))
        before = kept.before_retention(log)
        kept.start_attempt = model.log_end
        removed = log.apply_retention(self.now_ms)
        kept.start_attempt = None
        self.trace.add(f"{kept.partition} retention removed {removed}, start {log.log_start_offset}")
        kept.check_retention(log, removed, before, self.now_ms)
        model.log_start = max(model.log_start, log.log_start_offset)

    def _delete_records(self, kept: KeptLog, log: Log) -> None:
        model = kept.model
        offset = self.rng.randint(max(0, model.log_start - 2), model.log_end + 1)
        high_watermark = log.high_watermark
        kept.start_attempt = max(offset, model.log_start)
        try:
            log.advance_log_start(offset)
        except KafkaError:
            kept.start_attempt = None
            require(offset > high_watermark, "delete-records", f"{model.name}: deleting below {offset} was refused")
            return
        require(
            offset <= high_watermark,
            "delete-records",
            f"{model.name}: records below {offset} were deleted, the high watermark is {high_watermark}",
        )
        self.trace.add(f"{kept.partition} delete records below {offset}")
        model.log_start = max(model.log_start, offset)
        kept.start_attempt = None

    def _take_deleted(self, log: Log) -> None:
        view = self.disk.view(self.process)
        for path in log.take_deleted(self.now_ms):
            view.remove(path)

    def _truncate(self, kept: KeptLog, log: Log) -> None:
        model = kept.model
        if model.log_end == 0:
            return
        slot = self.rng.randint(0, len(model.batches))
        offset = model.log_end if slot == len(model.batches) else model.batches[slot].base_offset
        if offset < model.log_start:
            return
        self.trace.add(f"{kept.partition} truncate to {offset}")
        kept.ghosts = {offset: list(ghosts) for offset, ghosts in kept.ghosts.items()}
        for batch in model.cut(offset):
            kept.ghosts.setdefault(batch.base_offset, []).append(batch)
        kept.truncating = True
        log.truncate_to(offset, self.now_ms)
        kept.truncating = False
        check_producers(self.disk, log)
        # As `truncate_to` requires of its callers: a follower does it before the next fetch.
        self._write_checkpoints()

    def _delete_and_create(self, kept: KeptLog, log: Log) -> None:
        assert self.data_dir is not None
        self.plans = [(owner, plan) for owner, plan in self.plans if owner is not kept]
        view = self.disk.view(self.process)
        self.trace.add(f"{kept.partition} delete and create again")
        kept.log = None
        view.remove_tree(self.data_dir.delete_log(kept.partition))
        kept.forget()
        kept.topic_id = self.random.bytes(16)
        kept.log = self.data_dir.create_log(kept.partition, kept.topic_id, kept.config, self.now_ms)
        kept.log.high_watermark = 0

    def _check_all(self) -> None:
        for kept in self.kept:
            assert kept.log is not None
            check_contents(self.disk, kept.directory, kept.model)
            check_indexes(self.disk, kept.directory, self.damage.damaged, kept.model.log_start)
            kept.check_epochs(kept.log, after_start=False)
            kept.check_marks()
