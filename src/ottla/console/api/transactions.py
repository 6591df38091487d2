"""Transactions: open ones, those that hang, and how to end them."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ottla.cli.connection import Connection
from ottla.cli.console.settings import Role
from ottla.cli.failure import Failure
from ottla.console.console import Console
from ottla.console.endpoint import Answer, Call, Endpoint, Param
from ottla.console.live import View, follow
from ottla.console.schema import BOOLEAN, INTEGER, NUMBER, OBJECT, STRING, document, listed, maybe, request
from ottla.console.sse import event_stream
from ottla.console.watch import Snapshot

_ROW = document(
    id=STRING,
    state=STRING,
    producer_id=maybe(INTEGER),
    coordinator=maybe(INTEGER),
    open_s=maybe(NUMBER),
    timeout_s=maybe(NUMBER),
)
_HANGING = document(
    topic=STRING,
    partition=INTEGER,
    producer_id=INTEGER,
    producer_epoch=INTEGER,
    start_offset=INTEGER,
    last_timestamp_ms=INTEGER,
)


def _rows(snapshot: Snapshot, call: Call) -> list[dict[str, Any]]:
    search, state = (call.word("search") or "").lower(), (call.word("state") or "").lower()
    found = snapshot.reading.transactions
    return [
        {
            "id": each.transactional_id,
            "state": each.state,
            "producer_id": each.producer_id,
            "coordinator": each.coordinator_id,
            "open_s": None if each.open_s is None else round(each.open_s, 1),
            "timeout_s": each.timeout_s,
        }
        for each in sorted(found.by_id if found is not None else (), key=lambda each: each.transactional_id)
        if search in each.transactional_id.lower() and (not state or each.state.lower() == state)
    ]


async def list_transactions(console: Console, call: Call) -> Answer:
    call.watch.look()
    snapshot = await call.watch.complete_snapshot()
    found = snapshot.reading.transactions
    keys = sorted(found.hanging) if found is not None else []
    hanging = await call.blocking(_hanging, call.connection, keys) if keys else []
    return {"as_of_ms": snapshot.as_of_ms, "rows": _rows(snapshot, call), "hanging": hanging}


def _hanging(connection: Connection, keys: list[tuple[str, int]]) -> list[dict[str, Any]]:
    from ottla.cli.txn.view import Transactions

    names = ("topic", "partition", "producer_id", "producer_epoch", "start_offset", "last_timestamp_ms")
    return [{name: getattr(each, name) for name in names} for each in Transactions(connection).hanging(keys, 0)]


async def live_transactions(console: Console, call: Call) -> Answer:
    async def view() -> View:
        snapshot = await call.watch.first()
        rows = _rows(snapshot, call)
        head = {"as_of_ms": snapshot.as_of_ms, "counts": dict(Counter(row["state"] for row in rows))}
        return View(head, {str(row["id"]): row for row in rows})

    return event_stream(follow(call.watch, view))


async def get_transaction(console: Console, call: Call) -> Answer:
    return await call.blocking(_described, call.connection, call.path("id"))


def _described(connection: Connection, name: str) -> dict[str, Any]:
    from ottla.cli.txn.view import Transactions

    state, coordinator = Transactions(connection).described(name)
    return {
        "id": name,
        "state": state.transaction_state,
        "producer_id": state.producer_id,
        "producer_epoch": state.producer_epoch,
        "timeout_ms": state.transaction_timeout_ms,
        "start_ms": state.transaction_start_time_ms if state.transaction_start_time_ms >= 0 else None,
        "coordinator": coordinator,
        "partitions": [
            {"topic": topic.topic, "partition": partition} for topic in state.topics for partition in topic.partitions
        ],
    }


async def abort_transaction(console: Console, call: Call) -> Answer:
    place = (call.needed("topic", str), call.needed("partition", int))
    await call.blocking(_abort, call.connection, place, call.needed("start_offset", int))
    await call.watch.anew()
    return {"aborted": True}


def _abort(connection: Connection, place: tuple[str, int], start_offset: int) -> None:
    from ottla.cli.txn.view import Transactions

    transactions = Transactions(connection)
    # One that a coordinator knows would be aborted here, and perhaps committed in other partitions.
    found = [each for each in transactions.hanging([place], 0) if each.start_offset == start_offset]
    if not found:
        raise Failure(
            f"{place[0]}-{place[1]} has no hanging transaction that starts at offset {start_offset}",
            "one that its coordinator knows ends by its timeout",
            code="NOT_FOUND",
        )
    transactions.abort(found[0])


_PARAMS = (Param("search", "A part of the transactional id", STRING), Param("state", "Only in this state", STRING))

ENDPOINTS = (
    Endpoint(
        "GET",
        "/api/transactions",
        "Transactions by transactional id, and those that hang",
        list_transactions,
        document(as_of_ms=INTEGER, rows=listed(_ROW), hanging=listed(_HANGING)),
        params=_PARAMS,
    ),
    Endpoint(
        "GET",
        "/api/live/transactions",
        "Transactions as they change",
        live_transactions,
        OBJECT,
        params=_PARAMS,
        media_type="text/event-stream",
    ),
    Endpoint(
        "POST",
        "/api/transactions/abort",
        "Abort a hanging transaction in one partition",
        abort_transaction,
        document(aborted=BOOLEAN),
        role=Role.ADMIN,
        changes=True,
        body=request(topic=STRING, partition=INTEGER, start_offset=INTEGER),
    ),
    Endpoint(
        "GET",
        "/api/transactions/{id}",
        "A transactional id as its coordinator describes it",
        get_transaction,
        document(
            id=STRING,
            state=STRING,
            producer_id=INTEGER,
            producer_epoch=INTEGER,
            timeout_ms=INTEGER,
            start_ms=maybe(INTEGER),
            coordinator=INTEGER,
            partitions=listed(document(topic=STRING, partition=INTEGER)),
        ),
    ),
)
