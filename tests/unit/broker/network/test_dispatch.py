"""The one path of every request: authorization sees every API, and may refuse a request."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from ottla.broker.handlers import served
from ottla.broker.network.connection import Connection
from ottla.broker.network.context import RequestContext
from ottla.broker.network.dispatch import Dispatcher, PendingReply
from ottla.broker.network.handler import Handler
from ottla.broker.network.socket_server import ConnectionLimits, ListenerUse, SocketServer
from ottla.errors import ErrorCode, KafkaError, MalformedInput
from ottla.metrics import Counters
from ottla.ports import FileRange, Network
from ottla.protocol.headers import decode_response, encode_request
from ottla.protocol.registry import API_BY_NAME
from ottla.runtime.loop import run

HANDLERS = served(in_cluster=True)


def frame_of(name: str, version: int, request: object) -> memoryview:
    return memoryview(bytearray(b"".join(encode_request(API_BY_NAME[name], version, 7, "c", request))))[4:]  # type: ignore[arg-type]


async def reply_of(dispatcher: Dispatcher, frame: memoryview, connection: Connection) -> bytes | None:
    """The bytes of the reply. None: there is none. b"closed": the connection is closed instead."""
    try:
        found = dispatcher.dispatch(frame, connection)
    except MalformedInput:
        return b"closed"
    if isinstance(found, PendingReply):
        await asyncio.wait([found.future])
        found = found.parts()
    if found is None:
        return None
    return b"".join(p.file.read(p.position, p.size) if isinstance(p, FileRange) else bytes(p) for p in found)


def connection_to(dispatcher: Dispatcher) -> Connection:
    network = cast(Network, type("Nowhere", (), {"file_sender": None}))
    server = SocketServer(asyncio.get_running_loop(), network, dispatcher.dispatch, ConnectionLimits(), Counters())
    return Connection(server, ListenerUse("PLAINTEXT"))


def test_authorization_sees_every_api_and_may_refuse_it() -> None:
    seen: list[str] = []

    def authorize(handler: Handler, handle: Any, parts: object) -> Any:
        def refuse(request: object, context: RequestContext) -> None:
            assert type(request) is handler.api.request
            assert context.api_key == handler.api.key
            seen.append(handler.api.name)
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

        return refuse

    class Parts(dict[str, object]):
        def __missing__(self, name: str) -> object:
            return None  # no handler is reached

    async def case() -> None:
        dispatcher = Dispatcher(HANDLERS, Parts(), asyncio.get_running_loop(), authorize=authorize)
        for handler in HANDLERS.values():
            frame = frame_of(handler.api.name, handler.max_version, handler.api.request())
            reply = await reply_of(dispatcher, frame, connection_to(dispatcher))
            assert reply is not None
            if reply == b"closed":
                assert handler.api.name in ("produce", "find_coordinator")  # acks=0, and no key: no place for an error
            else:
                decode_response(handler.api, handler.max_version, memoryview(reply)[4:])

    run(case())
    names = [handler.api.name for handler in HANDLERS.values()]
    assert seen == names
    assert {"produce", "fetch"} <= set(names)
