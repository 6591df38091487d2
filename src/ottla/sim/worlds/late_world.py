"""Orders, wishes and writes that come late, one story at a time: why each of the cluster's fences is there.

Owns: stories that a seed chooses and fills in, in a cluster of three to five brokers in which nothing else happens. In each of
them something was decided, its word was held up on its way, given up, told again; then the world went on; then the first word
arrives after all. A fence refuses it. Without the fence it deletes what is another topic's, or takes somebody for in sync who is
not.

The rules are those of the cluster, asked all the time; at the end everything comes to rest, and what was acknowledged is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Final

from ottla.errors import ErrorCode
from ottla.ports import Delete
from ottla.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.registry import API_BY_NAME
from ottla.records.batch import read_batch_header
from ottla.records.record import build_batch, read_records
from ottla.sim.actors.play import Actor, NoAnswer
from ottla.sim.kernel.machine import START_MS
from ottla.sim.kernel.node import Node
from ottla.sim.models.checkers import Violation, require, stored_batches
from ottla.sim.models.cluster_rules import PartitionState
from ottla.sim.worlds.cluster_world import ClusterWorld

TOPIC: Final = "late"
SESSION_S: Final = 20.0
"""Longer than anything in a story: nobody loses a session but by its decision."""
MIN_ISR_1: Final = MappingProxyType({"min.insync.replicas": "1"})
WAIT_S: Final = 90.0
AFTERWARDS_S: Final = 2.0


class LateWorld(ClusterWorld):
    def __init__(self, seed: int, *, echo: Callable[[str], None] | None = None) -> None:
        super().__init__(seed, echo=echo)
        self.lossy = self.rules.lossy = False
        self.tree.session_timeout_s = SESSION_S
        self._kept: list[bytes] = []
        """Values that were acknowledged by all in sync, of the topic there is now."""
        self._sent = 0

    def _properties(self) -> dict[str, str]:
        story = {
            "zookeeper.session.timeout.ms": str(int(SESSION_S * 1000)),
            "unclean.leader.election.enable": "false",
            "replica.lag.time.max.ms": "1500",
        }
        return super()._properties() | story

    async def _main(self) -> None:
        rng = self.rng
        await asyncio.gather(*(node.start() for node in self.nodes))
        await self._until(lambda: self._controller() is not None, "somebody is the controller")
        await rng.choice(self._stories())()
        await self._pass_time(AFTERWARDS_S)
        await self._calm()
        await self._until(lambda: not self.rules.unsettled(), lambda: f"settled: {self.rules.unsettled()}")
        self.rules.check()
        self.rules.check_logs(whole=True)
        self._check_kept()
        self._complaints.check()

    # --- the stories

    def _stories(self) -> Sequence[Callable[[], Awaitable[None]]]:
        return self._late_farewell, self._late_wish, self._late_write, self._late_fetch

    async def _late_farewell(self) -> None:
        """An order to delete a replica reaches it when there is another topic of that name: of a controller that was replaced
        meanwhile (C02), meant for a former life of the broker (C03), or of the same controller, told again on another connection
        since. Or it is only the word that the topic is gone."""
        target, other = self._others(self._office())
        controller = self._office()
        await self._create(target, other)
        then = self.rng.choice(("another controller", "another life", "nothing"))
        late = API_BY_NAME["update_metadata" if then == "nothing" and self.rng.random() < 0.4 else "stop_replica"].key
        held = self.network.hold_mail(controller.host, target.host, late)
        await self._delete()
        await self._until(lambda: self._is_gone(target, other), "the topic is gone")
        if then == "another controller":
            await self._replace_controller(controller)
        elif then == "another life":
            self.trace.add(f"{target.host} loses its session")
            epoch = target.broker.broker_epoch if target.broker is not None else -1
            self.tree.lose_sessions_of(target.host)
            await self._until(lambda: target.broker is not None and target.broker.broker_epoch > epoch, "it is registered anew")
        await self._create(target, other)
        await self._produce()
        self.trace.add(f"{target.host} gets the order to delete")
        self.network.let_go(held)

    async def _late_wish(self) -> None:
        """A leader's wish to have a follower in sync reaches the controller when the follower has left again (C05, C06)."""
        controller = self._office()
        leader, follower = self._others(controller)
        await self._create(leader, follower)
        await self._produce()
        with self._cut(leader, follower):
            await self._produce_one(b"one has it", acks=1)
            await self._until(lambda: self._isr() == {leader.number}, "the follower has left")
        held = self.network.hold_mail(leader.host, controller.host, API_BY_NAME["alter_partition"].key)
        await self._until(lambda: self._isr() == {leader.number, follower.number}, "the follower is back")
        with self._cut(leader, follower):
            await self._produce_one(b"one has it", acks=1)
            await self._until(lambda: self._isr() == {leader.number}, "the follower has left again")
            await self._produce()
            self.trace.add(f"{controller.host} gets the first wish")
            self.network.let_go(held)
            await self._pass_time(AFTERWARDS_S)

    async def _late_write(self) -> None:
        """A controller is out of touch with the store, not long enough to lose its session; somebody takes the office away from
        it, as Kafka's manual advises. What it meant to write arrives when it is in touch again (C02)."""
        controller = self._office()
        one, other = self._others(controller)
        await self._create(one, other)
        self.trace.add(f"{controller.host} does not reach the store")
        controller.cut_store()
        asked = self.loop.create_task(self._delete(once=controller))
        await self._pass_time(0.3)
        self.trace.add("somebody removes /controller")
        self.tree.multi([Delete("/controller")], object())
        await self._until(lambda: self._controller() not in (None, controller), "another one is the controller")
        await self._delete()
        await self._until(lambda: self._is_gone(one, other), "the topic is gone")
        await self._create(one, other)
        await self._produce()
        self.trace.add(f"{controller.host} reaches the store again")
        controller.heal_store()
        await asked

    async def _late_fetch(self) -> None:
        """A follower's fetch, which says how far it is, reaches the leader two epochs later: the follower was cut back meanwhile,
        and what the leader has there is something else (R08)."""
        leader, other = self._others(self._office())
        follower = self.rng.choice([node for node in self.nodes if node not in (leader, other)])
        await self._create(leader, other, follower)
        await self._produce()
        with self._cut(leader, other):
            held = self.network.hold_mail(follower.host, leader.host, API_BY_NAME["fetch"].key)
            await self._produce_one(b"two have it", acks=1)
            end_offset = self._replica(leader).log.log_end_offset
            await self._until(lambda: self._replica(follower).log.log_end_offset >= end_offset, "the follower has it")
            deposed = await self._depose(leader, other)
        await self._until(lambda: not self.rules.unsettled(), lambda: f"settled: {self.rules.unsettled()}")
        if not deposed or not await self._depose(other, leader):
            self.trace.add("somebody else leads: this story cannot be told")
            self.network.let_go(held)
            return
        await self._until(lambda: not self.rules.unsettled(), lambda: f"settled: {self.rules.unsettled()}")
        self.trace.add(f"{follower.host} hears nothing of {leader.host}")
        self.network.block(leader.host, follower.host)
        sending = self.loop.create_task(self._produce())
        await self._until(lambda: self._replica(other).log.log_end_offset >= end_offset, "the other follower has something else")
        self.trace.add(f"{leader.host} gets the fetch")
        self.network.let_go(held)
        await self._pass_time(AFTERWARDS_S)
        self.network.heal()
        await sending

    async def _depose(self, leader: Node, successor: Node) -> bool:
        """Whether it is the successor who leads then: it may have been slow, and have left the in-sync replicas; with all of them
        gone from there the former leader leads on, in another epoch."""
        self.trace.add(f"{leader.host}, the leader, loses its session")
        before = self.rules.state((TOPIC, 0))
        self.tree.lose_sessions_of(leader.host)

        def has_moved() -> bool:
            state = self.rules.state((TOPIC, 0))
            assert before is not None
            return state is not None and state.leader != -1 and state.leader_epoch > before.leader_epoch

        await self._until(has_moved, "somebody leads, in another epoch")
        state = self.rules.state((TOPIC, 0))
        return state is not None and state.leader == successor.number

    # --- what happens in them

    def _controller(self) -> Node | None:
        """The one whose office the tree says it is."""
        node = self.tree.get("/controller")
        found = [each for each in self.nodes if node is not None and f'"brokerid":{each.number},'.encode() in node.data]
        return found[0] if found else None

    def _office(self) -> Node:
        found = self._controller()
        assert found is not None
        return found

    def _others(self, controller: Node) -> list[Node]:
        return self.rng.sample([node for node in self.nodes if node is not controller], 2)

    async def _replace_controller(self, controller: Node) -> None:
        self.trace.add(f"{controller.host}, the controller, loses its session")
        before = self.tree.get("/controller_epoch")
        self.tree.lose_sessions_of(controller.host)

        def is_new() -> bool:
            after = self.tree.get("/controller_epoch")
            assert before is not None
            assert after is not None
            return after.version > before.version and not self.rules.unsettled()

        await self._until(is_new, "there is a new term")

    @contextmanager
    def _cut(self, one: Node, other: Node) -> Any:
        self.trace.add(f"cut {one.host} from {other.host}")
        for way in ((one.host, other.host), (other.host, one.host)):
            self.network.block(*way)
        try:
            yield
        finally:
            self.network.heal()
            self.trace.add(f"healed {one.host} and {other.host}")

    def _isr(self) -> set[int]:
        state = self.rules.state((TOPIC, 0))
        return set(state.isr) if state is not None else set()

    def _replica(self, node: Node) -> Any:
        partitions = node.broker.partitions if node.broker is not None else ()
        return next((each for each in partitions if each.topic_partition.topic == TOPIC), None)

    def _is_gone(self, *nodes: Node) -> bool:
        """From its brokers and from the tree: until then it may be said to exist already."""
        return self.tree.get(f"/brokers/topics/{TOPIC}") is None and all(self._replica(node) is None for node in nodes)

    async def _until(
        self, condition: Callable[[], object], what: str | Callable[[], str], limit_s: float = WAIT_S, *, rule: str = "settles"
    ) -> None:
        end_s = self.loop.time() + limit_s
        while not condition():
            require(self.loop.time() < end_s, rule, f"not in {limit_s} s: {what if isinstance(what, str) else what()}")
            await self._step()

    async def _pass_time(self, seconds: float) -> None:
        end_s = self.loop.time() + seconds
        while self.loop.time() < end_s:
            await self._step()

    async def _create(self, *nodes: Node, config: Mapping[str, str] = MIN_ISR_1, await_all: bool = True) -> None:
        assigned = CreatableReplicaAssignment(partition_index=0, broker_ids=[node.number for node in nodes])
        configs = [CreatableTopicConfig(name=name, value=value) for name, value in {**MIN_ISR_1, **config}.items()]
        topic = CreatableTopic(name=TOPIC, num_partitions=-1, replication_factor=-1, assignments=[assigned], configs=configs)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=3000)
        exists = ErrorCode.TOPIC_ALREADY_EXISTS
        self._kept.clear()
        await self._ask("create_topics", 7, request, lambda found: found.topics[0].error_code, exists)
        enough = all if await_all else any
        await self._until(lambda: enough(self._replica(node) is not None for node in nodes), "the topic is there")
        self.trace.add(f"the topic is on {', '.join(node.host for node in nodes)}")

    async def _delete(self, once: Node | None = None) -> None:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=TOPIC)], timeout_ms=3000)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await self._ask("delete_topics", 6, request, lambda found: found.responses[0].error_code, unknown, once)

    async def _ask(
        self, api: str, version: int, request: object, code_of: Callable[[Any], int], done: ErrorCode, once: Node | None = None
    ) -> None:
        """Of whoever does it, until it is done; `done` says that an earlier try has done it. `once`: of this one, one time."""

        async def act(actor: Actor) -> None:
            if once is not None:
                try:
                    await actor.call(("127.0.0.1", once.port), api, version, request)
                except NoAnswer:
                    pass
                return
            while True:
                try:
                    # Nobody shall hear of it later: it is by name, and there will be another topic of that name.
                    whom = actor.rng.choice([node for node in self.nodes if not node.cut_from_store])
                    found = await actor.call(("127.0.0.1", whom.port), api, version, request, late_ok=False)
                    if code_of(found) in (ErrorCode.NONE, done):
                        return
                except NoAnswer:
                    pass
                await actor.backoff()

        await self._alone("admin", act)

    async def _produce(self) -> None:
        """With acks=all, to whoever leads."""
        for _ in range(self.rng.choice((1, 3))):
            self._sent += 1
            await self._produce_one(b"%d" % self._sent)
            self._kept.append(b"%d" % self._sent)

    async def _produce_one(self, value: bytes, acks: int = -1) -> None:
        async def act(actor: Actor) -> None:
            while True:
                state = self.rules.state((TOPIC, 0))
                if state is not None and state.leader >= 0:
                    request = self._produce_request(state, value, acks)
                    port = next(node.port for node in self.nodes if node.number == state.leader)
                    try:
                        found = await actor.call(("127.0.0.1", port), "produce", 13, request)
                        if found.responses[0].partition_responses[0].error_code == ErrorCode.NONE:
                            return
                    except NoAnswer:
                        pass
                await actor.backoff()

        await self._alone("producer", act)

    @staticmethod
    def _produce_request(state: PartitionState, value: bytes, acks: int, timeout_ms: int = 3000) -> ProduceRequest:
        data = PartitionProduceData(index=0, records=build_batch([(None, value, (), START_MS)]))
        topic = TopicProduceData(name=TOPIC, topic_id=state.topic_id, partition_data=[data])
        return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[topic])

    def _check_kept(self) -> None:
        require(self.rules.state((TOPIC, 0)) is not None, "topic-lost", "the topic that was made last is gone, and nobody asked")
        for node in self.nodes:
            replica = self._replica(node)
            if replica is None:
                continue
            found = set()
            for batch in stored_batches(node.disk, replica.log.dir):
                found |= {bytes(each.value or b"") for each in read_records(batch.data, read_batch_header(batch.data, 0))}
            missing = [value for value in self._kept if value not in found]
            if missing:
                raise Violation("lost write", f"{node.host} lacks {missing}, which all in sync had")
