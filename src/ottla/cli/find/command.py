"""`ottla find`: looks for records in topics, completely, and says what it scanned."""

from __future__ import annotations

import fnmatch
import json
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.completion.names import topics as topics_of_cluster
from ottla.cli.connection import Connection
from ottla.cli.failure import EXIT_FAILED, EXIT_USAGE, Failure
from ottla.cli.find.bounds import only_of_key, partition_counts, scan_bounds
from ottla.cli.formats import Format, Incoming, Writing, unescape
from ottla.cli.options import DEFAULT_BOOTSTRAP_SERVERS, Bootstrap, CommandConfig, Json, Properties, parse_pairs
from ottla.cli.output import counted, note, size_text
from ottla.cli.schema.place import RegistryUrl, registry_at
from ottla.cli.schema.records import SchemaReader
from ottla.cli.selection import IgnoreCase, Where, select

if TYPE_CHECKING:
    from ottla.cli.find.scan import Scan

_TEMPLATE = "{topic}-{partition}:{offset} {time} {key} {value}"
_SHOWN_PARTITIONS = 12
_PROGRESS_S = 0.5


def find(
    text: Annotated[str | None, typer.Argument(metavar="[TEXT]", show_default=False, help="In key, value or headers.")] = None,
    where: Where = None,
    key: Annotated[str | None, typer.Option("--key", "-k", metavar="KEY", help="Records with exactly this key.")] = None,
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topics",
            "-t",
            metavar="PATTERN",
            help="Topics to look in, as orders* (repeatable). (default: all)",
            autocompletion=topics_of_cluster,
        ),
    ] = None,
    start: Annotated[
        str, typer.Option("--from", metavar="POSITION", help="Not before this: a time, 10m (ago), an offset, -1000 (the last).")
    ] = "beginning",
    until: Annotated[str | None, typer.Option("--until", metavar="POSITION", help="Before this. (default: the end)")] = None,
    oldest_first: Annotated[bool, typer.Option("--oldest-first/--newest-first", help="The order of the search.")] = False,
    count: Annotated[int | None, typer.Option("--max-messages", "-n", min=1, help="Stop after this many.")] = None,
    all_partitions: Annotated[
        bool, typer.Option("--all-partitions", help="Look for --key in all partitions, not only where producers put it.")
    ] = False,
    regex: Annotated[bool, typer.Option("--regex", help="TEXT is a regular expression (RE2).")] = False,
    ignore_case: IgnoreCase = False,
    template: Annotated[
        str, typer.Option("--template", help="The form of a line: '{topic} {partition}:{offset} {time} {key} {value} {headers}'.")
    ] = _TEMPLATE,
    isolation: Annotated[
        str, typer.Option("--isolation", metavar="read_committed|read_uncommitted", help="As of `ottla consume`.")
    ] = "read_committed",
    schema: Annotated[
        bool, typer.Option("--schema", help="Look into and print keys and values that name a schema of a registry as JSON.")
    ] = False,
    registry: RegistryUrl = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Say for every partition what was scanned.")] = False,
    properties: Properties = None,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """Look for records in topics. Says on stderr what was scanned; ends with exit code 1 if nothing is found."""
    from ottla.cli.find.scan import Scan  # other commands need no records

    if text is None and where is None and key is None:
        raise Failure("nothing to look for", "pass a text, --where or --key", exit_code=EXIT_USAGE)
    selection = select(where, text, key, regex=regex, ignore_case=ignore_case)
    writing = Writing(Format.JSON if json_output else Format.TEXT, template=None if json_output else unescape(template))
    connection = Connection(bootstrap_servers, command_config, parse_pairs(properties, "--property"))
    bounds = scan_bounds(connection, _matching(connection, topics), start, until, isolation)
    if selection.key is not None and not all_partitions:
        bounds, said = only_of_key(bounds, selection.key, partition_counts(connection, bounds))
        for line in said:
            note(line)
    with ExitStack() as stack:
        reader = SchemaReader(stack.enter_context(registry_at(registry, command_config))) if schema else None
        scan = stack.enter_context(
            Scan(connection, bounds, selection, newest_first=not oldest_first, isolation=isolation, reading=reader)
        )
        progress = _Progress(scan)
        try:
            for record in scan:
                progress.clear()
                _print(writing, record, reader)
                if scan.tally.taken == count:
                    break
        except KeyboardInterrupt:
            for record in scan.rest():
                _print(writing, record, reader)
            raise
        finally:
            progress.clear()
            _tell(scan, as_json=json_output, verbose=verbose)
    if not scan.tally.taken:
        raise typer.Exit(EXIT_FAILED)


def _print(writing: Writing, record: Incoming, reader: SchemaReader | None) -> None:
    sys.stdout.buffer.write(writing.line(record if reader is None else reader.read(record)))
    sys.stdout.buffer.flush()


def _matching(connection: Connection, patterns: list[str] | None) -> list[str]:
    """The topics whose names match one of the patterns; without patterns all but internal ones."""
    known = sorted(connection.metadata().topics)
    if not patterns:
        found = [name for name in known if not name.startswith("__")]
        if not found:
            raise Failure("there are no topics")
        return found
    for pattern in patterns:
        if not fnmatch.filter(known, pattern):
            if any(sign in pattern for sign in "*?["):
                raise Failure(f"no topic matches {pattern}", "list them with `ottla topic list`")
            connection.topics([pattern])  # says which names are like it
    return [name for name in known if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]


class _Progress:
    """One line on stderr, at a terminal, that is written over."""

    def __init__(self, scan: Scan) -> None:
        self._shown = False
        self._next = time.monotonic() + _PROGRESS_S
        if sys.stderr.isatty():
            scan.on_chunk = self._show

    def _show(self, scan: Scan) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _PROGRESS_S
            self._shown = True
            sys.stderr.write(f"\r\033[K{_rate(scan)}")
            sys.stderr.flush()

    def clear(self) -> None:
        if self._shown:
            self._shown = False
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()


def _rate(scan: Scan) -> str:
    done, all_ = scan.offsets
    share = done / all_ if all_ else 1.0
    left_s = scan.seconds * (1 - share) / share if share else 0.0
    return f"{scan.tally.records:,} records, {size_text(scan.tally.size_bytes)}, {share:.0%}, {left_s:.0f} s left"


def _tell(scan: Scan, *, as_json: bool, verbose: bool) -> None:
    if as_json:
        note(json.dumps({"scanned": scan.document()}, ensure_ascii=False))
        return
    parts = counted(len(scan.reaches), "partition")
    how = "all scanned" if scan.complete else f"{sum(reach.complete for reach in scan.reaches)} scanned completely"
    read = f"{scan.tally.records:,} records ({size_text(scan.tally.size_bytes)})"
    note(f"{scan.tally.taken:,} found in {read} of {parts}, {how}, in {scan.seconds:.1f} s")
    shown = scan.reaches if verbose else [reach for reach in scan.reaches if not reach.complete or scan.complete]
    limit = len(shown) if verbose else _SHOWN_PARTITIONS
    for reach in shown[:limit]:
        name = f"{reach.topic}-{reach.partition}"
        if reach.start == reach.end:
            note(f"  {name}: empty")
        elif reach.done_from == reach.done_to:
            note(f"  {name}: not begun, offsets {reach.start} to {reach.end - 1}")
        else:
            of = "" if reach.complete else f" of {reach.start} to {reach.end - 1}"
            note(f"  {name}: offsets {reach.done_from} to {reach.done_to - 1}{of}")
    if len(shown) > limit:
        note(f"  and {len(shown) - limit} more; --verbose shows all")
