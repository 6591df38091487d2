"""Ottla beside Apache Kafka: the same clients, the same machine, in turn, several rounds. `python -m bench [--quick]`.

`servers` starts the two; `load`, `groups` and `transactions` are the raw load generators (processes of their own); `measure`,
`measure_groups`, `measure_transactions`, `measure_compaction` take the figures; `figures` says what each one means and what is
aimed at; `report` makes the table, the picture, the JSON and the Markdown in `bench/out`.
Looks apart, each a command: `compaction_load`, `inside`, `inside_groups`, `starts`, `client_latency`, `floor`, `floor_produce`.
The method, and how to read the result, is in docs/bench.md.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "bench" / "out"


def answer_help(text: str | None) -> None:
    """Print a module's docstring and exit if the command line asks for help."""
    if {"-h", "--help"} & set(sys.argv[1:]):
        print((text or "").strip())
        sys.exit(0)
