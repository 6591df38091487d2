"""Logging in and out, and what the caller may do."""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse

from ottla import __version__
from ottla.cli.console.settings import Role
from ottla.console.access import COOKIE, SESSION_S, Session
from ottla.console.console import Console
from ottla.console.endpoint import Answer, Call, Endpoint
from ottla.console.schema import BOOLEAN, INTEGER, STRING, document, listed, maybe, one_of, request

SESSION = document(
    login_required=BOOLEAN,
    user=maybe(STRING),
    role=maybe(one_of("viewer", "editor", "admin")),
    read_only=BOOLEAN,
    csrf=STRING,
    logins=listed(one_of("token", "scram")),
    version=STRING,
    cluster_id=maybe(STRING),
    bootstrap_servers=STRING,
    can=document(write=BOOLEAN, admin=BOOLEAN),
    registry=BOOLEAN,
    profile=maybe(STRING),
    audit_topic=maybe(STRING),
    export=BOOLEAN,
)


def _document(console: Console, session: Session | None) -> dict[str, Any]:
    settings = console.settings
    cluster = None if session is None else session.cluster
    snapshot = None if cluster is None else cluster.watch.snapshot
    known = session is not None
    role = session.role if session is not None else None
    return {
        "login_required": settings.login_required,
        "user": session.user if session is not None else None,
        "role": role.word if role is not None else None,
        "read_only": settings.read_only,
        "csrf": session.csrf if session is not None else "",
        "logins": console.access.logins,
        "version": __version__,
        # Nobody hears of the cluster without a login.
        "cluster_id": None if snapshot is None else snapshot.reading.cluster_id,
        "bootstrap_servers": "" if cluster is None else cluster.connection.bootstrap_servers,
        "can": {
            "write": role is not None and role >= Role.EDITOR and not settings.read_only,
            "admin": role is Role.ADMIN and not settings.read_only,
        },
        "registry": bool(console.registry),
        "profile": settings.profile if known else None,
        "audit_topic": settings.audit_topic if known else None,
        "export": settings.export,
    }


async def get_session(console: Console, call: Call) -> Answer:
    return _document(console, console.access.session_of(call.request))


async def log_in(console: Console, call: Call) -> Answer:
    address = call.request.client.host if call.request.client else ""
    cookie, session = await console.access.log_in(address, call.body)
    answer = JSONResponse(_document(console, session))
    secure = console.settings.tls_certificate is not None
    answer.set_cookie(COOKIE, cookie, max_age=int(SESSION_S), httponly=True, samesite="strict", secure=secure, path="/")
    return answer


async def log_out(console: Console, call: Call) -> Answer:
    console.access.log_out(call.request)
    answer = JSONResponse({})
    answer.delete_cookie(COOKIE, path="/")
    return answer


async def get_audit(console: Console, call: Call) -> Answer:
    return {"entries": console.audit.latest(call.number("limit", 100, low=1, high=1000))}


_ENTRY = document(
    at_ms=INTEGER,
    user=maybe(STRING),
    address=STRING,
    action=STRING,
    subject=STRING,
    detail={},
    result=one_of("ok", "failed"),
    error=maybe(STRING),
)

ENDPOINTS = (
    Endpoint("GET", "/api/session", "Who the caller is and may do", get_session, SESSION, public=True),
    Endpoint(
        "POST",
        "/api/login",
        "Log in with a token, or as a user of the cluster",
        log_in,
        SESSION,
        body=request(token_=STRING, user_=STRING, password_=STRING),
        public=True,
    ),
    Endpoint("POST", "/api/logout", "Log out", log_out, document(), public=True),
    Endpoint(
        "GET",
        "/api/audit",
        "The changes made through this console since it runs, newest first",
        get_audit,
        document(entries=listed(_ENTRY)),
        role=Role.ADMIN,
    ),
)
