"""`python -m bench.pipelines`: Ottla's Spark source and sink beside Spark's own Kafka connector, on one broker.

| kind | measured |
|---|---|
| batch, stream | topic to noop, a batch query and a stream (AvailableNow), 100 B and 1 KB |
| copy | topic to topic as a stream: Ottla exactly once, the connector at least once; without compression |
| window | a topic of JSON records -> sums of each customer in windows of 10 seconds -> topic |
| guarded | a copy that has an expectation, and one that publishes its progress, beside a plain one |
| small | topic to topic in micro-batches of 100 records: the cost of a batch |
| latency | a record a second, trigger 200 ms: from before the produce to a read_committed consumer |
| cold | a process that starts Spark and reads the first row, by a batch query and by a stream |
| alone | a process that users start: start to the first result, memory after a copy, restart after kill -9 to the next result |

Spark alone (`copy`, `small`) is a source in Python that has its rows in memory, and `foreachBatch` that gives them to a function
in Python that throws them away: what is left of a pipeline without reading and writing. Sources take turns, and who begins
alternates. Rates are medians over the time of the micro-batches; the start of a query is a separate figure. CPU seconds include
the driver, the JVM, the Python workers and the broker; on a busy machine only they are comparable. The last lines are a table for
docs/bench.md. Needs the jars of Spark's connector (fetched once) and compiled modules.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import OUT
from bench.pipelines_alone import Alone, cold, first_row
from bench.pipelines_spark import SOURCES, Copies, Run, batch, fill, fill_orders, session, stream, thrown_away
from tests.kit.peers import ApacheKafka

ROUNDS = 3
SIZES = {"100 B": (100, 2_000_000), "1 KB": (1000, 400_000)}
QUICK = {"100 B": (100, 300_000), "1 KB": (1000, 100_000)}
# Long enough that what a query and a batch cost, however little they hold, does not decide; that is what `small` shows.
COPY_RECORDS, COPY_RECORDS_QUICK = 1_000_000, 100_000
SMALL_RECORDS, SMALL_BATCH = 3_000, 100
LATENCY_RECORDS, LATENCY_RECORDS_QUICK = 40, 10
ALONE_RECORDS, ALONE_RECORDS_QUICK = 500_000, 50_000
KINDS = ("batch", "stream", "copy", "window", "guarded", "small", "latency", "cold", "alone")


def main() -> None:
    if sys.argv[1:2] == ["--first-row"]:
        first_row(*sys.argv[2:])
    parser = argparse.ArgumentParser(
        prog="python -m bench.pipelines", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="less data, one round: a look, not a result")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--broker", choices=["ottla", "kafka"], default="ottla")
    parser.add_argument("--sources", default=",".join(SOURCES))
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--sizes", default=",".join(SIZES))
    options = parser.parse_args()
    sources, kinds = options.sources.split(","), options.kinds.split(",")
    from ottla.records import compiled
    from ottla.testing import Broker

    if not compiled():
        print("ottla's hot modules run interpreted: these are not its figures", file=sys.stderr)
    table = Table(sources)
    with ApacheKafka() if options.broker == "kafka" else Broker() as broker:
        measured = Measured(broker.bootstrap_servers, options.partitions, sources, 1 if options.quick else options.rounds, table)
        for kind in ("cold", "alone"):
            if kind in kinds:
                getattr(measured, kind)(options.quick)
        if set(kinds) - {"cold", "alone"}:
            in_session(measured, kinds, options.sizes.split(","), options.quick)
    table.finish()


def in_session(measured: Measured, kinds: list[str], sizes: list[str], quick: bool) -> None:
    spark = session()
    copies = Copies(spark, measured.servers, measured.partitions)
    for label in sizes:
        size, count = (QUICK if quick else SIZES)[label]
        if {"batch", "stream"} & set(kinds):
            measured.reads(spark, [kind for kind in ("batch", "stream") if kind in kinds], label, size, count)
        if "copy" in kinds:
            measured.copies(copies, label, size, COPY_RECORDS_QUICK if quick else COPY_RECORDS)
    for kind in ("window", "guarded", "small", "latency"):
        if kind in kinds:
            getattr(measured, kind)(copies, quick)
    spark.stop()


class Measured:
    def __init__(self, servers: str, partitions: int, sources: list[str], rounds: int, table: Table) -> None:
        self.servers, self.partitions = servers, partitions
        self._sources, self._rounds, self._table = sources, rounds, table

    def _in_turn(self, warm_ups: int, run: Callable[[str], Any], each: list[str] | None = None) -> dict[str, list[Any]]:
        """What `run` returns for each source, round by round. Who begins alternates."""
        each = each or self._sources
        found: dict[str, list[Any]] = {source: [] for source in each}
        for number in range(warm_ups + self._rounds):
            for source in each if number % 2 == 0 else reversed(each):
                taken = run(source)
                if number >= warm_ups:  # the first ones warm up: the JVM compiles, Python's workers start
                    found[source].append(taken)
        return found

    def reads(self, spark: Any, kinds: list[str], label: str, size: int, count: int) -> None:
        topic = f"bench-{size}"
        fill(self.servers, topic, size, count, self.partitions)
        for kind in kinds:
            run = batch if kind == "batch" else stream
            runs = self._in_turn(2, lambda source, run=run: run(spark, source, self.servers, topic))  # type: ignore[misc]
            self._table.rates(f"topic to noop, {kind}, {label}", runs, count)

    def copies(self, copies: Copies, label: str, size: int, count: int) -> None:
        topic = f"bench-copy-{size}"
        fill(self.servers, topic, size, count, self.partitions)
        runs = self._in_turn(1, lambda source: copies.run(source, topic, count), [*self._sources, "spark"])
        self._table.rates(f"topic to topic, {label}", runs, count)

    def window(self, copies: Copies, quick: bool) -> None:
        count = COPY_RECORDS_QUICK if quick else COPY_RECORDS
        fill_orders(self.servers, "bench-orders", count, self.partitions)
        runs = self._in_turn(1, lambda source: copies.window(source, "bench-orders", count))
        self._table.rates("JSON records to windows to topic", runs, count)

    def guarded(self, copies: Copies, quick: bool) -> None:
        count = COPY_RECORDS_QUICK if quick else COPY_RECORDS
        fill(self.servers, "bench-guarded", 100, count, self.partitions)

        def run(name: str) -> Run:
            is_expected, is_watched = name == "an expectation", name == "progress listened to and published"
            return copies.run("ottla", "bench-guarded", count, is_expected=is_expected, is_watched=is_watched)

        for name, runs in self._in_turn(1, run, ["neither", "an expectation", "progress listened to and published"]).items():
            taken = {field: statistics.median(getattr(run, field) for run in runs) for field in ("seconds", "cpu_seconds")}
            self._table.row(f"a copy of 100 B with {name}, rows/s", {"ottla": count / taken["seconds"]}, "{:,.0f}")
            cost = taken["cpu_seconds"] / count * 1e6
            self._table.row(f"a copy of 100 B with {name}, CPU s per million rows", {"ottla": cost}, "{:.2f}")

        rows = 10 * count

        def alone(name: str) -> Run:
            return thrown_away(copies.spark, rows, is_counted=name == "counted")

        found = {name: [run.cpu_seconds for run in runs] for name, runs in self._in_turn(1, alone, ["plain", "counted"]).items()}
        cost = (statistics.median(found["counted"]) - statistics.median(found["plain"])) / rows * 1e6
        self._table.row("what an observed metric of Spark and a filter take, CPU s per million rows", {"spark": cost}, "{:.2f}")

    def small(self, copies: Copies, quick: bool) -> None:
        fill(self.servers, "bench-small", 100, SMALL_RECORDS, self.partitions)
        shares: dict[str, list[float]] = {}

        def run(source: str) -> tuple[float, float]:
            taken = copies.run(source, "bench-small", SMALL_RECORDS, SMALL_BATCH)
            if source == "ottla":
                shares.setdefault("transaction", []).extend(copies.transactions_ms)
            shares.setdefault(source, []).extend(copies.checkpoints_ms)
            return statistics.median(copies.durations_ms), taken.cpu_seconds * 1000 / len(copies.durations_ms)

        found = self._in_turn(1, run, [*self._sources, "spark"])
        row = self._table.row
        row("a batch of 100 records, topic to topic, ms", _medians(found, 0), "{:.0f}")
        row("of which the checkpoint's files, ms", {name: statistics.median(shares[name]) for name in found}, "{:.0f}")
        row("CPU for such a batch, its share of the query's start included, ms", _medians(found, 1), "{:.0f}")
        if "ottla" in self._sources:
            row("of which the transaction, ms", {"ottla": statistics.median(shares["transaction"])}, "{:.0f}")

    def latency(self, copies: Copies, quick: bool) -> None:
        found = {
            source: sorted(copies.latency(source, LATENCY_RECORDS_QUICK if quick else LATENCY_RECORDS))
            for source in self._sources
        }
        for share in (0.5, 0.9):
            taken = {source: times[int(len(times) * share)] for source, times in found.items()}
            self._table.row(f"a record a second, trigger 200 ms, p{share * 100:.0f}, ms", taken, "{:.0f}")

    def cold(self, quick: bool) -> None:
        fill(self.servers, "bench-cold", 100, 100, self.partitions)
        for kind in ("batch", "stream"):
            times = self._in_turn(0, lambda source, kind=kind: cold(kind, source, self.servers, "bench-cold"))  # type: ignore[misc]
            self._table.row(f"cold start to the first row, {kind}, s", _medians(times), "{:.1f}")

    def alone(self, quick: bool) -> None:
        count = ALONE_RECORDS_QUICK if quick else ALONE_RECORDS
        numbers = iter(range(1000))

        def run(source: str) -> tuple[float, float, dict[str, float]]:
            with Alone(source, self.servers, f"alone-{next(numbers)}", self.partitions) as alone:
                started = alone.first_result()
                alone.copy(count)
                memory = alone.memory_mb()
                alone.kill()
                return started, alone.first_result(), memory

        found = self._in_turn(0, run)
        row = self._table.row
        row("process start to the first result, s", _medians(found, 0), "{:.1f}")
        row("start after kill -9 to the next result, s", _medians(found, 1), "{:.1f}")
        for kind in ("driver", "JVM", "workers"):
            taken = {source: statistics.median(run[2].get(kind, 0.0) for run in runs) for source, runs in found.items()}
            row(f"memory after a copy of {count:,} records (PSS), {kind}, MB", taken, "{:.0f}")


def _medians(found: dict[str, list[Any]], index: int | None = None) -> dict[str, float]:
    return {name: statistics.median(run if index is None else run[index] for run in runs) for name, runs in found.items()}


class Table:
    """Figures as they come, then once more as Markdown."""

    def __init__(self, sources: list[str]) -> None:
        self._sources = sources
        self._lines: list[str] = []
        self._found: dict[str, dict[str, float]] = {}

    def rates(self, case: str, runs: dict[str, list[Run]], count: int) -> None:
        def median(field: str) -> dict[str, float]:
            return {source: statistics.median(getattr(run, field) for run in taken) for source, taken in runs.items()}

        self.row(f"{case}, rows/s", {source: count / seconds for source, seconds in median("seconds").items()}, "{:,.0f}")
        costs = {source: seconds / count * 1e6 for source, seconds in median("cpu_seconds").items()}
        self.row(f"{case}, CPU s per million rows", costs, "{:.2f}")
        self.row(f"{case}, s beside the batches", median("start_seconds"), "{:.2f}")

    def row(self, case: str, found: dict[str, float], shape: str) -> None:
        self._found[case] = found
        cells = [shape.format(found[source]) if source in found else "" for source in [*self._sources, "spark"]]
        both = all(source in found for source in SOURCES)
        ratio = f"{found['ottla'] / found['kafka']:.2f}" if both and found["kafka"] else ""
        self._lines.append(f"| {case} | {' | '.join([*cells[:-1], ratio, cells[-1]])} |")
        shown = ", ".join(f"{source} {shape.format(value)}" for source, value in found.items())
        print(f"{case:55} {shown}", flush=True)

    def finish(self) -> None:
        OUT.mkdir(parents=True, exist_ok=True)
        Path(OUT, "pipelines.json").write_text(json.dumps(self._found, indent=1))
        names = {"ottla": "Ottla", "kafka": "Spark's connector"}
        print(f"\n| | {' | '.join(names[source] for source in self._sources)} | ratio | Spark alone |")
        print(f"|---|{'---|' * len(self._sources)}---|---|")
        print("\n".join(self._lines))


if __name__ == "__main__":
    main()
