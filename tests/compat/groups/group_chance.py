"""A dialogue of a classic group with its coordinator that a seed decides: what members do, and much that none should.

Two brokers that answer alike are asked alike. What waits for others (JoinGroup, SyncGroup) is only asked together with what ends
the wait, so no clock plays a part: that a rebalance has begun is seen by a heartbeat. Member ids are told apart, not compared.
"""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from ottla.client.connection import ClientConnection
from ottla.errors import ErrorCode
from ottla.metrics import Counters
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.runtime.network import RealNetwork
from tests.kit.router import Router
from tests.kit.wait import until_async

STEPS = 25
PATIENCE_S = 120.0
TIMEOUT_MS = 600_000  # no member shall be gone before the end

Protocols = tuple[tuple[str, bytes], ...]
Connection = ClientConnection | Router


def subscription(topics: Collection[str], more: bytes = b"") -> bytes:
    """What a consumer says of itself when it joins."""
    data = struct.pack(">hi", 0, len(topics))
    for topic in topics:
        data += struct.pack(">h", len(topic)) + topic.encode()
    return data + struct.pack(">i", len(more)) + more


@dataclass
class Member:
    connection: Connection
    member_id: str
    instance_id: str | None
    protocols: Protocols
    former_ids: list[str] = field(default_factory=list)


