"""An endpoint: a handler, and what the OpenAPI description says of it. `Call` is one request to it.

Handlers are functions from the console and a call to a JSON document, or to a response. They raise `Failure` for what a user may
hear. The description is written where the handler is, in the words of `schema`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.responses import Response

from ottla.cli.connection import Connection
from ottla.cli.console.settings import Role
from ottla.cli.failure import EXIT_USAGE, Failure
from ottla.cli.positions import is_number
from ottla.console.guard import name_of
from ottla.console.schema import Schema

if TYPE_CHECKING:
    from starlette.requests import Request

    from ottla.client.brokers import Brokers
    from ottla.console.access import Session
    from ottla.console.console import Console
    from ottla.console.published import Published
    from ottla.console.watch import Watch

T = TypeVar("T")
BODY_BYTES_MAX = 8 << 20
_DEPTH_MAX = 200
"""Levels of a body. What walks through one recurses."""
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off", "")


class Call:
    """One request: its path parameters, query, body and user."""

    def __init__(self, request: Request, session: Session, body: dict[str, Any]) -> None:
        self.request = request
        self.session = session
        self.body = body

    # The cluster, as the caller reaches it

    @property
    def connection(self) -> Connection:
        return self.session.cluster.connection

    @property
    def brokers(self) -> Brokers:
        return self.session.cluster.brokers

    @property
    def watch(self) -> Watch:
        return self.session.cluster.watch

    @property
    def published(self) -> Published:
        return self.session.cluster.published

    # Path

    def path(self, name: str) -> str:
        return name_of(str(self.request.path_params[name]))

    def path_number(self, name: str) -> int:
        word = self.path(name)
        if not word.isdecimal() or len(word) > 18:
            raise bad(f"{name} {word!r} is not a number")
        return int(word)

    # Query

    def word(self, name: str) -> str | None:
        """A parameter; None if it is missing or empty."""
        return self.request.query_params.get(name) or None

    def flag(self, name: str, default: bool = False) -> bool:
        word = self.request.query_params.get(name)
        if word is None:
            return default
        if word.lower() not in (*_TRUE, *_FALSE):
            raise bad(f"{name}={word!r} is neither 1 nor 0")
        return word.lower() in _TRUE

    def number(self, name: str, default: int, *, low: int = 0, high: int = 1 << 53) -> int:
        word = self.word(name)
        if word is None:
            return default
        if not is_number(word) or not low <= int(word) <= high:
            raise bad(f"{name}={word!r} is not a number from {low} to {high}")
        return int(word)

    def words(self, name: str) -> list[str]:
        """The parts of a parameter between commas."""
        return [word for word in (self.word(name) or "").split(",") if word]

    def numbers(self, name: str) -> list[int] | None:
        words = self.words(name)
        if not all(map(is_number, words)):
            raise bad(f"{name} is not a list of numbers: {self.word(name)!r}")
        return [int(word) for word in words] or None

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """One of these words; the first is the default."""
        word = self.word(name) or choices[0]
        if word not in choices:
            raise bad(f"{name}={word!r} is none of {', '.join(choices)}")
        return word

    # Body

    def field(self, name: str, kind: type[T]) -> T | None:
        """A field of the body; None if it is missing or null."""
        value = self.body.get(name)
        if value is None:
            return None
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise bad(f"{name} of the body is {type(value).__name__}, not {kind.__name__}")
        return value

    def needed(self, name: str, kind: type[T]) -> T:
        value = self.field(name, kind)
        if value is None:
            raise bad(f"the body has no {name}")
        return value

    async def blocking(self, work: Callable[..., T], *arguments: Any, **more: Any) -> T:
        """The result of a call that waits for brokers, in a thread."""
        return await asyncio.to_thread(work, *arguments, **more)


Answer = Mapping[str, Any] | Response
Handler = Callable[["Console", Call], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Param:
    name: str
    what: str
    schema: Schema


@dataclass(frozen=True, slots=True)
class Endpoint:
    method: str
    path: str
    summary: str
    handler: Handler
    answer: Schema
    role: Role = Role.VIEWER
    changes: bool = False
    """Whether it changes the cluster: read-only mode refuses it, and it is audited."""
    params: tuple[Param, ...] = ()
    body: Schema | None = None
    status: int = 200
    media_type: str = "application/json"
    other_media_types: tuple[str, ...] = ()
    """Those that a parameter chooses."""
    public: bool = False
    """Whether it needs no login."""
    audit: Callable[[Call], bool] = lambda call: True
    """Of one that `changes`: whether this call does. A preview does not."""

    @property
    def operation_id(self) -> str:
        return self.handler.__name__.rstrip("_")


def bad(message: str, hint: str | None = None) -> Failure:
    """The request is wrong."""
    return Failure(message, hint, code="BAD_REQUEST", exit_code=EXIT_USAGE)


def executes(call: Call) -> bool:
    """Whether a call with a preview is more than that."""
    return bool(call.body.get("execute"))


async def read_body(request: Request) -> dict[str, Any]:
    """The JSON object of a request. Empty if there is none."""
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and int(declared) > BODY_BYTES_MAX:
        raise _too_large()
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > BODY_BYTES_MAX:
            raise _too_large()
    if not data:
        return {}
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise bad(f"the body is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise bad("the body is not a JSON object")
    if data.count(b"{") + data.count(b"[") > _DEPTH_MAX and _nests_deeper(document, _DEPTH_MAX):
        raise bad(f"the body nests deeper than {_DEPTH_MAX} levels", "send a value that does as a text")
    try:
        json.dumps(document, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        raise bad("the body has half of a surrogate pair, which is no character", "send such a value as a text") from None
    except ValueError:
        raise bad("the body has a number that is not finite, which JSON has not", "send such a value as a text") from None
    return document


def _nests_deeper(document: Any, depth: int) -> bool:
    level = [document]
    for _ in range(depth):
        inner = [each.values() if isinstance(each, dict) else each for each in level]
        level = [each for values in inner for each in values if isinstance(each, (dict, list))]
    return bool(level)


def _too_large() -> Failure:
    return Failure(f"the body has more than {BODY_BYTES_MAX >> 20} MB", code="TOO_LARGE")
