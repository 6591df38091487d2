"""`ottla log dump`: shows the files of a log, and saves what is intact in them, without a broker. `ottla log repair`:
replaces damaged batches of a stopped broker."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.failure import EXIT_FAILED, Failure
from ottla.cli.formats import time_text
from ottla.cli.options import DEFAULT_BOOTSTRAP_SERVERS, Bootstrap, CommandConfig, Commands, Json
from ottla.cli.output import note, print_document, print_line, size_text

if TYPE_CHECKING:
    from ottla.cli.log.segments import Item

app = Commands(help="Read the files of a log without a broker.", no_args_is_help=True)


# Without a callback Typer would merge an app of one command into its parent.
@app.callback()
def root() -> None:
    pass


@app.add("dump")
def dump(
    paths: Annotated[list[Path], typer.Argument(metavar="FILE|DIR", show_default=False)],
    records: Annotated[bool, typer.Option("--records", "-r", help="Show the records of each batch.")] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Check CRCs, records and indexes.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show only damage and the summary.")] = False,
    salvage: Annotated[
        Path | None,
        typer.Option(
            "--salvage",
            metavar="FILE|DIR",
            help="Save the intact batches behind damage and in .log.cut files.",
        ),
    ] = None,
    json_output: Json = False,
) -> None:
    """Show batches, records, index entries and checkpoints. Exit code 1 if anything is damaged."""
    from ottla.cli.log.segments import read_path

    if salvage is not None:
        _salvage(paths, salvage, json_output=json_output)
        return
    counts = {"files": 0, "batches": 0, "records": 0, "damage": 0}
    empty = 0
    for path in paths:
        is_dir = path.is_dir()
        for item in read_path(path, records=records, verify=verify):
            counts["files"] += item.kind in ("file", "checkpoint")
            counts["batches"] += item.kind == "batch"
            counts["records"] += item.fields["records"] if item.kind == "batch" else 0
            counts["damage"] += item.kind == "damage"
            if quiet and item.kind != "damage":
                continue
            if is_dir and item.kind == "file" and not item.fields["size"] and not json_output:
                # A data directory has hundreds of empty files.
                empty += 1
                continue
            if json_output:
                print_line({"type": item.kind, "file": item.path, **item.fields})
            else:
                print(render(item))
    if json_output:
        print_line({"type": "summary", "verified": verify, **counts})
    else:
        found = f"{counts['damage']} damaged places" if counts["damage"] else "no damage" if verify else "not verified"
        if empty:
            found += f"; {empty} empty files not shown"
        print(f"{counts['files']} files, {counts['batches']} batches, {counts['records']} records, {found}")
    if counts["damage"]:
        raise typer.Exit(EXIT_FAILED)


@app.add("repair", changes=True)
def repair(
    directory: Annotated[Path, typer.Argument(metavar="DIR", show_default=False)],
    source: Annotated[
        int | None, typer.Option("--from", metavar="BROKER", help="Whose replica to use. (default: the leader's)")
    ] = None,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """Replace damaged batches of a stopped broker's partition by those of another replica. DIR is the partition's directory."""
    from ottla.cli.connection import Connection
    from ottla.cli.log.repair import repair as run

    repaired, left = run(directory, Connection(bootstrap_servers, command_config), source)
    if json_output:
        print_document({"repaired": [asdict(each) for each in repaired], "left": left})
        return
    for each in repaired:
        print(
            f"{each.path}: offsets {each.first_offset}..{each.last_offset} from broker {each.source}; the old file is {each.kept}"
        )
    for line in left:
        note(line)
    if not repaired:
        print(f"{directory}: no damage that another replica can repair" if left else f"{directory}: no damage")


def _salvage(paths: list[Path], target: Path, *, json_output: bool) -> None:
    from ottla.cli.log.salvage import salvage

    saved = salvage(paths, target)
    if saved is None:
        raise Failure("nothing to salvage: no intact batch lies behind damage", "the batches before it are in the .log file")
    if json_output:
        print_document(asdict(saved))
    else:
        what = f"{saved.batches} batches, {saved.records} records, offsets {saved.first_offset}..{saved.last_offset}"
        print(f"{saved.path}: {what}")


def render(item: Item) -> str:
    fields = item.fields
    if item.kind == "file":
        return f"{item.path}: base offset {fields['base_offset']}, {size_text(fields['size'])}"
    if item.kind == "batch":
        return _render_batch(fields)
    if item.kind == "record":
        return _render_record(fields)
    if item.kind == "offset_index_entry":
        return f"  offset {fields['offset']} position {fields['position']}"
    if item.kind == "time_index_entry":
        return f"  {time_text(fields['timestamp'])} ({fields['timestamp']}) offset {fields['offset']}"
    if item.kind == "checkpoint":
        return "\n".join([f"{item.path}:", *(f"  {name} = {value}" for name, value in fields["entries"].items())])
    place = " ".join(f"{name} {fields[name]}" for name in ("position", "offset") if name in fields)
    return f"DAMAGE {item.path}{f' at {place}' if place else ''}: {fields['problem']}"


def _render_batch(fields: dict[str, Any]) -> str:
    words = [
        f"  @{fields['position']}",
        f"offsets {fields['base_offset']}..{fields['last_offset']}",
        "1 record" if fields["records"] == 1 else f"{fields['records']} records",
        f"{fields['size']} bytes",
        fields["codec"],
        f"{fields['timestamp_type']} {time_text(fields['max_timestamp'])}",
        f"epoch {fields['leader_epoch']}",
    ]
    if fields["producer_id"] >= 0:
        words.append(f"producer {fields['producer_id']}/{fields['producer_epoch']}")
        words.append(f"seq {fields['base_sequence']}..{fields['last_sequence']}")
    words += [name for name in ("transactional", "control") if fields[name]]
    words.append(f"crc {fields['crc']}")
    return "  ".join(words)


def _render_record(fields: dict[str, Any]) -> str:
    words = [f"    | {fields['offset']}", time_text(fields["timestamp"])]
    if "marker" in fields:
        words.append(fields["marker"])
    else:
        for name in ("key", "value"):
            words.append(f"{name}={fields[name]!r}" if name in fields else f"{name}=base64:{fields[f'{name}_base64']}")
        words += [f"{header['name']}={header.get('value', header.get('value_base64'))!r}" for header in fields["headers"]]
    return "  ".join(words)
