"""`ottla pipeline upgrade` and `rollback`: what is shown, what is asked, and in which order."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ottla.cli.failure import EXIT_USAGE, Failure
from ottla.cli.output import counted, note, print_document, print_table
from ottla.cli.pipeline.running import run_flows, spark_session
from ottla.pipelines import preflight, topics
from ottla.pipelines.comparison import Row, RowChange
from ottla.pipelines.edits import FlowEdit, Kind, State
from ottla.pipelines.marker import number_of
from ottla.pipelines.project import Project
from ottla.pipelines.switching import live_project
from ottla.pipelines.upgrading import FlowDifference, Side, Upgrade, home_of, lineage, loaded, loaded_version
from ottla.pipelines.versions import Version, Versions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.pipelines.shadow import Stretch

_VALUE_WIDTH = 60
_SAME_WIDTH = 48
_ROLLBACK = "rollback to "
"""The note of a version that a rollback made live, with the number of the version whose code it has."""
_STATES = {
    State.KEPT: "kept: the query is the same",
    State.CARRIED: "carried over: what makes it is the same",
    State.NONE: "none: goes on at the offsets of the switch",
    State.REBUILT: "rebuilt from the topics",
}


@dataclass(frozen=True)
class UpgradeOptions:
    """What the command line asks for."""

    records: int
    from_ms: int | None
    sample: int
    dry_run: bool = False
    yes: bool = False
    run: bool = False
    json_output: bool = False


def upgrade(project: Project, options: UpgradeOptions, old: Path | None) -> None:
    new = loaded(project.file)
    _check(project, new, options)
    with spark_session(project, ship=project.ship) as spark, topics.Clients(project) as clients:
        client = clients.of(home_of([new]))
        live = live_project(client, project, _flows(new))
        versions = Versions(spark, project.storage)
        kept = versions.read(live.version)
        if old is not None:
            before = loaded(old)
        elif kept is not None:
            before = loaded_version(versions, kept)
        else:
            raise Failure(
                f"the code of version {number_of(live.version)}, which is live, is not kept in {versions.location}",
                "name the file with --old, or run the pipeline once with this release before you edit it",
            )
        # A flow that the edit removes is known only to the code before it.
        live = live_project(client, project, {*_flows(before), *_flows(new)})
        if _is_live(options, live, before, new, f"nothing to upgrade: {project.file.name}"):
            return
        _proceed(Upgrade(spark, clients, live, before, new), options, "")


def rollback(project: Project, options: UpgradeOptions, to: int | None) -> None:
    with spark_session(project, ship=project.ship) as spark, topics.Clients(project) as clients:
        versions = Versions(spark, project.storage)
        live, kept = _live(clients, project, versions)
        target = _target(versions, kept, to)
        before, new = loaded_version(versions, kept), loaded_version(versions, target)
        if _is_live(options, live, before, new, f"nothing to roll back: version {target.number}"):
            return
        _proceed(Upgrade(spark, clients, live, before, new), options, f"{_ROLLBACK}{target.number}")


def _is_live(options: UpgradeOptions, live: Project, before: Side, new: Side, what: str) -> bool:
    """Whether the new code is live already, perhaps by a command that was killed after the switch. Says so."""
    if before.code.fingerprint() != new.code.fingerprint():
        return False
    number = number_of(live.version)
    _tell(options, f"{what} is the code of version {number}, which is live")
    if options.json_output:
        print_document({"pipeline": live.name, "version": number, "flows": [], "switched": False})
    return True


def _check(project: Project, new: Side, options: UpgradeOptions) -> None:
    if not (options.yes or options.dry_run) and not sys.stdin.isatty():
        raise Failure(
            "no terminal to ask for confirmation", "pass --yes, or --dry-run to see only the difference", exit_code=EXIT_USAGE
        )
    home_of([new])
    preflight.check_java()
    preflight.check_secrets(new.plan)
    preflight.check_storage(project.storage)
    topics.check(project, new.plan)
    preflight.check_master_answers(project.master)


def _flows(side: Side) -> list[str]:
    return [flow.name for flow in side.plan.queries]


def _live(clients: topics.Clients, project: Project, versions: Versions) -> tuple[Project, Version]:
    """The live version, by the flows of all kept versions."""
    kept = [version for name in versions.names() if (version := versions.read(name)) is not None]
    if not kept:
        raise Failure(f"no version of pipeline {project.name} is kept in {versions.location}", "there is nothing to go back to")
    sides = [loaded_version(versions, version) for version in kept]
    live = live_project(clients.of(home_of(sides)), project, {flow for side in sides for flow in _flows(side)})
    for version in kept:
        if version.name == live.version:
            return live, version
    raise Failure(f"the code of version {number_of(live.version)}, which is live, is not kept in {versions.location}")


def _target(versions: Versions, live: Version, to: int | None) -> Version:
    """The version `to`, or the one before the live one. One that a rollback went back from is not gone to without its number."""
    line = {version.number: version for name in lineage(versions, live.name) if (version := versions.read(name)) is not None}
    if to is not None and to in line and to != live.number:
        return line[to]
    if to is None:
        since: Version | None = live
        while since is not None and since.note.startswith(_ROLLBACK):
            since = line.get(int(since.note.removeprefix(_ROLLBACK)))
        older = [number for number in line if since is not None and number < since.number]
        if older:
            return line[max(older)]
    what = "an older version" if to is None else f"version {to}"
    raise Failure(f"{what} is not kept in {versions.location}", exit_code=EXIT_USAGE)


def _proceed(work: Upgrade, options: UpgradeOptions, why: str) -> None:
    """Show what changes, ask, switch, and run."""
    pipeline, number = work.project.name, number_of(work.project.version)
    document: dict[str, Any] = {"pipeline": pipeline, "from": number, "to": number + 1, "switched": False}
    found = work.examine()
    document["flows"] = [_edit_document(edit) for edit in found]
    _tell(options, f"pipeline {pipeline}: version {number} is live, this is version {number + 1}{f' ({why})' if why else ''}")
    if not options.json_output:
        _show_edits(found)
    if any(edit.is_compared for edit in found):
        over = work.stretch(found, options.records, options.from_ms)
        _tell(options, f"running both versions over {counted(over.records, 'record')} in a shadow")
        differences = work.shadowed(found, over, options.sample)
        document["compared"] = _compared_document(over, differences)
        if not options.json_output:
            _show_differences(differences)
    if not options.dry_run:
        if not options.yes:
            typer.confirm(f"Switch pipeline {pipeline} to version {number + 1}?", abort=True, err=True)
        project = work.switch(found, why)
        document["switched"] = True
        _tell(options, f"version {number + 1} of pipeline {pipeline} is live")
        if why and not options.run:
            folder = Versions(work.spark, project.storage).folder(project.version)
            _tell(options, f"copy its files back from {folder} before you run them")
    if options.json_output:
        print_document(document)
    if options.run and not options.dry_run:
        _run(work.spark, project, work.new, options)


def _run(spark: SparkSession, project: Project, side: Side, options: UpgradeOptions) -> None:
    file = Path(side.plan.flows[0].place.file)
    run_flows(spark, [(replace(project, file=file), side.plan)], once=False, json_output=options.json_output)


def _tell(options: UpgradeOptions, text: str) -> None:
    if not options.json_output:
        note(text)


def _show_edits(found: Iterable[FlowEdit]) -> None:
    print_table(
        ["FLOW", "EDIT", "WHAT", "STATE"],
        [[edit.flow, edit.kind.value, "; ".join(edit.reasons), _state(edit)] for edit in found],
    )


def _state(edit: FlowEdit) -> str:
    if edit.kind is Kind.REMOVED:
        return "kept, not used"
    return f"{_STATES[edit.state]} ({', '.join(dict.fromkeys(edit.stateful))})" if edit.stateful else _STATES[edit.state]


def _show_differences(found: Iterable[FlowDifference]) -> None:
    print_table(
        ["FLOW", "OLD", "NEW", "SAME", "CHANGED", "ONLY-OLD", "ONLY-NEW", "DEAD-LETTERS"],
        [
            [each.flow, rows.old, rows.new, rows.same, rows.changed, rows.only_old, rows.only_new, _dead(each.dead_letters)]
            for each in found
            for rows in (each.rows,)
        ],
        right=["OLD", "NEW", "SAME", "CHANGED", "ONLY-OLD", "ONLY-NEW", "DEAD-LETTERS"],
    )
    changes = [(each.flow, change) for each in found for change in each.rows.sample]
    if changes:
        print()
        print_table(
            ["FLOW", "ROW", "KEY", "SAME", "OLD", "NEW"],
            [[flow, change.kind, _text((change.old or change.new or _NO_ROW).key), *_cells(change)] for flow, change in changes],
        )


_NO_ROW = Row(None, None)


def _dead(counts: tuple[int, int]) -> str:
    return str(counts[0]) if counts[0] == counts[1] else f"{counts[0]} to {counts[1]}"


def _cells(change: RowChange) -> tuple[str, str, str]:
    """What both rows have, the old row, the new row. Of JSON objects only the fields that differ are in the last two."""
    fields = change.fields()
    if fields:
        assert change.old is not None
        same = {name: value for name, value in json.loads(change.old.value or b"{}").items() if name not in fields}
        old, new = (", ".join(f"{name}={_short(values[side])}" for name, values in fields.items()) for side in (0, 1))
        return _cut(", ".join(f"{name}={_short(value)}" for name, value in same.items()), _SAME_WIDTH), old, new
    old, new = ("" if row is None else _text(row.value) for row in change)
    return "", old, new


def _short(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def _text(data: bytes | None) -> str:
    return _cut("" if data is None else data.decode(errors="replace"), _VALUE_WIDTH)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _edit_document(edit: FlowEdit) -> dict[str, Any]:
    return {
        "flow": edit.flow,
        "edit": edit.kind.value,
        "what": list(edit.reasons),
        "state": edit.state.value,
        "stateful": list(edit.stateful),
    }


def _compared_document(over: Stretch, found: Iterable[FlowDifference]) -> dict[str, Any]:
    return {
        "records": over.records,
        "offsets": {
            f"{'' if cluster is None else f'{cluster.name}:'}{where.topic}-{where.partition}": [start[where], last]
            for cluster, (start, end) in over.parts.items()
            for where, last in sorted(end.items())
        },
        "flows": [
            {
                "flow": each.flow,
                "old": each.rows.old,
                "new": each.rows.new,
                "same": each.rows.same,
                "changed": each.rows.changed,
                "only_old": each.rows.only_old,
                "only_new": each.rows.only_new,
                "dead_letters": {"old": each.dead_letters[0], "new": each.dead_letters[1]},
                "sample": [
                    {"row": change.kind, "old": _row_document(change.old), "new": _row_document(change.new)}
                    for change in each.rows.sample
                ],
            }
            for each in found
        ],
    }


def _row_document(row: Row | None) -> dict[str, Any] | None:
    if row is None:
        return None
    key, value = (None if data is None else data.decode(errors="replace") for data in (row.key, row.value))
    return {"key": key, "value": value}
