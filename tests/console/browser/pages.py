"""Every page of the console with something that it must show of `world`, and its picture in the docs."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

import httpx

from tests.console.browser.world import GROUP, HOSTILE, HOSTILE_GROUP, LAGGING


@dataclass(frozen=True)
class ConsolePage:
    path: str
    shows: tuple[str, ...]
    picture: str | None = None
    allowed: str | None = None
    """Messages in the browser's console that belong to the page."""
    ottla_only: bool = False


PAGES = (
    ConsolePage("/", ("Overview", "Needs attention", "orders.dlq", "flow revenue failed", LAGGING), "overview"),
    ConsolePage("/brokers", ("controller", "Leader skew"), "brokers"),
    ConsolePage("/brokers/{broker}", ("Log directories", "orders-clean"), "broker"),
    ConsolePage("/brokers/{broker}?tab=configs&search=log.retention", ("log.retention.bytes",)),
    ConsolePage("/topics", ("orders-clean", "dead letters", "7 topics"), "topics"),
    ConsolePage("/topics?search=pay", ("payments", "1 of 7 topics")),
    ConsolePage("/topics/orders", ("High watermark", "600"), "topic"),
    ConsolePage("/topics/orders?tab=configs", ("retention.ms", "7 d", "set here"), "topic-configs"),
    ConsolePage("/topics/orders?tab=consumers", (LAGGING, "540")),
    ConsolePage("/topics/payments?tab=producers", ("Last sequence",)),
    ConsolePage("/topics/orders?tab=acls", ("The cluster has no authorizer",)),
    ConsolePage(
        "/topics/orders?tab=partition",
        ("The producer sends to the leader", "HW", "Where the cluster remembers it", "Who waits is not known"),
        "record-way",
    ),
    ConsolePage("/topics/orders/records", ("customer-", "100 records", "Over time"), "records"),
    ConsolePage(
        "/topics/orders/records?where=value.customer.name+%3D%3D+%22ada%22&column=value.amount&order=oldest&record=0:{offset}",
        ("value.amount", "orders-0 @ {offset}", "Prague"),
        "record",
    ),
    ConsolePage("/topics/revenue/records?key=ada&order=oldest&view=history", ("latest", '+ "total": 128'), "key-history"),
    ConsolePage("/groups", (GROUP, LAGGING, HOSTILE_GROUP), "groups"),
    ConsolePage(f"/groups/{LAGGING}", ("540", "Lag in time"), "group"),
    ConsolePage(f"/groups/{GROUP}?tab=members", (HOSTILE,)),
    ConsolePage(f"/groups/{quote(HOSTILE_GROUP, safe='')}", (HOSTILE_GROUP, "235")),
    ConsolePage("/transactions?id=payments-1", ("payments-1", "Ongoing", "payments-"), "transactions"),
    ConsolePage("/pipelines", ("shop", "failed"), "pipelines"),
    ConsolePage("/pipelines/shop", ("orders-clean", "cannot resolve column", "Watermark", HOSTILE), "pipeline"),
    ConsolePage("/dead-letters", ("orders.dlq", "9"), "dead-letters"),
    ConsolePage(
        "/dead-letters/orders.dlq?letter={letter}", ("amount is missing", "The original", "Replay this one"), "dead-letter"
    ),
    ConsolePage("/trace?header=trace:t-00042&topics=orders,orders-clean", ("later", "All of it was scanned"), "trace"),
    ConsolePage("/schemas", ("No schema registry",), allowed="api/schemas"),
    ConsolePage("/acls", ("The cluster has no authorizer",)),
    ConsolePage("/users", ("No users",)),
    ConsolePage("/quotas", ("No quotas",)),
    ConsolePage("/audit", ("Audit",)),
    ConsolePage("/login", ("This console needs no login",)),
    ConsolePage("/nothing/here", ("No such page",), allowed="nothing/here"),
)


def find_places(url: str) -> dict[str, str]:
    """What paths name that no two worlds share: a broker, the offset of a record of ada, a dead letter."""
    broker = httpx.get(f"{url}/api/overview").json()["controller_id"]
    letters = (
        httpx.get(f"{url}/api/dead-letters/orders.dlq")
        .json()
        .get("letters", [{"reason": "amount is missing", "partition": 0, "offset": 0}])
    )
    letter = next(each for each in letters if each["reason"] == "amount is missing")
    return {"broker": str(broker), "offset": "0", "letter": f"{letter['partition']}:{letter['offset']}"}


def fill(text: str, places: dict[str, str]) -> str:
    """A path or text of `PAGES` with its places."""
    for name, value in places.items():
        text = text.replace("{" + name + "}", value)
    return text
