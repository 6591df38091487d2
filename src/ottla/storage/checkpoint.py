"""Small text files that are replaced atomically: checkpoints, partition.metadata, meta.properties, .kafka_cleanshutdown.

Owns their format, and how they are replaced: temporary file, flush, rename, flush of the directory. A crash at any step leaves
the old file or the new one. Reading an invalid file raises `CorruptCheckpoint`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping

from ottla.ports import Disk
from ottla.storage.names import parse_uuid, uuid_text
from ottla.types import TopicPartition


class CorruptCheckpoint(Exception):
    """The content of a checkpoint file is invalid."""


def read_text(disk: Disk, path: str) -> str | None:
    """The content; None if the file does not exist."""
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return None
    try:
        data = file.read(0, file.size())
    finally:
        file.close()
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise CorruptCheckpoint(f"{path} is not text") from None


def replace_text(disk: Disk, path: str, text: str, temporary_suffix: str = ".tmp", *, flush: bool = True) -> None:
    """Replace the file so that a crash at any moment leaves the old content or the new.

    Without `flush` that holds for a crash of the process; a crash of the machine may leave neither.
    """
    temporary = path + temporary_suffix
    write_temporary(disk, temporary, text, flush=flush)
    disk.rename(temporary, path)
    if flush:
        disk.flush_dir(path.rpartition("/")[0])


def write_temporary(disk: Disk, path: str, text: str, *, flush: bool) -> None:
    """The first half of `replace_text`. Without `flush`, flush the file before it is renamed."""
    file = disk.open(path, create=True)
    try:
        file.truncate(0)
        file.write(0, [text.encode()])
        if flush:
            file.flush()
    finally:
        file.close()


def flush_file(disk: Disk, path: str) -> None:
    file = disk.open(path)
    try:
        file.flush()
    finally:
        file.close()


def _entries_text(entries: Iterable[str]) -> str:
    lines = list(entries)
    return "".join(f"{line}\n" for line in ["0", str(len(lines)), *lines])


def _read_entries(disk: Disk, path: str, fields: int) -> list[list[str]]:
    """The split lines of a version 0 checkpoint; none if the file is missing or empty, as in Kafka."""
    text = read_text(disk, path)
    if not text:
        return []
    lines = text.splitlines()
    if lines[0].strip() != "0":
        raise CorruptCheckpoint(f"{path} has version {lines[0]!r}, only 0 is supported")
    if len(lines) == 1:
        return []
    entries = [line.split() for line in lines[2:]]
    if not lines[1].strip().isdecimal() or int(lines[1]) != len(entries):
        raise CorruptCheckpoint(f"{path} should have {lines[1]!r} entries and has {len(entries)}")
    for entry in entries:
        if len(entry) != fields:
            raise CorruptCheckpoint(f"{path} has the malformed line {' '.join(entry)!r}")
    return entries


def _number(text: str, path: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise CorruptCheckpoint(f"{path} has {text!r} instead of a number") from None


def write_offsets(disk: Disk, path: str, offsets: Mapping[TopicPartition, int], temporary_suffix: str = ".tmp") -> None:
    lines = (f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items())
    replace_text(disk, path, _entries_text(lines), temporary_suffix)


def drop_offsets(disk: Disk, path: str, gone: Collection[TopicPartition]) -> None:
    """Remove partitions from a checkpoint. The temporary name is its own: a worker may be writing the same checkpoint."""
    try:
        offsets = read_offsets(disk, path)
    except CorruptCheckpoint:
        offsets = {}
    left = {key: offset for key, offset in offsets.items() if key not in gone}
    if len(left) < len(offsets):
        write_offsets(disk, path, left, ".drop.tmp")


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, _number(partition, path)): _number(offset, path)
        for topic, partition, offset in _read_entries(disk, path, fields=3)
    }


def epochs_text(epochs: Iterable[tuple[int, int]]) -> str:
    """`epochs`: (leader epoch, start offset), ascending."""
    return _entries_text(f"{epoch} {offset}" for epoch, offset in epochs)


def write_epochs(disk: Disk, path: str, epochs: Iterable[tuple[int, int]]) -> None:
    replace_text(disk, path, epochs_text(epochs))


def read_epochs(disk: Disk, path: str) -> list[tuple[int, int]]:
    return [(_number(epoch, path), _number(offset, path)) for epoch, offset in _read_entries(disk, path, fields=2)]


def write_partition_metadata(disk: Disk, path: str, topic_id: bytes) -> None:
    """Not flushed: the log's next flush does that (`LogFlushes.metadata_written`)."""
    replace_text(disk, path, f"version: 0\ntopic_id: {uuid_text(topic_id)}", flush=False)


def write_swap_mark(disk: Disk, path: str, log_start_offset: int) -> None:
    """Mark a moved log, durably: see `replica_copy`."""
    replace_text(disk, path, f"version: 0\nlog_start_offset: {log_start_offset}")


def read_swap_mark(disk: Disk, path: str) -> int | None:
    """The log start offset at the time of the move; None: the log was not moved."""
    text = read_text(disk, path)
    return None if text is None else _number(_fields(text, ":").get("log_start_offset", "0"), path)


def read_partition_metadata(disk: Disk, path: str) -> bytes | None:
    """The topic id; None if the file does not exist."""
    text = read_text(disk, path)
    if text is None:
        return None
    fields = _fields(text, ":")
    try:
        if fields["version"] != "0":
            raise CorruptCheckpoint(f"{path} has version {fields['version']!r}, only 0 is supported")
        return parse_uuid(fields["topic_id"])
    except (KeyError, ValueError):
        raise CorruptCheckpoint(f"{path} has no topic id") from None


def write_properties(disk: Disk, path: str, properties: Mapping[str, str]) -> None:
    """Write a Java properties file. Kafka's has the date in a comment; this one has an empty comment."""
    lines = ["#", *(f"{key}={value}" for key, value in properties.items())]
    replace_text(disk, path, "".join(f"{line}\n" for line in lines))


def read_properties(disk: Disk, path: str) -> dict[str, str] | None:
    text = read_text(disk, path)
    return None if text is None else _fields(text, "=")


def _fields(text: str, separator: str) -> dict[str, str]:
    lines = (line.strip() for line in text.splitlines())
    parts = (line.partition(separator) for line in lines if line and not line.startswith(("#", "!")))
    return {key.strip(): value.strip() for key, _, value in parts}


def write_clean_shutdown(disk: Disk, path: str, broker_epoch: int) -> None:
    replace_text(disk, path, json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")))
