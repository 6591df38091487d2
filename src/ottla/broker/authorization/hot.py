"""Authorizes Produce, Fetch, OffsetCommit and Heartbeat.

A request that is allowed by decisions which the session has made before goes to its handler after one lookup for each topic.
Everything else is `partly`: some part is new or denied, or allowed requests are audited.

Compiled by mypyc: no nested functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ottla.broker.authorization import partly
from ottla.broker.authorization.guard import Guard
from ottla.broker.network.context import RequestContext
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.offset_commit import OffsetCommitRequest
from ottla.protocol.messages.produce import ProduceRequest
from ottla.replication.fetch_session import FetchSession, FetchSessionCache
from ottla.security.acl import GROUP, READ, TOPIC, WRITE
from ottla.types import ZERO_UUID

_READ: Final = 1 << READ
_WRITE: Final = 1 << WRITE
_PRODUCE_IDS_FROM: Final = 13
_FETCH_IDS_FROM: Final = 13
_COMMIT_IDS_FROM: Final = 10

Handle = Callable[[Any, RequestContext], Any]
Refuse = Callable[[Any, Any], Any]


def produce(guard: Guard, handle: Handle, refuse: Refuse, request: ProduceRequest, context: RequestContext) -> Any:
    known = guard.permissions(context).known[TOPIC]
    by_id = context.version >= _PRODUCE_IDS_FROM
    if request.transactional_id is not None or guard.audits_allowed():
        return partly.produce(guard, handle, refuse, request, context)
    for topic in request.topic_data:
        name = guard.topic_name(topic.topic_id) if by_id else topic.name
        operations = known.get(name) if name is not None else None
        if operations is None or not operations & _WRITE:
            return partly.produce(guard, handle, refuse, request, context)
    return handle(request, context)


def fetch(guard: Guard, fetch_sessions: FetchSessionCache, handle: Handle, request: FetchRequest, context: RequestContext) -> Any:
    permissions = guard.permissions(context)
    known = permissions.known[TOPIC]
    by_id = context.version >= _FETCH_IDS_FROM
    replica_id = request.replica_id if request.replica_state is None else request.replica_state.replica_id
    context.denied_topics = None
    if replica_id >= 0 or guard.audits_allowed():
        return partly.fetch(guard, fetch_sessions, handle, request, context)
    for topic in request.topics:
        name = guard.topic_name(topic.topic_id) if by_id else topic.topic
        operations = known.get(name) if name is not None else None
        if operations is None or not operations & _READ:
            return partly.fetch(guard, fetch_sessions, handle, request, context)
    if request.session_epoch > 0:
        session = fetch_sessions.find(request.session_id)
        if session is not None and (session.reader is not permissions or session.reader_generation != permissions.generation):
            if not _may_read_all(guard, known, session):
                return partly.fetch(guard, fetch_sessions, handle, request, context)
            # From now on only the partitions that are added to the session have to be looked up.
            session.reader, session.reader_generation = permissions, permissions.generation
    return handle(request, context)


def _may_read_all(guard: Guard, known: dict[str, int], session: FetchSession) -> bool:
    for partition in session.partitions.values():
        name = partition.topic if partition.topic_id == ZERO_UUID else guard.topic_name(partition.topic_id)
        operations = known.get(name) if name is not None else None
        if operations is None or not operations & _READ:
            return False
    return True


def offset_commit(guard: Guard, handle: Handle, refuse: Refuse, request: OffsetCommitRequest, context: RequestContext) -> Any:
    permissions = guard.permissions(context)
    by_id = context.version >= _COMMIT_IDS_FROM
    operations = permissions.known[GROUP].get(request.group_id)
    if operations is None or not operations & _READ or guard.audits_allowed():
        return partly.offset_commit(guard, handle, refuse, request, context)
    known = permissions.known[TOPIC]
    for topic in request.topics:
        name = guard.topic_name(topic.topic_id) if by_id else topic.name
        operations = known.get(name) if name is not None else None
        if operations is None or not operations & _READ:
            return partly.offset_commit(guard, handle, refuse, request, context)
    return handle(request, context)


def heartbeat(guard: Guard, handle: Handle, request: HeartbeatRequest, context: RequestContext) -> Any:
    operations = guard.permissions(context).known[GROUP].get(request.group_id)
    if operations is None or not operations & _READ or guard.audits_allowed():
        return partly.of_group(guard, handle, request, context)
    return handle(request, context)
