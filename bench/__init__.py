"""Benchmarks: Ottla and Apache Kafka with the same clients on the same machine, alternating. `python -m bench [--quick]`.

`servers` starts the brokers. `load`, `groups` and `transactions` generate load, each in its own process. `measure` and
`measure_*` take the figures, `figures` defines them and Ottla's targets, `report` writes tables and JSON to `bench/out`.
Separate commands: `cluster`, `pipelines`, `compaction_load`, `controller_scale`, `inside`, `inside_groups`, `instructions`,
`starts`, `client_latency`, `floor`, `floor_produce`, `acl_decisions`, `exporter`. docs/bench.md describes the method and how to
read the results.
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
