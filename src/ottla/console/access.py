"""Who a caller is, and what a caller may do: sessions by cookie, tokens, roles.

1. Without a login everybody is admin: the console then listens on loopback only.
2. A session is in memory, ends after `SESSION_S` without a request, and its cookie is unreadable for scripts and other sites.
3. A change with a cookie needs the session's CSRF token. A change with a bearer token does not: no browser sends one by itself.
4. After failed logins the next ones wait: `LOGIN_TRIES` in `LOGIN_WINDOW_S` from one address, `LOGIN_TRIES_ANYWHERE` from all.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.cli.connection import Connection, split_servers
from ottla.cli.console.settings import ConsoleSettings, Role
from ottla.cli.failure import Failure
from ottla.console.cluster import Cluster

if TYPE_CHECKING:
    from starlette.requests import Request

COOKIE: Final = "ottla_console"
CSRF_HEADER: Final = "x-csrf-token"
SESSION_S: Final = 12 * 3600.0
SESSIONS_MAX: Final = 1000
LOGIN_TRIES: Final = 5
LOGIN_TRIES_ANYWHERE: Final = 100
"""From all addresses together: a proxy on this machine names the address, and so may whoever comes from this machine."""
LOGIN_WINDOW_S: Final = 60.0
_ANYWHERE: Final = "*"
_MECHANISMS: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256")


@dataclass(slots=True)
class Session:
    user: str | None
    role: Role
    cluster: Cluster
    """As the console's own user reaches it, or this user of the cluster."""
    csrf: str = ""
    seen_s: float = 0.0


class Access:
    def __init__(self, settings: ConsoleSettings, cluster: Cluster, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._cluster = cluster
        self._clock = clock
        self._sessions: dict[str, Session] = {}
        self._attempts: dict[str, deque[float]] = {}
        self._nobody = Session(None, Role.ADMIN, cluster)

    @property
    def logins(self) -> list[str]:
        settings = self._settings
        return [*(["token"] if settings.tokens else []), *(["scram"] if settings.scram_login else [])]

    @property
    def sessions(self) -> int:
        return len(self._sessions)

    def session_of(self, request: Request) -> Session | None:
        """The session of a request. None if there is none and one is needed."""
        if not self._settings.login_required:
            return self._nobody
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            role = self._role_of(token.strip())
            return None if role is None else Session(f"token:{role.word}", role, self._cluster)
        return self._known(request.cookies.get(COOKIE, ""))

    def _known(self, cookie: str) -> Session | None:
        found = self._sessions.get(cookie)
        if found is None:
            return None
        if self._clock() - found.seen_s > SESSION_S:
            self._end(cookie)
            return None
        found.seen_s = self._clock()
        return found

    def check_csrf(self, request: Request, session: Session) -> None:
        if session.csrf and not hmac.compare_digest(request.headers.get(CSRF_HEADER, ""), session.csrf):
            raise Failure("the X-CSRF-Token of the session is missing or wrong", "load the page again", code="CROSS_SITE")

    async def log_in(self, address: str, fields: Mapping[str, object]) -> tuple[str, Session]:
        """The cookie and the session. A Failure if the login is refused."""
        # Counted before the cluster is asked: attempts at the same time count too.
        now_s = self._clock()
        for known in [each for each, times in self._attempts.items() if not times or now_s - times[-1] > LOGIN_WINDOW_S]:
            del self._attempts[known]
        limits = ((address, LOGIN_TRIES), (_ANYWHERE, LOGIN_TRIES_ANYWHERE))
        attempts = [self._attempts_from(place, most) for place, most in limits]
        for each in attempts:
            each.append(now_s)
        token, user, password = (str(fields.get(name) or "") for name in ("token", "user", "password"))
        if token and self._settings.tokens:
            role = self._role_of(token)
            session = None if role is None else Session(f"token:{role.word}", role, self._cluster)
        elif user and password and self._settings.scram_login:
            try:
                session = await asyncio.to_thread(self._as_user, user, password)
            except Exception:
                _forget(attempts, now_s)  # the cluster is away: nothing was guessed
                raise
        else:
            session = None
        if session is None:
            raise Failure("the login is refused", "check the token, or the user and the password", code="LOGIN_REQUIRED")
        _forget(attempts, now_s)
        self._attempts.pop(address, None)
        cookie = secrets.token_urlsafe(32)
        session.csrf, session.seen_s = secrets.token_urlsafe(32), self._clock()
        for old in [each for each, known in self._sessions.items() if session.seen_s - known.seen_s > SESSION_S]:
            self._end(old)
        if len(self._sessions) >= SESSIONS_MAX:
            self._end(min(self._sessions, key=lambda each: self._sessions[each].seen_s))
        self._sessions[cookie] = session
        session.cluster.start()
        return cookie, session

    def log_out(self, request: Request) -> None:
        self._end(request.cookies.get(COOKIE, ""))

    def close(self) -> None:
        """End all sessions."""
        for cookie in list(self._sessions):
            self._end(cookie)

    def _end(self, cookie: str) -> None:
        session = self._sessions.pop(cookie, None)
        if session is not None and session.cluster is not self._cluster:
            session.cluster.close()

    def _attempts_from(self, address: str, most: int) -> deque[float]:
        """Times of the logins from an address that failed lately or are under way. Failure if there are too many."""
        now_s = self._clock()
        times = self._attempts.setdefault(address, deque(maxlen=most))
        if sum(now_s - each <= LOGIN_WINDOW_S for each in times) >= most:
            raise Failure("too many failed logins", f"try again in {LOGIN_WINDOW_S:.0f} s", code="TOO_MANY")
        return times

    def _role_of(self, token: str) -> Role | None:
        found = None
        for known, role in self._settings.tokens.items():
            # All are compared, each in constant time: the answer takes as long for any token.
            if hmac.compare_digest(known.encode(), token.encode()):
                found = Role.of(role)
        return found

    def _as_user(self, user: str, password: str) -> Session | None:
        """A session that reaches the cluster as this user. None if each mechanism is refused. Blocking."""
        for mechanism in _MECHANISMS:
            connection = Connection(self._settings.bootstrap_servers, None, self._properties_of(user, password, mechanism))
            for host, port in split_servers(connection.bootstrap_servers):
                try:
                    connection.channel(host, port).close()
                except Failure as refused:
                    if refused.code not in ("SASL_AUTHENTICATION_FAILED", "UNSUPPORTED_SASL_MECHANISM"):
                        raise
                    break
                except OSError:
                    continue
                role = self._settings.user_roles.get(user, self._settings.default_role)
                return Session(user, Role.of(role), Cluster(connection, always=False))
        return None

    def _properties_of(self, user: str, password: str, mechanism: str) -> dict[str, str]:
        kept = {name: value for name, value in self._settings.properties.items() if not name.startswith("sasl.")}
        protocol = kept.get("security.protocol", "PLAINTEXT").upper()
        encrypted = protocol in ("SSL", "SASL_SSL")
        return {
            **kept,
            "security.protocol": "SASL_SSL" if encrypted else "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
        }


def _forget(attempts: list[deque[float]], at_s: float) -> None:
    for each in attempts:
        with contextlib.suppress(ValueError):
            each.remove(at_s)
