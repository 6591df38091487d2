"""Reads and verifies the files of a log for `ottla log dump`, as one `Item` for each batch, record, index entry, checkpoint or
damage.

Never writes and takes no lock. A file may be torn, in use by a running broker, or written by Apache Kafka.
"""

from __future__ import annotations

import mmap
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ottla.cli.failure import Failure
from ottla.cli.formats import Incoming, to_json
from ottla.errors import KafkaError, MalformedInput
from ottla.records.batch import BatchInfo, batch_crc_ok, read_batch_header
from ottla.records.compression import CODEC_NAMES
from ottla.records.control import ABORT, COMMIT, control_type
from ottla.records.record import Record, read_records
from ottla.storage import checkpoint, names
from ottla.storage.offset_index import ENTRY_BYTES as OFFSET_ENTRY_BYTES
from ottla.storage.offset_index import CorruptIndex, OffsetIndex
from ottla.storage.salvage import Read, intact_batches
from ottla.storage.time_index import ENTRY_BYTES as TIME_ENTRY_BYTES
from ottla.storage.time_index import TimeIndex
from ottla.types import Buffer

_MARKERS = {ABORT: "abort", COMMIT: "commit"}
_OFFSET_CHECKPOINTS = (names.RECOVERY_POINTS, names.LOG_STARTS, names.HIGH_WATERMARKS)


@dataclass(frozen=True, slots=True)
class Item:
    """A part of a file. `kind` is file, batch, record, offset_index_entry, time_index_entry, checkpoint or damage."""

    path: str
    kind: str
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Scan:
    """The batches of a `.log` file, to compare its indexes with: positions, last offsets, largest timestamp so far."""

    positions: list[int] = field(default_factory=list)
    last_offsets: list[int] = field(default_factory=list)
    max_timestamps: list[int] = field(default_factory=list)

    def add(self, info: BatchInfo) -> None:
        self.positions.append(info.position)
        self.last_offsets.append(info.last_offset)
        self.max_timestamps.append(max(info.max_timestamp, self.max_timestamps[-1] if self.max_timestamps else -1))


def read_path(path: Path, *, records: bool, verify: bool) -> Iterator[Item]:
    """The items of a file, of a partition's directory or of a data directory."""
    if path.is_dir():
        entries = sorted(path.iterdir(), key=lambda entry: entry.name)
        for entry in entries:
            if entry.is_file() and _readable(entry.name):
                yield from read_file(entry, records=records, verify=verify)
        for entry in entries:
            if entry.is_dir() and names.parse_partition_dir(entry.name) is not None:
                yield from read_path(entry, records=records, verify=verify)
    elif path.exists():
        if not _readable(path.name):
            raise Failure(
                f"{path} is not a file of a log",
                "name .log, .index, .timeindex and checkpoint files, partition directories or data directories",
            )
        yield from read_file(path, records=records, verify=verify)
    else:
        raise Failure(f"{path} does not exist")


def _readable(name: str) -> bool:
    parsed = names.parse_offset_file(name)
    if parsed is not None:
        return is_segment(name) or parsed[1].removesuffix(names.DELETED) in (names.OFFSET_INDEX, names.TIME_INDEX)
    return name in (*_OFFSET_CHECKPOINTS, names.EPOCH_CHECKPOINT, names.PARTITION_METADATA, names.META_PROPERTIES)


def is_segment(name: str) -> bool:
    """Whether a file holds batches: a segment, also a deleted one, or what recovery cut off one."""
    parsed = names.parse_offset_file(name)
    return parsed is not None and (parsed[1] in (names.LOG, names.LOG + names.DELETED) or is_cut(name))


def is_cut(name: str) -> bool:
    """Whether a file is what recovery cut off a segment."""
    parsed = names.parse_offset_file(name)
    return parsed is not None and parsed[1].rstrip("0123456789") == names.LOG + names.CUT


