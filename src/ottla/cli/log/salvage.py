"""`ottla log dump --salvage`: saves intact batches of a damaged partition to a segment file.

Of a `.log` file these are the batches behind its first damage: those before it are readable anyway. Of a `.log.cut` file, which
recovery left, all. Never changes the files it reads.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ottla.cli.failure import EXIT_USAGE, Failure
from ottla.cli.log.segments import is_cut, is_segment, reader
from ottla.records.batch import BatchInfo
from ottla.storage import names
from ottla.storage.offset_index import INT32_MAX
from ottla.storage.salvage import intact_batches


@dataclass(slots=True)
class Salvaged:
    path: str
    first_offset: int
    last_offset: int = -1
    batches: int = 0
    records: int = 0


def salvage(sources: Sequence[Path], target: Path) -> Salvaged | None:
    """Write the batches to a new file, in the order of their offsets. None: there are none."""
    batches = _batches(_segments(sources))
    first = next(batches, None)
    if first is None:
        return None
    path = _path_of(target, first[0].base_offset)
    saved = Salvaged(str(path), first[0].base_offset)
    try:
        with path.open("xb") as file:
            _write(file, saved, *first)
            for info, data in batches:
                if info.base_offset > saved.last_offset:  # else it was cut off twice
                    _write(file, saved, info, data)
    except FileExistsError:
        raise Failure(f"{path} exists", "give another file or directory", exit_code=EXIT_USAGE) from None
    except OSError as error:
        raise Failure(f"cannot write {path}: {error.strerror}") from None
    return saved


def _write(file: IO[bytes], saved: Salvaged, info: BatchInfo, data: bytes) -> None:
    if info.last_offset > saved.first_offset + INT32_MAX:
        hint = f"salvage {saved.path} from the files before it, and another from this one on"
        raise Failure(f"offset {info.last_offset} is more than 2^31 above the first one of the file", hint)
    file.write(data)
    saved.batches += 1
    saved.records += info.record_count
    saved.last_offset = info.last_offset


def _path_of(target: Path, offset: int) -> Path:
    """The name of a segment is its first offset: every tool that reads the file takes it from there."""
    name = names.offset_file(offset, names.LOG)
    if target.is_dir():
        return target / name
    parsed = names.parse_offset_file(target.name)
    if parsed is None or parsed[1] != names.LOG or not offset - INT32_MAX < parsed[0] <= offset:
        raise Failure(
            f"{target.name} is not the name of a segment that begins at offset {offset}",
            f"name the file {name}, or give a directory",
            exit_code=EXIT_USAGE,
        )
    return target


def _segments(sources: Sequence[Path]) -> list[tuple[int, Path]]:
    """The segment files of one partition, by base offset."""
    found: list[tuple[int, Path]] = []
    for source in sources:
        if not source.exists():
            raise Failure(f"{source} does not exist")
        for path in source.iterdir() if source.is_dir() else [source]:
            parsed = names.parse_offset_file(path.name)
            if parsed is not None and is_segment(path.name):
                found.append((parsed[0], path))
    if not found:
        hint = "name a partition's directory, or .log and .log.cut files of one partition"
        raise Failure("no segments to salvage from", hint, exit_code=EXIT_USAGE)
    if len({path.parent.resolve() for _, path in found}) > 1:
        raise Failure("the segments are of several partitions", "salvage one partition at a time", exit_code=EXIT_USAGE)
    return sorted(found)


def _batches(segments: Sequence[tuple[int, Path]]) -> Iterator[tuple[BatchInfo, bytes]]:
    for base_offset, path in segments:
        size = path.stat().st_size
        if not size:
            continue
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as data:
            end, wanted = 0, is_cut(path.name)
            for info in intact_batches(reader(data), size, 0, base_offset, base_offset + INT32_MAX + 1):
                wanted = wanted or info.position > end
                end = info.end
                if wanted:
                    yield info, bytes(data[info.position : info.end])
