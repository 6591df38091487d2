"""Table, chart, JSON and Markdown of a run. Figures are medians over rounds; a ratio is Ottla / Kafka of the same run."""

from __future__ import annotations

import json
import math
import platform
import statistics
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from rich.console import Console
from rich.table import Table

from bench.figures import FIGURES, GROWTHS, Figure

Rounds = dict[str, list[dict[str, float]]]  # broker -> one dict of figures for each round


def median(rounds: Rounds, broker: str, key: str) -> float | None:
    found = [each[key] for each in rounds.get(broker, []) if key in each]
    return statistics.median(found) if found else None


def spread(rounds: Rounds, broker: str, key: str) -> str:
    found = [each[key] for each in rounds.get(broker, []) if key in each]
    if not found:
        return "-"
    if len(found) == 1 or _short(min(found)) == _short(max(found)):
        return _short(statistics.median(found))
    return f"{_short(statistics.median(found))} ({_short(min(found))}-{_short(max(found))})"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def ratio(rounds: Rounds, figure: Figure) -> float | None:
    ottla, kafka = median(rounds, "ottla", figure.key), median(rounds, "kafka", figure.key)
    return ottla / kafka if ottla is not None and kafka else None


def _met(figure: Figure, value: float) -> bool:
    assert figure.aim is not None
    return value >= figure.aim if figure.more_is_better else value <= figure.aim


def table(rounds: Rounds, console: Console) -> None:
    grid = Table(title="Ottla beside Apache Kafka 4.3.0: median (lowest-highest) of the rounds")
    for name, justify in (
        ("figure", "left"),
        ("unit", "left"),
        ("Kafka", "right"),
        ("Ottla", "right"),
        ("ratio", "right"),
        ("aim", "right"),
    ):
        grid.add_column(name, justify=justify)  # type: ignore[arg-type]
    for figure in _measured(rounds):
        value = ratio(rounds, figure)
        colour = "" if value is None or figure.aim is None else "[green]" if _met(figure, value) else "[red]"
        shown = "-" if value is None else f"{colour}{value:.2f}"
        grid.add_row(
            figure.label,
            figure.unit,
            spread(rounds, "kafka", figure.key),
            spread(rounds, "ottla", figure.key),
            shown,
            _aim(figure),
        )
    console.print(grid)
    growth = Table(title="What does it cost, when more is asked for? (1 = the same)")
    for name in ("cost", "Kafka", "Ottla"):
        growth.add_column(name, justify="left" if name == "cost" else "right")
    for cells in _growths(rounds):
        growth.add_row(*cells)
    if growth.row_count:
        console.print(growth)


def _measured(rounds: Rounds) -> list[Figure]:
    return [each for each in FIGURES if any(median(rounds, broker, each.key) is not None for broker in rounds)]


def _aim(figure: Figure) -> str:
    return "" if figure.aim is None else f"{'≥' if figure.more_is_better else '≤'} {figure.aim:.2f}"


def _growths(rounds: Rounds) -> list[tuple[str, ...]]:
    rows = []
    for label, large, small in GROWTHS:
        cells = [_growth(rounds, broker, large, small) for broker in ("kafka", "ottla")]
        if any(cell is not None for cell in cells):
            rows.append((label, *("-" if cell is None else cell for cell in cells)))
    return rows


def markdown(rounds: Rounds) -> str:
    """Both tables, as docs/bench.md has them."""
    lines = ["| figure | unit | Kafka 4.3.0 | Ottla | ratio | aim |", "|---|---|---|---|---|---|"]
    for figure in _measured(rounds):
        value = ratio(rounds, figure)
        cells = [figure.label, figure.unit, spread(rounds, "kafka", figure.key), spread(rounds, "ottla", figure.key)]
        lines.append(f"| {' | '.join([*cells, '-' if value is None else f'{value:.2f}', _aim(figure)])} |")
    growths = _growths(rounds)
    if growths:
        lines += ["", "| cost (1 = the same) | Kafka 4.3.0 | Ottla |", "|---|---|---|"]
        lines += [f"| {' | '.join(cells)} |" for cells in growths]
    return "\n".join(lines) + "\n"


def _growth(rounds: Rounds, broker: str, large: str, small: str) -> str | None:
    above, below = median(rounds, broker, large), median(rounds, broker, small)
    if above is None or not below:
        return None
    (unit,) = (figure.unit for figure in FIGURES if figure.key == large)
    return f"{above / below:.2f} ({above - below:+.2f} {unit})"


def picture(rounds: Rounds) -> str:
    """Bars: how many times better Ottla is (to the right) or worse (to the left), on a scale of doublings, with the aims."""
    rows = [(figure, value) for figure in FIGURES if (value := ratio(rounds, figure)) is not None and value > 0]
    line, left, width, top, limit = 22, 430, 520, 60, 5.0  # limit: doublings shown either side
    height = top + line * len(rows) + 30
    middle = left + width / 2

    def x(times: float) -> float:
        return middle + max(-limit, min(limit, math.log2(times))) * width / 2 / limit

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 90}" height="{height}"',
        ' font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        '<text x="16" y="26" font-size="16" font-weight="bold">Ottla beside Apache Kafka 4.3.0</text>',
        '<text x="16" y="44" fill="#666">how many times better (right) or worse (left); the mark is the aim</text>',
    ]
    for doubling in range(-int(limit), int(limit) + 1):
        at = x(2.0**doubling)
        label = f"{2**doubling}x" if doubling >= 0 else f"1/{2**-doubling}"
        colour = "#888" if doubling == 0 else "#e4e4e4"
        out.append(f'<line x1="{at:.1f}" y1="{top - 8}" x2="{at:.1f}" y2="{height - 24}" stroke="{colour}"/>')
        out.append(f'<text x="{at:.1f}" y="{height - 8}" text-anchor="middle" fill="#666">{label}</text>')
    for index, (figure, value) in enumerate(rows):
        y = top + index * line
        better = value if figure.more_is_better else 1 / value
        colour = "#9aa5b1" if figure.aim is None else "#2f855a" if _met(figure, value) else "#c05621"
        start, end = sorted((middle, x(better)))
        out.append(f'<text x="{left - 8}" y="{y + 13}" text-anchor="end">{escape(figure.label)}</text>')
        out.append(f'<rect x="{start:.1f}" y="{y + 3}" width="{max(end - start, 1):.1f}" height="{line - 8}" fill="{colour}"/>')
        if figure.aim is not None:
            aim = x(figure.aim if figure.more_is_better else 1 / figure.aim)
            out.append(f'<line x1="{aim:.1f}" y1="{y}" x2="{aim:.1f}" y2="{y + line - 2}" stroke="black" stroke-width="2"/>')
        out.append(f'<text x="{left + width + 8}" y="{y + 13}">{better:.2f}x</text>')
    return "\n".join([*out, "</svg>\n"])


def write(rounds: Rounds, about: dict[str, Any], out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    machine = {"cpu": _cpu(), "kernel": platform.release(), "python": platform.python_version()}
    (out / "result.json").write_text(json.dumps({"about": about | machine, "rounds": rounds}, indent=1))
    (out / "result.svg").write_text(picture(rounds))
    (out / "result.md").write_text(markdown(rounds))


def _cpu() -> str:
    for text in Path("/proc/cpuinfo").read_text().splitlines():
        if text.startswith("model name"):
            return text.partition(":")[2].strip()
    return platform.processor()
