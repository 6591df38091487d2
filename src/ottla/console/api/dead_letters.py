"""Dead letters: where there are any, why, and back to their topics exactly once."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

from ottla.cli.connection import Connection, unknown_topic
from ottla.cli.console.settings import Role
from ottla.cli.copying.transfer import Transfer
from ottla.cli.dlq.choice import Choice
from ottla.cli.dlq.command import Reasons, box_of, dead_letter_rows
from ottla.cli.dlq.letters import read_letter
from ottla.cli.dlq.replay import Replay, Replayed, Target, replay_edited
from ottla.console.api.records import one_record, outgoing_of, place_of, showing_of
from ottla.console.console import Console
from ottla.console.endpoint import Answer, Call, Endpoint, Param, bad, executes
from ottla.console.jobs import JOB, RUNNING, Job
from ottla.console.live import View, changed_fields
from ottla.console.records.documents import RECORD, Showing
from ottla.console.records.plan import select_for
from ottla.console.rights import check_copy, check_read, check_write, may_write
from ottla.console.schema import (
    ANYTHING,
    BOOLEAN,
    INTEGER,
    OBJECT,
    STRING,
    by_name,
    document,
    listed,
    maybe,
    request,
)
from ottla.console.sse import EVENT_S, Event, event_stream

_LOOK_S = 20.0
"""How long a page waits for letters to be read. Then it is not complete, and says so."""

_SOURCE = document(cluster=maybe(STRING), topic=maybe(STRING), partition=maybe(INTEGER), offset=maybe(INTEGER))
_LETTER = document(
    partition=INTEGER,
    offset=INTEGER,
    reason=maybe(STRING),
    flow=maybe(STRING),
    source=_SOURCE,
    replayed=BOOLEAN,
    record=RECORD,
    headers=RECORD["properties"]["headers"],
)
_REASON = document(
    reason=maybe(STRING), flow=maybe(STRING), source=maybe(STRING), count=INTEGER, first_ms=maybe(INTEGER), last_ms=maybe(INTEGER)
)


async def list_dead_letters(console: Console, call: Call) -> Answer:
    return {"topics": await call.blocking(dead_letter_rows, call.connection)}


async def get_dead_letters(console: Console, call: Call) -> Answer:
    check_read(console, call, call.path("topic"))
    choice = Choice(
        call.word("reason"),
        call.word("flow"),
        call.word("source"),
        select_for(call.word("where"), call.word("search")),
        visible=console.masks.masked,
    )
    limit = call.number("limit", 50, high=1000)
    showing = showing_of(console, call)
    return await call.blocking(_letters, call.connection, call.path("topic"), choice, limit, call.flag("replayed"), showing)


def _letters(connection: Connection, topic: str, choice: Choice, limit: int, replayed: bool, showing: Showing) -> dict[str, Any]:
    connection.topic(topic)
    box = box_of(connection, topic, None, "beginning", None, None, replayed=replayed)
    groups: dict[tuple[str | None, ...], Reasons] = {}
    newest: list[Any] = []
    until_s = time.monotonic() + _LOOK_S
    complete = True
    for letters in box.letters():
        for letter in letters:
            if not choice.takes(letter) or (box.done(letter) and not replayed):
                continue
            key = (letter.reason, letter.flow, letter.source_topic)
            groups.setdefault(key, Reasons(*key)).add(letter)
            newest.append(letter)
            if len(newest) > 2 * limit + 100:
                newest = _newest(newest, limit)
        if time.monotonic() > until_s:
            complete = False
            break
    return {
        "topic": topic,
        "reasons": [each.document() for each in sorted(groups.values(), key=lambda each: -each.count)],
        "letters": [
            {
                "partition": letter.record.partition,
                "offset": letter.record.offset,
                "reason": letter.reason,
                "flow": letter.flow,
                "source": letter.source_document,
                "replayed": box.done(letter),
                "record": showing.document(letter.record),
                "headers": showing.document(replace(letter.record, headers=letter.headers))["headers"],
            }
            for letter in _newest(newest, limit)
        ],
        "complete": complete,
    }


def _newest(letters: list[Any], limit: int) -> list[Any]:
    def order(letter: Any) -> tuple[int, int, int]:
        return (-(letter.record.timestamp_ms or 0), letter.record.partition, -letter.record.offset)

    return sorted(letters, key=order)[:limit]


# Replaying


def _check_replay(console: Console, call: Call, topic: str, to: str | None) -> None:
    check_read(console, call, topic)
    if to is not None:
        check_write(call, to)
        check_copy(console, topic, to)


def _target(call: Call, topic: str, to: str | None) -> Target:
    known = call.connection.metadata().topics
    for name in (topic, to):
        if name is not None and name not in known:
            raise unknown_topic(name, known)
    return Target({name: len(each.partitions) for name, each in known.items() if may_write(call, name)}, to)


def _choice(console: Console, call: Call) -> Choice:
    places = call.field("letters", list)
    return Choice(
        call.field("reason", str),
        call.field("flow", str),
        call.field("source", str),
        select_for(call.field("where", str), call.field("search", str)),
        None if places is None else frozenset(place_of(each) for each in places),
        console.masks.masked,
    )


def _replayed(done: Replayed) -> dict[str, Any]:
    return {"to": dict(sorted(done.to.items())), "left": done.left, "stuck": dict(sorted(done.stuck.items()))}


async def replay_dead_letters(console: Console, call: Call) -> Answer:
    topic, to, limit = call.path("topic"), call.field("to", str), call.field("limit", int)
    if limit is not None and limit < 1:
        raise bad("limit is below 1")
    _check_replay(console, call, topic, to)
    choice = _choice(console, call)
    target = await call.blocking(_target, call, topic, to)
    if not executes(call):

        def preview() -> dict[str, Any]:
            box = box_of(call.connection, topic, None, "beginning", None, None)
            return _replayed(Replay(box, choice, target, None, limit).run())

        return {"executed": False, **await call.blocking(preview)}

    def work(job: Job) -> None:
        transfer = Transfer(call.connection, f"ottla-dlq.{topic}")
        try:
            # First: it ends a replay that was killed, and its progress is what counts then.
            transfer.begin()
            box = box_of(call.connection, topic, None, "beginning", None, None)
            # What the preview counts: letters that were replayed, are not chosen or are no letters do not belong to the job.
            counting = Replay(replace(box, progress=deepcopy(box.progress)), choice, target, None, limit)
            job.stop = counting.stop
            counted = counting.run().records
            replay = Replay(box, choice, target, transfer, limit)
            job.stop = replay.stop
            if job.cancelled:
                return
            job.all = counted
            job.done = lambda: replay.replayed.records
            job.detail = lambda: _replayed(replay.replayed)
            replay.run()
        finally:
            transfer.close()

    job = console.jobs.start(Job(f"replay {topic}", call.session.user, detail=lambda: _replayed(Replayed())), work)
    return {"executed": True, "job": job.id}


async def edit_dead_letter(console: Console, call: Call) -> Answer:
    topic = call.path("topic")
    partition, offset = place_of(call.body)
    to = call.field("to", str)
    check_read(console, call, topic)
    fields = {name: value for name, value in call.body.items() if name not in ("partition", "offset", "to")}
    return await call.blocking(_edit, console, call, topic, partition, offset, fields, to)


def _edit(
    console: Console, call: Call, topic: str, partition: int, offset: int, fields: Mapping[str, Any], to: str | None
) -> dict[str, Any]:
    connection = call.connection
    letter = read_letter(one_record(connection, topic, partition, offset))
    goal = to or letter.own_topic
    if goal is None:
        raise bad("the letter does not say where it came from, or came from another cluster", "name a topic with to")
    check_write(call, goal)
    if goal != letter.own_topic:
        check_copy(console, topic, goal)
    connection.topic(goal)
    if goal == topic:
        raise bad("a letter cannot be replayed to its own topic")
    edited = outgoing_of(fields, 1)
    if "key" not in fields and "key_base64" not in fields:
        edited.key = letter.record.key
    if "value" not in fields and "value_base64" not in fields:
        edited.value = letter.record.value
    if "headers" not in fields:
        edited.headers = letter.headers
    if edited.timestamp_ms is None:
        edited.timestamp_ms = letter.record.timestamp_ms
    transfer = Transfer(connection, f"ottla-dlq.{topic}")
    try:
        transfer.begin()
        box = box_of(connection, topic, [partition], "beginning", None, None)
        replay_edited(box, (topic, partition), offset, edited, goal, transfer)
    finally:
        transfer.close()
    return {"to": goal, "partition": partition, "offset": offset}


# Jobs


def _user(call: Call) -> str | None:
    """Whose jobs the caller sees. An admin sees everybody's."""
    return None if call.session.role >= Role.ADMIN else call.session.user


