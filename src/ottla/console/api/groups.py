"""Groups: the list, one with lag and lead, its last hour, and changes of its offsets."""

from __future__ import annotations

import time
from typing import Any

from ottla.cli.connection import Connection, while_coordinators_move
from ottla.cli.console.settings import Role
from ottla.cli.failure import Failure, did_you_mean
from ottla.cli.group.plan import parse_duration_ms
from ottla.cli.group.reset import Target, reset_steps
from ottla.cli.positions import is_number, parse_time_ms
from ottla.cli.scope import parse_scope, scoped_partitions
from ottla.console.api.progress import MEMBERSHIP, READER_FIELDS, progress_document, reader_document
from ottla.console.console import Console
from ottla.console.endpoint import Answer, Call, Endpoint, Param, bad, executes
from ottla.console.lists import PARAMS, Page, Window, list_schema, page
from ottla.console.live import View, follow
from ottla.console.schema import BOOLEAN, INTEGER, NUMBER, OBJECT, STRING, document, listed, maybe, request
from ottla.console.sse import event_stream
from ottla.console.watch import Snapshot, Watch, lag_of, lag_s_of, lead_of, lead_s_of
from ottla.exporter.consumption import GroupProgress

_STUCK_S = 120.0
_STREAM = "text/event-stream"

ROW = document(
    **READER_FIELDS,
    type=STRING,
    protocol=STRING,
    coordinator=INTEGER,
    topics=listed(STRING),
    lead_s=maybe(NUMBER),
    stuck=BOOLEAN,
)
_COLUMNS = ("name", "state", "members", "topics", "lag", "lag_s", "lead")


def group_row(watch: Watch, progress: GroupProgress) -> dict[str, Any]:
    group = progress.group
    return {
        **reader_document(progress),
        "type": group.kind or "classic",
        "protocol": group.assignor,
        "coordinator": group.coordinator_id,
        "topics": sorted(progress.topics),
        "lead_s": lead_s_of(progress),
        "stuck": is_stuck(watch, progress),
    }


def is_stuck(watch: Watch, progress: GroupProgress) -> bool:
    """Members, lag, and no commit for some minutes."""
    history = watch.histories.get(progress.group.name)
    if history is None or not progress.group.members or not lag_of(progress):
        return False
    newest = history.points[-1]
    earlier = [point for point in history.points if point.at_ms <= newest.at_ms - _STUCK_S * 1000]
    return bool(earlier) and earlier[-1].committed == newest.committed and bool(earlier[-1].lag)


def _value(progress: GroupProgress, column: str) -> Any:
    if column == "state":
        return progress.group.state
    if column == "members":
        return None if progress.group.members is None else len(progress.group.members)
    if column == "topics":
        return len(progress.topics)
    return {"lag": lag_of, "lag_s": lag_s_of, "lead": lead_of}[column](progress)


def _page(call: Call, snapshot: Snapshot) -> Page[GroupProgress]:
    window = Window.of(call, _COLUMNS)
    state, kind, topic = call.word("state"), call.word("type"), call.word("topic")

    def also(progress: GroupProgress) -> bool:
        group = progress.group
        return (
            (state is None or group.state.lower() == state.lower())
            and (kind is None or group.kind == kind)
            and (topic is None or topic in progress.topics)
        )

    found = list(snapshot.groups.values())
    return page(found, window, lambda each: each.group.name, lambda each: _value(each, window.sort), also)


def _head(snapshot: Snapshot, found: Page[GroupProgress]) -> dict[str, Any]:
    return {"total": found.total, "matched": found.matched, "as_of_ms": snapshot.as_of_ms, "complete": snapshot.complete}


async def list_groups(console: Console, call: Call) -> Answer:
    call.watch.look()
    snapshot = await call.watch.first()
    found = _page(call, snapshot)
    return {**_head(snapshot, found), "rows": [group_row(call.watch, each) for each in found.items]}


async def live_groups(console: Console, call: Call) -> Answer:
    _page(call, await call.watch.first())

    async def view() -> View:
        snapshot = await call.watch.first()
        found = _page(call, snapshot)
        return View(_head(snapshot, found), {each.group.name: group_row(call.watch, each) for each in found.items})

    return event_stream(follow(call.watch, view))


# One group

