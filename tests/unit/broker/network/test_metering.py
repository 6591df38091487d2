"""Meters: every API is throttled, what brokers send each other is not, and the time of a handler is that of its steps."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, cast

import pytest

from ottla.broker.handlers import served
from ottla.broker.network.connection import Connection
from ottla.broker.network.context import RequestContext
from ottla.broker.network.dispatch import Authorize, Dispatcher, PendingReply
from ottla.broker.network.metering import Meter, Metering
from ottla.broker.network.socket_server import ConnectionLimits, ListenerUse, SocketServer
from ottla.broker.network.timed import timed
from ottla.errors import ErrorCode, KafkaError
from ottla.metrics import Counters
from ottla.ports import Network
from ottla.protocol.headers import decode_response, encode_request
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.produce import ProduceRequest
from ottla.protocol.registry import API_BY_NAME
from ottla.runtime.loop import run
from ottla.security.quotas import FETCH, MUTATION, PRODUCE, REQUEST, Limits, Quotas

HANDLERS = served(in_cluster=True)
BETWEEN_BROKERS = {
    "leader_and_isr",
    "stop_replica",
    "update_metadata",
    "controlled_shutdown",
    "alter_partition",
    "write_txn_markers",
}
WITHOUT_THROTTLE_TIME = BETWEEN_BROKERS - {"alter_partition"} | {"sasl_handshake", "sasl_authenticate"}
"""Their responses have no such field."""
REQUESTS = {"produce": ProduceRequest(acks=1), "find_coordinator": FindCoordinatorRequest(coordinator_keys=["g"])}
"""Requests whose response has room for an error; for other APIs an empty request does."""


class SteppedClock:
    """Every look at it takes a millisecond."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def now_ms(self) -> int:
        return 0

    def monotonic(self) -> float:
        self.seconds += 0.001
        return self.seconds


class Parts(dict[str, object]):
    def __missing__(self, name: str) -> object:
        return None  # no handler is reached


def metering(limits: Limits) -> Metering:
    quotas = Quotas()
    quotas.configure(limits)
    return Metering(quotas, SteppedClock(), Counters())


def connection_to(dispatcher: Dispatcher) -> Connection:
    network = cast(Network, type("Nowhere", (), {"file_sender": None}))
    server = SocketServer(asyncio.get_running_loop(), network, dispatcher.dispatch, ConnectionLimits(), Counters())
    return Connection(server, ListenerUse("PLAINTEXT"))


def frame_of(name: str, version: int, request: Any, client_id: str | None = "c") -> memoryview:
    return memoryview(bytearray(b"".join(encode_request(API_BY_NAME[name], version, 7, client_id, request))))[4:]  # type: ignore[arg-type]


def refusing(code: ErrorCode) -> Authorize:
    def refuse(request: object, context: RequestContext) -> None:
        raise KafkaError(code)

    return lambda handler, handle, parts: refuse


async def answer(dispatcher: Dispatcher, connection: Connection, name: str) -> Any:
    handler = HANDLERS[API_BY_NAME[name].key]
    version = handler.max_version
    parts = dispatcher.dispatch(frame_of(name, version, REQUESTS.get(name) or handler.api.request()), connection)
    assert isinstance(parts, list)
    return decode_response(handler.api, version, memoryview(b"".join(cast(list[bytes], parts)))[4:])[1]


