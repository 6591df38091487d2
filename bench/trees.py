"""`python -m bench.trees BEFORE/src [AFTER/src]`: two source trees of Ottla, each compiled, in short alternating rounds.

The figures are those of `python -m bench raw requests idempotence groups`. Which tree begins alternates: to be the first or the
second in a round makes more difference than most changes. The table has the medians of the rounds, and of their ratios.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.__main__ import one_round
from bench.figures import FIGURES
from bench.measure import QUICK, Figures
from bench.servers import Ottla
from tests.kit import ROOT

SCALE = replace(QUICK, raw_bytes=150_000_000, requests=12_000, group_requests=12_000, warm_up_s=1.0, turns=2)
PARTS = ("raw", "requests", "idempotence", "groups")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.trees", description=__doc__)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path, nargs="?", default=ROOT / "src")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--only", default=",".join(PARTS), help=f"of {', '.join(PARTS)}")
    options = parser.parse_args()
    rounds: dict[Path, list[Figures]] = {options.before: [], options.after: []}
    console = Console(width=130)
    signal.signal(signal.SIGTERM, lambda got, _: sys.exit(128 + got))  # the broker stops, and the rounds until then are shown
    try:
        with tempfile.TemporaryDirectory(prefix="ottla-bench-") as scratch:
            for number in range(options.rounds):
                for tree in list(rounds)[:: 1 if number % 2 == 0 else -1]:
                    console.print(f"round {number + 1}/{options.rounds}: {tree}")
                    rounds[tree].append(one_round(Ottla(tree), set(options.only.split(",")), SCALE, Path(scratch)))
    finally:
        before, after = rounds.values()
        console.print(table(before[: len(after)], after))


def table(before: list[Figures], after: list[Figures]) -> Table:
    grid = Table(title=f"medians of {len(after)} rounds")
    for name in ("figure", "unit", "before", "after", "ratio (lowest-highest)"):
        grid.add_column(name, justify="left" if name in ("figure", "unit") else "right")
    for figure in FIGURES:
        pairs = [(old[figure.key], new[figure.key]) for old, new in zip(before, after, strict=True) if figure.key in old]
        if pairs:
            ratios = [new / old for old, new in pairs]
            medians = [statistics.median(values) for values in zip(*pairs, strict=True)]
            spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
            grid.add_row(figure.label, figure.unit, *(f"{value:,.2f}" for value in medians), spread)
    return grid


if __name__ == "__main__":
    main()
