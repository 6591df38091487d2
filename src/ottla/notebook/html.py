"""Tables as HTML. Every text is escaped: names, keys, values and headers are other people's."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from importlib import import_module
from typing import Any

ROWS_MAX = 100
CELL_CHARS_MAX = 500


def cell_text(value: Any) -> str:
    if value is None:
        return ""
    text = json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, (dict, list)) else str(value)
    return text if len(text) <= CELL_CHARS_MAX else text[:CELL_CHARS_MAX] + "…"


def table_html(caption: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], count: int) -> str:
    """The first rows of `count`; the caption says how many there are."""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = []
    for row, _ in zip(rows, range(ROWS_MAX), strict=False):
        cells = "".join(f'<td style="text-align:left">{escape(cell_text(cell))}</td>' for cell in row)
        body.append(f"<tr>{cells}</tr>")
    more = f"<div>… and {count - ROWS_MAX:,} more</div>" if count > ROWS_MAX else ""
    return (
        f"<div><div><b>{escape(caption)}</b></div>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>{more}</div>"
    )


def needed(module: str, method: str) -> Any:
    """A module of the extra `notebook`."""
    try:
        return import_module(module)
    except ImportError:
        raise ImportError(f"{method} needs {module}: install it with `pip install 'ottla[notebook]'`") from None