class Party:
    def __init__(self, host: str, port: int, seed: int, *, routed: bool = False) -> None:
        """`routed`: there are several brokers."""
        self.host, self.port, self.routed = host, port, routed
        self.chance = random.Random(seed)
        self.group, self.topic = f"party-{seed}", f"party-topic-{seed}"
        self.said: list[str] = []
        self.members: list[Member] = []
        self.gone: list[str] = []
        self.generation = 0
        self.leader = self.protocol = ""
        self.synced = False
        self.names: dict[str, str] = {"": "-"}
        self.connections: list[Connection] = []
        self.spare: list[Connection] = []
        self.instances = 0

    async def connect(self) -> Connection:
        connection: Connection
        if self.routed:
            connection = await Router.open(self.host, self.port, client_id="party")
        else:
            connection = await ClientConnection.open(RealNetwork(Counters()), self.host, self.port, client_id="party")
        self.connections.append(connection)
        return connection

    # Saying and hearing

    def name(self, member_id: str) -> str:
        return self.names.setdefault(member_id, f"m{len(self.names)}")

    def tell(self, what: str, code: int, *more: object) -> None:
        self.said.append(" ".join([f"{what}: {ErrorCode(code).name}", *(str(each) for each in more)]))

    async def ask(self, api: str, version: int, request: object) -> Any:
        return await self.admin.call(api, version, request)

    async def begin(self) -> None:
        self.admin = await self.connect()
        topic = CreatableTopic(name=self.topic, num_partitions=2, replication_factor=1)
        await self.ask("create_topics", 5, CreateTopicsRequest(topics=[topic], timeout_ms=20_000))
        await self.until(self._is_ready)

    async def _is_ready(self) -> bool:
        asked = ListOffsetsTopic(name=self.topic, partitions=[ListOffsetsPartition(partition_index=1, timestamp=-1)])
        known = await self.ask("list_offsets", 7, ListOffsetsRequest(replica_id=-1, topics=[asked]))
        found = await self.ask("find_coordinator", 4, FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group]))
        offsets = await self.ask(
            "offset_fetch", 8, OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=self.group, topics=None)])
        )
        return not (known.topics[0].partitions[0].error_code or found.coordinators[0].error_code or offsets.groups[0].error_code)

    async def until(self, condition: Callable[..., Awaitable[bool]], *args: object) -> None:
        await until_async(lambda: condition(*args), getattr(condition, "__name__", ""), PATIENCE_S, every_s=0.1)

    def close(self) -> None:
        for connection in self.connections:
            connection.close()

    # Members

    def protocols(self) -> Protocols:
        chance = self.chance
        metadata = subscription([self.topic], chance.choice((b"", b"x")))
        return chance.choice(
            ((("range", metadata),), (("range", metadata), ("sticky", metadata)), (("sticky", metadata), ("range", metadata)))
        )

    def join_request(self, member: Member, version: int, **fields: Any) -> JoinGroupRequest:
        wanted: dict[str, Any] = {
            "group_id": self.group,
            "session_timeout_ms": TIMEOUT_MS,
            "rebalance_timeout_ms": TIMEOUT_MS,
            "member_id": member.member_id,
            "protocol_type": "consumer",
            "protocols": [JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in member.protocols],
        }
        if version >= 5:
            wanted["group_instance_id"] = member.instance_id
        return JoinGroupRequest(**(wanted | fields))

    def join_version(self, member: Member) -> int:
        return self.chance.randint(5 if member.instance_id is not None else 0, 9)

    def send_join(self, member: Member, version: int) -> asyncio.Future[Any]:
        return member.connection.send("join_group", version, self.join_request(member, version))

    def heard_join(self, member: Member, version: int, answer: JoinGroupResponse) -> None:
        if not answer.error_code:
            if answer.member_id != member.member_id and member.member_id:
                member.former_ids.append(member.member_id)
            member.member_id = answer.member_id
            self.generation, self.leader, self.protocol = answer.generation_id, answer.leader, answer.protocol_name  # type: ignore[assignment]
        self.tell(
            f"join {self.name(member.member_id)} v{version}",
            answer.error_code,
            self.name(answer.member_id),
            answer.generation_id,
            answer.protocol_type,
            answer.protocol_name,
            f"leader {self.name(answer.leader)}",
            answer.skip_assignment,
            sorted((self.name(each.member_id), each.group_instance_id, bytes(each.metadata)) for each in answer.members),
        )

    async def until_rebalance(self, witness: Member) -> None:
        """Until the group is seen to rebalance by one that has not joined again."""
        request = HeartbeatRequest(group_id=self.group, generation_id=self.generation, member_id=witness.member_id)

        async def rebalances() -> bool:
            return bool((await self.ask("heartbeat", 2, request)).error_code == ErrorCode.REBALANCE_IN_PROGRESS)

        await until_async(rebalances, "a rebalance begins", PATIENCE_S, every_s=0.01)

    async def together(self, first: list[Member], first_version: int | None = None) -> None:
        """These join first; when that is seen to rebalance the group, something odd may be asked, and all others come."""
        others = [each for each in self.members if each not in first]
        sent = []
        for member in first:
            version = self.join_version(member) if first_version is None else first_version
            sent.append((member, version, self.send_join(member, version)))
        if others:
            await self.until_rebalance(others[0])
            while self.chance.random() < 0.6:
                await self.odd()
        for member in others:
            version = self.join_version(member)
            sent.append((member, version, self.send_join(member, version)))
        for member, version, answer in sent:
            self.heard_join(member, version, await asyncio.wait_for(answer, PATIENCE_S))
        self.members += [each for each in first if each not in self.members]
        self.synced = False

    async def enter(self) -> None:
        chance = self.chance
        instance_id = None
        if chance.random() < 0.4:
            self.instances += 1
            instance_id = f"i{self.instances}"
        member = Member(self.spare.pop() if self.spare else await self.connect(), "", instance_id, self.protocols())
        version = self.join_version(member)
        if instance_id is None and version >= 4:
            answer = await member.connection.call("join_group", version, self.join_request(member, version))
            self.heard_join(member, version, answer)
            member.member_id = answer.member_id
        await self.together([member], version)

    async def leave(self) -> None:
        chance, version = self.chance, self.chance.randint(0, 5)
        leaving = chance.sample(self.members, 1 if version < 3 else chance.randint(1, len(self.members)))
        if len(self.members) - len(leaving) > 1 and any(each.member_id == self.leader for each in leaving):
            return  # who is the next leader depends on the ids, which are chance
        if version < 3:
            request = LeaveGroupRequest(group_id=self.group, member_id=leaving[0].member_id)
        else:
            identities = [
                MemberIdentity(member_id="", group_instance_id=each.instance_id)
                if each.instance_id is not None and chance.random() < 0.5
                else MemberIdentity(member_id=each.member_id, group_instance_id=each.instance_id)
                for each in leaving
            ]
            if chance.random() < 0.4:
                identities.append(MemberIdentity(member_id=chance.choice(("nobody", *self.gone)), group_instance_id=None))
            if chance.random() < 0.2:
                identities.append(MemberIdentity(member_id="", group_instance_id="nothing"))
            if chance.random() < 0.2:
                identities.append(identities[0])
            request = LeaveGroupRequest(group_id=self.group, members=identities)
        await self.send_leave(version, request)
        for member in leaving:
            self.members.remove(member)
            self.gone += [member.member_id, *member.former_ids]
            self.spare.append(member.connection)
        if self.members:
            await self.together(list(self.members[:1]) if len(self.members) == 1 else [])

    async def send_leave(self, version: int, request: LeaveGroupRequest) -> None:
        answer = await self.ask("leave_group", version, request)
        self.tell(
            f"leave v{version} {[(self.name(each.member_id), each.group_instance_id) for each in request.members]}",
            answer.error_code,
            [(self.name(each.member_id), each.group_instance_id, ErrorCode(each.error_code).name) for each in answer.members],
        )

    async def change(self) -> None:
        """A member joins with other metadata; or the leader with the same."""
        chance = self.chance
        member = chance.choice(self.members)
        if chance.random() < 0.5:
            member = next(each for each in self.members if each.member_id == self.leader)
            if not self.synced:
                await self.again(member)
                return
        else:
            member.protocols = (("range", subscription([self.topic], b"changed %d" % len(self.said))),)
        await self.together([member])

    async def again(self, member: Member | None = None) -> None:
        """A member that says what it said before, and is not the leader of a stable group, is answered at once."""
        if member is None:
            members = [each for each in self.members if not self.synced or each.member_id != self.leader]
            if not members:
                return
            member = self.chance.choice(members)
        version = self.join_version(member)
        self.heard_join(member, version, await asyncio.wait_for(self.send_join(member, version), PATIENCE_S))

    async def back(self) -> None:
        """A static member comes back without its id."""
        static = [each for each in self.members if each.instance_id is not None]
        if not static:
            return
        member = self.chance.choice(static)
        before = member.member_id
        member.former_ids.append(before)
        member.member_id = ""
        if self.synced:
            version = self.join_version(member)
            answer = await asyncio.wait_for(self.send_join(member, version), PATIENCE_S)
            self.heard_join(member, version, answer)
            # Before version 9 it is told another leader, so that it assigns nothing; it is the leader all the same.
            if version < 9 and answer.leader == before:
                self.leader = member.member_id
        else:
            await self.together([member])

    async def sync(self) -> None:
        """All of them; who comes before the leader waits for it."""
        if self.synced:
            member = self.chance.choice(self.members)
            await self.heard_sync(member, self.chance.randint(3, 5), [])
            return
        assignments = [
            SyncGroupRequestAssignment(member_id=each.member_id, assignment=b"for %d" % at)
            for at, each in enumerate(self.members)
            if self.chance.random() < 0.9
        ]
        versions = [self.chance.randint(3, 5) for _ in self.members]
        said, self.said = self.said, []
        await asyncio.gather(
            *(
                self.heard_sync(each, version, assignments if each.member_id == self.leader else [])
                for each, version in zip(self.members, versions, strict=True)
            )
        )
        self.said = said + sorted(self.said)
        self.synced = True

    async def heard_sync(self, member: Member, version: int, assignments: list[SyncGroupRequestAssignment]) -> None:
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            protocol_type="consumer" if version >= 5 else None,
            protocol_name=self.protocol if version >= 5 else None,
            assignments=assignments,
        )
        answer = await asyncio.wait_for(member.connection.call("sync_group", version, request), PATIENCE_S)
        self.tell(
            f"sync {self.name(member.member_id)} v{version}",
            answer.error_code,
            answer.protocol_type,
            answer.protocol_name,
            bytes(answer.assignment),
        )

    # What changes nothing, or no membership

    def somebody(self) -> tuple[str, str | None]:
        """A member's ids, or ones that do not belong together, or are of the past."""
        chance = self.chance
        instances = [each.instance_id for each in self.members if each.instance_id is not None]
        match chance.choices(("member", "gone", "nobody", "nothing", "mixed"), (60, 10, 8, 8, 14))[0]:
            case "member" if self.members:
                member = chance.choice(self.members)
                return member.member_id, member.instance_id
            case "gone" if self.gone:
                return chance.choice(self.gone), None
            case "mixed" if self.members:
                member = chance.choice(self.members)
                member_id = chance.choice((member.member_id, *member.former_ids))
                return member_id, chance.choice((None, "nothing", *instances))
            case "nothing":
                return "", None
        return "nobody", None

    def some_generation(self) -> int:
        return self.generation + self.chance.choices((0, 1, -1, -self.generation - 1), (70, 10, 10, 10))[0]

    async def odd(self) -> None:
        chance = self.chance
        acts = (self.heartbeat, self.commit, self.fetch, self.describe, self.odd_sync, self.odd_join, self.odd_leave, self.delete)
        await chance.choices(acts, (20, 24, 14, 10, 10, 10, 6, 6))[0]()

    async def heartbeat(self) -> None:
        (member_id, instance_id), generation = self.somebody(), self.some_generation()
        version = self.chance.randint(3 if instance_id is not None else 0, 4)
        request = HeartbeatRequest(
            group_id=self.group, generation_id=generation, member_id=member_id, group_instance_id=instance_id
        )
        answer = await self.ask("heartbeat", version, request)
        self.tell(f"heartbeat {self.name(member_id)} {instance_id} {generation} v{version}", answer.error_code)

    async def commit(self) -> None:
        chance = self.chance
        (member_id, instance_id), generation = self.somebody(), self.some_generation()
        version = chance.randint(7 if instance_id is not None else 2, 9)
        partitions = [
            OffsetCommitRequestPartition(
                partition_index=index,
                committed_offset=chance.randrange(1_000),
                committed_leader_epoch=chance.choice((-1, 0, 3)) if version >= 6 else -1,
                # Kafka does not show a group whose first commit came to nothing, until something is written for it.
                committed_metadata=chance.choice((None, "", "mine", "x" * 4097) if self.members else ("", "mine")),
            )
            for index in chance.choice(((0,), (0, 1), (1, 5)))
        ]
        topics = [OffsetCommitRequestTopic(name=self.topic, partitions=partitions)]
        if chance.random() < 0.2:
            topics.append(OffsetCommitRequestTopic(name="absent", partitions=partitions[:1]))
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            topics=topics,
        )
        answer = await self.ask("offset_commit", version, request)
        found = sorted(
            (topic.name, each.partition_index, ErrorCode(each.error_code).name)
            for topic in answer.topics
            for each in topic.partitions
        )
        self.tell(f"commit {self.name(member_id)} {instance_id} {generation} v{version}", 0, found)

    async def fetch(self) -> None:
        chance, version = self.chance, self.chance.randint(1, 9)
        names = chance.choice(((self.topic,), (self.topic, "absent"), None if version >= 2 else (self.topic,), ()))
        if version < 8:
            topics = (
                None if names is None else [OffsetFetchRequestTopic(name=each, partition_indexes=[0, 1, 7]) for each in names]
            )
            request = OffsetFetchRequest(group_id=self.group, topics=topics, require_stable=version >= 7)
            answer = await self.ask("offset_fetch", version, request)
            code, found = answer.error_code, answer.topics
        else:
            member_id = chance.choice((None, "", "nobody", *(each.member_id for each in self.members)))
            asked = OffsetFetchRequestGroup(
                group_id=self.group,
                member_id=member_id if version >= 9 else None,
                member_epoch=chance.choice((-1, 0, self.generation)) if version >= 9 else -1,
                topics=None
                if names is None
                else [OffsetFetchRequestTopics(name=each, partition_indexes=[0, 1, 7]) for each in names],
            )
            another = OffsetFetchRequestGroup(group_id=f"{self.group}-absent", topics=None)
            answer = await self.ask("offset_fetch", version, OffsetFetchRequest(groups=[asked, another], require_stable=True))
            by_id = {each.group_id: each for each in answer.groups}
            code, found = by_id[self.group].error_code, by_id[self.group].topics
            assert by_id[another.group_id].topics == []
        places = sorted(
            (topic.name, each.partition_index, each.committed_offset, each.committed_leader_epoch, each.metadata, each.error_code)
            for topic in found
            for each in topic.partitions
        )
        self.tell(f"fetch {names} v{version}", code, places)

    async def describe(self) -> None:
        chance, version = self.chance, self.chance.randint(0, 6)
        answer = await self.ask("describe_groups", version, DescribeGroupsRequest(groups=[self.group, "absent"]))
        for found in sorted(answer.groups, key=lambda each: each.group_id == "absent"):
            self.tell(
                f"describe {found.group_id} v{version}",
                found.error_code,
                found.group_state,
                found.protocol_type,
                found.protocol_data,
                sorted(
                    (
                        self.name(each.member_id),
                        each.group_instance_id,
                        each.client_id,
                        each.client_host,
                        bytes(each.member_metadata),
                        bytes(each.member_assignment),
                    )
                    for each in found.members
                ),
            )
        states = chance.choice(([], ["Stable"], ["stable", "EMPTY"], ["PreparingRebalance", "completingrebalance"], ["Odd"]))
        types = chance.choice(([], ["classic"], ["Classic"], ["CONSUMER"], ["share"], ["streams"], ["odd"], ["unknown"]))
        listed = await self.ask("list_groups", 5, ListGroupsRequest(states_filter=states, types_filter=types))
        mine = [each for each in listed.groups if each.group_id == self.group]
        self.tell(
            f"list {states} {types}",
            listed.error_code,
            [(each.protocol_type, each.group_state, each.group_type) for each in mine],
        )

    async def odd_sync(self) -> None:
        """With a generation or an id that is not, or of a stable group: it never waits."""
        chance = self.chance
        version = chance.randint(3, 5)
        (member_id, instance_id), generation = self.somebody(), self.generation + chance.choice((1, -1))
        protocol = chance.choice((None, "range", "odd")) if version >= 5 else None
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol and "consumer",
            protocol_name=protocol,
        )
        answer = await self.ask("sync_group", version, request)
        self.tell(
            f"sync {self.name(member_id)} {instance_id} {generation} {protocol} v{version}",
            answer.error_code,
            answer.protocol_type,
            answer.protocol_name,
            bytes(answer.assignment),
        )

    async def odd_join(self) -> None:
        """One that is refused, whatever the group does."""
        chance = self.chance
        version = chance.randint(5, 9)
        member = Member(self.admin, "nobody", None, self.protocols())
        if self.gone and chance.random() < 0.5:
            member.member_id = chance.choice(self.gone)
        fields: dict[str, Any] = chance.choice(
            (
                {},
                {},
                {"session_timeout_ms": 1},
                {"session_timeout_ms": 1_800_001},
                {"protocol_type": "connect"} if self.members else {},
                {"protocols": []},
                {"protocol_type": ""},
                {"protocols": [JoinGroupRequestProtocol(name="odd", metadata=b"")]} if self.members else {},
            )
        )
        request = self.join_request(member, version, **fields)
        if self.members and chance.random() < 0.2:
            request.group_instance_id = chance.choice(self.members).instance_id
        answer = await self.ask("join_group", version, request)
        self.tell(
            f"join {self.name(request.member_id)} {request.group_instance_id} {sorted(fields)} v{version}",
            answer.error_code,
            self.name(answer.member_id),
            answer.generation_id,
            answer.protocol_type,
            answer.protocol_name,
            self.name(answer.leader),
        )

    async def odd_leave(self) -> None:
        """Of those who are not there."""
        chance = self.chance
        identities = [
            chance.choice(
                (
                    MemberIdentity(member_id="nobody"),
                    MemberIdentity(member_id="", group_instance_id="nothing"),
                    MemberIdentity(member_id="nobody", group_instance_id="nothing"),
                    MemberIdentity(member_id=chance.choice(("nobody", *self.gone))),
                )
            )
            for _ in range(chance.randint(0, 2))
        ]
        static = [each for each in self.members if each.instance_id is not None]
        if static and chance.random() < 0.5:
            identities.append(MemberIdentity(member_id="nobody", group_instance_id=chance.choice(static).instance_id))
        await self.send_leave(chance.randint(3, 5), LeaveGroupRequest(group_id=self.group, members=identities))

    async def delete(self) -> None:
        """Offsets of topics; and the group, if it has members: then it stays."""
        chance = self.chance
        topics = [
            OffsetDeleteRequestTopic(
                name=name, partitions=[OffsetDeleteRequestPartition(partition_index=each) for each in (0, 9)]
            )
            for name in chance.choice(((self.topic,), ("absent",), (self.topic, "absent")))
        ]
        answer = await self.ask("offset_delete", 0, OffsetDeleteRequest(group_id=self.group, topics=topics))
        found = sorted(
            (topic.name, each.partition_index, ErrorCode(each.error_code).name)
            for topic in answer.topics
            for each in topic.partitions
        )
        self.tell(f"delete offsets of {[each.name for each in topics]}", answer.error_code, found)
        if self.members or chance.random() < 0.3:
            deleted = await self.ask(
                "delete_groups", chance.randint(0, 2), DeleteGroupsRequest(groups_names=[self.group, "absent"])
            )
            self.tell("delete", 0, sorted((each.group_id, ErrorCode(each.error_code).name) for each in deleted.results))
            if not self.members:
                self.generation = 0

    async def step(self) -> None:
        chance = self.chance
        if not self.members:
            acts, weights = [self.enter, self.odd], [60, 40]
        else:
            acts = [self.enter, self.leave, self.change, self.again, self.back, self.sync, self.odd]
            weights = [8 if len(self.members) < 4 else 0, 6, 6, 6, 8, 16 if self.synced else 40, 50]
        await chance.choices(acts, weights)[0]()


async def converse_at_random(host: str, port: int, seed: int, *, routed: bool = False) -> list[str]:
    party = Party(host, port, seed, routed=routed)
    try:
        await party.begin()
        for _ in range(STEPS):
            await party.step()
        await party.describe()
        await party.fetch()
    finally:
        party.close()
    return party.said
