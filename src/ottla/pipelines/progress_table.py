"""The progress of flows for people: a live table, and a line for each batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ottla.pipelines.progress import Watch

if TYPE_CHECKING:
    from rich.table import Table


def table(name: str, flows: list[str], watch: Watch, note: str = "", width: int = 200) -> Table:
    """One row for each flow. A narrow terminal gets fewer columns."""
    rows = [_cells(flow, watch.latest.get(flow)) for flow in flows]
    # Optional columns (state, watermark, dead letters, error) appear if a flow has them.
    columns = [column for column in rows[0] if column in _ALWAYS or any(row[column] for row in rows)]
    for less in ((), *_LESS):
        columns = [column for column in columns if column not in less]
        widths = [max(len(column), *(len(row[column]) for row in rows)) for column in columns]
        if 1 + sum(min(each, _WIDEST) + _GAP for each in widths) <= width:
            break
    from rich import box
    from rich.table import Table

    view = Table(title=f"pipeline {name}", caption=note or None, title_justify="left", caption_justify="left")
    view.box, view.padding = box.SIMPLE_HEAD, (0, 1, 0, 0)
    for column in columns:
        words = column in ("flow", "watermark", "unmet", "last error")
        view.add_column(column, justify="left" if words else "right", no_wrap=column != "last error", overflow="fold")
    for row in rows:
        view.add_row(*(row[column] for column in columns))
    return view


_ALWAYS = ("flow", "batch", "in/s", "out", "lag", "batch ms", "offsets", "plan", "work", "txn", "checkpoint")
_GAP, _WIDEST = 2, 30
# Columns to leave out, in this order, until the table fits.
_LESS = (("offsets", "plan", "checkpoint"), ("work", "txn"), ("dead",), ("watermark",))


def _cells(flow: str, found: Mapping[str, Any] | None) -> dict[str, str]:
    if found is None:
        return {
            "flow": flow,
            "batch": "…",
            **dict.fromkeys((*_ALWAYS[2:], "state", "watermark", "dead", "unmet", "late", "last error"), ""),
        }
    phases = found["phases_ms"]
    return {
        "flow": flow,
        "batch": str(found["batch"]),
        "in/s": f"{found['rows_per_s']:,.0f}",
        "out": f"{found['records_out']:,}",
        "lag": "" if found["lag"] is None else f"{found['lag']:,}",
        "batch ms": f"{found['batch_ms']:,}",
        "offsets": f"{phases.get('offsets', 0):,.0f}",
        "plan": f"{phases.get('plan', 0):,.0f}",
        "work": f"{phases.get('work', 0):,.0f}",
        "txn": "" if found["transaction_ms"] is None else f"{found['transaction_ms']:,.0f}",
        "checkpoint": f"{phases.get('checkpoint', 0):,.0f}",
        "state": f"{found['state_rows']:,}" if found["state_rows"] else "",
        "watermark": _clock(found["watermark"]),
        "dead": f"{found['dead_letters']:,}" if found["dead_letters"] else "",
        "unmet": ", ".join(f"{name} {count:,}" for name, count in found["expectations"].items() if count),
        "late": f"{found['late_rows']:,}" if found["late_rows"] else "",
        "last error": (found["last_error"] or "")[:80],
    }


def line(found: Mapping[str, Any]) -> str:
    """One batch as a line of a log."""
    parts = [f"{found['flow']}: batch {found['batch']}, {found['rows']:,} rows in {found['batch_ms']:,} ms"]
    if found["lag"] is not None:
        parts.append(f"lag {found['lag']:,}")
    if found["dead_letters"]:
        parts.append(f"dead letters {found['dead_letters']:,}")
    unmet = [f"{name} {count:,}" for name, count in found["expectations"].items() if count]
    if unmet:
        parts.append(f"unmet {', '.join(unmet)}")
    if found["late_rows"]:
        parts.append(f"late rows {found['late_rows']:,}")
    if found["last_error"]:
        parts.append(f"last error: {found['last_error']}")
    return ", ".join(parts)


def _clock(watermark: str | None) -> str:
    return "" if not watermark or watermark.startswith("1970") else watermark.replace("T", " ")[:19]
