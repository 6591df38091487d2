"""Cases of a pipeline in files: rows that go in, and rows that should come out.

orders.py
orders.tests/
    late_orders/
        orders.jsonl              one row on a line, as in the topic; an empty line ends a micro-batch
        case.toml                 optional: watermark = "2026-01-01T00:01:00Z"
        expected/
            revenue.jsonl         the rows of flow `revenue`, in any order
            dead_letters.jsonl    {"flow": …, "reason": …, "record": …}
"""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.pipelines import trial
from ottla.pipelines.failure import PipelineError, Place
from ottla.pipelines.graph import Plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXPECTED = "expected"
DEAD_LETTERS = "dead_letters"
_SETTINGS = "case.toml"
_DIFFERENCES_MAX = 20


@dataclass(frozen=True)
class Case:
    folder: Path
    rows: dict[str, list[list[Any]]]
    watermark: datetime | None

    @property
    def name(self) -> str:
        return self.folder.name


@dataclass
class Outcome:
    """What a case gave. The lines of a difference begin with `-` (expected and missing) or `+` (not expected)."""

    case: str
    rows: dict[str, int]
    """By flow, their number."""
    differences: dict[str, list[str]] = field(default_factory=dict)
    """By expected file."""


def folder_of(pipeline: Path) -> Path:
    return pipeline.with_suffix(".tests")


def cases(pipeline: Path, names: Iterable[str] = ()) -> list[Case]:
    """The cases beside a pipeline's file, or those of these names. PipelineError if there are none."""
    folder = folder_of(pipeline)
    wanted = list(names)
    found = sorted(each for each in folder.iterdir() if each.is_dir()) if folder.is_dir() else []
    for name in wanted:
        if name not in [each.name for each in found]:
            raise PipelineError(
                f"{folder} has no case {name!r}", hint=f"the cases are {', '.join(each.name for each in found) or 'none'}"
            )
    if not found:
        raise PipelineError(
            f"{folder} has no case", hint=f"write rows into {folder}/first/SOURCE.jsonl, then run it with --update"
        )
    return [_read(each) for each in found if not wanted or each.name in wanted]


def _read(folder: Path) -> Case:
    settings = folder / _SETTINGS
    watermark = None
    if settings.is_file():
        try:
            given = tomllib.loads(settings.read_text(encoding="utf-8"))
            moment = given.pop("watermark", None)
            if given:
                raise PipelineError(f"{min(given)!r} is unknown", Place(str(settings), 1), hint="the only key is watermark")
            watermark = None if moment is None else trial.instant(moment)
        except (ValueError, TypeError, AttributeError) as error:
            raise PipelineError(str(error), Place(str(settings), 1), hint='write watermark = "2026-01-01T00:01:00Z"') from None
    return Case(folder, {file.stem: _batches(file) for file in sorted(folder.glob("*.jsonl"))}, watermark)


def _batches(file: Path) -> list[list[Any]]:
    """Rows by micro-batch. A line that is no JSON is a value as it is: it may be a record that should not parse."""
    batches: list[list[Any]] = [[]]
    for line in file.read_text(encoding="utf-8").splitlines():
        if not line.strip():
            batches.append([])
            continue
        try:
            row = json.loads(line)
        except ValueError:
            row = line
        batches[-1].append(row if isinstance(row, dict) or row is None else line)
    return batches if batches[-1] or len(batches) == 1 else batches[:-1]


def run(spark: SparkSession, plan: Plan, case: Case, *, update: bool = False) -> Outcome:
    """Run a case and compare, or write what comes out as expected."""
    made = trial.run_all(spark, plan, case.rows, watermark=case.watermark)
    documents = {name: [_line(each) for each in rows.documents] for name, rows in made.items()}
    letters = [
        {"flow": each.flow, "reason": each.reason, "record": each.record} for rows in made.values() for each in rows.dead_letters
    ]
    documents[DEAD_LETTERS] = [_line(each) for each in letters]
    outcome = Outcome(case.name, {name: len(rows) for name, rows in made.items()})
    for name in sorted({*documents, *_expected_names(case)}):
        file = case.folder / EXPECTED / f"{name}.jsonl"
        lines = documents.get(name, [])
        if update:
            _write(file, lines)
        elif difference := _difference(_expected(file), lines):
            outcome.differences[f"{EXPECTED}/{file.name}"] = difference
    return outcome


def _expected_names(case: Case) -> list[str]:
    return [file.stem for file in (case.folder / EXPECTED).glob("*.jsonl")]


def _expected(file: Path) -> list[str]:
    if not file.is_file():
        return []
    found = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        if line.strip():
            try:
                found.append(_line(json.loads(line)))
            except ValueError as error:
                raise PipelineError(f"not JSON: {error}", Place(str(file), number)) from None
    return found


def _write(file: Path, lines: list[str]) -> None:
    if lines:
        file.parent.mkdir(exist_ok=True)
        file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    else:
        file.unlink(missing_ok=True)


def _difference(expected: list[str], found: list[str]) -> list[str]:
    missing, surplus = Counter(expected) - Counter(found), Counter(found) - Counter(expected)
    # Sorted, so that a row that changed stands beside what it was.
    lines = sorted([*((line, "-") for line in missing.elements()), *((line, "+") for line in surplus.elements())])
    shown = [f"{sign} {line}" for line, sign in lines[:_DIFFERENCES_MAX]]
    return [*shown, f"… and {len(lines) - len(shown)} more"] if len(lines) > len(shown) else shown


def _line(document: Any) -> str:
    return json.dumps(document, ensure_ascii=False, default=str)
