"""A quiet cluster with one topic, for a story: one thing happens to it, and what must follow is known.

Owns: the topic, the steps a story is made of (create, produce, cut, depose, reassign), the acknowledged values, and how a story
is told: start the cluster, tell it, heal everything, check. A story is a function that takes the stage; the stories are in
`ottla.sim.worlds.stories`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Final

from ottla.errors import ErrorCode
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records.batch import read_batch_header
from ottla.records.record import build_batch, read_records
from ottla.sim.actors.play import Actor, NoAnswer
from ottla.sim.kernel.machine import START_MS
from ottla.sim.kernel.node import Node
from ottla.sim.models.cluster_rules import PartitionState
from ottla.sim.models.log_files import stored_batches
from ottla.sim.violation import Violation, require
from ottla.sim.worlds.cluster_harness import ClusterHarness

TOPIC: Final = "late"
PLACE: Final = (TOPIC, 0)
SESSION_S: Final = 20.0
"""Longer than anything in a story: no session expires but by the story's decision."""
SETTINGS: Final = MappingProxyType(
    {
        "zookeeper.session.timeout.ms": str(int(SESSION_S * 1000)),
        "unclean.leader.election.enable": "false",
        "replica.lag.time.max.ms": "1500",
    }
)
MIN_ISR_1: Final = MappingProxyType({"min.insync.replicas": "1"})
LATEST: Final = -1
SET: Final = 0
SOON_S: Final = 30.0
QUIET_S: Final = 5.0
AFTERWARDS_S: Final = 2.0


