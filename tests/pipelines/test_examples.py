"""The pipelines in examples/, with a few records each (F77, F82)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.kit.databases import Database
    from tests.pipelines.conftest import Shop

EXAMPLES = Path(__file__).parents[2] / "examples"


def at(minute: int, second: int = 0, hour: int = 0) -> str:
    return f"2026-01-01T{hour:02d}:{minute:02d}:{second:02d}Z"


def topics(shop: Shop, *names: str) -> None:
    for name in names:
        shop.broker.create_topic(name, 2)


def test_windowed_counts(shop: Shop) -> None:
    topics(shop, "views", "views.dlq", "views_per_minute")
    views = [{"page": "/" if n % 3 else "/news", "user": "u", "at": at(n // 30, n % 30)} for n in range(60)]
    shop.produce("views", [*views, b"no view", {"page": "/", "user": "u", "at": at(9)}])
    shop.run(EXAMPLES / "windowed_counts.py")
    found = {(row["page"], row["minute"][14:16]): row["views"] for row in shop.values("views_per_minute")}
    assert found == {("/", "00"): 20, ("/news", "00"): 10, ("/", "01"): 20, ("/news", "01"): 10}
    assert [message.value() for message in shop.read("views.dlq")] == [b"no view"]


def test_enrichment_join(shop: Shop) -> None:
    topics(shop, "payments", "payments.dlq", "payments_with_names")
    shop.produce("payments", [{"id": 1, "customer": "ottla", "amount": 5}, {"id": 2, "customer": "nobody", "amount": 6}])
    shop.run(EXAMPLES / "enrichment.py")
    found = {row["id"]: (row.get("name"), row.get("country")) for row in shop.values("payments_with_names")}
    assert found == {1: ("Ottla Kafka", "CZ"), 2: (None, None)}


def test_sessions(shop: Shop) -> None:
    topics(shop, "clicks", "sessions")
    clicks = [("/a", at(0)), ("/b", at(20)), ("/a", at(45)), ("/c", at(30, hour=2)), ("/end", at(0, hour=23))]
    shop.produce("clicks", [{"user": "u", "page": page, "at": when} for page, when in clicks])
    shop.run(EXAMPLES / "sessions.py")
    found = sorted((row["began"][11:16], row["clicks"], row["pages"]) for row in shop.values("sessions"))
    assert found == [("00:00", 3, ["/a", "/b"]), ("02:30", 1, ["/c"])]


def test_dedup(shop: Shop) -> None:
    topics(shop, "readings", "readings_once")
    readings = [{"device": "d", "sequence": n % 10, "celsius": 20.0, "at": at(n)} for n in range(30)]
    shop.produce("readings", readings[:20])
    shop.run(EXAMPLES / "dedup.py")
    shop.produce("readings", readings[20:])
    shop.run(EXAMPLES / "dedup.py")
    assert Counter(row["sequence"] for row in shop.values("readings_once")) == Counter(range(10))


def test_topic_to_parquet_and_back(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_LAKE", str(shop.folder / "lake"))
    topics(shop, "events", "events.dlq", "events_again")
    events = [{"id": n, "sensor": f"s{n % 2}", "value": n / 2} for n in range(10)]
    shop.produce("events", events[:6])
    shop.run(EXAMPLES / "lake.py")
    shop.produce("events", events[6:])
    shop.run(EXAMPLES / "lake.py")
    assert sorted(shop.values("events_again"), key=lambda row: row["id"]) == events


@pytest.mark.slow
def test_totals(shop: Shop, postgresql: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_TOTALS", postgresql.create_database("totals"))
    topics(shop, "revenue")
    windows = [{"customer": f"c{n % 3}", "orders": 1, "cents": n} for n in range(60)]
    for some in (windows[:40], windows[40:]):
        shop.produce("revenue", some)
        shop.run(EXAMPLES / "totals.py")
    found = postgresql.rows("totals", "SELECT customer, orders, cents FROM totals ORDER BY customer")
    assert found == [("c0", "20", "570"), ("c1", "20", "590"), ("c2", "20", "610")]
