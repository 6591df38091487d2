"""A broker asked without a socket, with the compiled codec of its messages or with the interpreted one.

In a tree that is not compiled both are the interpreted one, and the tests compare it with itself.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Any

from ottla.broker.app import Broker
from ottla.broker.coordinators.reply import Reply
from ottla.broker.network.connection import Connection
from ottla.broker.network.dispatch import HeaderCache, PendingReply, Route
from ottla.broker.network.socket_server import ListenerUse
from ottla.cluster.requests import NewTopic
from ottla.cluster.settings import BrokerSettings
from ottla.coordinator.group.group import Caller
from ottla.errors import MalformedInput
from ottla.metrics import Counters
from ottla.ports import Clock
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.runtime.clock import SystemClock
from ottla.runtime.loop import ThreadWorkers, real_world
from ottla.wire.codec import REQUEST_ELEMENTS_MAX, decoder, encoder, executed
from ottla.wire.source import DecoderSource, EncoderSource

NOW_MS = 1_700_000_000_000
NOBODYS_ID = bytes(range(16))


class StoppedClock:
    def now_ms(self) -> int:
        return NOW_MS

    def monotonic(self) -> float:
        return time.monotonic()


@contextlib.asynccontextmanager
async def started(
    path: Path, topics: Iterable[NewTopic], settings: Mapping[str, str] | None = None, *, clock: Clock | None = None
) -> AsyncIterator[Broker]:
    """A broker of its own; one whose clock stands still writes the same as its twin."""
    parsed = BrokerSettings.parse(
        {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(path), "broker.id": "1", **(settings or {})}
    )
    world = dataclasses.replace(real_world(Counters(), parsed), clock=clock or SystemClock())
    broker = Broker(parsed, world)
    await broker.start()
    try:
        await broker.controller.topic_requests.create(list(topics))
        yield broker
    finally:
        await broker.stop()
        if isinstance(world.workers, ThreadWorkers):
            world.workers.close()


class Asked:
    def __init__(self, broker: Broker, *, interpreted: bool = False) -> None:
        self.broker = broker
        self._interpreted = interpreted
        dispatch: Any = broker.server.dispatch
        self._dispatcher: Any = dispatch.__self__

    def topic_id(self, name: str) -> bytes:
        topic = self.broker.image.topics.get(name)
        return topic.topic_id if topic is not None else NOBODYS_ID

    def group(self, group_id: str) -> Any:
        return self.broker.groups.shards.find(group_id)[1].groups.by_id[group_id]

    def member(self, group_id: str) -> str:
        """The id of its only member."""
        (member,) = self.group(group_id).members
        return member

    async def make_classic(self, group_id: str, instance_id: str | None = None) -> None:
        """A classic group of one member, in generation 1, as the log alone could not make it."""
        shards = self.broker.groups.shards
        await shards.topic.leader_of(group_id)
        hosted, shard = shards.find(group_id)
        join = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            member_id="",
            group_instance_id=instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff")],
        )
        caller = Caller(3 if instance_id is None else 5, "c", "/127.0.0.1", "1")
        joined: Reply[Any] = Reply()
        await shards.reply_of(hosted, joined, shard.join_group(join, caller, joined, shards.now()))
        member_id = self.member(group_id)
        sync = SyncGroupRequest(
            group_id=group_id,
            generation_id=1,
            member_id=member_id,
            group_instance_id=instance_id,
            assignments=[SyncGroupRequestAssignment(member_id=member_id, assignment=b"")],
        )
        hosted.perform(shard.sync_group(sync, Reply(), shards.now()))
        found = self.group(group_id)
        assert (found.state_name, found.generation) == ("Stable", 1)

    def make_new(self, group_id: str, member_id: str) -> None:
        """A group of the new protocol with this member, subscribed to `t`."""
        shards = self.broker.groups.shards
        beat = ConsumerGroupHeartbeatRequest(
            group_id=group_id, member_id=member_id, member_epoch=0, rebalance_timeout_ms=1000, subscribed_topic_names=["t"],
            topic_partitions=[],
        )  # fmt: skip
        hosted, shard = shards.find(group_id)
        caller = Caller(1, "c", "/127.0.0.1", "")
        hosted.perform(shard.consumer_group_heartbeat(beat, caller, Reply(), shards.now()))

    def ask(self, frame: bytes) -> list[Any] | PendingReply | str | None:
        """The reply in its parts, one that waits, that the connection is closed, or None for no reply."""
        connection = Connection(self.broker.server, ListenerUse("x"))
        data = memoryview(bytearray(frame))  # what a broker receives it may write to
        try:
            found = self._dispatcher._decode_header(data, connection)
            if isinstance(found, HeaderCache):
                self.prepare(found.route)
            return self._dispatcher.dispatch(data, connection)
        except MalformedInput:
            return "closed"

    def prepare(self, route: Route) -> None:
        """Give the route the codec to be tested. Both kinds share one broker, and so its routes."""
        request, response, version = route.api.request, route.api.response, route.version
        encoder_of: Any = route.encoder
        if self._interpreted:
            route.decode = executed(DecoderSource(request, version, REQUEST_ELEMENTS_MAX))
            encoder_of._encode = executed(EncoderSource(response, version))
        else:
            route.decode = decoder(request, version, REQUEST_ELEMENTS_MAX)
            encoder_of._encode = encoder(response, version)
