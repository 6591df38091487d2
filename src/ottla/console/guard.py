"""What stands before every request: the Host and Origin headers, and the headers of every answer. Pure rules, and the middleware.

1. A request for a host that is not ours is refused: a page of another site that had its name point here (DNS rebinding) sends
   its own name.
2. A request that a page of another site makes is refused: its Origin is not ours, or the browser says `cross-site`.
3. Every answer forbids scripts, styles and connections from elsewhere, and to be framed or read by other sites.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ottla.cli.console.settings import ConsoleSettings, is_loopback

POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "font-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_SAFE: Final = ("GET", "HEAD")
_OWN_SITES: Final = ("same-origin", "none", "")
_LOOPBACK_NAMES: Final = ("127.0.0.1", "localhost", "::1")


def host_of(authority: str) -> str:
    """`[::1]:8080` and `localhost:8080` without their ports, in lower case."""
    authority = authority.strip().lower()
    if authority.startswith("["):
        return authority[1:].partition("]")[0]
    return authority.rpartition(":")[0] if authority.count(":") == 1 else authority


def known_hosts(settings: ConsoleSettings) -> frozenset[str] | None:
    """The names under which the console is reached. None: any, since it listens on all addresses and has a login."""
    names = {host_of(name) for name in settings.names}
    if is_loopback(settings.host):
        return frozenset({*names, settings.host.lower(), *_LOOPBACK_NAMES})
    if settings.host in ("", "0.0.0.0", "::") and not names:
        return None
    return frozenset({*names, settings.host.lower(), *_LOOPBACK_NAMES})


def refusal(method: str, path: str, headers: Mapping[str, str], hosts: Collection[str] | None, scheme: str) -> str | None:
    """Why a request is refused; None if it is not. The names of `headers` are in lower case."""
    authority = headers.get("host", "")
    if hosts is not None and host_of(authority) not in hosts:
        return f"this is not {authority!r}"
    origin = headers.get("origin")
    if origin is not None and not _same_origin(origin, authority, scheme):
        return f"a page of {origin} may not ask"
    # A link from elsewhere may open a page, but nothing else.
    if path.startswith(("/api", "/metrics")) and headers.get("sec-fetch-site", "") not in _OWN_SITES:
        return "a page of another site may not ask"
    if method not in _SAFE and headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return "a change needs Content-Type: application/json"
    return None


def _same_origin(origin: str, authority: str, scheme: str) -> bool:
    parts = urlsplit(origin)
    return parts.scheme == scheme and parts.netloc.lower() == authority.strip().lower()


def routed_path(raw: bytes) -> str:
    """The path that routes see: decoded, but for what would change its segments. `name_of` decodes a segment in full."""
    words = raw.decode("ascii", "replace").partition("?")[0].split("/")
    return "/".join(unquote(word).replace("%", "%25").replace("/", "%2F") for word in words)


def name_of(segment: str) -> str:
    """What a segment of a routed path names: group ids may have slashes."""
    return unquote(segment)


class Guard:
    """The rules as middleware."""

    def __init__(self, app: ASGIApp, settings: ConsoleSettings) -> None:
        self._app = app
        self._hosts = known_hosts(settings)
        self._headers = dict(HEADERS)
        if settings.tls_certificate:
            self._headers["Strict-Transport-Security"] = "max-age=31536000"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers[name] = value
            await send(message)

        given = dict(Headers(scope=scope).items())
        why = refusal(scope["method"], scope["path"], given, self._hosts, scope["scheme"])
        if why is not None:
            answer = JSONResponse({"error": {"message": f"refused: {why}", "code": "CROSS_SITE"}}, 403)
            await answer(scope, receive, guarded)
            return
        await self._app({**scope, "path": routed_path(scope["raw_path"])}, receive, guarded)