def read_file(path: Path, *, records: bool, verify: bool) -> Iterator[Item]:
    parsed = names.parse_offset_file(path.name)
    try:
        if parsed is None:
            yield from _read_checkpoint(path)
            return
        base_offset, suffix = parsed[0], parsed[1].removesuffix(names.DELETED)
        yield Item(str(path), "file", {"base_offset": base_offset, "size": path.stat().st_size})
        if is_segment(path.name):
            yield from _read_log(path, base_offset, records=records, verify=verify)
        else:
            yield from _read_index(path, base_offset, suffix, verify=verify)
    except OSError as error:
        raise Failure(f"cannot read {path}: {error.strerror}") from None


def _read_checkpoint(path: Path) -> Iterator[Item]:
    from ottla.runtime.files import OsDisk

    disk, name = OsDisk(), str(path)
    fields: dict[str, Any]
    try:
        if path.name in _OFFSET_CHECKPOINTS:
            fields = {str(partition): offset for partition, offset in checkpoint.read_offsets(disk, name).items()}
        elif path.name == names.EPOCH_CHECKPOINT:
            fields = {f"epoch {epoch}": offset for epoch, offset in checkpoint.read_epochs(disk, name)}
        elif path.name == names.PARTITION_METADATA:
            topic_id = checkpoint.read_partition_metadata(disk, name)
            fields = {"topic_id": names.uuid_text(topic_id or bytes(16))}
        else:
            fields = dict(checkpoint.read_properties(disk, name) or {})
    except checkpoint.CorruptCheckpoint as error:
        yield Item(name, "damage", {"problem": str(error)})
        return
    yield Item(name, "checkpoint", {"entries": fields})


def _read_log(path: Path, base_offset: int, *, records: bool, verify: bool) -> Iterator[Item]:
    size = path.stat().st_size
    if size == 0:
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as data:
        position, next_offset = 0, base_offset
        while position < size:
            try:
                info = read_batch_header(data, position)
            except MalformedInput as error:
                behind = next(intact_batches(reader(data), size, position, next_offset), None)
                end = size if behind is None else behind.position
                # Zeros are preallocated space (`log.preallocate`).
                if behind is not None or any(bytes(data[position:])):
                    where = f"{end - position} bytes up to position {end}" if behind else f"the last {end - position} bytes"
                    problem = f"{where} are not a batch: {error}"
                    yield Item(str(path), "damage", {"position": position, "problem": problem})
                position = end
                continue
            yield Item(str(path), "batch", batch_fields(info))
            problems, held = _check_batch(data, info, next_offset, verify=verify, records=records)
            if records:
                for record in held:
                    yield Item(str(path), "record", record_fields(record, info))
            for problem in problems:
                yield Item(str(path), "damage", {"position": position, "offset": info.base_offset, "problem": problem})
            next_offset = max(next_offset, info.next_offset)
            position = info.end


def reader(data: memoryview) -> Read:
    return lambda position, count: bytes(data[position : position + count])


def _check_batch(
    data: Buffer, info: BatchInfo, next_offset: int, *, verify: bool, records: bool
) -> tuple[list[str], list[Record]]:
    problems: list[str] = []
    held: list[Record] = []
    if info.base_offset < next_offset:
        problems.append(f"base offset {info.base_offset} is not above {next_offset - 1}")
    if verify and not batch_crc_ok(data, info):
        problems.append("CRC mismatch")
        return problems, held
    if verify or records:
        try:
            held = read_records(data, info)
        except (MalformedInput, KafkaError) as error:
            problems.append(f"the records cannot be read: {error}")
    return problems, held


def batch_fields(info: BatchInfo) -> dict[str, Any]:
    codec = CODEC_NAMES[info.codec] if info.codec < len(CODEC_NAMES) else f"unknown ({info.codec})"
    return {
        "position": info.position,
        "size": info.size,
        "base_offset": info.base_offset,
        "last_offset": info.last_offset,
        "records": info.record_count,
        "codec": codec,
        "timestamp_type": "LogAppendTime" if info.is_log_append_time else "CreateTime",
        "max_timestamp": info.max_timestamp,
        "leader_epoch": info.leader_epoch,
        "producer_id": info.producer_id,
        "producer_epoch": info.producer_epoch,
        "base_sequence": info.base_sequence,
        "last_sequence": info.last_sequence,
        "transactional": info.is_transactional,
        "control": info.is_control,
        "crc": f"{info.crc:08x}",
    }


