"""`ottla dlq`: list, show, replay."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Container
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.connection import Connection
from ottla.cli.failure import Failure
from ottla.cli.options import DEFAULT_BOOTSTRAP_SERVERS, Bootstrap, CommandConfig, Commands, Json, Yes, confirm
from ottla.cli.output import counted, note, print_document, print_table
from ottla.cli.positions import TopicIndex, parse_position
from ottla.cli.selection import GrepText, Where, select

if TYPE_CHECKING:
    from ottla.cli.dlq.choice import Box
    from ottla.cli.dlq.letters import Letter
    from ottla.cli.dlq.progress import Progress
    from ottla.cli.dlq.replay import Replayed

_PEEKED = 10
"""Offsets at the end of a partition that `list --all-topics` looks at."""
_WIDTH = 60
_PUBLISHED = "__ottla_pipelines"

app = Commands(help="Dead letters: list, show, replay.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)]
Group = Annotated[
    str | None,
    typer.Option("--group", "-g", metavar="GROUP", help="The group that remembers what was replayed. (default: ottla-dlq.TOPIC)"),
]
Reason = Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Only letters with this in the reason.")]
Flow = Annotated[str | None, typer.Option("--flow", metavar="NAME", help="Only letters of this flow, connector or group.")]
SourceTopic = Annotated[str | None, typer.Option("--source", metavar="TOPIC", help="Only letters that came from this topic.")]
Partitions = Annotated[list[int] | None, typer.Option("--partition", "-p", min=0, help="Only this partition (repeatable).")]
From = Annotated[str, typer.Option("--from", metavar="POSITION", help="From here on: an offset, 1h (ago), a time, beginning.")]
Until = Annotated[str | None, typer.Option("--until", metavar="POSITION", help="Before this position. (default: the end)")]


@dataclass(slots=True)
class Reasons:
    """The letters with one reason, flow and source topic."""

    reason: str | None
    flow: str | None
    source: str | None
    count: int = 0
    first_ms: int | None = None
    last_ms: int | None = None

    def add(self, letter: Letter) -> None:
        moment = letter.record.timestamp_ms
        self.count += 1
        if moment is not None:
            self.first_ms = moment if self.first_ms is None else min(self.first_ms, moment)
            self.last_ms = moment if self.last_ms is None else max(self.last_ms, moment)

    def document(self) -> dict[str, Any]:
        names = ("reason", "flow", "source", "count", "first_ms", "last_ms")
        return {name: getattr(self, name) for name in names}


@app.add("list")
def list_(
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="Also topics with other names whose last records are dead letters.")
    ] = False,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """List dead-letter topics: those of pipelines, those named so (.dlq, -dlq, .DLT, …), and what of them was not replayed."""
    rows = dead_letter_rows(Connection(bootstrap_servers, command_config), all_topics=all_topics)
    if json_output:
        print_document(rows)
    elif rows:
        print_table(
            ["TOPIC", "PARTITIONS", "OFFSETS", "NOT-REPLAYED", "PIPELINES"],
            [(*list(row.values())[:-1], ", ".join(row["pipelines"]) or "-") for row in rows],
            right=["PARTITIONS", "OFFSETS", "NOT-REPLAYED"],
        )
    else:
        note(
            "no pipeline writes dead letters, and no topic is named so" + ("" if all_topics else "; --all-topics looks into all")
        )


def dead_letter_rows(connection: Connection, *, all_topics: bool = False) -> list[dict[str, Any]]:
    """The dead-letter topics, and what of each was not replayed."""
    from ottla.cli.dlq.letters import is_dead_letter_name
    from ottla.cli.offsets import log_bounds

    topics = connection.metadata().topics
    of_pipelines = letters_of_pipelines(connection, topics)
    names = sorted(name for name in topics if is_dead_letter_name(name) or name in of_pipelines)
    if all_topics:
        names += _that_hold_letters(connection, [name for name in topics if name not in names and not name.startswith("__")])
    rows: list[dict[str, Any]] = []
    extents = log_bounds(connection, [(name, index) for name in names for index in topics[name].partitions], "read_committed")
    for name in names:
        bounds = {(name, index): extents[name, index] for index in topics[name].partitions}
        progress = _progress(connection, f"ottla-dlq.{name}", bounds)
        offsets = sum(end - start for start, end in bounds.values())
        left = sum(max(0, end - progress[key].next_offset) - progress[key].count_behind() for key, (_, end) in bounds.items())
        rows.append(
            {
                "topic": name,
                "partitions": len(bounds),
                "offsets": offsets,
                "not_replayed": left,
                "pipelines": of_pipelines.get(name, []),
            }
        )
    return rows


@app.add("show")
def show(
    name: Name,
    reason: Reason = None,
    flow: Flow = None,
    source: SourceTopic = None,
    where: Where = None,
    grep: GrepText = None,
    partition: Partitions = None,
    start: From = "beginning",
    until: Until = None,
    count: Annotated[int, typer.Option("--max-messages", "-n", min=0, help="How many letters to print, the newest.")] = 20,
    replayed: Annotated[bool, typer.Option("--replayed", help="Include letters that were replayed.")] = False,
    group: Group = None,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """Show dead letters by reason, flow and source topic, and the newest with their original records."""
    from ottla.cli.dlq.choice import Choice

    connection = Connection(bootstrap_servers, command_config)
    box = box_of(connection, name, partition, start, until, group, replayed=replayed)
    choice = Choice(reason, flow, source, select(where, grep))
    groups: dict[tuple[str | None, ...], Reasons] = {}
    newest: deque[Letter] = deque(maxlen=count)
    for letters in box.letters():
        for letter in letters:
            if not choice.takes(letter) or (box.done(letter) and not replayed):
                continue
            key = (letter.reason, letter.flow, letter.source_topic)
            groups.setdefault(key, Reasons(*key)).add(letter)
            newest.append(letter)
    found = sorted(groups.values(), key=lambda each: -each.count)
    if json_output:
        documents = [{**letter.document(), "replayed": box.done(letter)} for letter in newest]
        print_document({"topic": name, "reasons": [each.document() for each in found], "letters": documents})
    elif found:
        _print_reasons(found)
        if newest:
            print()
            _print_letters(newest)
    else:
        note(f"no dead letters{'' if replayed else ' that were not replayed'} in topic {name}" + (" match" if groups else ""))


@app.add("replay", changes=lambda options: not options["dry_run"])
def replay(
    name: Name,
    to: Annotated[
        str | None, typer.Option("--to", metavar="TOPIC", help="Write all to this topic instead of their sources.")
    ] = None,
    reason: Reason = None,
    flow: Flow = None,
    source: SourceTopic = None,
    where: Where = None,
    grep: GrepText = None,
    partition: Partitions = None,
    start: From = "beginning",
    until: Until = None,
    count: Annotated[int | None, typer.Option("--max-messages", "-n", min=1, help="Replay at most this many.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be replayed.")] = False,
    yes: Yes = False,
    group: Group = None,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """Write dead letters back to the topics they came from, as they were, each exactly once.

    What was replayed is remembered: a later replay takes what is left, also after one that was killed.
    """
    from ottla.cli.copying.transfer import Transfer
    from ottla.cli.dlq.choice import Choice
    from ottla.cli.dlq.replay import Replay, Target

    connection = Connection(bootstrap_servers, command_config)
    connection.topics([name, *([to] if to is not None else [])])
    target = Target({topic: len(each.partitions) for topic, each in connection.metadata().topics.items()}, to)
    choice = Choice(reason, flow, source, select(where, grep))
    if dry_run:
        planned = Replay(box_of(connection, name, partition, start, until, group), choice, target, None, count).run()
        _report(name, planned, "would be replayed", json_output=json_output)
        return
    confirm(f"Write the {'chosen ' if choice != Choice() else ''}dead letters of {name} back?", yes)
    transfer = Transfer(connection, group or f"ottla-dlq.{name}")
    try:
        transfer.begin()
        box = box_of(connection, name, partition, start, until, group)
        done = Replay(box, choice, target, transfer, count).run()
    finally:
        transfer.close()
    _report(name, done, "replayed", json_output=json_output)


def box_of(
    connection: Connection,
    topic: str,
    partitions: list[int] | None,
    start: str,
    until: str | None,
    group: str | None,
    *,
    replayed: bool = False,
) -> Box:
    """The letters within these positions, also those that were `replayed` or not."""
    from ottla.cli.consume import find_bounds
    from ottla.cli.dlq.choice import Box
    from ottla.cli.offsets import log_bounds

    now_ms = int(time.time() * 1000)
    last = None if until is None else parse_position(until, now_ms)
    bounds = find_bounds(
        connection, [topic], partitions, parse_position(start, now_ms), last, follow=False, isolation="read_committed"
    )
    progress = _progress(connection, group or f"ottla-dlq.{topic}", log_bounds(connection, list(bounds.start)))
    for key, end in bounds.end.items():
        if not replayed and end is not None:
            bounds.start[key] = min(max(bounds.start[key], progress[key].next_offset), end)
    return Box(connection, bounds, progress)


def _progress(connection: Connection, group: str, bounds: dict[TopicIndex, tuple[int, int]]) -> dict[TopicIndex, Progress]:
    """What was replayed of each partition; nothing where the group has no offset."""
    from ottla.cli.copying.transfer import committed_offsets
    from ottla.cli.dlq.progress import Progress

    found = committed_offsets(connection, group, bounds)
    return {
        key: Progress(max(found[key].offset, start), found[key].metadata) if key in found else Progress(start)
        for key, (start, _) in bounds.items()
    }


def letters_of_pipelines(connection: Connection, topics: Container[str]) -> dict[str, list[str]]:
    """The dead-letter topics that pipelines of this cluster have published."""
    if _PUBLISHED not in topics:
        return {}
    from ottla.cli.pipeline.published import dead_letter_topics

    try:
        return dead_letter_topics(connection)
    except Failure as failure:
        note(f"{_PUBLISHED} cannot be read: {failure.message}")
        return {}


def _that_hold_letters(connection: Connection, topics: list[str]) -> list[str]:
    from ottla.cli.consume import Bounds, incoming
    from ottla.cli.dlq.letters import read_letter
    from ottla.cli.offsets import log_bounds
    from ottla.cli.reading import Reader

    known = connection.metadata().topics
    keys = [(topic, index) for topic in topics for index, each in known[topic].partitions.items() if each.leader >= 0]
    extents = log_bounds(connection, keys, "read_committed")
    bounds = Bounds(
        {key: max(start, end - _PEEKED) for key, (start, end) in extents.items()}, {key: end for key, (_, end) in extents.items()}
    )
    found = set()
    for messages in Reader(connection, bounds).batches():
        found |= {str(each.topic()) for each in messages if read_letter(incoming(each)).source_topic is not None}
    return sorted(found)


def _print_reasons(found: list[Reasons]) -> None:
    from ottla.cli.formats import time_text

    print_table(
        ["COUNT", "REASON", "FLOW", "SOURCE", "FIRST", "LAST"],
        [
            (each.count, _short(each.reason), each.flow, each.source, time_text(each.first_ms), time_text(each.last_ms))
            for each in found
        ],
        right=["COUNT"],
        none="-",
    )


def _print_letters(letters: deque[Letter]) -> None:
    from ottla.cli.formats import time_text

    print_table(
        ["LETTER", "SOURCE", "TIME", "REASON", "KEY", "VALUE"],
        [
            (
                letter.place,
                letter.source,
                time_text(letter.record.timestamp_ms),
                _short(letter.reason),
                _shown(letter.record.key),
                _shown(letter.record.value),
            )
            for letter in letters
        ],
        none="-",
    )


def _short(text: str | None) -> str | None:
    return text if text is None or len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"


def _shown(data: bytes | None) -> str | None:
    """Bytes on one line of a table."""
    if data is None:
        return None
    text = data.decode("utf-8", "replace")
    return _short("".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text))


def _report(name: str, done: Replayed, verb: str, *, json_output: bool) -> None:
    if json_output:
        print_document(
            {
                "topic": name,
                "records": done.records,
                "to": dict(sorted(done.to.items())),
                "not_chosen": done.left,
                "without_topic": dict(sorted(done.stuck.items())),
            }
        )
        return
    for topic, count in sorted(done.to.items()):
        print(f"{counted(count, 'record')} {verb} to {topic}")
    if not done.to:
        print(f"no dead letters of {name} {verb}")
    for topic, count in sorted(done.stuck.items()):
        which = f"of {topic}, which this cluster does not have" if topic else "without a source topic"
        note(f"left: {counted(count, 'record')} {which}; --to TOPIC writes to another topic")
    if done.left and not done.limited:
        note(f"left: {counted(done.left, 'record')} that the options do not choose")