class StoryStage:
    def __init__(self, cluster: ClusterHarness) -> None:
        self.cluster = cluster
        cluster.lossy = False
        cluster.tree.session_timeout_s = SESSION_S
        self.acknowledged: list[bytes] = []
        """Values that were acknowledged with acks=all, of the topic there is now."""
        self.sent = 0
        self.was_leaderless = False
        """The topic had no leader at some time since a story last set this to False."""
        self._on_change = cluster.tree.on_change
        cluster.tree.on_change = self._tree_changed
        # What stories use all the time.
        self.rng = cluster.rng
        self.loop = cluster.loop
        self.trace = cluster.trace
        self.network = cluster.network
        self.tree = cluster.tree
        self.nodes = cluster.nodes
        self.rules = cluster.rules
        self.until = cluster.until
        self.until_settled = cluster.until_settled
        self.pass_time = cluster.pass_time
        self.start = cluster.start
        self.alone = cluster.alone

    def _tree_changed(self, paths: list[str]) -> None:
        self._on_change(paths)
        state = self.rules.state(PLACE)
        self.was_leaderless |= state is not None and state.leader < 0

    async def tell(self, stories: Sequence[Story], *, title: str = "") -> None:
        """One of the stories, from the start of the cluster to the last check."""
        cluster = self.cluster
        await cluster.start_all()
        await self.until(lambda: self.find_controller() is not None, "there is a controller")
        if title:
            self.trace.add(title)
        await self.rng.choice(stories)(self)
        await self.pass_time(AFTERWARDS_S)
        await cluster.calm()
        await self.until_settled()
        self.rules.check()
        self.rules.check_logs(whole=True)
        self.check_acknowledged()
        cluster.complaints.check()

    # --- the brokers

    def find_controller(self) -> Node | None:
        """The broker that `/controller` names."""
        node = self.tree.get("/controller")
        found = [each for each in self.nodes if node is not None and f'"brokerid":{each.number},'.encode() in node.data]
        return found[0] if found else None

    def controller(self) -> Node:
        found = self.find_controller()
        assert found is not None
        return found

    def two_others(self, controller: Node) -> list[Node]:
        return self.rng.sample([node for node in self.nodes if node is not controller], 2)

    def three(self) -> list[Node]:
        controller = self.controller()
        found = self.two_others(controller)
        return [*found, self.rng.choice([node for node in self.nodes if node not in found])]

    async def replace_controller(self, controller: Node) -> None:
        self.trace.add(f"{controller.host}, the controller, loses its session")
        before = self.tree.get("/controller_epoch")
        self.tree.lose_sessions_of(controller.host)

        def is_new() -> bool:
            after = self.tree.get("/controller_epoch")
            assert before is not None
            assert after is not None
            return after.version > before.version and not self.rules.unsettled()

        await self.until(is_new, "there is a new term")

    async def depose(self, leader: Node, successor: Node) -> bool:
        """End the leader's session. Returns whether the successor leads then.

        The successor may have been slow and have left the ISR; if all others have, the old leader leads on in another epoch.
        """
        self.trace.add(f"{leader.host}, the leader, loses its session")
        before = self.rules.state(PLACE)
        self.tree.lose_sessions_of(leader.host)

        def has_moved() -> bool:
            state = self.rules.state(PLACE)
            assert before is not None
            return state is not None and state.leader != -1 and state.leader_epoch > before.leader_epoch

        await self.until(has_moved, "somebody leads, in another epoch")
        state = self.rules.state(PLACE)
        return state is not None and state.leader == successor.number

    @contextmanager
    def cut(self, one: Node, other: Node) -> Any:
        self.trace.add(f"cut {one.host} from {other.host}")
        for way in ((one.host, other.host), (other.host, one.host)):
            self.network.block(*way)
        try:
            yield
        finally:
            self.network.heal()
            self.trace.add(f"healed {one.host} and {other.host}")

    # --- the topic

    def state(self) -> PartitionState:
        state = self.rules.state(PLACE)
        assert state is not None
        return state

    def isr(self) -> set[int]:
        state = self.rules.state(PLACE)
        return set(state.isr) if state is not None else set()

    def replica(self, node: Node) -> Any:
        partitions = node.broker.partitions if node.broker is not None else ()
        return next((each for each in partitions if each.topic_partition.topic == TOPIC), None)

    def is_gone(self, *nodes: Node) -> bool:
        """From these brokers and from the tree: only then can a topic of that name be created again."""
        return self.tree.get(f"/brokers/topics/{TOPIC}") is None and all(self.replica(node) is None for node in nodes)

    async def create(self, *nodes: Node, config: Mapping[str, str] = MIN_ISR_1, await_all: bool = True) -> None:
        assigned = CreatableReplicaAssignment(partition_index=0, broker_ids=[node.number for node in nodes])
        configs = [CreatableTopicConfig(name=name, value=value) for name, value in {**MIN_ISR_1, **config}.items()]
        topic = CreatableTopic(name=TOPIC, num_partitions=-1, replication_factor=-1, assignments=[assigned], configs=configs)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=3000)
        exists = ErrorCode.TOPIC_ALREADY_EXISTS
        self.acknowledged.clear()
        await self.ask("create_topics", 7, request, lambda found: found.topics[0].error_code, exists)
        enough = all if await_all else any
        await self.until(lambda: enough(self.replica(node) is not None for node in nodes), "the topic is there")
        self.trace.add(f"the topic is on {', '.join(node.host for node in nodes)}")

    async def delete(self, once: Node | None = None) -> None:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=TOPIC)], timeout_ms=3000)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await self.ask("delete_topics", 6, request, lambda found: found.responses[0].error_code, unknown, once)

    async def reassign(self, target: Sequence[int] | None) -> None:
        asked = ReassignablePartition(partition_index=0, replicas=None if target is None else list(target))
        topic = ReassignableTopic(name=TOPIC, partitions=[asked])
        request = AlterPartitionReassignmentsRequest(timeout_ms=3000, topics=[topic])

        def code_of(found: Any) -> int:
            return int(found.error_code or found.responses[0].partitions[0].error_code)

        await self.ask("alter_partition_reassignments", 0, request, code_of, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)

    async def alter_config(self, node: Node, resource_type: int, resource: str, name: str, value: int) -> None:
        config = AlterableConfig(name=name, config_operation=SET, value=str(value))
        asked = AlterConfigsResource(resource_type=resource_type, resource_name=resource, configs=[config])
        request = IncrementalAlterConfigsRequest(resources=[asked], validate_only=False)
        code = ErrorCode((await self.call(node, "incremental_alter_configs", 1, request)).responses[0].error_code)
        self.trace.add(f"{node.host} sets {name} of {resource or 'all brokers'} to {value}: {code.name}")
        require(code == ErrorCode.NONE, "error", f"{name} cannot be altered: {code.name}")

    def check_acknowledged(self) -> None:
        require(self.rules.state(PLACE) is not None, "topic-lost", "the last topic is gone, and nobody deleted it")
        for node in self.nodes:
            replica = self.replica(node)
            if replica is None:
                continue
            found = set()
            for batch in stored_batches(node.disk, replica.log.dir):
                found |= {bytes(each.value or b"") for each in read_records(batch.data, read_batch_header(batch.data, 0))}
            missing = [value for value in self.acknowledged if value not in found]
            if missing:
                raise Violation("lost write", f"{node.host} lacks {missing}, which were acknowledged with acks=all")

    # --- requests

    async def produce(self) -> None:
        """One or three records with acks=all, to the leader."""
        for _ in range(self.rng.choice((1, 3))):
            self.sent += 1
            await self.produce_one(b"%d" % self.sent)
            self.acknowledged.append(b"%d" % self.sent)

    async def produce_one(self, value: bytes, acks: int = -1) -> None:
        async def act(actor: Actor) -> None:
            while True:
                state = self.rules.state(PLACE)
                if state is not None and state.leader >= 0:
                    request = self.produce_request(state, value, acks)
                    port = next(node.port for node in self.nodes if node.number == state.leader)
                    try:
                        found = await actor.call(("127.0.0.1", port), "produce", 13, request)
                        if found.responses[0].partition_responses[0].error_code == ErrorCode.NONE:
                            return
                    except NoAnswer:
                        pass
                await actor.backoff()

        await self.alone("producer", act)

    async def send(self, node: Node, value: bytes, *, acks: int, timeout_ms: int = 3000) -> ErrorCode:
        request = self.produce_request(self.state(), value, acks, timeout_ms)
        answer = await self.call(node, "produce", 13, request)
        return ErrorCode(answer.responses[0].partition_responses[0].error_code)

    async def send_many(self, node: Node, count: int) -> None:
        """At once, faster than a follower could fetch them one by one."""

        async def act(actor: Actor) -> None:
            require(await actor.reach(("127.0.0.1", node.port)), "hang", f"{node.host} is out of reach")
            connection = await actor._connection(("127.0.0.1", node.port))
            requests = [self.produce_request(self.state(), b"%d" % number * 150, 1) for number in range(count)]
            await asyncio.gather(*(connection.send("produce", 13, request) for request in requests))

        await self.alone("producer", act)

    @staticmethod
    def produce_request(state: PartitionState, value: bytes, acks: int, timeout_ms: int = 3000) -> ProduceRequest:
        data = PartitionProduceData(index=0, records=build_batch([(None, value, (), START_MS)]))
        topic = TopicProduceData(name=TOPIC, topic_id=state.topic_id, partition_data=[data])
        return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[topic])

    async def fetch(self, node: Node, offset: int, rack: str) -> Any:
        asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=100_000)
        topic = FetchTopic(topic=TOPIC, topic_id=self.state().topic_id, partitions=[asked])
        request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=100_000, session_epoch=-1, topics=[topic], rack_id=rack)
        return (await self.call(node, "fetch", 13, request)).responses[0].partitions[0]

    async def latest_offset(self, node: Node, version: int) -> tuple[ErrorCode, int]:
        topic = ListOffsetsTopic(name=TOPIC, partitions=[ListOffsetsPartition(partition_index=0, timestamp=LATEST)])
        answer = await self.call(node, "list_offsets", version, ListOffsetsRequest(replica_id=-1, topics=[topic]))
        found = answer.topics[0].partitions[0]
        return ErrorCode(found.error_code), found.offset

    async def ask(
        self, api: str, version: int, request: object, code_of: Callable[[Any], int], done: ErrorCode, once: Node | None = None
    ) -> None:
        """Ask any broker until it is done. `done` is the error that says that an earlier try was successful.

        `once`: ask this broker, one time, and whatever it answers.
        """

        async def act(actor: Actor) -> None:
            if once is not None:
                try:
                    await actor.call(("127.0.0.1", once.port), api, version, request)
                except NoAnswer:
                    pass
                return
            while True:
                try:
                    # It must not arrive late: it goes by name, and there will be another topic of that name.
                    whom = actor.rng.choice([node for node in self.nodes if not node.cut_from_store])
                    found = await actor.call(("127.0.0.1", whom.port), api, version, request, late_ok=False)
                    if code_of(found) in (ErrorCode.NONE, done):
                        return
                except NoAnswer:
                    pass
                await actor.backoff()

        await self.alone("admin", act)

    async def call(self, node: Node, api: str, version: int, request: object) -> Any:
        """Ask one broker, again while there is no answer."""

        async def act(actor: Actor) -> Any:
            while True:
                try:
                    return await actor.call(("127.0.0.1", node.port), api, version, request, patience_s=120.0)
                except NoAnswer:
                    await actor.backoff()

        return await self.cluster.scene.alone("somebody", act)


Story = Callable[[StoryStage], Awaitable[None]]
