"""`ottla log repair`: replaces damaged places of a stopped broker's segments with the batches of another replica.

Replicas have the same batches at the same offsets. What is fetched must fill a damaged place without a gap, by whole batches
whose CRC is right; otherwise nothing is changed.

1. The data directory is locked: no broker uses it.
2. The new file is complete, checked and durable before it takes the name of the old one, in one step. The old one stays, as
   `.log.cut`.
3. Indexes are removed first: the start rebuilds them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from ottla.cli.cluster.view import ClusterView
from ottla.cli.connection import Connection
from ottla.cli.failure import EXIT_USAGE, Failure
from ottla.cli.plain_request import call
from ottla.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.records.batch import batch_crc_ok, scan_batches
from ottla.runtime.files import OsDisk
from ottla.storage import names
from ottla.storage.offset_index import INT32_MAX
from ottla.storage.scrub import Damage, SegmentCheck
from ottla.types import TopicPartition

_FETCH_BYTES = 8 << 20
_COPY_BYTES = 4 << 20
_FETCH_VERSION = 11


@dataclass(frozen=True, slots=True)
class Repaired:
    path: str
    kept: str
    """The damaged file."""
    first_offset: int
    last_offset: int
    source: int
    """The broker whose batches replace it."""


class Source:
    """A replica on another broker."""

    def __init__(self, connection: Connection, partition: TopicPartition, chosen: int | None, own_id: int | None) -> None:
        view = ClusterView(connection)
        state = view.of([partition.topic])[partition.partition]
        self.broker_id = state.leader if chosen is None else chosen
        if self.broker_id == own_id or self.broker_id not in state.replicas:
            others = [str(each) for each in state.replicas if each != own_id]
            raise Failure(
                f"broker {self.broker_id} cannot repair {partition}: it has no other replica of it",
                f"name one with --from: {', '.join(others)}" if others else "the partition has no other replica",
            )
        broker = view.brokers.get(self.broker_id)
        if broker is None:
            raise Failure(
                f"broker {self.broker_id}, which has the other replica of {partition}, is down", "start it, or use --from"
            )
        self._address = broker.address
        self._connection = connection
        self._partition = partition

    def batches(self, damage: Damage) -> Iterator[bytes]:
        """The batches that fill a damaged place. Failure if they do not."""
        offset = damage.first_offset
        while offset < damage.end_offset:
            data = self._fetch(offset)
            infos, _ = scan_batches(data)
            wanted = [info for info in infos if info.next_offset > offset]
            if not wanted:
                raise self._refusal(f"it returned no batch for offset {offset}")
            for info in wanted:
                if offset >= damage.end_offset:
                    break
                if info.base_offset != offset or info.next_offset > damage.end_offset:
                    raise self._refusal(
                        f"its batch of offsets {info.base_offset} to {info.last_offset} does not fill the place from {offset} to "
                        f"{damage.end_offset - 1}: compaction or retention changed one of the replicas"
                    )
                if not batch_crc_ok(data, info):
                    raise self._refusal(f"its batch at offset {offset} is damaged too")
                yield data[info.position : info.end]
                offset = info.next_offset

    def _fetch(self, offset: int) -> bytes:
        partition = FetchPartition(partition=self._partition.partition, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES)
        request = FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=_FETCH_BYTES,
            topics=[FetchTopic(topic=self._partition.topic, partitions=[partition])],
        )
        answer = call(self._connection, "fetch", _FETCH_VERSION, request, FetchResponse, self._address)
        (found,) = answer.responses[0].partitions
        if found.error_code:
            raise self._refusal(f"it answered {ErrorCode(found.error_code).name} for offset {offset}")
        parts = found.records if isinstance(found.records, list) else [found.records]
        return b"".join(bytes(part) for part in parts if part is not None)  # type: ignore[arg-type]

    def _refusal(self, why: str) -> Failure:
        return Failure(f"broker {self.broker_id} cannot repair {self._partition}: {why}", "nothing was changed; try --from")


def repair(directory: Path, connection: Connection, chosen: int | None) -> tuple[list[Repaired], list[str]]:
    """Repair the segments of a partition's directory. Returns what was repaired, and what recovery at the start will see to."""
    partition = names.parse_partition_dir(directory.name)
    if partition is None or not directory.is_dir():
        hint = "name the directory of a partition, such as ottla-data/orders-0"
        raise Failure(f"{directory} is not the directory of a partition", hint, exit_code=EXIT_USAGE)
    disk = OsDisk()
    try:
        lock = disk.lock(str(directory.parent / names.LOCK))
    except BlockingIOError:
        raise Failure(f"a broker uses {directory.parent}", "stop it first") from None
    try:
        damaged, left = _find(disk, directory)
        if not damaged:
            return [], left
        source = Source(connection, partition, chosen, _own_id(directory.parent))
        # Everything is fetched before anything is changed.
        written = [(base, damages, _write(disk, directory, base, damages, source)) for base, damages in damaged]
        return [_swap(disk, directory, base, damages, source, new) for base, damages, new in written], left
    finally:
        lock.close()


