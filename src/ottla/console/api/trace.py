"""Where is my record: a key, a header or a text over several topics, in order of time."""

from __future__ import annotations

import json
from typing import Any

from ottla.cli.find.scan import Scan
from ottla.console.api.pipelines import topics_of
from ottla.console.api.records import ended_by, showing_of
from ottla.console.console import Console
from ottla.console.endpoint import Answer, Call, Endpoint, Param, bad
from ottla.console.records.choosing import reading_of, takes_seen
from ottla.console.records.plan import PARAMS, Plan, select_for
from ottla.console.records.search import progress_of
from ottla.console.records.stream import Outlet
from ottla.console.rights import check_read
from ottla.console.schema import OBJECT, STRING
from ottla.console.sse import event_stream

_HOPS_MAX = 1000


async def trace(console: Console, call: Call) -> Answer:
    topics = call.words("topics")
    pipeline = call.word("pipeline")
    if pipeline is not None:
        document = await call.blocking(call.published.document, pipeline)
        topics += [topic for topic in topics_of(document["plan"]) if topic not in topics]
    if not topics:
        raise bad("topics= or pipeline= is missing")
    check_read(console, call, *topics)
    header = call.word("header")
    plan = Plan.of(call, topics)
    if header is not None:
        name, colon, value = header.partition(":")
        if not colon:
            raise bad(f"header={header!r} is not name:value")
        plan = plan.also(select_for(f"headers[{json.dumps(name)}] == {json.dumps(value)}"))
    if not plan.selection:
        raise bad("key=, header=, search= or where= is missing")
    showing = showing_of(console, call)
    console.streams.check()

    def work(outlet: Outlet) -> None:
        present = call.connection.metadata().topics
        known = plan.in_topics([topic for topic in topics if topic in present])
        bounds, notes = known.bounds(call.connection)
        missing = [f"topic {topic} does not exist" for topic in topics if topic not in present]
        outlet.send("begin", {"topics": known.topics, "notes": [*notes, *missing]})
        with Scan(
            call.connection,
            bounds,
            plan.selection,
            newest_first=False,
            isolation=plan.isolation,
            reading=reading_of(plan.selection, showing),
        ) as scan:
            scan.on_chunk = lambda scan: outlet.check()
            outlet.scanned = scan.tally
            hops = 0
            before_ms: int | None = None
            for record in scan:
                if not takes_seen(plan.selection, showing, record):
                    continue
                after = None if before_ms is None or record.timestamp_ms is None else record.timestamp_ms - before_ms
                outlet.send("hop", {"topic": record.topic, "record": showing.document(record), "after_ms": after})
                before_ms = record.timestamp_ms if record.timestamp_ms is not None else before_ms
                hops += 1
                if hops >= _HOPS_MAX:
                    break
            reason = "done" if scan.complete else "limit"
            end: dict[str, Any] = {**progress_of(scan, hops, before_ms), "reason": reason, "complete": scan.complete}
            outlet.send("end", {**end, "continue": None})

    return event_stream(console.streams.run(work, ended_by))


ENDPOINTS = (
    Endpoint(
        "GET",
        "/api/trace",
        "A record over several topics, or those of a pipeline: events begin, hop, end",
        trace,
        OBJECT,
        params=(
            Param("topics", "Between commas", STRING),
            Param("pipeline", "The topics of this pipeline", STRING),
            Param("header", "name:value", STRING),
            *PARAMS,
        ),
        media_type="text/event-stream",
    ),
)