async def list_jobs(console: Console, call: Call) -> Answer:
    return {"jobs": [job.document() for job in console.jobs.all(_user(call))]}


async def get_job(console: Console, call: Call) -> Answer:
    return console.jobs.find(call.path("job"), _user(call)).document()


async def cancel_job(console: Console, call: Call) -> Answer:
    job = console.jobs.find(call.path("job"), _user(call))
    job.cancel()
    return job.document()


async def live_job(console: Console, call: Call) -> Answer:
    import asyncio

    job = console.jobs.find(call.path("job"), _user(call))

    async def events() -> AsyncIterator[Event]:
        before = job.document()
        yield "snapshot", View(before).snapshot()
        while job.state == RUNNING:
            await asyncio.sleep(EVENT_S)
            now = job.document()
            if changed := changed_fields(before, now):
                yield "delta", {"head": changed, "rows": {}, "gone": []}
            before = now
        yield "end", job.document()

    return event_stream(events())


_FILTERS = {
    "reason_": maybe(STRING),
    "flow_": maybe(STRING),
    "source_": maybe(STRING),
    "where_": maybe(STRING),
    "search_": maybe(STRING),
}

ENDPOINTS = (
    Endpoint(
        "GET",
        "/api/dead-letters",
        "The topics that hold dead letters: of pipelines, and by their names",
        list_dead_letters,
        document(
            topics=listed(
                document(topic=STRING, partitions=INTEGER, offsets=INTEGER, not_replayed=INTEGER, pipelines=listed(STRING))
            )
        ),
    ),
    Endpoint(
        "GET",
        "/api/dead-letters/{topic}",
        "Dead letters by reason, flow and source, and the newest",
        get_dead_letters,
        document(topic=STRING, reasons=listed(_REASON), letters=listed(_LETTER), complete=BOOLEAN),
        params=(
            Param("reason", "A part of the reason", STRING),
            Param("flow", "Only of this flow, connector or group", STRING),
            Param("source", "Only from this topic", STRING),
            Param("where", "An expression of the filter language", STRING),
            Param("search", "A text in key, value or headers", STRING),
            Param("limit", "How many letters to show", INTEGER),
            Param("replayed", "1: also those that were replayed", BOOLEAN),
        ),
    ),
    Endpoint(
        "POST",
        "/api/dead-letters/{topic}/replay",
        "Write dead letters back, each exactly once; a preview unless `execute`, else a job",
        replay_dead_letters,
        document(executed=BOOLEAN, to_=by_name(INTEGER), left_=INTEGER, stuck_=by_name(INTEGER), job_=STRING),
        role=Role.EDITOR,
        changes=True,
        body=request(
            **_FILTERS,
            to_=maybe(STRING),
            letters_=maybe(listed(request(partition=INTEGER, offset=INTEGER))),
            limit_=maybe(INTEGER),
            execute_=BOOLEAN,
        ),
        audit=executes,
    ),
    Endpoint(
        "POST",
        "/api/dead-letters/{topic}/edit",
        "Replay one dead letter with other contents, exactly once",
        edit_dead_letter,
        document(to=STRING, partition=INTEGER, offset=INTEGER),
        role=Role.EDITOR,
        changes=True,
        body=request(
            partition=INTEGER,
            offset=INTEGER,
            to_=maybe(STRING),
            key_=ANYTHING,
            key_base64_=STRING,
            value_=ANYTHING,
            value_base64_=STRING,
            headers_=ANYTHING,
        ),
    ),
    Endpoint("GET", "/api/jobs", "The jobs of this console, newest first", list_jobs, document(jobs=listed(JOB))),
    Endpoint("GET", "/api/jobs/{job}", "How far a job is", get_job, JOB),
    Endpoint("GET", "/api/live/jobs/{job}", "A job as it runs", live_job, OBJECT, media_type="text/event-stream"),
    Endpoint(
        "DELETE", "/api/jobs/{job}", "Cancel a job: what it has done stays", cancel_job, JOB, role=Role.EDITOR, changes=True
    ),
)
