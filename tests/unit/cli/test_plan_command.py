"""`ottla plan`: capacity planning with its two worked examples (F70)."""

from __future__ import annotations

import json

import pytest

from ottla.cli.failure import Failure
from ottla.cli.plan import Hardware, Load, parse_rate, parse_share, plan_capacity
from ottla.cli.units import bits_text, bytes_text
from tests.kit.ottla_command import Ottla

TB = 1e12
OTTLA = Ottla("")


def test_f70_disk_of_a_hundred_million_messages_a_day() -> None:
    words = "--rate 100000000/day --size 1KB --copies 2 --retention 14d --compression 0.75 --spare 10%".split()  # noqa: SIM905
    document = json.loads(OTTLA.ok("plan", *words, "--json"))
    assert document["disk_bytes"] == 2_310_000_000_000
    lines = OTTLA.ok("plan", *words).splitlines()
    assert [" ".join(line.split()) for line in lines[:6]] == [
        "disk",
        "100,000,000 records a day x 1 KB = 100 GB a day",
        "x 0.75 after compression = 75 GB a day",
        "x 14 days of retention = 1.05 TB",
        "x 2 copies = 2.1 TB",
        "x 1.1 with 10% spare for indexes, active segments and peaks = 2.31 TB",
    ]
    assert lines[-1] == "2.31 TB of disk, 2 brokers: 1.16 TB each"


@pytest.mark.parametrize(("copies", "brokers"), [("1", 10), ("3", 30)])
def test_f70_brokers_of_a_terabyte_an_hour(copies: str, brokers: int) -> None:
    """A third of 70% of 1 Gbit/s is 233 Mbit/s; 1 TB an hour is 2.22 Gbit/s."""
    words = f"--rate 1TB/hour --copies {copies} --network 1Gbit --share 70% --peak 3 --retention 1d".split()
    document = json.loads(OTTLA.ok("plan", *words, "--json"))
    assert document["brokers"] == brokers
    steps = [(each["step"], each["result"]) for each in document["broker_steps"]]
    assert ("1 Gbit/s x 70% for Kafka / 3 for peaks", "233 Mbit/s") in steps
    assert ("written: 2.22 Gbit/s / 233 Mbit/s a broker = 9.52", "10 brokers") in steps


def test_the_largest_need_decides() -> None:
    load = Load(bytes_per_s=1e6, copies=3, retention_s=86_400 * 10, spare=0)
    assert plan_capacity(load, Hardware()).brokers == 3
    assert plan_capacity(load, Hardware(disk_bytes=0.5 * TB)).brokers == 6  # 2.592 TB
    slow = Hardware(network_bytes_per_s=1e6, share=0.5, peak=1)
    assert plan_capacity(load, slow).brokers == 6
    reading = Load(bytes_per_s=1e6, copies=3, retention_s=86_400, readers=4)
    assert plan_capacity(reading, slow).brokers == 12  # sends 6 MB/s, 0.5 MB/s each


def test_rates() -> None:
    assert parse_rate("5000/s", 100.0) == (500_000, 5000)
    assert parse_rate("6e6/min", 60.0) == (6e6, 1e5)
    assert parse_rate("86,400/days", 1.0) == (1, 1)
    assert parse_rate("1TB/hour", None) == (TB / 3600, None)
    assert parse_rate("20 MB/s", None) == (20e6, None)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--rate", "fast"], "is not an amount per time"),
        (["--rate", "5/fortnight"], "is not an amount per time"),
        (["--rate", "5000/s"], "--size is missing: --rate counts records"),
        (["--rate", "5MB/s", "--size", "1KB"], "--size is for a --rate in records"),
        (["--rate", "0/s", "--size", "1KB"], "--rate must be more than 0"),
        (["--rate", "5MB/s", "--retention", "long"], "--retention 'long' is not a duration"),
        (["--rate", "5MB/s", "--share", "x%"], "--share 'x%' is not a share"),
        (["--rate", "5MB/s", "--compression", "0"], "--compression must be more than 0"),
        (["--rate", "5MB/s", "--network", "1Gb"], "'1Gb' is ambiguous"),
        (["--rate", "5MB/s", "--network", "0"], "--network must be more than 0"),
    ],
)
def test_what_cannot_be(words: list[str], says: str) -> None:
    assert says in OTTLA.fails("plan", *words, code=2)


def test_shares() -> None:
    assert (parse_share("70%", "--share"), parse_share("0.7", "--share"), parse_share("0%", "--spare")) == (0.7, 0.7, 0)
    with pytest.raises(Failure, match="is not a share"):
        parse_share("-10%", "--spare")


def test_texts() -> None:
    texts = {1: "1 B", 999: "999 B", 1000: "1 KB", 999_999: "1 MB", 2.31e12: "2.31 TB", 5e18: "5,000 PB"}
    assert {count: bytes_text(count) for count in texts} == texts
    assert bits_text(125_000_000) == "1 Gbit/s"
