"""`python -m bench [--quick]`: run Apache Kafka and Ottla in turn, measure both, print the ratios, write bench/out.

`python -m bench cluster` does the same with three brokers each (bench/cluster.py), `python -m bench registry` measures the schema
registry, `python -m bench console` the console.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from bench import OUT, measure, measure_compaction, measure_groups, measure_tls, measure_transactions, report
from bench.measure import QUICK, Figures, Scale, Server
from bench.servers import Kafka, Ottla

PARTS = (
    "start", "memory", "client", "raw", "requests", "latency", "groups", "rebalance", "transactions", "idempotence", "isolation",
    "log", "partitions", "compaction", "tls",
)  # fmt: skip


def one_round(server: Server, parts: set[str], scale: Scale, scratch: Path) -> Figures:
    """A fresh broker, all the figures of the chosen parts, and its end."""
    figures: Figures = {}
    os.sync()  # the gigabytes of the broker before are no load of this one
    try:
        figures |= measure.start(server)
        time.sleep(1)
        figures |= measure.memory(server, "rss_idle")
        measure.warm_up(server, scale)
        if "requests" in parts:
            figures |= measure.single_records(server, scale)
        if "latency" in parts:
            figures |= measure.latency(server, scale)
        if "groups" in parts:
            figures |= measure_groups.in_service(server, scale)
        if "rebalance" in parts:
            figures |= measure_groups.rebalances(server, scale)
        if "transactions" in parts:
            figures |= measure_transactions.transactions(server, scale)
        if "idempotence" in parts:
            figures |= measure_transactions.idempotence(server, scale)
        if "isolation" in parts:
            figures |= measure_transactions.isolation(server, scale)
        if "client" in parts:
            figures |= measure.with_librdkafka(server, scale, scratch)
        if "raw" in parts:
            figures |= measure.with_raw_load(server, scale)
        figures |= measure.memory(server, "rss_load")
        if "partitions" in parts:
            figures |= measure.partition_growth(server, scale)
        if "log" in parts:
            figures |= measure.log_growth(server, scale)
        if "compaction" in parts:  # last: from here on the cleaner is busy looking for work
            figures |= measure_compaction.compaction(server, scale)
    finally:
        close(server)
    keep = {"start": ("start",), "memory": ("rss_idle", "rss_load")}
    for part, keys in keep.items():
        if part not in parts:
            for key in keys:
                figures.pop(key, None)
    return figures


def one_tls_round(broker: str, source: Path | None, scale: Scale, scratch: Path) -> Figures:
    """Apart: an SSL listener costs a broker memory and time at its start."""

    def new(settings: dict[str, str]) -> Server:
        return Kafka(settings) if broker == "kafka" else Ottla(source, settings)

    return measure_tls.tls_round(new, close, scale, scratch)


def close(server: Server) -> None:
    """To its end, also if somebody is impatient: a broker left behind would keep its port, its memory and its gigabytes."""
    heard = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        server.close()
    finally:
        signal.signal(signal.SIGINT, heard)


def main() -> None:
    if sys.argv[1:2] == ["cluster"]:
        from bench import cluster

        cluster.main(sys.argv[2:])
        return
    if sys.argv[1:2] == ["registry"]:
        from bench import registry

        registry.main(sys.argv[2:])
        return
    if sys.argv[1:2] == ["console"]:
        from bench.console import main as console_main

        console_main(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="one short round: a look, not a result")
    parser.add_argument("--rounds", type=int, help="alternating rounds (default 3; quick: 1)")
    parser.add_argument("--only", default="", help="the same parts, with commas between them")
    parser.add_argument("--brokers", default="kafka,ottla")
    parser.add_argument("--large-log-bytes", type=int, help="default 10 GB; quick: 0.5 GB")
    parser.add_argument("--ottla-src", type=Path, help="run Ottla from this source tree instead of the installed one")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    scale = QUICK if options.quick else Scale()
    if options.large_log_bytes:
        scale = replace(scale, large_log_bytes=options.large_log_bytes)
    rounds_wanted = options.rounds or (1 if options.quick else 3)
    parts = {*options.parts, *options.only.split(",")} - {""} or set(PARTS)
    if not parts.issubset(PARTS):
        parser.error(f"there is no part {', '.join(sorted(parts.difference(PARTS)))}")
    brokers = options.brokers.split(",")
    console = Console(width=None if sys.stdout.isatty() else 150)
    rounds: report.Rounds = {broker: [] for broker in brokers}
    about = {
        "rounds": rounds_wanted,
        "quick": options.quick,
        "scale": str(scale),
        "cores": os.cpu_count(),
        "parts": sorted(parts),
    }
    # An end by signal is an exit like others: brokers stop, directories go, and what was measured until then is shown.
    for end in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(end, lambda got, _: sys.exit(128 + got))
    interrupted = False
    shared_memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    try:
        with tempfile.TemporaryDirectory(dir=shared_memory, prefix="ottla-bench-") as scratch:
            for number in range(rounds_wanted):
                # Which one begins alternates; what takes long and hardly varies is looked at in the first round only.
                for broker in brokers if number % 2 == 0 else reversed(brokers):
                    now = parts if number == 0 else parts - {"log", "partitions"}
                    console.print(f"round {number + 1}/{rounds_wanted}: {broker}", end="")
                    started = time.perf_counter()
                    figures: Figures = {}
                    if now - {"tls"}:
                        server = Kafka() if broker == "kafka" else Ottla(options.ottla_src)
                        figures |= one_round(server, now, scale, Path(scratch))
                    if "tls" in now:
                        figures |= one_tls_round(broker, options.ottla_src, scale, Path(scratch))
                    rounds[broker].append(figures)
                    report.write(rounds, about, options.out)
                    console.print(f", {time.perf_counter() - started:.0f} s")
    except KeyboardInterrupt:
        interrupted = True
        console.print(f"\ninterrupted: {broker} is stopped and its data removed; what follows is of the rounds that ended")
    finally:
        report.table(rounds, console)
    if interrupted:
        sys.exit(130)
    console.print(f"written: {options.out}/result.json, result.svg, result.md")


if __name__ == "__main__":
    main()