def record_fields(record: Record, info: BatchInfo) -> dict[str, Any]:
    kind = "LogAppendTime" if info.is_log_append_time else "CreateTime"
    document = to_json(Incoming("", -1, record.offset, record.timestamp, kind, record.key, record.value, record.headers))
    for name in ("topic", "partition", "timestamp_type"):
        del document[name]
    if info.is_control:
        with suppress(MalformedInput):
            document["marker"] = _MARKERS.get(control_type(record), "unknown")
    return document


def scan_log(path: Path) -> Scan:
    """The batches of a `.log` file up to the first malformed one."""
    scan = Scan()
    if not path.exists() or path.stat().st_size == 0:
        return scan
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as data:
        position = 0
        while position < len(data):
            try:
                info = read_batch_header(data, position)
            except MalformedInput:
                break
            scan.add(info)
            position = info.end
    return scan


def _read_index(path: Path, base_offset: int, suffix: str, *, verify: bool) -> Iterator[Item]:
    log = path.with_name(path.name.replace(suffix, names.LOG))
    data = path.read_bytes()
    try:
        if suffix == names.OFFSET_INDEX:
            log_size = log.stat().st_size if log.exists() else (1 << 63)
            offsets = OffsetIndex.parse(base_offset, _without_spare_entries(data, OFFSET_ENTRY_BYTES), log_size).entries()
            for offset, position in offsets:
                yield Item(str(path), "offset_index_entry", {"offset": offset, "position": position})
            if verify:
                yield from _verify_offsets(path, offsets, scan_log(log))
        else:
            times = TimeIndex.parse(base_offset, _without_spare_entries(data, TIME_ENTRY_BYTES)).entries()
            for timestamp, offset in times:
                yield Item(str(path), "time_index_entry", {"timestamp": timestamp, "offset": offset})
            if verify:
                yield from _verify_times(path, times, scan_log(log))
    except CorruptIndex as error:
        yield Item(str(path), "damage", {"problem": str(error)})


def _without_spare_entries(data: bytes, entry_bytes: int) -> bytes:
    """The index without the zeros that a running Apache Kafka preallocates at its end."""
    used = len(data.rstrip(b"\0"))
    return data[: -(-used // entry_bytes) * entry_bytes] if len(data) % entry_bytes == 0 else data


def _verify_offsets(path: Path, entries: list[tuple[int, int]], scan: Scan) -> Iterator[Item]:
    """Each entry must point to the start of a batch, and its offset must be the last offset of that or a later batch."""
    starts = {position: index for index, position in enumerate(scan.positions)}
    ends = {offset: index for index, offset in enumerate(scan.last_offsets)}
    for offset, position in entries:
        if position not in starts:
            yield Item(str(path), "damage", {"offset": offset, "problem": f"no batch starts at position {position}"})
        elif ends.get(offset, -1) < starts[position]:
            yield Item(
                str(path), "damage", {"offset": offset, "problem": f"no batch from position {position} has last offset {offset}"}
            )


def _verify_times(path: Path, entries: list[tuple[int, int]], scan: Scan) -> Iterator[Item]:
    """Each entry must hold the largest timestamp of all batches up to the one that holds its offset."""
    for timestamp, offset in entries:
        batch = bisect_right(scan.last_offsets, offset - 1)
        if batch >= len(scan.last_offsets):
            yield Item(str(path), "damage", {"offset": offset, "problem": f"offset {offset} is beyond the end of the log"})
        elif scan.max_timestamps[batch] != timestamp:
            found = scan.max_timestamps[batch]
            problem = f"the largest timestamp up to offset {offset} is {found}, the index says {timestamp}"
            yield Item(str(path), "damage", {"offset": offset, "problem": problem})
