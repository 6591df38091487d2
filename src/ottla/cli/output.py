"""Prints results: tables for people, documents in any of `forms` for programs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import NoneType
from typing import Any

from ottla.cli.forms import Form, cell_text, csv_text, json_line, json_text, jsonl_text, names_text, table_of, yaml_text

_WIDTH_UNBOUNDED = 100_000
"""The width if stdout is not a terminal: lines must not be wrapped or cut."""


_form: ContextVar[Form] = ContextVar("form", default=Form.JSON)

_TEXTS: dict[Form, Callable[[Any], str]] = {
    Form.JSON: json_text,
    Form.JSONL: jsonl_text,
    Form.YAML: yaml_text,
    Form.CSV: csv_text,
    Form.NAMES: names_text,
}


@contextmanager
def printing_in(form: Form) -> Iterator[None]:
    """Print documents in this form."""
    token = _form.set(form)
    try:
        yield
    finally:
        _form.reset(token)


def print_document(document: Any) -> None:
    """One document, as JSON unless -o says otherwise."""
    form = _form.get()
    if form is Form.WIDE:
        _print_wide(document)
    else:
        sys.stdout.write(_TEXTS[form](document))


def _print_wide(document: Any) -> None:
    """A table with all fields that the document has."""
    columns, rows = table_of(document)
    if not columns:
        return
    numbers = [name for name in columns if all(isinstance(row.get(name), (int, float, NoneType)) for row in rows)]
    heads = {name: name.upper().replace("_", "-") for name in columns}
    cells = [[cell_text(row.get(name)) or "-" for name in columns] for row in rows]
    print_table(list(heads.values()), cells, right=[heads[name] for name in numbers])


def print_line(document: Any) -> None:
    """One JSON line of a stream of them."""
    sys.stdout.write(json_line(document))


def print_table(columns: Sequence[str], rows: Iterable[Iterable[object]], *, right: Sequence[str] = (), none: str = "") -> None:
    """Print a table without borders. Columns in `right` are right-aligned, a None is shown as `none`. No Rich markup."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(width=None if sys.stdout.isatty() else _WIDTH_UNBOUNDED, highlight=False, soft_wrap=False)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(none if cell is None else str(cell)) for cell in row))
    with console.capture() as captured:
        console.print(table)
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def note(text: str) -> None:
    """Print a message for people on stderr. stdout holds results only."""
    print(text, file=sys.stderr)


def counted(count: int, noun: str) -> str:
    """`1 record`, `2 records`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def size_text(count_bytes: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if abs(count_bytes) < 1024 or unit == "GB":
            return f"{count_bytes:.0f} {unit}" if unit == "B" else f"{count_bytes:.1f} {unit}"
        count_bytes /= 1024
    raise AssertionError