@pytest.mark.parametrize("name", [handler.api.name for handler in HANDLERS.values()])
def test_qu03_every_api_is_throttled_also_when_it_is_denied(name: str) -> None:
    async def case() -> None:
        meters = metering({(("user", "ANONYMOUS"),): {REQUEST: 0.001}})
        refuses = refusing(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        dispatcher = Dispatcher(HANDLERS, Parts(), asyncio.get_running_loop(), meters, refuses)
        connection = connection_to(dispatcher)
        response = await answer(dispatcher, connection, name)
        assert hasattr(response, "throttle_time_ms") == (name not in WITHOUT_THROTTLE_TIME)
        if name not in WITHOUT_THROTTLE_TIME:
            assert response.throttle_time_ms == 1000
        assert connection.muted
        assert meters.counters.get("requests_throttled") == 1

    run(case())


@pytest.mark.parametrize("name", [handler.api.name for handler in HANDLERS.values()])
def test_qu03_what_brokers_send_each_other_is_exempt(name: str) -> None:
    async def case() -> None:
        meters = metering({(("user", "ANONYMOUS"),): {REQUEST: 0.001}})
        refuses = refusing(ErrorCode.STALE_BROKER_EPOCH)
        dispatcher = Dispatcher(HANDLERS, Parts(), asyncio.get_running_loop(), meters, refuses)
        connection = connection_to(dispatcher)
        response = await answer(dispatcher, connection, name)
        assert connection.muted == (name not in BETWEEN_BROKERS)
        if name in BETWEEN_BROKERS:
            assert getattr(response, "throttle_time_ms", 0) == 0

    run(case())


@pytest.mark.parametrize(
    ("quota", "metered"),
    [
        (PRODUCE, {"produce"}),
        (FETCH, {"fetch"}),
        (MUTATION, {"create_topics", "delete_topics", "create_partitions", "metadata"}),
        (REQUEST, {handler.api.name for handler in HANDLERS.values()}),
        ("connection_creation_rate", set()),
    ],
)
def test_only_requests_to_which_a_quota_applies_have_a_meter(quota: str, metered: set[str]) -> None:
    async def case() -> None:
        meters = metering({(("client-id", "c"),): {quota: 1.0}})
        dispatcher = Dispatcher(HANDLERS, Parts(), asyncio.get_running_loop(), metering=meters)
        connection = connection_to(dispatcher)
        found = {"c": set(), "d": set(), None: set()}  # type: dict[str | None, set[str]]
        for client_id in found:
            for handler in HANDLERS.values():
                frame = frame_of(handler.api.name, handler.max_version, handler.api.request(), client_id)
                cached = cast(Any, dispatcher)._decode_header(frame, connection)
                assert cached.route.metered == (handler.api.name in metered)
                if cached.context.meter is not None:
                    found[client_id].add(handler.api.name)
        assert found == {"c": metered, "d": set(), None: set()}

    run(case())


def test_the_meter_follows_changes_of_quotas_once_routes_and_headers_are_forgotten() -> None:
    async def case() -> None:
        meters = metering({})
        refuses = refusing(ErrorCode.INVALID_REQUEST)
        dispatcher = Dispatcher(HANDLERS, Parts(), asyncio.get_running_loop(), meters, refuses)
        connection = connection_to(dispatcher)
        for limit, throttled in ((None, False), (0.001, True), (99.0, False)):
            meters.quotas.configure({(("user", None),): {REQUEST: limit}} if limit is not None else {})
            dispatcher.forget_routes()
            connection.header_cache = None
            response = await answer(dispatcher, connection, "list_groups")
            assert (response.throttle_time_ms > 0) == throttled

    run(case())


def test_qu04_request_time_is_a_percentage_of_one_thread() -> None:
    async def case() -> None:
        meters = metering({(("user", None),): {REQUEST: 50.0}})
        dispatcher = Dispatcher(HANDLERS, Parts(), asyncio.get_running_loop(), meters, refusing(ErrorCode.INVALID_REQUEST))
        connection = connection_to(dispatcher)
        for _ in range(10):
            await answer(dispatcher, connection, "list_groups")
        quota = meters.quotas.of_client("ANONYMOUS", "c").request
        assert quota is not None
        # Ten requests of a millisecond each, 0.1 % of a second, over ten seconds and a little.
        assert quota.rate.sum == pytest.approx(1.0)

    run(case())


def test_qu04_waits_of_a_handler_do_not_count() -> None:
    async def case() -> None:
        meters = metering({(("user", None),): {REQUEST: 1e6}})
        dispatcher = Dispatcher(HANDLERS, Parts(), asyncio.get_running_loop(), metering=meters)
        connection = connection_to(dispatcher)
        clock = cast(SteppedClock, meters.clock)
        meter = meters.meter(API_BY_NAME["metadata"].key, "c", connection)
        assert isinstance(meter, Meter)

        async def handler() -> int:
            clock.seconds += 1
            first.set()
            await go_on.wait()
            clock.seconds += 2
            return 7

        for cancels in (False, True):
            first, go_on = asyncio.Event(), asyncio.Event()
            meter.begin(10)
            meter.suspend()
            task = asyncio.ensure_future(timed(meter, handler()))
            await first.wait()
            clock.seconds += 1000
            if cancels:
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            else:
                go_on.set()
                assert await task == 7
            meter.end(None, None)
        quota = meters.quotas.of_client("ANONYMOUS", "c").request
        assert quota is not None
        # The first second of the cancelled one is all that is left in the window, and some looks at the clock.
        assert 100 <= quota.rate.sum <= 101

    run(case())


def test_a_handler_that_waits_is_timed_and_throttled_when_it_answers() -> None:
    async def case() -> None:
        meters = metering({(("user", None),): {REQUEST: 0.001}})
        dispatcher = Dispatcher(HANDLERS, Parts(), asyncio.get_running_loop(), metering=meters)
        connection = connection_to(dispatcher)
        # An admin handler without its collaborators fails in its first step, in a task.
        reply = dispatcher.dispatch(
            frame_of("alter_partition_reassignments", 1, _request("alter_partition_reassignments")), connection
        )
        assert isinstance(reply, PendingReply)
        assert not connection.muted
        await asyncio.wait([reply.future])
        parts = reply.parts()
        assert parts is not None
        api = API_BY_NAME["alter_partition_reassignments"]
        _, response = decode_response(api, 1, memoryview(b"".join(cast(list[bytes], parts)))[4:])
        assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert response.throttle_time_ms == 1000
        assert connection.muted

    run(case())


def _request(name: str) -> Any:
    return API_BY_NAME[name].request()


def test_a_timed_coroutine_can_be_closed() -> None:
    async def case() -> None:
        meters = metering({(("user", None),): {REQUEST: 1.0}})
        dispatcher = Dispatcher(HANDLERS, Parts(), asyncio.get_running_loop(), metering=meters)
        meter = meters.meter(0, "c", connection_to(dispatcher))
        assert meter is not None
        ended: list[str] = []

        async def handler() -> None:
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                ended.append("closed")

        work: Coroutine[Any, Any, Any] = timed(meter, handler())
        work.send(None)
        work.close()
        assert ended == ["closed"]

    run(case())