def _find(disk: OsDisk, directory: Path) -> tuple[list[tuple[int, list[Damage]]], list[str]]:
    """The damages by base offset. That of the log's end is left: which offsets it had is not known."""
    bases = sorted(
        parsed[0] for path in directory.iterdir() if (parsed := names.parse_offset_file(path.name)) and parsed[1] == names.LOG
    )
    ends = [following for _, following in pairwise(bases)]
    damaged, left = [], []
    for base, end in zip(bases, [*ends, None], strict=True):
        path = directory / names.offset_file(base, names.LOG)
        check = _check(disk, path, base, end if end is not None else base + INT32_MAX + 1)
        damages = check.damages
        if end is None and damages and damages[-1].end_position == check.bytes:
            left.append(f"{path} ends in {check.bytes - damages[-1].position} bytes that are no batch: the start cuts them off")
            damages = damages[:-1]
        if damages:
            damaged.append((base, damages))
    return damaged, left


def _check(disk: OsDisk, path: Path, base: int, end: int) -> SegmentCheck:
    check = SegmentCheck(disk, str(path), base, end)
    try:
        while not check.done:
            check.step()
    finally:
        check.close()
    return check


def _write(disk: OsDisk, directory: Path, base: int, damages: Sequence[Damage], source: Source) -> Path:
    """The repaired segment under a name that a start removes, checked and flushed."""
    old = directory / names.offset_file(base, names.LOG)
    new = directory / names.offset_file(base, names.LOG + names.DELETED)
    try:
        with old.open("rb") as reading, new.open("wb") as writing:
            position = 0
            for damage in damages:
                _copy(reading.fileno(), writing.fileno(), position, damage.position)
                for batch in source.batches(damage):
                    _write_all(writing.fileno(), batch)
                position = damage.end_position
            _copy(reading.fileno(), writing.fileno(), position, old.stat().st_size)
            os.fsync(writing.fileno())
        check = _check(disk, new, base, base + INT32_MAX + 1)
        if any(damage.first_offset < damages[-1].end_offset for damage in check.damages):
            raise Failure(f"{old} would still be damaged after the repair", "nothing was changed")
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    return new


def _copy(source: int, target: int, position: int, end: int) -> None:
    while position < end:
        chunk = os.pread(source, min(_COPY_BYTES, end - position), position)
        _write_all(target, chunk)
        position += len(chunk)


def _write_all(target: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(target, view) :]


def _swap(disk: OsDisk, directory: Path, base: int, damages: Sequence[Damage], source: Source, new: Path) -> Repaired:
    old = directory / names.offset_file(base, names.LOG)
    for suffix in (names.OFFSET_INDEX, names.TIME_INDEX):
        (directory / names.offset_file(base, suffix)).unlink(missing_ok=True)
    disk.flush_dir(str(directory))
    kept, number = Path(f"{old}{names.CUT}"), 1
    while kept.exists():
        number += 1
        kept = Path(f"{old}{names.CUT}{number}")
    os.link(old, kept)
    new.replace(old)
    disk.flush_dir(str(directory))
    return Repaired(str(old), str(kept), damages[0].first_offset, damages[-1].end_offset - 1, source.broker_id)


def _own_id(data_dir: Path) -> int | None:
    from ottla.storage.checkpoint import CorruptCheckpoint, read_properties

    try:
        properties = read_properties(OsDisk(), str(data_dir / names.META_PROPERTIES)) or {}
    except CorruptCheckpoint:
        return None
    found = properties.get("broker.id") or properties.get("node.id")
    return int(found) if found and found.isdecimal() else None