GROUP = document(
    group=STRING,
    type=STRING,
    state=STRING,
    protocol=STRING,
    coordinator=INTEGER,
    lag=maybe(INTEGER),
    lag_s=maybe(NUMBER),
    lead=maybe(INTEGER),
    stuck=BOOLEAN,
    as_of_ms=INTEGER,
    members=listed(
        document(member=STRING, client=STRING, host=STRING, assignment=listed(document(topic=STRING, partition=INTEGER)))
    ),
    partitions=listed(MEMBERSHIP),
    rebalances=maybe(INTEGER),
)


async def _progress(watch: Watch, name: str) -> tuple[Snapshot, GroupProgress]:
    """A group may be younger than the last round."""
    snapshot = await watch.complete_snapshot()
    if name not in snapshot.groups:
        snapshot = await watch.anew()
    found = snapshot.groups.get(name)
    if found is None:
        raise Failure(f"group {name} does not exist", did_you_mean(name, snapshot.groups), code="GROUP_ID_NOT_FOUND")
    return snapshot, found


def group_document(watch: Watch, snapshot: Snapshot, progress: GroupProgress) -> dict[str, Any]:
    row = group_row(watch, progress)
    members = sorted(progress.group.members or (), key=lambda each: (each.client_id, each.member_id))
    return {
        **{name: row[name] for name in ("group", "type", "state", "protocol", "coordinator", "lag", "lag_s", "lead", "stuck")},
        "as_of_ms": snapshot.as_of_ms,
        "members": [
            {
                "member": each.member_id,
                "client": each.client_id,
                "host": each.host,
                "assignment": [
                    {"topic": topic, "partition": index}
                    for topic, indexes in sorted(each.assignment.items())
                    for index in indexes
                ],
            }
            for each in members
        ],
        "partitions": [progress_document(snapshot.reading, each) for each in progress],
        "rebalances": progress.rebalances,
    }


async def get_group(console: Console, call: Call) -> Answer:
    call.watch.look()
    return group_document(call.watch, *await _progress(call.watch, call.path("group")))


async def live_group(console: Console, call: Call) -> Answer:
    name = call.path("group")
    await _progress(call.watch, name)

    async def view() -> View:
        found = group_document(call.watch, *await _progress(call.watch, name))
        partitions, members = found.pop("partitions"), found["members"]
        head = {**found, "members": len(members)}
        return View(head, {f"{each['topic']}-{each['partition']}": each for each in partitions})

    return event_stream(follow(call.watch, view))


async def get_group_history(console: Console, call: Call) -> Answer:
    name = call.path("group")
    await _progress(call.watch, name)
    history = call.watch.histories.get(name)
    points = list(history.points) if history is not None else []
    found = []
    for number, point in enumerate(points):
        before = points[number - 1] if number else None
        passed_s = (point.at_ms - before.at_ms) / 1000 if before is not None else 0.0
        rate = max(point.committed - before.committed, 0) / passed_s if before is not None and passed_s > 0 else None
        found.append(
            {
                "at_ms": point.at_ms,
                "lag": point.lag,
                "lag_s": point.lag_s,
                "committed_per_s": None if rate is None else round(rate, 3),
            }
        )
    return {"points": found}


# Changes


async def reset_group(console: Console, call: Call) -> Answer:
    name, execute = call.path("group"), executes(call)
    words = call.field("topics", list)
    if words is not None and not all(isinstance(each, str) for each in words):
        raise bad("topics is a list of topics, as orders or orders:0,1")
    scope = None if words is None else parse_scope(words)
    found = await call.blocking(_reset, call.connection, name, scope, call.needed("to", str), execute)
    if execute:
        await call.watch.anew()
    return found


def _reset(
    connection: Connection, name: str, scope: dict[str, list[int] | None] | None, to: str, execute: bool
) -> dict[str, Any]:
    from ottla.cli.group.offsets import alter_offsets

    group, steps = reset_steps(connection, name, scope, _target(connection, to))
    if execute:
        alter_offsets(connection, group, steps)
    names = ("topic", "partition", "committed", "new_offset", "log_start", "log_end", "lag")
    return {
        "group": name,
        "executed": execute,
        "notes": [step.note for step in steps if step.note is not None],
        "partitions": [{key: value for key, value in step.document().items() if key in names} for step in steps],
    }


