"""Members of groups, classic and of the new protocol, static and dynamic, each with its own seeded habits.

Owns: the requests of a member and how it reacts to an answer, as a real client does. What answers say of the group is checked in
`group_model`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, Final

from ottla.coordinator.group.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    EmbeddedTopicPartitions,
    read_assignment,
)
from ottla.errors import ErrorCode
from ottla.ports import Network
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, RequestTopicPartitions
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.sim.actors.client import Client
from ottla.sim.actors.workload import Workload
from ottla.sim.models.group_model import CONSUMER_SESSION_S, Commit, Generation, GroupModel, Membership, Place, Value
from ottla.sim.violation import require
from ottla.wire.codec import encode

PROTOCOLS: Final = ("range", "roundrobin", "sticky")
METADATA: Final = ("", "m", "ünïcödé \U0001f980", "a" * 60, "{}", "\x00 \n")
TRY_AGAIN: Final = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE})
OUT: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.FENCED_MEMBER_EPOCH})
BEHIND: Final = frozenset({ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.STALE_MEMBER_EPOCH})
NOT_WRITTEN: Final = OUT | BEHIND | {ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
"""After one of these errors nothing was committed."""
VERSION_BYTES: Final = b"\x00\x01"


class Member(Client):
    """The client of one membership."""

    def __init__(
        self, model: GroupModel, membership: Membership, shared: Workload, network: Network, position: Callable[[str], int]
    ) -> None:
        super().__init__(membership.name, shared, network)
        self.model = model
        self.member = membership
        self._position = position
        self.session_s = self.rng.choice((2.0, 4.0)) if model.kind == "classic" else CONSUMER_SESSION_S
        self.rebalance_s = self.rng.choice((3.0, 8.0))
        self._knows_coordinator = False
        self._seen: frozenset[Place] = frozenset()
        self.diligent = False
        """It only stays a member, and does nothing else."""

    # --- what both kinds do

    def went_well(self, code: int, what: str, *allowed: ErrorCode) -> bool:
        """Like `expect`, with the errors by which a coordinator tells members to rejoin or to look for it."""
        extra = () if self.shared.disk_is_sound else (ErrorCode.NOT_COORDINATOR, ErrorCode.UNKNOWN_SERVER_ERROR)
        return self.expect(code, f"{what} {self.model.group_id}", *TRY_AGAIN, *OUT, *BEHIND, *allowed, *extra)

    def react(self, code: int) -> None:
        """React to a refusal: rejoin, or look for the coordinator."""
        member = self.member
        if code in OUT or code == ErrorCode.GROUP_ID_NOT_FOUND:
            member.forget()
        elif code == ErrorCode.STALE_MEMBER_EPOCH:
            pass  # the next heartbeat tells its new epoch
        elif code in BEHIND:
            member.epoch = -1
            member.owned = frozenset()

    async def find_coordinator(self) -> bool:
        """The first lookup creates `__consumer_offsets`."""
        if not self._knows_coordinator:
            request = FindCoordinatorRequest(coordinator_keys=[self.model.group_id])
            response = await self.call("find_coordinator", self.rng.choice((4, 5, 6)), request)
            self._knows_coordinator = self.went_well(response.coordinators[0].error_code, "find the coordinator of")
        return self._knows_coordinator

    async def act(self) -> None:
        member, rng = self.member, self.rng
        if not await self.find_coordinator():
            return
        if self.model.kind == "classic" and self.places() != self._seen and self.rng.random() < 0.5:
            # As clients do whose topics have changed: a new assignment is needed.
            self._seen = self.places()
            member.epoch = -1
            member.owned = frozenset()
        if member.epoch < 0 and not self.diligent and self.model.kind == "classic" and not self.is_pinned and rng.random() < 0.8:
            # A client without a membership commits for the group; from then on it is not deleted when it is empty.
            await self.commit(self.places())
            return
        if member.epoch < 0:
            await (self.join() if self.model.kind == "classic" else self.heartbeat_new())
            return
        kind = 0.5 if self.diligent else rng.random()
        if kind < 0.06:
            await self.leave()
        elif kind < 0.10:
            self.shared.trace.add(f"{self.name} pauses")
            await asyncio.sleep(self.session_s * rng.choice((0.5, 1.2, 3)))
        elif kind < 0.14 and member.instance_id is not None and self.model.kind == "classic":
            self.shared.trace.add(f"{self.name} forgets its id")
            member.forget()
        elif kind < 0.35:
            await self.commit()
        elif kind < 0.45:
            await self.fetch_offsets()
        else:
            await (self.heartbeat() if self.model.kind == "classic" else self.heartbeat_new())

    @property
    def is_pinned(self) -> bool:
        topics = self.shared.topics
        return self.model.is_pinned(lambda name, topic_id: name in topics and topics[name].topic_id == topic_id)

    def places(self) -> frozenset[Place]:
        """All known partitions of the topics of the group."""
        topics = [self.shared.topics[name] for name in self.model.topics if name in self.shared.topics]
        return frozenset((topic.name, index) for topic in topics for index in range(len(topic.partitions)))

    # --- offsets

    async def commit(self, places: frozenset[Place] | None = None) -> None:
        """Commit as a member, for the partitions it owns."""
        member, model, rng = self.member, self.model, self.rng
        owned = sorted(member.owned if places is None else places)
        chosen = [place for place in owned if place[0] in self.shared.topics and rng.random() < 0.6]
        if not chosen:
            return
        # Topics by id only from version 10 on; a static member needs 7, the new protocol 9.
        version = rng.choice((9, 10) if model.kind == "consumer" else (7, 8, 9, 10) if member.instance_id else (2, 5, 6, 8, 10))
        pending: list[tuple[Place, Commit]] = []
        topics: dict[str, OffsetCommitRequestTopic] = {}
        for place in chosen:
            topic = self.shared.topics[place[0]]
            value = (rng.randint(0, 10_000), rng.choice(METADATA))
            asked = topics.setdefault(topic.name, OffsetCommitRequestTopic(name=topic.name, topic_id=topic.topic_id))
            asked.partitions.append(
                OffsetCommitRequestPartition(partition_index=place[1], committed_offset=value[0], committed_metadata=value[1])
            )
            pending.append((place, model.committing(place, value, topic.topic_id)))
        sent_s = model.now()
        incarnation, written_max = model.incarnation, model.written_max
        request = OffsetCommitRequest(
            group_id=model.group_id,
            generation_id_or_member_epoch=member.epoch,
            member_id=member.member_id if member.epoch >= 0 else "",
            group_instance_id=member.instance_id if version >= 7 and member.epoch >= 0 else None,
            topics=list(topics.values()),
        )
        response = await self.call("offset_commit", version, request)
        position = self._position(model.group_id)
        codes = {}
        for topic in response.topics:
            name = topic.name or next((n for n, asked in topics.items() if asked.topic_id == bytes(topic.topic_id)), "")
            codes.update({(name, answer.partition_index): answer.error_code for answer in topic.partitions})
        worst = 0
        if model.kind == "classic" and 0 in codes.values() and 0 <= request.generation_id_or_member_epoch < written_max:
            require(
                incarnation != model.incarnation,
                "fenced",
                f"{self.name} committed in generation {request.generation_id_or_member_epoch} after {written_max} was written",
            )
        if 0 in codes.values() and not self.is_pinned:
            model.may_be_another()
        for place, commit in pending:
            code = codes.get(place, -1)
            if code == 0:
                model.committed(commit, position)
                if member.epoch >= 0:
                    model.alive(sent_s)
                self.shared.trace.add(f"{self.name} commits {place[0]}-{place[1]} {commit.value[0]}")
                continue
            worst = code
            if code in NOT_WRITTEN:
                model.refused(place, commit)
            self.went_well(
                code, "commit to", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.GROUP_ID_NOT_FOUND
            )
        if member.epoch >= 0:
            self.react(worst)

    async def fetch_offsets(self, places: frozenset[Place] | None = None) -> dict[Place, Value]:
        """Fetch the committed offsets and check them against the model."""
        model = self.model
        wanted = sorted(self.places() if places is None else places)
        version = self.rng.choice((1, 5, 7, 8, 9, 10))
        ids = {name: self.shared.topics[name].topic_id for name, _ in wanted}
        indexes = {name: [index for other, index in wanted if other == name] for name in ids}
        if version < 8:
            request = OffsetFetchRequest(
                group_id=model.group_id,
                topics=[OffsetFetchRequestTopic(name=name, partition_indexes=found) for name, found in indexes.items()],
            )
        else:
            by_id = [
                OffsetFetchRequestTopics(name=name, topic_id=ids[name], partition_indexes=found)
                for name, found in indexes.items()
            ]
            request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=model.group_id, topics=by_id)])
        sent_s = model.now()
        response = await self.call("offset_fetch", version, request)
        answer = response if version < 8 else response.groups[0]
        if not self.went_well(answer.error_code if version >= 2 else 0, "fetch offsets of"):
            return {}
        found: dict[Place, Value] = {}
        for topic in answer.topics:
            name = topic.name if version < 10 else next((n for n, known in ids.items() if known == bytes(topic.topic_id)), "")
            for partition in topic.partitions:
                if not self.went_well(
                    partition.error_code, "fetch offsets of", ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                ):
                    continue
                place = (name, partition.partition_index)
                current = self.shared.topics.get(name)
                if current is None or current.topic_id != ids[name]:
                    continue
                found[place] = (partition.committed_offset, partition.metadata or "")
                model.fetched(place, current.topic_id, found[place], sent_s)
        self.shared.trace.add(f"{self.name} fetches {sorted(found.items())}")
        return found

    # --- the classic protocol

    def _subscription(self, protocol: str) -> bytes:
        said = ConsumerProtocolSubscription(topics=list(self.model.topics), user_data=f"{self.name}/{protocol}".encode())
        return VERSION_BYTES + encode(said, 1)

    async def join(self) -> None:
        member, model, rng = self.member, self.model, self.rng
        member.owned = frozenset()
        self._seen = self.places()
        version = rng.choice((5, 7, 9) if member.instance_id else (1, 3, 4, 5, 7, 9))
        names = list(model.protocols)
        rng.shuffle(names)
        if not self.is_pinned:
            model.may_be_another()
        # Where the disk fails, the coordinator may have reloaded its log.
        bound = model.given_max if self.shared.disk_is_sound else model.written_max
        incarnation = model.incarnation
        request = JoinGroupRequest(
            group_id=model.group_id,
            session_timeout_ms=int(self.session_s * 1000),
            rebalance_timeout_ms=int(self.rebalance_s * 1000),
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=name, metadata=self._subscription(name)) for name in names],
        )
        response = await self.call("join_group", version, request)
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            require(
                version >= 4 and not member.member_id, "member", f"{self.name}: MEMBER_ID_REQUIRED for a member that has an id"
            )
            member.member_id = response.member_id
            return
        if not self.went_well(response.error_code, "join"):
            self.react(response.error_code)
            return
        generation = response.generation_id
        known = incarnation == model.incarnation and self.shared.disk_is_sound
        model.joined(
            member,
            response.member_id,
            generation,
            response.leader,
            response.protocol_name,
            bound if incarnation == model.incarnation else 0,
            known,
        )
        self.shared.trace.add(f"{self.name} joins generation {generation} of {model.group_id}")
        await self._sync(response)

    async def _sync(self, joined: Any) -> None:
        member, model = self.member, self.model
        assignments: list[SyncGroupRequestAssignment] = []
        if joined.leader == joined.member_id and joined.members and not joined.skip_assignment:
            for other in joined.members:
                require(
                    bytes(other.metadata).rstrip(b"\x00").endswith(f"/{joined.protocol_name}".encode())
                    or f"/{joined.protocol_name}".encode() in bytes(other.metadata),
                    "assignment",
                    f"{self.name}: {other.member_id} sent other metadata for {joined.protocol_name}",
                )
            assignments = self._assign(joined)
        request = SyncGroupRequest(
            group_id=model.group_id,
            generation_id=member.epoch,
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            protocol_type="consumer",
            protocol_name=joined.protocol_name,
            assignments=assignments,
        )
        sent_s = model.now()
        response = await self.call("sync_group", self.rng.choice((3, 4, 5)), request)
        if not self.went_well(response.error_code, "sync"):
            self.react(response.error_code)
            return
        found = read_assignment(response.assignment).assigned_partitions
        owned = frozenset((topic.topic, index) for topic in found for index in topic.partitions)
        model.alive(sent_s)
        self.shared.trace.add(f"{self.name} owns {sorted(owned)} in generation {member.epoch}")
        model.synced(member, owned, self._position(model.group_id))

    def _assign(self, joined: Any) -> list[SyncGroupRequestAssignment]:
        """As leader: assign each partition to one member."""
        members = sorted(other.member_id for other in joined.members)
        shares: dict[str, list[Place]] = {member_id: [] for member_id in members}
        for number, place in enumerate(sorted(self.places())):
            shares[members[(number + self.member.epoch) % len(members)]].append(place)
        known = self.model.generations.setdefault(self.member.epoch, Generation())
        handed = {member_id: frozenset(share) for member_id, share in shares.items()}
        for other in joined.members:
            if other.group_instance_id:
                handed[other.group_instance_id] = handed[other.member_id]
        known.given.append(handed)
        assignments = []
        for member_id, share in shares.items():
            topics = [
                EmbeddedTopicPartitions(topic=name, partitions=[index for other, index in share if other == name])
                for name in sorted({name for name, _ in share})
            ]
            data = VERSION_BYTES + encode(ConsumerProtocolAssignment(assigned_partitions=topics), 1)
            assignments.append(SyncGroupRequestAssignment(member_id=member_id, assignment=data))
        return assignments

    async def heartbeat(self) -> None:
        member, model = self.member, self.model
        sent_s = model.now()
        request = HeartbeatRequest(
            group_id=model.group_id,
            generation_id=member.epoch,
            member_id=member.member_id,
            group_instance_id=member.instance_id,
        )
        response = await self.call("heartbeat", self.rng.choice((3, 4)), request)
        if not self.went_well(response.error_code, "heartbeat to"):
            self.react(response.error_code)
            return
        model.alive(sent_s)

    async def leave(self) -> None:
        member, model = self.member, self.model
        if model.kind == "consumer":
            await self._leave_new()
            return
        self.shared.trace.add(f"{self.name} leaves")
        request = LeaveGroupRequest(
            group_id=model.group_id,
            members=[MemberIdentity(member_id=member.member_id, group_instance_id=member.instance_id)],
        )
        member.forget()
        response = await self.call("leave_group", self.rng.choice((3, 4, 5)), request)
        code = response.error_code or response.members[0].error_code
        self.went_well(code, "leave")

    # --- the new protocol

    async def heartbeat_new(self) -> None:
        member, model, rng = self.member, self.model, self.rng
        joining = member.epoch < 0
        version = rng.choice((0, 1))
        if joining:
            # From version 1 on the member generates its own id.
            member.member_id = member.member_id or ("" if version == 0 else _uuid(rng))
            member.owned = frozenset()
            member.told = None
        # After a lost answer everything is sent again, as clients do, and the assignment comes again.
        whole = joining or member.unheard
        says = whole or member.told != member.owned or rng.random() < 0.1
        request = ConsumerGroupHeartbeatRequest(
            group_id=model.group_id,
            member_id=member.member_id,
            member_epoch=0 if joining else member.epoch,
            instance_id=member.instance_id,
            rebalance_timeout_ms=30_000 if whole else -1,
            subscribed_topic_names=list(model.topics) if whole else None,
            server_assignor=rng.choice((None, "uniform", "range")) if joining else None,
            topic_partitions=self._as_ids(member.owned) if says else None,
        )
        told = member.owned
        sent_s = model.now()
        member.unheard = True
        response = await self.call("consumer_group_heartbeat", version, request)
        member.unheard = False
        if not self.went_well(
            response.error_code, "heartbeat to", ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.GROUP_ID_NOT_FOUND
        ):
            self.react(response.error_code)
            return
        if says:
            member.told = told
        if joining and member.member_id != response.member_id:
            member.member_id = response.member_id
        owned: frozenset[Place] | None = None
        if response.assignment is not None:
            names = {topic.topic_id: topic.name for topic in self.shared.topics.values()}
            if any(bytes(topic.topic_id) not in names for topic in response.assignment.topic_partitions):
                # A topic whose creation is not answered yet. A client would ask for its name; here the answer counts as lost.
                member.unheard = True
                model.alive(sent_s)
                return
            member.topic_ids = {name: topic_id for topic_id, name in names.items()}
            owned = frozenset(
                (names[bytes(topic.topic_id)], index)
                for topic in response.assignment.topic_partitions
                for index in topic.partitions
            )
            self.shared.trace.add(f"{self.name} owns {sorted(owned)} in epoch {response.member_epoch}")
        model.alive(sent_s)
        model.moved(member, response.member_epoch, owned, sent_s + self.session_s, self._position(model.group_id))

    def _as_ids(self, owned: frozenset[Place]) -> list[RequestTopicPartitions]:
        ids = self.member.topic_ids
        return [
            RequestTopicPartitions(topic_id=ids[name], partitions=sorted(i for other, i in owned if other == name))
            for name in sorted({name for name, _ in owned})
        ]

    async def _leave_new(self) -> None:
        member, model = self.member, self.model
        for_a_while = member.instance_id is not None and self.rng.random() < 0.5
        self.shared.trace.add(f"{self.name} leaves{' for a while' if for_a_while else ''}")
        request = ConsumerGroupHeartbeatRequest(
            group_id=model.group_id,
            member_id=member.member_id,
            member_epoch=-2 if for_a_while else -1,
            instance_id=member.instance_id,
        )
        model.leaving()
        member.forget()
        response = await self.call("consumer_group_heartbeat", 1, request)
        self.went_well(response.error_code, "leave", ErrorCode.GROUP_ID_NOT_FOUND)


def _uuid(rng: random.Random) -> str:
    return rng.randbytes(16).hex()
