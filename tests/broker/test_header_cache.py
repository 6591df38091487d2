"""A connection with cached request headers is answered like one without."""

from __future__ import annotations

import random
from typing import Any

from ottla.broker.network.connection import Connection
from ottla.broker.network.dispatch import PendingReply
from ottla.broker.network.socket_server import ListenerUse
from ottla.errors import MalformedInput
from ottla.protocol.headers import encode_request
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.registry import API_BY_NAME
from ottla.runtime.loop import run
from tests.broker.asked import started

REQUESTS = (
    ("heartbeat", 0, HeartbeatRequest(group_id="g", generation_id=1, member_id="m")),
    ("heartbeat", 4, HeartbeatRequest(group_id="g", generation_id=1, member_id="m")),
    ("api_versions", 3, ApiVersionsRequest(client_software_name="x", client_software_version="1")),
    ("list_groups", 4, ListGroupsRequest()),
)


def test_requests_in_any_order_are_answered_as_if_each_were_the_first(tmp_path: Any) -> None:
    rng = random.Random(4)
    frames = []
    for number in range(600):
        # Runs of two kinds in turn, as members of groups send them, and whatever else.
        name, version, request = REQUESTS[number % 2] if number % 100 < 50 else rng.choice(REQUESTS)
        client = rng.choice(("a", "a", "a", "longer", None))
        frame = b"".join(encode_request(API_BY_NAME[name], version, number - 300, client, request))[4:]  # type: ignore[arg-type]
        frames.append(frame if rng.random() < 0.9 else frame[: rng.randrange(len(frame))])

    async def case() -> None:
        async with started(tmp_path, []) as broker:

            def answer(connection: Connection, frame: bytes) -> bytes | str:
                try:
                    reply = broker.server.dispatch(memoryview(bytearray(frame)), connection)
                except MalformedInput:
                    return "closed"
                assert reply is not None
                assert not isinstance(reply, PendingReply)
                return b"".join(bytes(part) for part in reply)  # type: ignore[arg-type]

            remembers = Connection(broker.server, ListenerUse("x"))
            for frame in frames:
                assert answer(remembers, frame) == answer(Connection(broker.server, ListenerUse("x")), frame), frame.hex()
            last = remembers.header_cache
            assert last is not None
            assert last.previous is not None
            assert last.previous.previous is None  # no more than two

    run(case())