def _target(connection: Connection, word: str) -> Target:
    """`earliest`, `latest`, `current`, `offset:12`, `shift:-5`, `time:2024-05-01T10:00`, `ago:1h`, `group:OTHER`."""
    kind, _, value = word.partition(":")
    now_ms = int(time.time() * 1000)
    if word in ("earliest", "latest", "current"):
        return Target(word)  # type: ignore[arg-type]
    if kind == "offset" and is_number(value):
        return Target("offset", int(value))
    if kind == "shift" and is_number(value[1:] if value[:1] in ("+", "-") else value):
        return Target("shift", int(value))
    if kind == "ago":
        return Target("time", max(now_ms - parse_duration_ms(value), 0))
    if kind == "time" and (time_ms := parse_time_ms(value, now_ms)) is not None:
        return Target("time", max(time_ms, 0))
    if kind == "group" and value:
        from ottla.cli.group.view import committed_offsets

        return Target("offsets", offsets=committed_offsets(connection, value))
    raise bad(
        f"to={word!r} is no target",
        "it is earliest, latest, current, offset:12, shift:-5, time:2024-05-01T10:00, ago:1h or group:OTHER",
    )


async def delete_group(console: Console, call: Call) -> Answer:
    name = call.path("group")
    await call.blocking(_delete, call.connection, name)
    await call.watch.anew()
    return {"group": name}


@while_coordinators_move
def _delete(connection: Connection, name: str) -> None:
    from ottla.cli.failure import raise_together
    from ottla.cli.group.command import delete_groups

    connection.reach()
    _, failures = delete_groups(connection, [name])
    raise_together(failures)


async def delete_group_offsets(console: Console, call: Call) -> Answer:
    name, words = call.path("group"), call.needed("topics", list)
    if not words or not all(isinstance(each, str) for each in words):
        raise bad("topics is a list of topics, as orders or orders:0,1")
    await call.blocking(_delete_offsets, call.connection, name, words)
    await call.watch.anew()
    return {"group": name}


@while_coordinators_move
def _delete_offsets(connection: Connection, name: str, words: list[str]) -> None:
    from ottla.cli.group.offsets import delete_offsets
    from ottla.cli.group.view import find_groups

    (group,) = find_groups(connection, [name])
    delete_offsets(connection, group, scoped_partitions(connection, parse_scope(words)))


_PARAMS = (
    *PARAMS,
    Param("state", "Only in this state", STRING),
    Param("type", "classic, consumer, share or streams", STRING),
    Param("topic", "Only those that read it", STRING),
)
_STEP = document(
    topic=STRING,
    partition=INTEGER,
    committed=maybe(INTEGER),
    new_offset=INTEGER,
    log_start=INTEGER,
    log_end=INTEGER,
    lag=INTEGER,
)

ENDPOINTS = (
    Endpoint("GET", "/api/groups", "A window of the list of groups", list_groups, list_schema(ROW), params=_PARAMS),
    Endpoint(
        "GET", "/api/live/groups", "A window of the list as it changes", live_groups, OBJECT, params=_PARAMS, media_type=_STREAM
    ),
    Endpoint("GET", "/api/groups/{group}", "A group: members, lag and lead", get_group, GROUP),
    Endpoint(
        "GET", "/api/live/groups/{group}", "The partitions of a group as they change", live_group, OBJECT, media_type=_STREAM
    ),
    Endpoint(
        "GET",
        "/api/groups/{group}/history",
        "The lag of the last hour, as far as the console has seen it",
        get_group_history,
        document(points=listed(document(at_ms=INTEGER, lag=maybe(INTEGER), lag_s=maybe(NUMBER), committed_per_s=maybe(NUMBER)))),
    ),
    Endpoint(
        "POST",
        "/api/groups/{group}/offsets",
        "Change the committed offsets of a group without members; a preview unless `execute`",
        reset_group,
        document(group=STRING, executed=BOOLEAN, notes=listed(STRING), partitions=listed(_STEP)),
        role=Role.EDITOR,
        changes=True,
        body=request(topics_=maybe(listed(STRING)), to=STRING, execute_=BOOLEAN),
        audit=executes,
    ),
    Endpoint(
        "DELETE",
        "/api/groups/{group}",
        "Delete a group and its offsets",
        delete_group,
        document(group=STRING),
        role=Role.EDITOR,
        changes=True,
    ),
    Endpoint(
        "POST",
        "/api/groups/{group}/delete-offsets",
        "Delete the offsets of topics that the group no longer reads",
        delete_group_offsets,
        document(group=STRING),
        role=Role.EDITOR,
        changes=True,
        body=request(topics=listed(STRING)),
    ),
)
