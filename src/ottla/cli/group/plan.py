"""The new offsets of a reset, and the files that hold them. Pure: no broker, no output."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ottla.cli.failure import EXIT_USAGE, Failure
from ottla.cli.positions import TopicIndex
from ottla.filters.times import duration_ms

_ISO_DURATION = re.compile(
    r"P(?:(?P<d>\d+)D)?(?:T(?=\d)(?:(?P<h>\d+)H)?(?:(?P<m>\d+)M)?(?:(?P<s>\d+(?:\.\d+)?)S)?)?", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Step:
    """The change of one partition's committed offset."""

    topic: str
    partition: int
    committed: int | None
    new_offset: int
    log_start: int
    log_end: int
    wanted: int | None = None
    """The requested offset, if it is outside the log."""

    @property
    def note(self) -> str | None:
        if self.wanted is None:
            return None
        if self.wanted > self.log_end:
            return f"offset {self.wanted} is after the end of {self.topic}-{self.partition}; using {self.log_end}"
        return f"offset {self.wanted} is before the start of {self.topic}-{self.partition}; using {self.log_start}"

    def document(self) -> dict[str, Any]:
        fields = asdict(self)
        wanted = fields.pop("wanted")
        return {**fields, "lag": self.log_end - self.new_offset, "wanted": self.new_offset if wanted is None else wanted}


def plan(
    wanted: Mapping[TopicIndex, int],
    committed: Mapping[TopicIndex, int],
    bounds: Mapping[TopicIndex, tuple[int, int]],
    *,
    clamp: bool = True,
) -> list[Step]:
    """The steps, sorted by topic and partition. With `clamp`, an offset outside the log becomes its nearer end."""
    steps = []
    for key, offset in sorted(wanted.items()):
        start, end = bounds[key]
        inside = min(max(offset, start), end) if clamp else offset
        steps.append(Step(*key, committed.get(key), inside, start, end, None if inside == offset else offset))
    return steps


def shifted(keys: Sequence[TopicIndex], committed: Mapping[TopicIndex, int], by: int) -> dict[TopicIndex, int]:
    missing = [f"{topic}-{partition}" for topic, partition in keys if (topic, partition) not in committed]
    if missing:
        raise Failure(
            f"--shift-by needs a committed offset, missing for {', '.join(missing)}",
            "use --to-earliest, --to-latest or --to-offset there",
        )
    return {key: committed[key] + by for key in keys}


def parse_duration_ms(text: str) -> int:
    """`1h30m`, or ISO 8601 as in Kafka's tool: `PT1H30M`."""
    short = duration_ms(text)
    if short is not None:
        return short
    found = _ISO_DURATION.fullmatch(text)
    if found is None or not any(found.groups()):
        raise Failure(f"{text!r} is not a duration", "write 1h30m or PT1H30M", exit_code=EXIT_USAGE)
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return int((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)


def read_plan(text: str, group: str, where: str) -> dict[TopicIndex, int]:
    """The offsets of this group in a file: CSV as Kafka's tool exports it, or JSON as `--export --json` does."""
    rows = _json_rows(text, where) if text.lstrip()[:1] in ("[", "{") else _csv_rows(text, where)
    wanted: dict[TopicIndex, int] = {}
    others = set()
    for of, topic, partition, offset, place in rows:
        if of is not None and of != group:
            others.add(of)
            continue
        try:
            key, value = (str(topic).strip(), int(partition)), int(offset)
        except (TypeError, ValueError):
            raise Failure(f"{where}: {place} is not a topic, partition and offset", exit_code=EXIT_USAGE) from None
        if value < 0 or key[1] < 0 or not key[0]:
            raise Failure(f"{where}: {place} is not a topic, partition and offset", exit_code=EXIT_USAGE)
        wanted[key] = value
    if not wanted:
        hint = f"it has offsets for {', '.join(sorted(others))}" if others else "write lines of topic,partition,offset"
        raise Failure(f"{where} has no offsets for group {group}", hint, exit_code=EXIT_USAGE)
    return wanted


Row = tuple[str | None, Any, Any, Any, str]


def _csv_rows(text: str, where: str) -> list[Row]:
    rows: list[Row] = []
    reader = csv.reader(io.StringIO(text))
    for cells in reader:
        place = f"line {reader.line_num}"
        if not cells or not "".join(cells).strip():
            continue
        if len(cells) == 3:
            rows.append((None, *cells, place))  # type: ignore[arg-type]
        elif len(cells) == 4:
            rows.append((*cells, place))  # type: ignore[arg-type]
        else:
            raise Failure(
                f"{where}: {place} has {len(cells)} columns",
                "write topic,partition,offset or group,topic,partition,offset",
                exit_code=EXIT_USAGE,
            )
    return rows


def _json_rows(text: str, where: str) -> list[Row]:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise Failure(f"{where} is not JSON: {error}", exit_code=EXIT_USAGE) from None
    of = document.get("group") if isinstance(document, dict) else None
    entries = document.get("partitions") if isinstance(document, dict) else document
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise Failure(
            f"{where} is not a list of partitions",
            'write [{"topic": "orders", "partition": 0, "offset": 42}]',
            exit_code=EXIT_USAGE,
        )
    return [
        (
            entry.get("group", of),
            entry.get("topic"),
            entry.get("partition"),
            entry.get("offset", entry.get("new_offset")),
            f"entry {number}",
        )
        for number, entry in enumerate(entries, 1)
    ]


def export_csv(steps: Sequence[Step]) -> str:
    return "".join(f"{step.topic},{step.partition},{step.new_offset}\n" for step in steps)


def export_documents(steps: Sequence[Step]) -> list[dict[str, Any]]:
    return [{"topic": step.topic, "partition": step.partition, "offset": step.new_offset} for step in steps]
