"""The checkpoint of a flow: Spark's files, which are only read, and a note beside them that says whose checkpoint it is.

Spark's file `metadata` holds the query's id, `offsets/N` the offsets of batch N, written before the batch runs.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

from ottla.pipelines.data_source.offsets import SourceOffsets
from ottla.pipelines.definitions import Files, Flow, Source
from ottla.pipelines.failure import PipelineError
from ottla.pipelines.graph import Plan
from ottla.pipelines.spark_jvm import FileSystem
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTE = "ottla.json"
PartitionOffsets = dict[TopicPartition, int]


@dataclass(frozen=True)
class BatchOffsets:
    """The start and end offsets of a batch, for each partition it reads. Without sources that are not topics."""

    start: PartitionOffsets
    end: PartitionOffsets
    fingerprint: str
    """Of the batch's entry in the offset log: the same for every run of the batch."""


class Checkpoint:
    def __init__(self, spark: SparkSession, location: str) -> None:
        self.location = location.rstrip("/")
        self._query_id: str | None = None
        self._last: tuple[int, list[str]] = -1, []
        """The entry of the offset log that was read last: the next batch starts where it ends."""
        self._files = FileSystem(spark, self.location)

    def query_id(self) -> str | None:
        """The identity of the checkpoint, which never changes. None before the first run."""
        if self._query_id is None:
            text = self._read("metadata")
            self._query_id = None if text is None else query_id_in(text, f"{self.location}/metadata")
        return self._query_id

    def write_note(self, document: dict[str, Any]) -> None:
        """Write the first note, atomically."""
        draft, note = f"{self.location}/_{NOTE}", f"{self.location}/{NOTE}"
        self._files.write_text(draft, json.dumps(document, indent=1))
        if not self._files.rename(draft, note):
            raise PipelineError(f"{note} cannot be written", hint="check whether another driver starts the same flow")

    def own_note(self, pipeline: str, flow: str, inputs: list[str]) -> dict[str, Any] | None:
        """The note of this flow's checkpoint, or None before its first run. PipelineError if it belongs to another."""
        text = self._read(NOTE)
        if text is None:
            if self.query_id() is not None:
                raise PipelineError(f"{self.location} is a checkpoint of another program", hint="choose another --storage")
            return None
        found = note_in(text, f"{self.location}/{NOTE}")
        check_owner(found, self.location, pipeline, flow)
        if found.get("inputs") != inputs:
            raise PipelineError(
                f"{self.location} was made when flow {flow!r} read {', '.join(found.get('inputs') or ['nothing'])}; now the flow "
                f"reads {', '.join(inputs or ['nothing'])}",
                hint=f"remove it with `ottla pipeline reset … --flow {flow}`, or give the flow another name",
            )
        return found

    def note(self) -> dict[str, Any] | None:
        """The note, whosever it is."""
        text = self._read(NOTE)
        return None if text is None else note_in(text, f"{self.location}/{NOTE}")

    def last_batch(self) -> int | None:
        """The last batch in the offset log. None before the first."""
        return max((int(name) for name in self._files.names(f"{self.location}/offsets") if name.isdecimal()), default=None)

    def watermark_ms(self, batch_id: int) -> int:
        """The watermark with which a batch ran. PipelineError if the batch is not in the offset log any more."""
        text = self._read(f"offsets/{batch_id}")
        if text is None:
            raise PipelineError(f"{self.location}/offsets/{batch_id} is missing")
        return int(_document(text.split("\n")[1], f"{self.location}/offsets/{batch_id}", "batchWatermarkMs")["batchWatermarkMs"])

    def forge_batch(self, batch_id: int, ends: PartitionOffsets, watermark_ms: int) -> None:
        """Write the entry of a batch that Spark has not planned: at the next start it runs this one first."""
        before = self._read(f"offsets/{batch_id - 1}")
        assert before is not None
        draft, entry = f"{self.location}/_offsets-{batch_id}", f"{self.location}/offsets/{batch_id}"
        self._files.write_text(draft, forged(before, ends, watermark_ms))
        if not self._files.rename(draft, entry):
            raise PipelineError(f"{entry} cannot be written", hint="another upgrade may be under way: run the upgrade again")

    def batch_offsets(self, batch_id: int, starting: PartitionOffsets) -> BatchOffsets:
        """The offsets of a batch. Partitions that no earlier batch had start at `starting`, or at 0."""
        entry = self._entry(batch_id)
        if entry is None:
            raise PipelineError(
                f"{self.location}/offsets/{batch_id} is missing", hint="the checkpoint was changed; `ottla pipeline reset` it"
            )
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
        # Lines: a version, the settings of the batch, then one for each source.
        return None if text is None else text.split("\n")[2:]

    def _read(self, name: str) -> str | None:
        return self._files.read_text(f"{self.location}/{name}")


