"""The hooks of the request pipeline: each sees every API, may refuse a request, and sets the throttle time of the response."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from ottla.broker.handlers import served
from ottla.broker.network.connection import Connection
from ottla.broker.network.context import RequestContext
from ottla.broker.network.dispatch import Dispatcher, PendingReply
from ottla.broker.network.hooks import Hooks
from ottla.broker.network.socket_server import ConnectionLimits, ListenerUse, SocketServer
from ottla.cluster.requests import NewTopic
from ottla.errors import ErrorCode, KafkaError, MalformedInput
from ottla.metrics import Counters
from ottla.ports import FileRange, Network
from ottla.protocol.headers import decode_response, encode_request
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.registry import API_BY_NAME, Api
from ottla.records.record import build_batch
from ottla.runtime.loop import run
from tests.broker.asked import NOW_MS, started

HANDLERS = served(in_cluster=True)


class Seen:
    """A hook of each kind; `refuses` names the one that refuses."""

    def __init__(self, refuses: str = "") -> None:
        self.apis: dict[str, list[str]] = {"authenticate": [], "authorize": [], "quota": [], "throttle": []}
        self.responses: list[object] = []
        self._refuses = refuses

    def hooks(self) -> Hooks:
        return Hooks(self._check("authenticate"), self._check("authorize"), self._check("quota"), self._throttle)

    def _check(self, kind: str) -> Any:
        def check(api: Api, request: object, context: RequestContext) -> None:
            assert type(request) is api.request
            assert context.api_key == api.key
            self.apis[kind].append(api.name)
            if kind == self._refuses:
                raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

        return check

    def _throttle(self, api: Api, request: object, response: object, context: RequestContext) -> int:
        self.apis["throttle"].append(api.name)
        self.responses.append(response)
        return 1234


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


@pytest.mark.parametrize("kind", ["authenticate", "authorize", "quota"])
def test_a_hook_before_the_handler_sees_every_api_and_may_refuse_it(kind: str) -> None:
    seen = Seen(refuses=kind)

    class Parts(dict[str, object]):
        def __missing__(self, name: str) -> object:
            return None  # no handler is reached

    async def case() -> None:
        dispatcher = Dispatcher(HANDLERS, Parts(), asyncio.get_running_loop(), seen.hooks())
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
    assert seen.apis[kind] == names
    assert {"produce", "fetch"} <= set(names)
    assert seen.apis["throttle"] == []


def test_the_throttle_time_of_a_hook_arrives_in_the_response(tmp_path: Path) -> None:
    async def case() -> None:
        async with started(tmp_path, [NewTopic("t", 1, 1)]) as broker:
            seen = Seen()
            dispatcher = Dispatcher(HANDLERS, broker._parts(), asyncio.get_running_loop(), seen.hooks())
            connection = Connection(broker.server, ListenerUse("PLAINTEXT"))
            batch = bytearray(build_batch([(None, b"v", [], NOW_MS)]))
            data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch)])
            now = FetchTopic(topic="t", partitions=[FetchPartition(partition=0, partition_max_bytes=1000)])
            later = FetchTopic(topic="t", partitions=[FetchPartition(partition=0, fetch_offset=2, partition_max_bytes=1000)])
            for name, version, request in (
                ("produce", 9, ProduceRequest(acks=1, topic_data=[data])),
                ("produce", 9, ProduceRequest(acks=0, topic_data=[data])),
                ("fetch", 12, FetchRequest(min_bytes=1, max_bytes=1000, topics=[now])),
                ("fetch", 12, FetchRequest(max_wait_ms=1, min_bytes=1, max_bytes=1000, topics=[later])),
                ("heartbeat", 0, HeartbeatRequest(group_id="g", generation_id=1, member_id="m")),
            ):
                reply = await reply_of(dispatcher, frame_of(name, version, request), connection)
                if reply is None:
                    assert seen.responses[-1] is None  # acks=0
                    continue
                _, response = decode_response(API_BY_NAME[name], version, memoryview(reply)[4:])
                if version:  # Heartbeat v0 has no such field
                    assert response.throttle_time_ms == 1234
            assert seen.apis["throttle"][:4] == ["produce", "produce", "fetch", "fetch"]
            assert seen.apis["authorize"] == ["produce", "produce", "fetch", "fetch", "heartbeat"]

    run(case())


def test_without_hooks_the_handler_is_called_directly() -> None:
    def handle(request: object, context: object) -> None:
        return None

    assert Hooks().around(API_BY_NAME["produce"], handle) is handle
