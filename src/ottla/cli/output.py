"""Prints results: tables for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

_WIDTH_UNBOUNDED = 100_000
"""The width if stdout is not a terminal: lines must not be wrapped or cut."""


def print_document(document: Any) -> None:
    """One JSON document."""
    sys.stdout.write(json.dumps(document, ensure_ascii=False, indent=2) + "\n")


def print_line(document: Any) -> None:
    """One JSON line of a stream of them."""
    sys.stdout.write(json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n")


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
