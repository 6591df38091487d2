"""Clients that find their brokers as real ones do, and note what they did and were told.

Owns: the notes, which become one history (`history`), and the way of a request to a leader or coordinator. Requests are sent
again after a silence, on another connection while the first may still arrive; some are sent twice on purpose.
Never: sends twice what must not arrive late in its generation of the protocol (`late_ok`).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ottla.client.connection import ClientConnection
from ottla.errors import ErrorCode
from ottla.ports import Network
from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.sim.kernel.process import Process
from ottla.sim.kernel.trace import Trace
from ottla.sim.models.history import Commit, End, Event, Outcome, Place, Send
from ottla.sim.violation import require

Address = tuple[str, int]
GROUP_KEY: Final = 0
TRANSACTION_KEY: Final = 1

AGAIN: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.BROKER_NOT_AVAILABLE,
    }
)
"""Errors after which a client refreshes its metadata and tries again."""


class NoAnswer(OSError):
    """No answer in time, or the connection broke: the outcome of the request is unknown."""


@dataclass(slots=True)
class SendNote:
    """A record that is sent. Its outcome is filled in when it is known."""

    producer: str
    place: Place
    value: bytes
    start: int
    key: bytes | None = None
    end: int | None = None
    outcome: Outcome = Outcome.UNKNOWN
    offset: int | None = None
    transaction: str | None = None

    def event(self) -> Send:
        return Send(self.producer, self.place, self.value, self.start, self.end, self.outcome, self.offset, self.transaction)


@dataclass(slots=True)
class EndNote:
    transaction: str
    start: int
    end: int | None = None
    outcome: Outcome = Outcome.UNKNOWN

    def event(self) -> End:
        return End(self.transaction, self.start, self.end, self.outcome)


@dataclass(slots=True)
class PlayTopic:
    name: str
    topic_id: bytes
    partitions: int
    keyed: bool = False


@dataclass(slots=True)
class Habits:
    """How often clients lose patience, repeat requests, die and pause."""

    patience_s: tuple[float, float] = (1.0, 4.0)
    double_chance: float = 0.05
    double_s_max: float = 4.0
    deaf_chance: float = 0.05
    die_chance: float = 0.01
    pause_chance: float = 0.02
    pause_s: tuple[float, float] = (2.0, 12.0)


class Play:
    """What all actors of a run share."""

    def __init__(
        self, rng: random.Random, trace: Trace, now_s: Callable[[], float], brokers: Sequence[Address], habits: Habits
    ) -> None:
        self.rng = rng
        self.trace = trace
        self.now_s = now_s
        self.brokers = list(brokers)
        self.ids = {address: number for number, address in enumerate(brokers, 1)}
        self.habits = habits
        self.topics: dict[str, PlayTopic] = {}
        self.sends: list[SendNote] = []
        self.ends: list[EndNote] = []
        self.commits: list[Commit] = []
        self.events: list[Event] = []
        """Events of the readers, in order."""
        self.made = 0
        self.offsets_may_shrink = False
        """Acknowledged records, and a coordinator's, may be lost."""
        self.ends_are_told = True
        """Reading to the high watermark is reading to the end. Not so in a cluster: a new leader learns it later."""
        self.led_epoch: Callable[[Place, Address], int | None] = lambda place, address: 0
        """The leader epoch in which the broker at an address really leads a partition. None: another broker does."""
        self.calm = False
        """The end of a run: no client dies, pauses or repeats requests."""
        self.given: dict[str, list[tuple[int, int, str]]] = {}
        """By transactional id: which instance was given which producer id and epoch."""
        self.producer_ids: dict[int, str] = {}
        self.ended: dict[str, int] = {}
        """Counts of what happened in the run."""

    def now(self) -> int:
        return int(self.now_s() * 1_000_000)

    def next_value(self) -> bytes:
        self.made += 1
        return b"%d" % self.made

    def count(self, what: str) -> None:
        self.ended[what] = self.ended.get(what, 0) + 1

    def places(self, *, keyed: bool = False) -> list[Place]:
        return [
            (topic.name, index) for topic in self.topics.values() if topic.keyed == keyed for index in range(topic.partitions)
        ]

    def history(self) -> list[Event]:
        """All events, without keyed topics: what compaction removes is not lost."""
        keyed = {topic.name for topic in self.topics.values() if topic.keyed}
        sends = [note.event() for note in self.sends if note.place[0] not in keyed]
        return [*sends, *(note.event() for note in self.ends), *self.commits, *self.events]

    def was_given(self, transactional_id: str, producer_id: int, epoch: int, instance: str) -> None:
        """A producer id and epoch belong to one instance (T03), unless a coordinator's records may be lost."""
        known = self.given.setdefault(transactional_id, [])
        for other_id, other_epoch, other in known:
            require(
                (other_id, other_epoch) != (producer_id, epoch) or other == instance or self.offsets_may_shrink,
                "fenced",
                f"{instance} of {transactional_id} was given producer {producer_id}, epoch {epoch}, which {other} has",
            )
        known.append((producer_id, epoch, instance))
        self.has_producer_id(producer_id, transactional_id)

    def has_producer_id(self, producer_id: int, owner: str) -> None:
        known = self.producer_ids.setdefault(producer_id, owner)
        require(known == owner, "producer-id", f"{owner} was given producer id {producer_id}, which {known} has")


