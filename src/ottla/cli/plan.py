"""`ottla plan`: the disk and the brokers that a load needs, with the formula line by line. Talks to no cluster.

1. Disk is what is kept: data a day x compression x days x copies x (1 + spare).
2. The network of a broker is planned for peaks: of its share for Kafka, average traffic may take one part in `peak`.
3. Brokers by network are counted for one copy, rounded up, and then multiplied by the copies: each copy is written over the
   network of its own brokers.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from ottla.cli.failure import EXIT_USAGE, Failure
from ottla.cli.options import Json
from ottla.cli.output import counted, print_document
from ottla.cli.units import bits_text, bytes_text, parse_bytes

_DAY_S = 86_400
_PERIODS_S = {
    "s": 1,
    "sec": 1,
    "second": 1,
    "m": 60,
    "min": 60,
    "minute": 60,
    "h": 3600,
    "hour": 3600,
    "d": _DAY_S,
    "day": _DAY_S,
}
_PERIODS_S |= {"w": 7 * _DAY_S, "week": 7 * _DAY_S}
_COUNT = re.compile(r"\d[\d_,]*(?:\.\d+)?(?:[eE]\+?\d+)?")


@dataclass(frozen=True, slots=True)
class Load:
    """What is written and kept."""

    bytes_per_s: float
    """Before compression."""
    records_per_s: float | None = None
    copies: int = 3
    retention_s: float = 7 * _DAY_S
    compression: float = 1.0
    """Size on disk and network, of the size before."""
    spare: float = 0.1
    readers: int = 0
    """Consumer groups that each read everything."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """One broker."""

    network_bytes_per_s: float | None = None
    share: float = 0.7
    """Of the network, for Kafka."""
    peak: float = 3.0
    """How much more than the average a peak is."""
    disk_bytes: float | None = None


@dataclass(slots=True)
class Plan:
    disk_bytes: float
    brokers: int
    disk_steps: list[tuple[str, str]] = field(default_factory=list)
    broker_steps: list[tuple[str, str]] = field(default_factory=list)

    @property
    def disk_bytes_per_broker(self) -> float:
        return self.disk_bytes / self.brokers


def plan_capacity(load: Load, hardware: Hardware) -> Plan:
    stored = load.bytes_per_s * load.compression
    disk = stored * load.retention_s * load.copies * (1 + load.spare)
    found = Plan(disk, load.copies, _disk_steps(load))
    found.broker_steps.append((f"{load.copies} copies of a partition are on different brokers", counted(load.copies, "broker")))
    if hardware.network_bytes_per_s is not None:
        _add_network(found, stored, load, hardware, hardware.network_bytes_per_s)
    if hardware.disk_bytes is not None:
        holding = math.ceil(disk / hardware.disk_bytes)
        text = f"{bytes_text(disk)} / {bytes_text(hardware.disk_bytes)} of disk a broker"
        found.broker_steps.append((text, counted(holding, "broker")))
        found.brokers = max(found.brokers, holding)
    return found


def _add_network(found: Plan, stored_per_s: float, load: Load, hardware: Hardware, network: float) -> None:
    usable = network * hardware.share / hardware.peak
    one_copy = max(1, math.ceil(stored_per_s / usable))
    written = f"written: {bits_text(stored_per_s)} / {bits_text(usable)} a broker = {stored_per_s / usable:.2f}"
    found.broker_steps += [
        (f"{bits_text(network)} x {hardware.share:.0%} for Kafka / {hardware.peak:g} for peaks", bits_text(usable)),
        (written, counted(one_copy, "broker")),
        (f"x {load.copies} copies", counted(one_copy * load.copies, "broker")),
    ]
    found.brokers = max(found.brokers, one_copy * load.copies)
    if load.readers:
        others = f"{load.copies - 1} copies and {counted(load.readers, 'reader')}"
        sent = stored_per_s * (load.copies - 1 + load.readers)
        sending = math.ceil(sent / usable)
        found.broker_steps.append(
            (f"sent to {others}: {bits_text(sent)} / {bits_text(usable)} a broker", counted(sending, "broker"))
        )
        found.brokers = max(found.brokers, sending)


def _disk_steps(load: Load) -> list[tuple[str, str]]:
    """Each factor, and the product so far."""
    day = load.bytes_per_s * _DAY_S
    steps = []
    if load.records_per_s is not None:
        size = load.bytes_per_s / load.records_per_s
        steps.append((f"{load.records_per_s * _DAY_S:,.0f} records a day x {bytes_text(size)}", f"{bytes_text(day)} a day"))
    else:
        steps.append((f"{bytes_text(load.bytes_per_s)}/s x {_DAY_S:,} s", f"{bytes_text(day)} a day"))
    amount = day
    for factor, text, unit in (
        (load.compression, f"x {load.compression:g} after compression", " a day"),
        (load.retention_s / _DAY_S, f"x {load.retention_s / _DAY_S:g} days of retention", ""),
        (load.copies, f"x {load.copies} {'copy' if load.copies == 1 else 'copies'}", ""),
        (
            1 + load.spare,
            f"x {1 + load.spare:g} with {load.spare:.0%} spare for indexes, active segments and peaks",
            "",
        ),
    ):
        amount *= factor
        steps.append((text, bytes_text(amount) + unit))
    return steps


def parse_rate(text: str, size: float | None) -> tuple[float, float | None]:
    """`100000000/day` and the size of a record, or `1TB/hour`: bytes and records a second."""
    amount, slash, period = text.strip().rpartition("/")
    seconds = _PERIODS_S.get(period.strip().lower().removesuffix("s") or "s") if slash else None
    if seconds is None:
        raise Failure(
            f"--rate {text!r} is not an amount per time", "write 100000000/day, 5000/s, 20MB/s or 1TB/hour", exit_code=EXIT_USAGE
        )
    if _COUNT.fullmatch(amount.strip()) is None:
        if size is not None:
            raise Failure("--size is for a --rate in records", "omit it, or write the rate without a unit", exit_code=EXIT_USAGE)
        return _positive(parse_bytes(amount, "--rate"), "--rate") / seconds, None
    if size is None:
        raise Failure("--size is missing: --rate counts records", "pass --size 1KB, or --rate 20MB/s", exit_code=EXIT_USAGE)
    records = _positive(float(re.sub("[_,]", "", amount)), "--rate") / seconds
    return records * size, records


def parse_share(text: str, option: str) -> float:
    """`70%` or `0.7`."""
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share < math.inf:
        raise Failure(f"{option} {text!r} is not a share", "write 70% or 0.7", exit_code=EXIT_USAGE)
    return share


def _positive(value: float, option: str) -> float:
    if not 0 < value < math.inf:
        raise Failure(f"{option} must be more than 0", exit_code=EXIT_USAGE)
    return value


def _retention_s(text: str) -> float:
    from ottla.filters.times import duration_ms

    found = duration_ms(text)
    if found is None:
        raise Failure(f"--retention {text!r} is not a duration", "write 14d, 36h or 2w", exit_code=EXIT_USAGE)
    return _positive(found / 1000, "--retention")


def plan(
    rate: Annotated[str, typer.Option("--rate", metavar="N/TIME", help="Records or bytes: 100000000/day, 5000/s, 1TB/hour.")],
    size: Annotated[str | None, typer.Option("--size", metavar="BYTES", help="Of a record: 1KB, 300.")] = None,
    copies: Annotated[int, typer.Option("--copies", min=1, help="The replication factor.")] = 3,
    retention: Annotated[
        str, typer.Option("--retention", metavar="DURATION", help="How long records are kept: 14d, 36h.")
    ] = "7d",
    compression: Annotated[
        str, typer.Option("--compression", metavar="RATIO", help="The compressed size of the uncompressed one: 0.75 or 75%.")
    ] = "1",
    spare: Annotated[str, typer.Option("--spare", metavar="SHARE", help="Disk for indexes, active segments and peaks.")] = "10%",
    network: Annotated[str | None, typer.Option("--network", metavar="RATE", help="Of a broker: 1Gbit, 10Gbit, 125MB.")] = None,
    share: Annotated[str, typer.Option("--share", metavar="SHARE", help="How much of the network is for Kafka.")] = "70%",
    peak: Annotated[float, typer.Option("--peak", min=1, help="A peak is this many times the average.")] = 3,
    readers: Annotated[int, typer.Option("--readers", min=0, help="Consumer groups that each read everything.")] = 0,
    disk: Annotated[str | None, typer.Option("--disk", metavar="BYTES", help="Of a broker: 4TB.")] = None,
    json_output: Json = False,
) -> None:
    """Compute the disk and the brokers that a load needs, and show how. Units: 1KB = 1000 bytes, 1KiB = 1024, 1Gbit = 125MB."""
    size_bytes = None if size is None else _positive(parse_bytes(size, "--size"), "--size")
    bytes_per_s, records_per_s = parse_rate(rate, size_bytes)
    load = Load(
        bytes_per_s,
        records_per_s,
        copies,
        _retention_s(retention),
        _positive(parse_share(compression, "--compression"), "--compression"),
        parse_share(spare, "--spare"),
        readers,
    )
    hardware = Hardware(
        None if network is None else _positive(parse_bytes(network, "--network"), "--network"),
        _positive(parse_share(share, "--share"), "--share"),
        peak,
        None if disk is None else _positive(parse_bytes(disk, "--disk"), "--disk"),
    )
    found = plan_capacity(load, hardware)
    if json_output:
        print_document(_document(found))
    else:
        _print(found)


def _document(found: Plan) -> dict[str, Any]:
    return {
        "disk_bytes": round(found.disk_bytes),
        "brokers": found.brokers,
        "disk_bytes_per_broker": round(found.disk_bytes_per_broker),
        "disk_steps": [{"step": text, "result": result} for text, result in found.disk_steps],
        "broker_steps": [{"step": text, "result": result} for text, result in found.broker_steps],
    }


def _print(found: Plan) -> None:
    width = max(len(text) for text, _ in (*found.disk_steps, *found.broker_steps))
    for title, steps in (("disk", found.disk_steps), ("brokers", found.broker_steps)):
        print(title)
        for text, result in steps:
            print(f"  {text:<{width}}  = {result}")
    each = bytes_text(found.disk_bytes_per_broker)
    print(f"{bytes_text(found.disk_bytes)} of disk, {counted(found.brokers, 'broker')}: {each} each")
