"""Records: read, searched, followed, exported, produced, copied."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from starlette.responses import StreamingResponse

from ottla.cli.connection import Connection, unknown_partition
from ottla.cli.console.settings import Role
from ottla.cli.failure import EXIT_USAGE, Failure
from ottla.cli.find.batches import BatchSource
from ottla.cli.find.scan import Scan
from ottla.cli.formats import Format, Incoming, Outgoing, Reading
from ottla.cli.positions import parse_position
from ottla.console.api.topic import read_topic
from ottla.console.console import Console
from ottla.console.endpoint import Answer, Call, Endpoint, Param, bad
from ottla.console.failures import as_failure, error_document
from ottla.console.records.choosing import reading_of
from ottla.console.records.documents import FORMAT_WORDS, RECORD, Showing
from ottla.console.records.export import CHUNK, WRITERS, export
from ottla.console.records.histogram import histogram
from ottla.console.records.plan import FORMAT_PARAMS, PARAMS, SELECTION_PARAMS, Plan
from ottla.console.records.search import Search
from ottla.console.records.snippets import Ranges, Snippets, needs_ranges, ranges_of
from ottla.console.records.stream import Outlet
from ottla.console.records.tail import tail
from ottla.console.rights import check_copy, check_read, check_write
from ottla.console.schema import ANYTHING, BOOLEAN, INTEGER, OBJECT, STRING, document, listed, maybe, one_of, request
from ottla.console.sse import Event, event_stream
from ottla.records.record import records_in
from ottla.types import TopicPartition

_STREAM = "text/event-stream"
_FILE_TYPES = tuple(media_type for media_type, _ in WRITERS.values())
_COPIED_MAX = 10_000


def showing_of(console: Console, call: Call, *, whole: bool = False) -> Showing:
    """How the records of a request are shown."""
    return Showing(
        console.masks,
        call.choice("key_format", FORMAT_WORDS),
        call.choice("value_format", FORMAT_WORDS),
        console.registry.schemas,
        whole=whole,
    )


def ended_by(error: Exception) -> Event:
    """The last event of a stream that failed."""
    failure = as_failure(error) or Failure(f"the console failed: {type(error).__name__}: {error}", code="INTERNAL")
    return "end", {"reason": "error", "complete": False, "continue": None, **error_document(failure)}


# Reading


async def get_records(console: Console, call: Call) -> Answer:
    return _records(console, call, [call.path("topic")])


async def get_records_of_topics(console: Console, call: Call) -> Answer:
    topics = call.words("topics")
    if not topics:
        raise bad("topics= names no topic")
    return _records(console, call, topics)


def _records(console: Console, call: Call, topics: Sequence[str]) -> Answer:
    check_read(console, call, *topics)
    plan = Plan.of(call, topics)
    showing = showing_of(console, call)
    connection = call.connection
    console.streams.check()

    def search(outlet: Outlet) -> None:
        if call.flag("live"):
            tail(connection, plan, showing, outlet)
        else:
            Search(connection, plan, showing, outlet).run()

    return event_stream(console.streams.run(search, ended_by))


async def get_record(console: Console, call: Call) -> Answer:
    check_read(console, call, call.path("topic"))
    showing = showing_of(console, call, whole=True)
    partition, offset = call.path_number("partition"), call.path_number("offset")

    def read() -> dict[str, Any]:
        return showing.document(one_record(call.connection, call.path("topic"), partition, offset))

    return await call.blocking(read)


def one_record(connection: Connection, topic: str, partition: int, offset: int) -> Incoming:
    known = connection.topic(topic)
    if partition not in known.partitions:
        raise unknown_partition(topic, partition, len(known.partitions))
    source = BatchSource(connection, "read_uncommitted")
    try:
        for info, section in source.read(TopicPartition(topic, partition), offset, offset + 1, 64 << 10):
            for found in records_in(section, info):
                if found.offset == offset:
                    kind = "LogAppendTime" if info.is_log_append_time else "CreateTime"
                    return Incoming(topic, partition, offset, found.timestamp, kind, found.key, found.value, found.headers)
    finally:
        source.close()
    raise Failure(
        f"{topic}-{partition} has no record at offset {offset}",
        "retention or compaction removed it, or it is a marker of a transaction",
        code="NOT_FOUND",
    )


# Without reading


async def get_histogram(console: Console, call: Call) -> Answer:
    _, topic = await read_topic(call.watch, call.path("topic"))
    partitions = call.numbers("partitions")
    for each in partitions or ():
        if each not in topic.partitions:
            raise unknown_partition(topic.name, each, len(topic.partitions))
    now_ms = int(time.time() * 1000)
    return await histogram(
        call.brokers,
        topic,
        partitions,
        _time_of(call.word("from"), now_ms),
        _time_of(call.word("until"), now_ms),
        call.number("buckets", 60, low=1, high=500),
    )


def _time_of(position: str | None, now_ms: int) -> int | None:
    """The time of a position; None for one that is no time."""
    if position is None or position.startswith("group:"):
        return None
    found = parse_position(position, now_ms)
    return found.value if found.kind == "time" else None


async def get_snippets(console: Console, call: Call) -> Answer:
    name, asked = call.path("topic"), dict(call.request.query_params)
    ranges: Ranges | None = None
    if needs_ranges(asked):
        bounds, _ = await call.blocking(Plan.of(call, [name]).bounds, call.connection)
        ranges = ranges_of(asked, {index: bound for (_, index), bound in bounds.items()})
    servers, url = call.connection.bootstrap_servers, str(call.request.base_url).rstrip("/")
    return Snippets(servers, name, url, asked, ranges, showing_of(console, call).decodes).document()


async def check_filter(console: Console, call: Call) -> Answer:
    from ottla.filters.errors import FilterError
    from ottla.filters.filter import parse_filter

    try:
        parse_filter(call.needed("where", str), int(time.time() * 1000))
    except FilterError as error:
        return {"ok": False, "message": error.message, "excerpt": error.excerpt, "hint": error.hint}
    return {"ok": True}


# Files


async def export_records(console: Console, call: Call) -> Answer:
    if not console.settings.export:
        raise Failure("export is switched off", "the console was started with --no-export", code="FORBIDDEN")
    name = call.path("topic")
    check_read(console, call, name)
    form = call.choice("format", tuple(WRITERS))
    media_type, make = WRITERS[form]
    plan = Plan.of(call, [name])
    showing = showing_of(console, call)
    limit = call.number("limit", 0, high=1 << 40) or None
    console.streams.check()
    bounds, _ = await call.blocking(plan.bounds, call.connection)
    writer = make()

    def work(outlet: Outlet) -> None:
        scan = Scan(
            call.connection,
            bounds,
            plan.selection,
            newest_first=plan.newest_first,
            isolation=plan.isolation,
            reading=reading_of(plan.selection, showing),
        )
        export(scan, plan, showing, writer, limit, outlet)

    async def chunks() -> AsyncIterator[bytes]:
        async for event, data in console.streams.run(work, ended_by):
            if event != CHUNK:
                # The connection breaks: nobody takes a part for the whole.
                raise ConnectionError(data["error"]["message"])
            yield data

    safe = "".join(char if char.isascii() and (char.isalnum() or char in "._-") else "_" for char in name)
    headers = {"Content-Disposition": f'attachment; filename="{safe}.{form}"', "Cache-Control": "no-store"}
    return StreamingResponse(chunks(), media_type=media_type, headers=headers)


# Writing


async def produce_records(console: Console, call: Call) -> Answer:
    check_write(call, call.path("topic"))
    documents = call.field("records", list)
    if documents is None:
        documents = [{name: value for name, value in call.body.items() if name != "records"}]
    if not documents:
        raise bad("records is empty")
    outgoing = [outgoing_of(each, number) for number, each in enumerate(documents, 1)]
    return {"records": await call.blocking(console.writers.write, call.connection, call.path("topic"), outgoing)}


def outgoing_of(each: Any, number: int) -> Outgoing:
    import json

    if not isinstance(each, dict):
        raise bad(f"record {number} is no object")
    try:
        return Reading(Format.JSON).record(json.dumps(each).encode(), number)
    except Failure as failure:
        message = failure.message.replace(f"line {number}", f"record {number}")
        raise Failure(message, failure.hint, code="BAD_REQUEST", exit_code=EXIT_USAGE) from None


async def copy_records(console: Console, call: Call) -> Answer:
    places = call.needed("records", list)
    if not 0 < len(places) <= _COPIED_MAX:
        raise bad(f"records has {len(places)} places, not 1 to {_COPIED_MAX}")
    topic, to = call.path("topic"), call.needed("to", str)
    check_read(console, call, topic)
    check_write(call, to)
    check_copy(console, topic, to)
    chosen = [place_of(each) for each in places]
    copies = await call.blocking(_copies, call.connection, topic, chosen, call.field("partition", int))
    found = await call.blocking(console.writers.write, call.connection, to, copies)
    return {"records": found}


def place_of(each: Any) -> tuple[int, int]:
    if not isinstance(each, Mapping) or not all(
        type(each.get(name)) is int and each[name] >= 0 for name in ("partition", "offset")
    ):
        raise bad(f"{each!r} is no place: it has a partition and an offset")
    return each["partition"], each["offset"]


def _copies(connection: Connection, topic: str, places: Sequence[tuple[int, int]], partition: int | None) -> list[Outgoing]:
    read = [one_record(connection, topic, index, offset) for index, offset in places]
    return [Outgoing(each.key, each.value, each.headers, partition, each.timestamp_ms) for each in read]


_WRITTEN = document(records=listed(document(partition=INTEGER, offset=INTEGER, timestamp=maybe(INTEGER))))
_RECORD_FIELDS = {
    "key_": ANYTHING,
    "key_base64_": STRING,
    "value_": ANYTHING,
    "value_base64_": STRING,
    "headers_": ANYTHING,
    "partition_": maybe(INTEGER),
    "timestamp_": ANYTHING,
}

ENDPOINTS = (
    Endpoint(
        "GET",
        "/api/topics/{topic}/records",
        "Read or search records, in order of time: events begin, records, progress, skipped, end",
        get_records,
        OBJECT,
        params=PARAMS,
        media_type=_STREAM,
    ),
    Endpoint(
        "GET",
        "/api/records",
        "The same over several topics",
        get_records_of_topics,
        OBJECT,
        params=(Param("topics", "Between commas", STRING), *PARAMS),
        media_type=_STREAM,
    ),
    Endpoint(
        "GET",
        "/api/topics/{topic}/records/{partition}/{offset}",
        "One record, whole",
        get_record,
        RECORD,
        params=FORMAT_PARAMS,
    ),
    Endpoint(
        "GET",
        "/api/topics/{topic}/histogram",
        "How many records there are over time; no record is read",
        get_histogram,
        document(
            from_ms=maybe(INTEGER),
            until_ms=maybe(INTEGER),
            bucket_ms=INTEGER,
            buckets=listed(document(at_ms=INTEGER, records=INTEGER)),
            total=INTEGER,
            exact=BOOLEAN,
        ),
        params=(
            Param("from", "A time; default: the first record", STRING),
            Param("until", "A time; default: the last record", STRING),
            Param("buckets", "At most so many", INTEGER),
            Param("partitions", "Only these, between commas", STRING),
        ),
    ),
    Endpoint(
        "GET",
        "/api/topics/{topic}/export",
        "All records that match, as a file",
        export_records,
        STRING,
        params=(
            Param("format", "The form of the file", one_of(*WRITERS)),
            *SELECTION_PARAMS,
            *FORMAT_PARAMS,
            Param("limit", "At most so many", INTEGER),
        ),
        media_type=_FILE_TYPES[0],
        other_media_types=_FILE_TYPES[1:],
    ),
    Endpoint(
        "GET",
        "/api/topics/{topic}/snippets",
        "The same selection for Python, PySpark, kcat, ottla and curl",
        get_snippets,
        document(python=STRING, pyspark=STRING, kcat=STRING, ottla=STRING, curl=STRING),
        params=PARAMS,
    ),
    Endpoint(
        "POST",
        "/api/filters/check",
        "Whether an expression is one of the filter language",
        check_filter,
        document(ok=BOOLEAN, message_=STRING, excerpt_=maybe(STRING), hint_=maybe(STRING)),
        body=request(where=STRING),
    ),
    Endpoint(
        "POST",
        "/api/topics/{topic}/records",
        "Produce one record, or several",
        produce_records,
        _WRITTEN,
        role=Role.EDITOR,
        changes=True,
        body=request(**_RECORD_FIELDS, records_=listed(request(**_RECORD_FIELDS))),
    ),
    Endpoint(
        "POST",
        "/api/topics/{topic}/copy",
        "Copy records to a topic, as they are",
        copy_records,
        _WRITTEN,
        role=Role.EDITOR,
        changes=True,
        body=request(to=STRING, records=listed(request(partition=INTEGER, offset=INTEGER)), partition_=maybe(INTEGER)),
    ),
)
