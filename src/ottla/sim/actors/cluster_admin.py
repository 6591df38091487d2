"""Administrators of a failing cluster: they reassign, elect preferred leaders, create, extend and delete topics, alter configs.

Owns: requests to the controller, and guests: topics that are created, extended, deleted and created again under the same name,
with their writers, and what was acknowledged of each (by topic id).
Never: waits for a request to take effect before it sends the next.

1. Acknowledged records of a topic that exists are there, at their offsets; a topic has no records of an earlier one of its name.
2. A topic is deleted only on request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from ottla.errors import ErrorCode
from ottla.ports import Network
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records.record import build_batch
from ottla.sim.actors.play import Actor, NoAnswer, Play
from ottla.sim.kernel.machine import START_MS
from ottla.sim.kernel.process import Process
from ottla.sim.models.history import Place
from ottla.sim.violation import require

GUESTS: Final = ("guest-0", "guest-1")
PARTITIONS_MAX: Final = 3
TOPIC_RESOURCE: Final = 2
SET, DELETE = 0, 1
VALUE_SEPARATOR: Final = b"/"


class Guests:
    """What is known of topics that come and go."""

    def __init__(self) -> None:
        self.acknowledged: dict[bytes, dict[Place, dict[int, bytes]]] = {}
        """By topic id and partition: acknowledged values by offset."""
        self.names: dict[bytes, str] = {}
        self.deletions: set[str] = set()
        """Names whose deletion was requested."""

    def stored(self, topic_id: bytes, place: Place, offset: int, value: bytes) -> None:
        self.acknowledged.setdefault(topic_id, {}).setdefault(place, {})[offset] = value

    def check(self, place: Place, topic_id: bytes, found: dict[int, bytes]) -> None:
        """Compare the records of a partition with what was acknowledged."""
        name = f"{place[0]}-{place[1]}"
        for offset, value in found.items():
            require(
                value.startswith(topic_id.hex().encode()),
                "topic-id",
                f"{name} {topic_id.hex()}: at {offset} is {value!r}, written to another topic of that name",
            )
        for offset, value in self.acknowledged.get(topic_id, {}).get(place, {}).items():
            require(
                found.get(offset) == value,
                "lost write",
                f"{name}: {value!r} was acknowledged at {offset}, {found.get(offset)!r} is there",
            )

    def check_gone(self, there: set[bytes]) -> None:
        for topic_id, name in self.names.items():
            require(
                topic_id in there or name in self.deletions,
                "topic-lost",
                f"{name} {topic_id.hex()} is gone, and nobody deleted it",
            )


class Visitor(Actor):
    """Writes to the guests there are. Never sends a record twice."""

    guests: Guests

    async def run(self) -> None:
        while True:
            await self._write(self.rng.choice(GUESTS))
            await asyncio.sleep(self.rng.random() * 0.5)

    async def _write(self, name: str) -> None:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
        response = await self.any_broker("metadata", 12, request)
        topic = response.topics[0]
        addresses = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        led = [each for each in topic.partitions if each.leader_id in addresses]
        if topic.error_code or not led:
            return
        partition = self.rng.choice(led)
        topic_id = bytes(topic.topic_id)
        self.guests.names.setdefault(topic_id, name)
        value = topic_id.hex().encode() + VALUE_SEPARATOR + self.play.next_value()
        now_ms = START_MS + int(self.play.now_s() * 1000)
        data = PartitionProduceData(index=partition.partition_index, records=build_batch([(None, value, (), now_ms)]))
        produce = ProduceRequest(
            acks=-1, timeout_ms=3_000, topic_data=[TopicProduceData(name=name, topic_id=topic_id, partition_data=[data])]
        )
        try:
            # By topic id: a late request does not reach the next topic of that name.
            answer = await self.call(addresses[partition.leader_id], "produce", 13, produce)
        except NoAnswer:
            return
        found = answer.responses[0].partition_responses[0]
        place = name, partition.partition_index
        if self.expect(found.error_code, f"visit {name}-{place[1]}", ErrorCode.INCONSISTENT_TOPIC_ID) == 0:
            self.guests.stored(topic_id, place, found.base_offset, value)
            self.note(f"visits {name}-{place[1]} at {found.base_offset}")


class Administrator(Actor):
    """One administrative request after the other."""

    def __init__(self, name: str, play: Play, network: Network, process: Process) -> None:
        super().__init__(name, play, network, process)
        self.guests: Guests | None = None
        """None: no topics come and go."""
        self.moves = False
        self.alters = False
        self.broker_ids: Sequence[int] = ()
        self.replicas_min = 1

    async def run(self) -> None:
        acts = [self._move, self._move, self._move_all, self._cancel, self._prefer] if self.moves else []
        if self.guests is not None:
            acts += [self._create, self._create, self._extend, self._delete]
        if self.alters:
            acts += [self._alter, self._alter]
        while True:
            await asyncio.sleep(self.rng.choice((0.3, 1.0, 3.0)) * (0.5 + self.rng.random()))
            try:
                await self.rng.choice(acts)()
            except NoAnswer:
                pass

    async def _ask(self, api: str, version: int, request: object) -> Any:
        """Ask the controller, if this broker knows it; now and then another broker."""
        response = await self.any_broker("metadata", 12, MetadataRequest(topics=[]))
        addresses = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        address = addresses.get(response.controller_id)
        if address is None or self.rng.random() < 0.1:
            address = self.rng.choice(self.play.brokers)
        return await self.call(address, api, version, request)

    # --- replicas

    async def _places(self) -> list[Place]:
        response = await self.any_broker("metadata", 12, MetadataRequest(topics=None))
        return sorted((topic.name, each.partition_index) for topic in response.topics for each in topic.partitions)

    async def _move(self) -> None:
        places = await self._places()
        if places:
            await self._reassign([self.rng.choice(places)], cancel=False)

    async def _move_all(self) -> None:
        await self._reassign(await self._places(), cancel=False)

    async def _cancel(self) -> None:
        await self._reassign(await self._places(), cancel=True)

    async def _reassign(self, places: Sequence[Place], *, cancel: bool) -> None:
        rng = self.rng
        topics: dict[str, list[ReassignablePartition]] = {}
        for name, index in places:
            count = rng.randint(self.replicas_min, min(len(self.broker_ids), self.replicas_min + 2))
            target = None if cancel else rng.sample(list(self.broker_ids), count)
            topics.setdefault(name, []).append(ReassignablePartition(partition_index=index, replicas=target))
        asked = [ReassignableTopic(name=name, partitions=found) for name, found in topics.items()]
        self.note(f"{'stops the moves of' if cancel else 'moves'} {self._shown(asked)}")
        request = AlterPartitionReassignmentsRequest(timeout_ms=3000, topics=asked)
        response = await self._ask("alter_partition_reassignments", 0, request)
        self.expect(response.error_code, "reassign")
        for topic in response.responses:
            for each in topic.partitions:
                self.expect(
                    each.error_code,
                    f"reassign {topic.name}-{each.partition_index}",
                    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                )

    @staticmethod
    def _shown(asked: Sequence[ReassignableTopic]) -> str:
        return ", ".join(
            f"{topic.name}-{each.partition_index} to {each.replicas}" for topic in asked for each in topic.partitions
        )

    async def _prefer(self) -> None:
        request = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=3000)
        response = await self._ask("elect_leaders", 2, request)
        self.note(f"asks preferred leaders back: {ErrorCode(response.error_code).name}")
        self.expect(response.error_code, "elect")

    async def _alter(self) -> None:
        """Ask any broker; the others learn of it from the tree."""
        rng = self.rng
        topic = rng.choice([*self.play.topics, *(GUESTS if self.guests is not None else ())])
        name, value = rng.choice((("segment.bytes", "1000"), ("segment.bytes", "50000"), ("max.message.bytes", "500000")))
        config = AlterableConfig(name=name, config_operation=rng.choice((SET, SET, DELETE)), value=value)
        resource = AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic, configs=[config])
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        response = await self.any_broker("incremental_alter_configs", 1, request)
        code = self.expect(response.responses[0].error_code, f"alter {topic}")
        self.note(f"alters {name} of {topic}: {code.name}")

    # --- guests

    async def _create(self) -> None:
        rng = self.rng
        name = rng.choice(GUESTS)
        creatable = CreatableTopic(
            name=name,
            num_partitions=rng.randint(1, PARTITIONS_MAX - 1),
            replication_factor=rng.randint(self.replicas_min, min(3, len(self.broker_ids))),
            configs=[CreatableTopicConfig(name="segment.bytes", value=rng.choice(("400", "100000")))],
        )
        response = await self._ask("create_topics", 7, CreateTopicsRequest(topics=[creatable], timeout_ms=3000))
        made = response.topics[0]
        if self.expect(made.error_code, f"create {name}", ErrorCode.TOPIC_ALREADY_EXISTS) == 0:
            assert self.guests is not None
            self.guests.names[bytes(made.topic_id)] = name
            self.note(f"creates {name} {bytes(made.topic_id).hex()}")

    async def _extend(self) -> None:
        name = self.rng.choice(GUESTS)
        topic = CreatePartitionsTopic(name=name, count=PARTITIONS_MAX, assignments=None)
        response = await self._ask("create_partitions", 3, CreatePartitionsRequest(topics=[topic], timeout_ms=3000))
        code = response.results[0].error_code
        found = self.expect(code, f"extend {name}", ErrorCode.INVALID_PARTITIONS, ErrorCode.REASSIGNMENT_IN_PROGRESS)
        self.note(f"extends {name}: {found.name}")

    async def _delete(self) -> None:
        assert self.guests is not None
        name = self.rng.choice(GUESTS)
        self.guests.deletions.add(name)
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=3000)
        response = await self._ask("delete_topics", 6, request)
        self.note(f"deletes {name}: {self.expect(response.responses[0].error_code, f'delete {name}').name}")
