"""From a request to its answer: content types, body, route, rights, the endpoint or the leader, errors. An ASGI application."""

from __future__ import annotations

import asyncio
import json
import logging
from functools import partial
from typing import Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ottla.registry import errors, subjects
from ottla.registry.errors import RegistryError
from ottla.registry.http import media
from ottla.registry.http.call import BODY_BYTES_MAX, Call
from ottla.registry.http.forwarding import FORWARDED, Forwarder, NotTaken
from ottla.registry.http.reads import Text
from ottla.registry.http.routes import Match, Needs, match
from ottla.registry.logins import ANONYMOUS, Logins
from ottla.registry.rules import COMPATIBILITY, EVERYTHING, READ, WRITE, Rules
from ottla.registry.service import LEADER_TIMEOUT_S, NotLeading, Registry
from ottla.registry.subjects import DEFAULT_CONTEXT

_PAUSE_S: Final = 0.2
_OPERATIONS: Final = {Needs.READ: READ, Needs.WRITE: WRITE, Needs.CONFIGURE: COMPATIBILITY}

logger = logging.getLogger("ottla.registry")


class App:
    def __init__(self, registry: Registry, forwarder: Forwarder, logins: Logins | None = None, rules: Rules = EVERYTHING) -> None:
        """Without `logins` everybody is ANONYMOUS."""
        self._registry = registry
        self._forwarder = forwarder
        self._logins = logins
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        try:
            response = await self._respond(request)
        except ClientDisconnect:
            return
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        media_type = media.accepted(request.headers.get("accept", ""))
        if media_type is None:
            return _error(RegistryError(406, "HTTP 406 Not Acceptable"), media.V1)
        try:
            found = match(request.method, request.scope["raw_path"])
            user = await self._user(request, found)
            body = await _body(request)
            if body and not media.is_consumed(request.headers.get("content-type", "")):
                raise RegistryError(415, "HTTP 415 Unsupported Media Type")
            call = Call(self._registry, request, found.segments, found.context, partial(self._rules.allow, user, READ), body)
            self._check_rights(user, found, call)
            answer = await (self._write(found, call) if found.route.writes else found.route.endpoint(call))
        except RegistryError as error:
            return _error(error, media_type)
        except ClientDisconnect:
            raise
        except Exception:
            logger.exception("%s %s failed; please report this", request.method, request.url.path)
            return _error(RegistryError(500, "Internal Server Error"), media_type)
        if isinstance(answer, Response):
            return answer
        if answer is None:
            return Response(status_code=204)
        content = answer.text if isinstance(answer, Text) else json.dumps(answer, ensure_ascii=False, separators=(",", ":"))
        return Response(content.encode("utf-8", "replace"), media_type=media_type)

    async def _user(self, request: Request, found: Match) -> str:
        if self._logins is None or found.route.needs is Needs.NOTHING:
            return ANONYMOUS
        return await self._logins.user(request.headers.get("authorization"))

    def _check_rights(self, user: str, found: Match, call: Call) -> None:
        """Whether the user may do this with the subject of the path. What concerns no subject is filtered by the endpoint."""
        needs = found.route.needs
        if needs is Needs.NOTHING or (needs is Needs.READ and "subject" not in found.segments):
            return
        subject = call.subject if "subject" in found.segments else subjects.joined(found.context or DEFAULT_CONTEXT, "")
        if not self._rules.allow(user, _OPERATIONS[needs], subject):
            raise RegistryError(40301, f"User {user} may not {_OPERATIONS[needs]} subject '{subject}'")

    async def _write(self, found: Match, call: Call) -> object:
        """The answer of this registry if it leads, else the leader's."""
        if found.route.first is not None:
            try:
                return await found.route.first(call)
            except NotLeading:
                pass
        loop = asyncio.get_running_loop()
        until = loop.time() + LEADER_TIMEOUT_S
        request = call.request
        while True:
            leader = await self._registry.leader()
            try:
                if leader is None:
                    return await found.route.endpoint(call)
                if FORWARDED in request.headers:
                    raise errors.no_leader(f"This registry does not lead, {leader.url} does")
                target = request.scope["raw_path"].decode("ascii", "replace")
                if query := request.scope["query_string"].decode("ascii", "replace"):
                    target = f"{target}?{query}"
                answer = await self._forwarder.forward(leader, request.method, target, request.headers, call.body)
                return Response(answer.body, status_code=answer.status, media_type=answer.content_type or None)
            except (NotLeading, NotTaken) as error:
                if FORWARDED in request.headers:
                    raise errors.no_leader("This registry no longer leads") from None
                if loop.time() > until:
                    raise errors.forwarding_failed(f"The leader does not take the write: {error}") from None
                await asyncio.sleep(_PAUSE_S)


async def _body(request: Request) -> bytes:
    received = bytearray()
    async for chunk in request.stream():
        received += chunk
        if len(received) > BODY_BYTES_MAX:
            raise errors.too_large(f"The body is larger than {BODY_BYTES_MAX:,} bytes")
    return bytes(received)


def _error(error: RegistryError, media_type: str) -> Response:
    content = json.dumps({"error_code": error.code, "message": error.message}, ensure_ascii=False, separators=(",", ":"))
    headers = {"WWW-Authenticate": 'Basic realm="schema registry"'} if error.status == 401 else None
    return Response(content.encode("utf-8", "replace"), status_code=error.status, headers=headers, media_type=media_type)
