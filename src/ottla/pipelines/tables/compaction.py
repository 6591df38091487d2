"""Few large files of many small ones, in tables of files on a local disk.

The files of a directory are read and written as larger ones beside the table. Then, under the table's lock, a directory with
these and with the files that came meanwhile takes the place of the old one: the file system exchanges the two names in one step.
A reader that lists the directory sees every row once, before and after. One that listed it before and opens a file afterwards may
get an error that the file is not there, never wrong rows. The old directory is emptied some seconds later only: a reader that is
just listing it must not find it empty.

Text (JSON, CSV) is copied line by line. Parquet and ORC are read with the columns of all files.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.pipelines.checkpoint import local_folder
from ottla.pipelines.definitions import Files, Flow, Table
from ottla.pipelines.failure import PipelineError
from ottla.pipelines.graph import Plan, same_path
from ottla.pipelines.spark_errors import first_line
from ottla.pipelines.tables.files import FORMATS, OLD_LAYOUT, hidden_folder, locked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TARGET_SIZE = 128 << 20
_FILES_MIN = 4
"""Fewer small files in a directory are left as they are."""
LISTED_S = 5.0
"""How long a reader may take to list a directory."""
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


@dataclass(frozen=True)
class Compacted:
    flow: str
    table: str
    directories: int
    files_before: int
    files_after: int


def refusal(plan: Plan, flow: Flow) -> str | None:
    """Why the table of a flow cannot be compacted; None if it can."""
    table = flow.to
    if not isinstance(table, Table) or table.format not in FORMATS:
        return "it is no table of files"
    if local_folder(table.path) is None:
        return f"{table.path} is not on this machine"
    if not sys.platform.startswith("linux"):
        return "the system cannot exchange two directories in one step"
    if table.format == "csv" and dict(table.options).get("header", "").lower() == "true":
        return "each of its CSV files has a header"
    for other in plan.flows:
        for node in plan.inputs[other.name]:
            if isinstance(node, Files) and not node.static and same_path(node.path, table.path):
                return f"flow {other.name!r} reads its files as a stream, and would read their rows again"
    return None


def compact(spark: SparkSession, flow: Flow, target_size: int = TARGET_SIZE) -> Compacted:
    """Compact the directories of a flow's table."""
    table = flow.to
    assert isinstance(table, Table)
    root = local_folder(table.path.rstrip("/"))
    assert root is not None
    work = Path(hidden_folder(str(root))) / "compaction"
    if not root.is_dir():
        return Compacted(flow.name, table.path, 0, 0, 0)
    try:
        # One process at a time compacts a table.
        with locked(str(root), "compaction.lock"):
            shutil.rmtree(work, ignore_errors=True)
            with locked(str(root)):
                _move_old_layout(root)
            return _compacted(spark, flow.name, table, root, work, target_size)
    except OSError as error:
        raise PipelineError(f"table {table.path!r} is not compacted: {error.strerror}: {error.filename}", table.place) from error
    except Exception as error:
        raise PipelineError(f"table {table.path!r} is not compacted: {first_line(error)}", table.place) from error


def _compacted(spark: SparkSession, flow: str, table: Table, root: Path, work: Path, target_size: int) -> Compacted:
    found = Compacted(flow, table.path, 0, 0, 0)
    try:
        for folder in list(_folders(root)):
            small = sorted(path for path in _data_files(folder) if path.stat().st_size < target_size // 2)
            if len(small) < _FILES_MIN:
                continue
            made = _rewritten(spark, table, small, work / "files", target_size)
            with locked(str(root)):
                after = _exchange(folder, small, made, work / f"replaced-{found.directories}")
            before = found.files_before + len(small)
            found = Compacted(flow, table.path, found.directories + 1, before, found.files_after + after)
        if found.directories:
            time.sleep(LISTED_S)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return found


def _folders(root: Path) -> Iterator[Path]:
    """The directories that hold data: the table's own, or those of its partitions."""
    for folder, names, _ in os.walk(root):
        names[:] = sorted(name for name in names if not name.startswith(("_", ".")))
        yield Path(folder)


def _data_files(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_file() and not path.name.startswith(("_", "."))]


def _rewritten(spark: SparkSession, table: Table, small: list[Path], to: Path, target_size: int) -> list[Path]:
    """The rows of the small files in as few files as their size asks for."""
    count = max(1, -(-sum(path.stat().st_size for path in small) // target_size))
    paths = [f"file://{path}" for path in small]
    options: dict[str, Any] = dict(table.options)
    shutil.rmtree(to, ignore_errors=True)
    if table.format in ("json", "csv"):
        rows, kind = spark.read.text(paths), "text"
    else:
        # Not the directory: its name would become a column.
        rows, kind = spark.read.option("mergeSchema", "true").format(table.format).load(paths), table.format
    rows.coalesce(count).write.format(kind).options(**options).mode("overwrite").save(f"file://{to}")
    name = small[-1].name.partition(".")[0]
    made = []
    for number, path in enumerate(sorted(_data_files(to))):
        ending = re.sub(r"^part-[0-9]+-[0-9a-f-]{36}[-.]c[0-9]+", "", path.name)
        if kind == "text":
            ending = ending.replace(".txt", f".{table.format}")
        made.append(path.rename(path.with_name(f"{name}-to-{len(small)}-{number:05d}{ending}")))
    return made


def _exchange(folder: Path, small: list[Path], made: list[Path], new: Path) -> int:
    """Put a directory with `made` instead of `small` in the place of `folder`, which becomes `new`. The number of files made."""
    new.mkdir(parents=True)
    shutil.copystat(folder, new)
    replaced = {path.name for path in small} | {f".{path.name}.crc" for path in small}
    for path in folder.iterdir():
        if path.name in replaced:
            continue
        if path.is_dir():
            raise OSError(errno.EISDIR, "a directory is beside the files", str(path))
        os.link(path, new / path.name)
    for path in made:
        path.rename(new / path.name)
    for path in new.iterdir():
        _synced(path)
    _synced(new)
    exchange_names(new, folder)
    return len(made)


def exchange_names(one: Path, other: Path) -> None:
    """Exchange two directories in one step."""
    libc = ctypes.CDLL(None, use_errno=True)
    done = libc.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)
    if done:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(other))


def _synced(path: Path) -> None:
    """What replaces other files must be on the disk before they go."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _move_old_layout(root: Path) -> None:
    """Move files out of the directories `ottla_batch=…` that earlier versions wrote, directories of partitions included."""
    for batch in sorted(root.glob(f"{OLD_LAYOUT}*")):
        name = batch.name.removeprefix(OLD_LAYOUT)
        for path in sorted(each for each in batch.rglob("*") if each.is_file()):
            if path.name.startswith(("_", ".")):
                continue
            to = root / path.relative_to(batch).parent / f"{name}-{path.name}"
            to.parent.mkdir(parents=True, exist_ok=True)
            path.rename(to)
        shutil.rmtree(batch)
