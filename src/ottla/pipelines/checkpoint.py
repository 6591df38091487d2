"""What Spark keeps of a query, and what we keep beside it.

Owns: reading the query's id and the offsets of a batch from Spark's own files (the offset log is written before a batch runs),
and the note that says whose checkpoint this is. Files are reached through Spark's file systems, so storage may be anywhere.
Never changes a file of Spark's.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from zlib import crc32

from ottla.pipelines.failure import PipelineError
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTE = "ottla.json"
Offsets = dict[TopicPartition, int]


@dataclass(frozen=True)
class BatchOffsets:
    """Where a batch begins and ends in each topic it reads. Sources that are no topics are not in it."""

    start: Offsets
    end: Offsets
    fingerprint: str
    """Of the batch's whole entry in the offset log: the same batch run again has the same."""


class Checkpoint:
    def __init__(self, spark: SparkSession, location: str) -> None:
        self.location = location.rstrip("/")
        self._query_id: str | None = None
        self._last: tuple[int, list[str]] = -1, []
        """The entry of the offset log that was read last: the next batch begins where it ended."""
        self._jvm = cast(Any, spark._jvm)
        path = self._jvm.org.apache.hadoop.fs.Path(self.location)
        self._files = path.getFileSystem(spark._jsc.hadoopConfiguration())

    def query_id(self) -> str | None:
        """The identity of the checkpoint, which never changes; None where no query has begun yet."""
        if self._query_id is None:
            text = self._read("metadata")
            self._query_id = None if text is None else query_id_in(text, f"{self.location}/metadata")
        return self._query_id

    def note(self) -> dict[str, Any] | None:
        text = self._read(NOTE)
        return None if text is None else note_in(text, f"{self.location}/{NOTE}")

    def write_note(self, document: dict[str, Any]) -> None:
        """Where there is none yet; whole or not at all."""
        draft = self._path(f"_{NOTE}")
        stream = self._files.create(draft, True)
        try:
            stream.write(bytearray(json.dumps(document, indent=1).encode()))
        finally:
            stream.close()
        if not self._files.rename(draft, self._path(NOTE)):
            raise PipelineError(f"{self.location}/{NOTE} cannot be written", hint="does another driver start the same flow?")

    def mine(self, pipeline: str, flow: str, inputs: list[str]) -> dict[str, Any] | None:
        """The note, if this is the checkpoint of that flow; None where there is none yet. PipelineError if it is another's."""
        found = self.note()
        if found is None:
            if self.query_id() is not None:
                raise PipelineError(
                    f"{self.location} holds a checkpoint that no pipeline of Ottla made", hint="choose another storage"
                )
            return None
        check_owner(found, self.location, pipeline, flow)
        if found.get("inputs") != inputs:
            raise PipelineError(
                f"{self.location} was made when flow {flow!r} read {', '.join(found.get('inputs') or ['nothing'])}; now it reads "
                f"{', '.join(inputs or ['nothing'])}",
                hint=f"`ottla pipeline reset … --flow {flow}` begins anew, or give the flow another name",
            )
        return found

    def batch_offsets(self, batch_id: int, starting: Offsets) -> BatchOffsets:
        """`starting` is where a partition begins that no earlier batch had; a partition not even there begins at 0."""
        entry = self._entry(batch_id)
        if entry is None:
            raise PipelineError(f"{self.location}/offsets/{batch_id} is missing", hint="was the checkpoint changed by hand?")
        before = self._entry(batch_id - 1) if batch_id > 0 else None
        self._last = batch_id, entry
        start, end = _topics(before or []), _topics(entry)
        for where in end:
            if where not in start:
                start[where] = starting.get(where, 0)
        return BatchOffsets(start, end, f"{crc32('|'.join(entry).encode()):08x}")

    def _entry(self, batch_id: int) -> list[str] | None:
        if batch_id == self._last[0]:
            return self._last[1]
        text = self._read(f"offsets/{batch_id}")
        if text is None:
            return None
        # A version, the batch's own settings, then one line for each source.
        return text.split("\n")[2:]

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self.location}/{name}")

    def _read(self, name: str) -> str | None:
        path = self._path(name)
        if not self._files.exists(path):
            return None
        stream = self._files.open(path)
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream)).decode()
        finally:
            stream.close()

    def remove(self) -> None:
        self._files.delete(self._jvm.org.apache.hadoop.fs.Path(self.location), True)


def _topics(lines: list[str]) -> Offsets:
    """The offsets in the lines that are those of topics. Two sources of one topic: what both have passed."""
    found: Offsets = {}
    for line in lines:
        for where, offset in offsets_of(line).items():
            found[where] = min(offset, found.get(where, offset))
    return found


def check_owner(note: dict[str, Any], location: str, pipeline: str, flow: str) -> None:
    owner = note.get("pipeline"), note.get("flow")
    if owner != (pipeline, flow):
        raise PipelineError(
            f"{location} is the checkpoint of {owner[0]}.{owner[1]}, not of {pipeline}.{flow}",
            hint="choose another storage (--storage), or another name for the pipeline",
        )


def query_id_in(text: str, file: str) -> str:
    """What Spark's file `metadata` says."""
    return str(_document(text, file, "id")["id"])


def note_in(text: str, file: str) -> dict[str, Any]:
    return _document(text, file)


def _document(text: str, file: str, *wanted: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    if not isinstance(document, dict) or not document.keys() >= set(wanted):
        raise PipelineError(f"{file} is damaged", hint="`ottla pipeline reset` begins anew")
    return document


def local_folder(location: str) -> Path | None:
    """The directory of a checkpoint on this machine; None where only Spark's file systems reach it."""
    if location.startswith("file:/"):
        return Path("/" + location.removeprefix("file:").lstrip("/"))
    return None if "://" in location else Path(location)


def offsets_of(line: str) -> Offsets:
    """`{"orders": {"0": 17}}`, as our source and Spark's connector write it; empty where it is the offset of something else."""
    try:
        document = json.loads(line)
        return {
            TopicPartition(topic, int(partition)): int(offset)
            for topic, parts in document.items()
            if isinstance(parts, dict)
            for partition, offset in parts.items()
        }
    except (ValueError, AttributeError, TypeError):
        return {}