def _topics(lines: list[str]) -> PartitionOffsets:
    """The offsets of all topic sources. If two sources read one partition, the smaller offset."""
    found: PartitionOffsets = {}
    for line in lines:
        for where, offset in offsets_of(line).items():
            found[where] = min(offset, found.get(where, offset))
    return found


def check_owner(note: dict[str, Any], location: str, pipeline: str, flow: str) -> None:
    owner = note.get("pipeline"), note.get("flow")
    if owner != (pipeline, flow):
        raise PipelineError(
            f"{location} is the checkpoint of {owner[0]}.{owner[1]}, not of {pipeline}.{flow}",
            hint="choose another --storage, or another --name for the pipeline",
        )


def query_id_in(text: str, file: str) -> str:
    """The query id in the text of Spark's file `metadata`."""
    return str(_document(text, file, "id")["id"])


def note_in(text: str, file: str) -> dict[str, Any]:
    return _document(text, file)


def _document(text: str, file: str, *wanted: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    if not isinstance(document, dict) or not document.keys() >= set(wanted):
        raise PipelineError(f"{file} is damaged", hint="remove the checkpoint with `ottla pipeline reset`")
    return document


def local_folder(location: str) -> Path | None:
    """The directory of a checkpoint on this machine, or None if only Spark's file systems reach it."""
    if location.startswith("file:/"):
        return Path("/" + location.removeprefix("file:").lstrip("/"))
    return None if "://" in location else Path(location)


def forged(entry: str, ends: PartitionOffsets, watermark_ms: int) -> str:
    """The entry of a batch that follows this one in Spark's offset log, up to these offsets and with this watermark."""
    head, metadata, *lines = entry.split("\n")
    document = json.loads(metadata)
    document["batchWatermarkMs"] = watermark_ms
    document["batchTimestampMs"] = max(int(time.time() * 1000), int(document["batchTimestampMs"]))
    ended = []
    for line in lines:
        found = SourceOffsets.of(json.loads(line))
        # Spark compares texts: an entry that differs only in its spaces would be new data.
        assert json.dumps(found.document()) == line, line
        read = {where.topic for where in found.positions}
        positions = dict(found.positions) | {where: offset for where, offset in ends.items() if where.topic in read}
        ended.append(json.dumps(SourceOffsets(positions, found.topic_ids).document()))
    return "\n".join([head, json.dumps(document, separators=(",", ":")), *ended])


def offsets_of(line: str) -> PartitionOffsets:
    """The offsets in `{"orders": {"0": 17}}`, as `format("ottla")` and Spark's Kafka source write them. Empty for other
    sources."""
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


def inputs_of(plan: Plan, flow: Flow, sources: tuple[Source, ...] | None = None) -> list[str]:
    """The topics and paths that a flow reads, as its checkpoint notes them. Other inputs need another checkpoint."""
    read = plan.sources(flow) if sources is None else sources
    inputs = sorted(f"{_prefix(source)}{source.pattern or ','.join(source.topics)}" for source in read)
    return inputs + sorted(node.path for node in plan.inputs[flow.name] if isinstance(node, Files))


def _prefix(source: Source) -> str:
    return "" if source.cluster is None else f"{source.cluster.name}:"
