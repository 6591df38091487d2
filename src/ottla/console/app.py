"""The application: endpoints behind the guard, static files, pages.

An endpoint is asked for in this order: Host and Origin (`guard`), login, role, read-only mode, CSRF token, body. What a handler
raises becomes an answer here, and a change becomes an entry of the audit.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from ottla.cli.console.settings import ConsoleSettings, Role
from ottla.cli.failure import Failure
from ottla.console.access import Session
from ottla.console.api import ENDPOINTS
from ottla.console.console import Console
from ottla.console.endpoint import Call, Endpoint, read_body
from ottla.console.failures import as_failure, error_document, status_of
from ottla.console.files import Files
from ottla.console.guard import Guard, name_of
from ottla.console.measuring import Measuring
from ottla.console.measuring import page as page_of_metrics
from ottla.console.openapi import description
from ottla.metrics.exposition import PROMETHEUS

logger = logging.getLogger("ottla.console")

PAGES: Final = frozenset(
    (
        "",
        "brokers",
        "topics",
        "groups",
        "transactions",
        "pipelines",
        "dead-letters",
        "schemas",
        "acls",
        "users",
        "quotas",
        "audit",
        "login",
        "trace",
        "settings",
        "help",
    )
)
"""The first words of the paths of pages."""


class _Json(JSONResponse):
    """Half of a surrogate pair, which JSON can escape and UTF-8 cannot hold, becomes a question mark."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8", "replace")


def application(console: Console) -> Starlette:
    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with console.running():
            yield

    document = description(ENDPOINTS)
    files = Files()

    async def openapi(_: Request) -> Response:
        return _Json(document)

    async def metrics(_: Request) -> Response:
        return PlainTextResponse(page_of_metrics(console), media_type=PROMETHEUS)

    async def static(request: Request) -> Response:
        return await files.answer(request, str(request.path_params["path"]))

    async def page(request: Request) -> Response:
        first = str(request.path_params["path"]).partition("/")[0]
        return await files.answer(request, "index.html", 200 if first in PAGES else 404)

    routes = [Route(each.path, _answering(console, each), methods=[each.method]) for each in ENDPOINTS]
    return Starlette(
        routes=[
            Route("/api/openapi.json", openapi),
            *routes,
            Route("/api/{rest:path}", _no_such_call, methods=["GET", "POST", "PUT", "PATCH", "DELETE"]),
            Route("/healthz", _healthy),
            Route("/metrics", metrics),
            Route("/static/{path:path}", static),
            Route("/{path:path}", page),
        ],
        middleware=[Middleware(Measuring, counts=console.counts), Middleware(Guard, settings=console.settings)],
        exception_handlers={HTTPException: _refused},
        lifespan=lifespan,
    )


async def _healthy(_: Request) -> Response:
    return PlainTextResponse("ok\n")


async def _no_such_call(request: Request) -> Response:
    return _Json(error_document(Failure(f"there is no {request.url.path}", "see /api/openapi.json", code="NOT_FOUND")), 404)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _Json(error_document(Failure(f"{request.method} {request.url.path}: {error.detail}")), error.status_code)


# Endpoints


def _answering(console: Console, endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        try:
            return await _answer(console, endpoint, request)
        except Exception as error:
            failure = as_failure(error)
            if failure is None:
                logger.exception("%s %s failed", request.method, request.url.path)
                failure = Failure(f"the console failed: {type(error).__name__}: {error}", "see its log", code="INTERNAL")
                return _Json(error_document(failure), 500)
            return _Json(error_document(failure), status_of(failure))

    return answer


async def _answer(console: Console, endpoint: Endpoint, request: Request) -> Response:
    session = console.access.session_of(request)
    if session is None and not endpoint.public:
        raise Failure("log in first", code="LOGIN_REQUIRED")
    if session is not None:
        _check_rights(console.settings, endpoint, session)
        if request.method not in ("GET", "HEAD") and not endpoint.public:
            console.access.check_csrf(request, session)
    body = {} if request.method in ("GET", "HEAD") else await read_body(request)
    call = Call(request, session or Session(None, Role.VIEWER, console.cluster), body)
    if not endpoint.changes or not endpoint.audit(call):
        return _response(endpoint, await endpoint.handler(console, call))
    error: str | None = None
    try:
        return _response(endpoint, await endpoint.handler(console, call))
    except Exception as failed:
        failure = as_failure(failed)
        error = type(failed).__name__ if failure is None else failure.message
        raise
    finally:
        subject = "/".join(name_of(str(each)) for each in request.path_params.values())
        address = request.client.host if request.client else ""
        await call.blocking(console.audit.write, call.session.user, address, endpoint.operation_id, subject, body, error)


def _check_rights(settings: ConsoleSettings, endpoint: Endpoint, session: Session) -> None:
    if session.role < endpoint.role:
        raise Failure(
            f"the role {session.role.word} may not do this", f"it takes the role {endpoint.role.word}", code="FORBIDDEN"
        )
    if endpoint.changes and settings.read_only:
        raise Failure("this console is read-only", "it was started with --read-only", code="READ_ONLY")


def _response(endpoint: Endpoint, answer: Any) -> Response:
    return answer if isinstance(answer, Response) else _Json(answer, endpoint.status, {"Cache-Control": "no-store"})