class Actor:
    """One client."""

    def __init__(self, name: str, play: Play, network: Network, process: Process) -> None:
        self.name = name
        self.play = play
        self.rng = random.Random(play.rng.random())
        self.process = process
        self._network = network
        self._connections: dict[Address, ClientConnection] = {}
        self._leaders: dict[Place, Address] = {}
        self.leader_epochs: dict[Place, int] = {}
        """The newest leader epoch that a broker told of each partition (KIP-320)."""
        self._coordinators: dict[tuple[int, str], Address] = {}

    # --- time passes

    def note(self, event: str) -> None:
        self.play.trace.add(f"{self.name} {event}")

    async def step(self) -> None:
        """Between two steps a client may die, or pause so long that it counts as dead."""
        habits = self.play.habits
        if self.play.calm:
            return
        chance = self.rng.random()
        if chance < habits.die_chance:
            self.note("dies")
            self.process.die()
            await asyncio.sleep(0)
        elif chance < habits.die_chance + habits.pause_chance:
            seconds = self.rng.uniform(*habits.pause_s)
            self.note(f"sleeps for {seconds:.1f} s")
            await asyncio.sleep(seconds)
            self.note("wakes")

    async def backoff(self) -> None:
        await asyncio.sleep(0.05 + self.rng.random() * 0.4)

    # --- requests

    async def _connection(self, address: Address) -> ClientConnection:
        connection = self._connections.get(address)
        if connection is None or connection.closed:
            connection = await ClientConnection.open(self._network, *address, client_id=self.name)
            self._connections[address] = connection
        return connection

    async def reach(self, address: Address) -> bool:
        """Open a connection, so that requests sent at once go in order."""
        try:
            await asyncio.wait_for(self._connection(address), 5.0)
        except (OSError, TimeoutError):
            return False
        return True

    def drop(self, address: Address, *, close: bool) -> None:
        """Forget a connection. What was sent on it may still arrive."""
        connection = self._connections.pop(address, None)
        if connection is not None and close:
            connection.close()

    def patience_s(self) -> float:
        """How long to wait for an answer; sometimes so short that it is missed."""
        if not self.play.calm and self.rng.random() < self.play.habits.deaf_chance:
            return self.rng.random() * 0.1
        return self.rng.uniform(*self.play.habits.patience_s)

    async def call(
        self,
        address: Address,
        api: str,
        version: int,
        request: object,
        *,
        late_ok: bool = True,
        patience_s: float | None = None,
    ) -> Any:
        """Ask one broker. NoAnswer after `patience_s`; a request that must not arrive late waits until the connection breaks."""
        connection = self._connections.get(address)
        if connection is None or connection.closed:
            if not await self.reach(address):
                raise NoAnswer(f"{address} is out of reach")
            connection = self._connections[address]
        try:
            future = connection.send(api, version, request)
        except OSError as error:
            self.drop(address, close=True)
            raise NoAnswer(str(error)) from error
        if late_ok and api != "produce":
            self.maybe_double(address, api, version, [request])
        try:
            return await asyncio.wait_for(future, (patience_s or self.patience_s()) if late_ok else None)
        except TimeoutError:
            self.drop(address, close=self.rng.random() < 0.3)
            raise NoAnswer(f"{api}: no answer") from None
        except OSError as error:
            self.drop(address, close=True)
            raise NoAnswer(str(error)) from error

    def maybe_double(self, address: Address, api: str, version: int, requests: Sequence[object]) -> None:
        """Send all requests of a row again, later, on another connection, in order."""
        if self.play.calm or self.rng.random() >= self.play.habits.double_chance:
            return

        async def again() -> None:
            await asyncio.sleep(self.rng.random() * self.play.habits.double_s_max)
            try:
                connection = await ClientConnection.open(self._network, *address, client_id=self.name)
                await asyncio.gather(*(connection.send(api, version, request) for request in requests))
                connection.close()
            except OSError:
                pass

        asyncio.get_running_loop().create_task(again())

    def expect(self, code: int, what: str, *allowed: ErrorCode) -> ErrorCode:
        """The error of an answer. One that is neither retriable nor allowed is a violation."""
        error = ErrorCode(code)
        require(not code or error in AGAIN or error in allowed, "error", f"{self.name}: {what} is answered with {error.name}")
        if code:
            self.note(f"{what}: {error.name}")
        return error

    async def any_broker(self, api: str, version: int, request: object) -> Any:
        """Ask brokers until one answers."""
        while True:
            try:
                return await self.call(self.rng.choice(self.play.brokers), api, version, request)
            except NoAnswer:
                await self.backoff()

    async def leader_of(self, place: Place) -> Address:
        while True:
            found = self._leaders.get(place)
            if found is not None:
                return found
            request = MetadataRequest(topics=[MetadataRequestTopic(name=place[0])])
            response = await self.any_broker("metadata", 12, request)
            brokers = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
            for topic in response.topics:
                for partition in topic.partitions:
                    key = (place[0], partition.partition_index)
                    self.leader_epochs[key] = max(self.leader_epochs.get(key, -1), partition.leader_epoch)
                    if partition.leader_id in brokers:
                        self._leaders[key] = brokers[partition.leader_id]
            if place not in self._leaders:
                await self.backoff()

    def forget_leader(self, place: Place) -> None:
        self._leaders.pop(place, None)

    async def ask_coordinator(self, kind: int, key: str, api: str, version: int, request: object, *, late_ok: bool = True) -> Any:
        """Ask a coordinator once. NoAnswer if there is no answer."""
        address = self._coordinators.get((kind, key))
        while address is None:
            asked = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
            found = (await self.any_broker("find_coordinator", 4, asked)).coordinators[0]
            if self.expect(found.error_code, f"find the coordinator of {key}") == 0:
                address = self._coordinators[kind, key] = (found.host, found.port)
            else:
                await self.backoff()
        try:
            return await self.call(address, api, version, request, late_ok=late_ok)
        except NoAnswer:
            self._coordinators.pop((kind, key), None)
            raise

    def look_again(self, kind: int, key: str, code: int) -> None:
        """Look for the coordinator again after an error that says so."""
        if code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            self._coordinators.pop((kind, key), None)

    async def create_topic(
        self, name: str, partitions: int, config: dict[str, str], *, replicas: int = 1, keyed: bool = False
    ) -> None:
        """Create a topic and learn its id, also if the first answer was lost."""
        creatable = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replicas,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in config.items()],
        )
        while True:
            made = (await self.any_broker("create_topics", 7, CreateTopicsRequest(topics=[creatable], timeout_ms=3000))).topics[0]
            self.note(f"create {name}: {ErrorCode(made.error_code).name} {made.error_message or ''}")
            response = await self.any_broker("metadata", 12, MetadataRequest(topics=[MetadataRequestTopic(name=name)]))
            found = response.topics[0]
            if found.error_code == 0 and len(found.partitions) == partitions:
                self.play.topics[name] = PlayTopic(name, bytes(found.topic_id), partitions, keyed)
                self.note(f"created {name} with {partitions} partitions {sorted(config.items())}")
                return
            await self.backoff()
