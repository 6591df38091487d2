"""A dialogue of members of the new group protocol (KIP-848) with their coordinator that a seed decides, right and wrong.

Every request is answered at once, so no clock plays a part; `SETTINGS` has assignments made without delay and nobody expire. Some
members speak the classic protocol in the same group. Members make their own ids, for ids that brokers make are chance. Only
patterns that are refused are here: what Kafka accepts it looks up in its own time.
"""

from __future__ import annotations

import itertools
import random
import struct
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.coordinator.group.consumer_protocol import (
    ConsumerProtocolSubscription,
    EmbeddedTopicPartitions,
    read_assignment,
)
from ottla.coordinator.shard import positive_hash
from ottla.errors import ErrorCode
from ottla.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, RequestTopicPartitions
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
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
from ottla.protocol.messages.sync_group import SyncGroupRequest
from ottla.wire.codec import encode
from tests.compat.groups.group_chance import Party

STEPS: Final = 40
OFFSETS_PARTITIONS: Final = 50
TIMEOUT_MS: Final = 600_000
SETTINGS: Final[dict[str, Any]] = {
    "group_consumer_assignment_interval_ms": 0,
    "group_consumer_session_timeout_ms": TIMEOUT_MS,
    "group_consumer_max_session_timeout_ms": TIMEOUT_MS,
}

Places = list[tuple[str, int]]
"""Partitions: the topic, by the last letter of its name, and the index."""


@dataclass
class Consumer:
    member_id: str
    instance_id: str | None
    epoch: int = 0
    owned: Places = field(default_factory=list)
    is_classic: bool = False


class Circle:
    def __init__(self, host: str, port: int, seed: int, *, routed: bool = False) -> None:
        self.party = Party(host, port, 100_000 + seed, routed=routed)  # its topic, and its way of noting
        self.party.group = self.group = f"circle-{seed}"
        self.chance = random.Random(seed)
        self.topics = {"a": self.party.topic, "b": f"{self.party.topic}-b"}
        self.letters = {name: letter for letter, name in self.topics.items()}
        self.ids: dict[str, bytes] = {}
        self.consumers: list[Consumer] = []
        self.away: list[str] = []
        """Instance ids of members that will be back."""
        self.gone: list[tuple[str, int]] = []
        self.count = 0
        self.exists = False
        self.assignor = self.chance.choice(("uniform", "range", "range", "range"))
        """All ask for one: if as many ask for another, Kafka's choice is chance. So is what its uniform assignor does for several
        members, while range depends on names only; the assignors are compared elsewhere."""
        self.size = 1 if self.assignor == "uniform" else 4

    async def begin(self) -> None:
        await self.party.begin()
        topics = [CreatableTopic(name=self.topics["b"], num_partitions=3, replication_factor=1)]
        await self.party.ask("create_topics", 5, CreateTopicsRequest(topics=topics, timeout_ms=20_000))
        await self.party.until(self._is_told)
        asked = [MetadataRequestTopic(name=name) for name in self.topics.values()]
        found = await self.party.ask("metadata", 12, MetadataRequest(topics=asked))
        self.ids = {self.letters[each.name]: each.topic_id for each in found.topics}

    async def _is_told(self) -> bool:
        """Whether the coordinator of the group knows the topics: it hands them to a group on the same partition."""
        place = positive_hash(self.group) % OFFSETS_PARTITIONS
        scouts = (f"scout-{self.group}-{number}" for number in itertools.count())
        scout = next(each for each in scouts if positive_hash(each) % OFFSETS_PARTITIONS == place)
        request = ConsumerGroupHeartbeatRequest(
            group_id=scout,
            member_id="scout",
            member_epoch=0,
            rebalance_timeout_ms=TIMEOUT_MS,
            subscribed_topic_names=list(self.topics.values()),
            topic_partitions=[],
        )
        answer = await self.party.ask("consumer_group_heartbeat", 1, request)
        return answer.assignment is not None and len(answer.assignment.topic_partitions) == len(self.topics)

    # Saying and hearing

    def partitions(self, places: Places) -> list[RequestTopicPartitions]:
        letters = sorted({letter for letter, _ in places})
        return [
            RequestTopicPartitions(topic_id=self.ids[each], partitions=[index for letter, index in places if letter == each])
            for each in letters
        ]

    def places(self, assignment: Any) -> Places:
        letters = {topic_id: letter for letter, topic_id in self.ids.items()}
        return sorted((letters[topic.topic_id], index) for topic in assignment.topic_partitions for index in topic.partitions)

    def name(self, member_id: str | None) -> str | None:
        """Those that this side has made are shown as they are."""
        if member_id is None or member_id in ("nobody", "") or member_id.startswith("member-"):
            return member_id
        return self.party.name(member_id)

    async def heartbeat(self, what: str, version: int | None = None, **fields: Any) -> Any:
        version = self.chance.randint(0, 1) if version is None else version
        request = ConsumerGroupHeartbeatRequest(**({"group_id": self.group} | fields))
        answer = await self.party.ask("consumer_group_heartbeat", version, request)
        assignment = None if answer.assignment is None else self.places(answer.assignment)
        more = {key: value for key, value in fields.items() if key not in ("member_id", "instance_id", "member_epoch")}
        if more.get("topic_partitions"):
            more["topic_partitions"] = [(len(each.partitions), each.partitions) for each in more["topic_partitions"]]
        self.party.tell(
            f"{what} {self.name(request.member_id)} {request.instance_id} {request.member_epoch} v{version} {more}",
            answer.error_code,
            self.name(answer.member_id),
            answer.member_epoch,
            answer.heartbeat_interval_ms,
            assignment,
        )
        self.exists = self.exists or (not answer.error_code and request.group_id == self.group)
        return answer

    def heard(self, consumer: Consumer, answer: Any) -> None:
        if answer.error_code:
            return
        consumer.epoch, consumer.member_id = answer.member_epoch, answer.member_id
        if answer.assignment is not None:
            consumer.owned = self.places(answer.assignment)

    def some_topics(self) -> list[str]:
        a, b = self.topics.values()
        return self.chance.choice(([b], [b], [b, "absent"], ["absent"], [], [a], [a, b], [b, a]))

    # Members of the new protocol

    def news(self) -> Consumer:
        chance = self.chance
        self.count += 1
        instance_id = None
        if self.away and chance.random() < 0.6:
            instance_id = self.away.pop()
        elif chance.random() < 0.3:
            instance_id = f"i{self.count}"
        return Consumer(f"member-{self.count}", instance_id)

    async def join(self) -> None:
        chance = self.chance
        consumer = self.news()
        version = chance.randint(0, 1)
        fields: dict[str, Any] = {"subscribed_topic_names": self.some_topics() or [self.topics["b"]]}
        if self.assignor == "range" or chance.random() < 0.5:
            fields["server_assignor"] = self.assignor
        if chance.random() < 0.2:
            fields["rack_id"] = "r1"
        answer = await self.heartbeat(
            "join",
            version,
            member_id=consumer.member_id,
            instance_id=consumer.instance_id,
            member_epoch=0,
            rebalance_timeout_ms=TIMEOUT_MS,
            topic_partitions=[],
            **fields,
        )
        self.heard(consumer, answer)
        if not answer.error_code:
            self.consumers.append(consumer)

    async def again(self) -> None:
        """One that is a member joins as if it were not, perhaps with an instance id it does not have, or one of another."""
        chance = self.chance
        consumer = chance.choice(self.modern)
        instances = [each.instance_id for each in self.consumers if each.instance_id is not None and each is not consumer]
        instance_id = consumer.instance_id
        member_id = consumer.member_id
        if chance.random() < 0.2:
            instance_id = chance.choice((*instances, "nothing", None))
        if chance.random() < 0.2:
            member_id = "nobody"
        if instance_id != consumer.instance_id and (instance_id is None or instance_id not in instances):
            return  # it would be a member with another name, or one of two ids: what never happens, and Kafka mixes up
        if member_id == "nobody" and instance_id is None:
            return
        answer = await self.heartbeat(
            "again",
            member_id=member_id,
            instance_id=instance_id,
            member_epoch=0,
            rebalance_timeout_ms=TIMEOUT_MS,
            subscribed_topic_names=self.some_topics() or [self.topics["b"]],
            topic_partitions=[],
        )
        self.heard(consumer, answer)

    @property
    def modern(self) -> list[Consumer]:
        return [each for each in self.consumers if not each.is_classic]

    async def nameless(self) -> None:
        """One that leaves its id to the broker; in a group of its own, for who is assigned what depends on the ids."""
        group_id = f"{self.group}-nameless"
        fields: dict[str, Any] = {"subscribed_topic_names": [self.topics["b"]], "topic_partitions": []}
        answer = await self.heartbeat(
            "nameless", 0, group_id=group_id, member_id="", member_epoch=0, rebalance_timeout_ms=TIMEOUT_MS, **fields
        )
        await self.heartbeat("nameless leaves", group_id=group_id, member_id=answer.member_id, member_epoch=-1)

    async def beat(self) -> None:
        chance = self.chance
        consumer = chance.choice(self.modern)
        fields: dict[str, Any] = {}
        if chance.random() < 0.7:
            fields["topic_partitions"] = self.partitions(consumer.owned)
        if chance.random() < 0.15:
            fields["subscribed_topic_names"] = self.some_topics()
        if chance.random() < 0.1:
            fields["server_assignor"] = chance.choice((self.assignor, "odd"))
        if chance.random() < 0.1:
            fields["rebalance_timeout_ms"] = TIMEOUT_MS
        if chance.random() < 0.05:
            fields["rack_id"] = "r2"
        answer = await self.heartbeat(
            "beat", member_id=consumer.member_id, instance_id=consumer.instance_id, member_epoch=consumer.epoch, **fields
        )
        self.heard(consumer, answer)

    async def leave(self) -> None:
        modern = self.modern
        if len(modern) == 1 and len(self.consumers) > 1:
            return  # the group would become classic, and its members wait for each other
        consumer = self.chance.choice(modern)
        epoch = -1
        if consumer.instance_id is not None and self.chance.random() < 0.6:
            epoch = -2
        answer = await self.heartbeat("leave", member_id=consumer.member_id, instance_id=consumer.instance_id, member_epoch=epoch)
        if not answer.error_code:
            self.went(consumer, epoch)

    def went(self, consumer: Consumer, epoch: int) -> None:
        self.consumers.remove(consumer)
        self.gone.append((consumer.member_id, consumer.epoch))
        if epoch == -2 and consumer.instance_id is not None:
            self.away.append(consumer.instance_id)

    def somebody(self) -> tuple[str, str | None, int]:
        """A member's ids and epoch, or ones that do not belong together, or are of the past."""
        chance = self.chance
        if self.consumers and chance.random() < 0.75:
            one = chance.choice(self.consumers)
            instance_id = one.instance_id
            if chance.random() < 0.15:
                instance_id = chance.choice((None, "nothing", *(each.instance_id for each in self.consumers), *self.away))
            return one.member_id, instance_id, one.epoch + chance.choices((0, 1, -1, 7), (50, 15, 25, 10))[0]
        if self.gone and chance.random() < 0.5:
            member_id, epoch = chance.choice(self.gone)
            return member_id, chance.choice((None, *self.away)), epoch
        return "nobody", None, chance.choice((-1, 0, 3))

    async def odd(self) -> None:
        chance = self.chance
        member_id, instance_id, epoch = self.somebody()
        if epoch <= 0:
            epoch = 3
        new: dict[str, Any] = {
            "member_id": "nobody",
            "instance_id": None,
            "member_epoch": 0,
            "rebalance_timeout_ms": TIMEOUT_MS,
            "subscribed_topic_names": [self.topics["b"]],
            "topic_partitions": [],
        }
        fields: dict[str, Any] = chance.choice(
            (
                {"topic_partitions": self.partitions(chance.choice(([], [("a", 0)], [("a", 1), ("b", 0)], [("b", 2)])))},
                {},
                {"instance_id": chance.choice(("nothing", *self.away))},
                {"member_epoch": -3},
                {"group_id": ""},
                {"group_id": " "},
                {"member_id": ""},
                new | {"rebalance_timeout_ms": -1},
                new | {"subscribed_topic_names": None},
                new | {"topic_partitions": None},
                new | {"topic_partitions": self.partitions([("a", 0)])},
                new | {"instance_id": ""},
                new | {"instance_id": " "},
                new | {"server_assignor": "odd"},
                new | {"server_assignor": ""},
                new | {"rack_id": ""},
                new | {"rack_id": " "},
                new | {"subscribed_topic_names": None, "subscribed_topic_regex": "a("},
                new | {"subscribed_topic_names": None, "subscribed_topic_regex": "(?=a)"},
                {"subscribed_topic_regex": "[a"},
                {"server_assignor": "odd"},
                {"server_assignor": ""},
                {"instance_id": ""},
                {"rack_id": ""},
                {"group_id": f"{self.group}-absent"},
            )
        )
        version = 1 if "subscribed_topic_regex" in fields else chance.randint(0, 1)
        if fields.get("member_id", member_id) == "" and version == 0 and fields.get("member_epoch", epoch) == 0:
            return
        await self.heartbeat(
            "odd", version, **({"member_id": member_id, "instance_id": instance_id, "member_epoch": epoch} | fields)
        )

    async def odd_leave(self) -> None:
        """Of those who are not there, or are called otherwise."""
        chance = self.chance
        one = chance.choice(self.modern)
        others = [each.instance_id for each in self.consumers if each.instance_id not in (None, one.instance_id)]
        epoch = chance.choice((-1, -2))
        member_id, instance_id = chance.choice(
            (
                ("nobody", None),
                ("nobody", "nothing"),
                ("nobody", one.instance_id),
                (one.member_id, "nothing"),
                (one.member_id, chance.choice((*others, "nothing"))),
                *((member_id, None) for member_id, _ in self.gone[-1:]),
            )
        )
        await self.heartbeat("odd leave", member_id=member_id, instance_id=instance_id, member_epoch=epoch)

    # Members of the classic protocol in the same group

    def said_by_classic(self, consumer: Consumer, topics: list[str], version: int) -> bytes:
        owned = [
            EmbeddedTopicPartitions(
                topic=self.topics[each], partitions=[index for letter, index in consumer.owned if letter == each]
            )
            for each in sorted({letter for letter, _ in consumer.owned})
        ]
        said = ConsumerProtocolSubscription(topics=topics, owned_partitions=owned, generation_id=consumer.epoch)
        return struct.pack(">h", version) + encode(said, version)

    async def classic_join(self) -> None:
        chance = self.chance
        if not self.modern or self.size == 1:
            return
        classics = [each for each in self.consumers if each.is_classic]
        is_new = not classics or chance.random() < 0.3
        if is_new:
            self.count += 1
        consumer = Consumer(f"member-{self.count}", None, is_classic=True) if is_new else chance.choice(classics)
        version = chance.randint(5, 9)
        topics = self.some_topics()
        if is_new:
            topics = topics or [
                self.topics["b"]
            ]  # to who comes and subscribes to nothing, Kafka assigns what others subscribe to
        protocols = chance.choice(
            (["range"], ["range", "roundrobin"], ["range", "cooperative-sticky"], *([["odd"]] if len(classics) > 1 else []))
        )
        if chance.random() < 0.5:
            consumer.owned = []  # as eager ones do
        metadata = self.said_by_classic(consumer, topics, chance.randint(1, 3))
        for member_id in ("", consumer.member_id):  # the first is told to make itself known by an id
            request = JoinGroupRequest(
                group_id=self.group,
                session_timeout_ms=TIMEOUT_MS,
                rebalance_timeout_ms=TIMEOUT_MS,
                member_id=member_id,
                group_instance_id=consumer.instance_id,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name=each, metadata=metadata) for each in protocols],
            )
            answer = await self.party.ask("join_group", version, request)
            self.party.tell(
                f"classic join {self.name(member_id)} {consumer.instance_id} {topics} {protocols} v{version}",
                answer.error_code,
                self.name(answer.member_id),
                answer.generation_id,
                answer.protocol_type,
                answer.protocol_name,
                repr(answer.leader),
                answer.skip_assignment,
                len(answer.members),
            )
        if not answer.error_code:
            consumer.member_id, consumer.epoch = answer.member_id, answer.generation_id
            if is_new:
                self.consumers.append(consumer)

    async def classic_sync(self) -> None:
        chance, version = self.chance, self.chance.randint(3, 5)
        member_id, instance_id, generation = self.somebody()
        protocol = chance.choice((None, "range", "range", "odd")) if version >= 5 else None
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol and "consumer",
            protocol_name=protocol,
        )
        answer = await self.party.ask("sync_group", version, request)
        assigned: Places = []
        if answer.assignment:
            assigned = sorted(
                (self.letters[topic.topic], index)
                for topic in read_assignment(answer.assignment).assigned_partitions
                for index in topic.partitions
            )
        self.party.tell(
            f"classic sync {self.name(member_id)} {instance_id} {generation} {protocol} v{version}",
            answer.error_code,
            answer.protocol_type,
            answer.protocol_name,
            bytes(answer.assignment[:2]),
            assigned,
        )
        for each in self.consumers:
            if each.member_id == member_id and not answer.error_code:
                each.owned = assigned

    async def classic_heartbeat(self) -> None:
        member_id, instance_id, generation = self.somebody()
        version = self.chance.randint(3, 4)
        request = HeartbeatRequest(
            group_id=self.group, generation_id=generation, member_id=member_id, group_instance_id=instance_id
        )
        answer = await self.party.ask("heartbeat", version, request)
        self.party.tell(f"classic heartbeat {self.name(member_id)} {instance_id} {generation} v{version}", answer.error_code)

    async def classic_leave(self) -> None:
        chance = self.chance
        classics = [each for each in self.consumers if each.is_classic]
        identities = [MemberIdentity(member_id="nobody", group_instance_id=chance.choice((None, "nothing")))]
        leaving = [chance.choice(classics)] if classics and chance.random() < 0.7 else []
        identities += [
            MemberIdentity(
                member_id="" if each.instance_id is not None and chance.random() < 0.5 else each.member_id,
                group_instance_id=each.instance_id,
            )
            for each in leaving
        ]
        version = chance.randint(3, 5)
        answer = await self.party.ask("leave_group", version, LeaveGroupRequest(group_id=self.group, members=identities))
        self.party.tell(
            f"classic leave v{version} {[(self.name(each.member_id), each.group_instance_id) for each in identities]}",
            answer.error_code,
            [(self.name(each.member_id), each.group_instance_id, ErrorCode(each.error_code).name) for each in answer.members],
        )
        for each in leaving:
            self.went(each, -1)

    # Offsets

    async def commit(self) -> None:
        chance, version = self.chance, self.chance.randint(2, 10)
        member_id, instance_id, epoch = self.somebody()
        if not self.exists:
            return  # it would make a classic group
        if version < 7:
            instance_id = None
        partitions = [
            OffsetCommitRequestPartition(
                partition_index=index, committed_offset=chance.randrange(99), committed_metadata=chance.choice(("", "mine", None))
            )
            for index in chance.choice(((0,), (1,), (0, 1), (5,)))
        ]
        topic = OffsetCommitRequestTopic(name=self.topics["a"], topic_id=self.ids["a"], partitions=partitions)
        absent = OffsetCommitRequestTopic(name="absent", topic_id=bytes(range(16)), partitions=partitions)
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=epoch,
            member_id=member_id,
            group_instance_id=instance_id,
            topics=[topic, absent] if chance.random() < 0.3 else [topic],
        )
        answer = await self.party.ask("offset_commit", version, request)
        codes = sorted(
            (
                topic.name if version < 10 else topic.topic_id == self.ids["a"],
                each.partition_index,
                ErrorCode(each.error_code).name,
            )
            for topic in answer.topics
            for each in topic.partitions
        )
        self.party.tell(f"commit {self.name(member_id)} {instance_id} {epoch} v{version}", 0, codes)

    async def fetch(self) -> None:
        chance, version = self.chance, self.chance.randint(1, 10)
        member_id, _, epoch = self.somebody()
        wants_all = chance.random() < 0.3 and version >= 2
        if version < 8:
            topics = [OffsetFetchRequestTopic(name=name, partition_indexes=[0, 1, 7]) for name in (self.topics["a"], "absent")]
            request = OffsetFetchRequest(group_id=self.group, topics=None if wants_all else topics, require_stable=version >= 7)
            answer = await self.party.ask("offset_fetch", version, request)
            code, found = answer.error_code, answer.topics
        else:
            named = [
                OffsetFetchRequestTopics(name=self.topics["a"], topic_id=self.ids["a"], partition_indexes=[0, 1, 7]),
                OffsetFetchRequestTopics(name="absent", topic_id=bytes(range(16)), partition_indexes=[0]),
            ]
            asked = OffsetFetchRequestGroup(group_id=self.group, topics=None if wants_all else named)
            if version >= 9 and chance.random() < 0.7:  # Kafka stumbles over an epoch without an id
                asked.member_id, asked.member_epoch = member_id, epoch
            member_id, epoch = str(asked.member_id), asked.member_epoch
            answer = await self.party.ask("offset_fetch", version, OffsetFetchRequest(groups=[asked], require_stable=True))
            code, found = answer.groups[0].error_code, answer.groups[0].topics
        places = sorted(
            (
                topic.name if version < 10 else topic.topic_id == self.ids["a"],
                each.partition_index,
                each.committed_offset,
                each.metadata,
                ErrorCode(each.error_code).name,
            )
            for topic in found
            for each in topic.partitions
        )
        self.party.tell(f"fetch {self.name(member_id)} {epoch} {wants_all} v{version}", code, places)

    # What there is

    async def describe(self) -> None:
        chance, version = self.chance, self.chance.randint(0, 1)
        asked = ConsumerGroupDescribeRequest(
            group_ids=[self.group, f"{self.group}-absent"], include_authorized_operations=chance.random() < 0.5
        )
        answer = await self.party.ask("consumer_group_describe", version, asked)
        for found in sorted(answer.groups, key=lambda each: each.group_id):
            self.party.tell(
                f"describe {found.group_id} v{version}",
                found.error_code,
                found.group_state,
                found.group_epoch,
                found.assignment_epoch,
                found.assignor_name,
                found.authorized_operations,
                sorted(
                    (
                        str(self.name(each.member_id)),
                        each.instance_id,
                        each.rack_id,
                        each.member_epoch,
                        each.client_id,
                        each.client_host,
                        sorted(each.subscribed_topic_names),
                        each.subscribed_topic_regex,
                        self.places(each.assignment),
                        sorted(topic.topic_name for topic in each.assignment.topic_partitions),
                        self.places(each.target_assignment),
                        each.member_type,
                    )
                    for each in found.members
                ),
            )
        version = chance.randint(0, 6)
        classic = await self.party.ask("describe_groups", version, DescribeGroupsRequest(groups=[self.group]))
        (one,) = classic.groups
        self.party.tell(f"as classic v{version}", one.error_code, one.group_state, one.protocol_type, len(one.members))
        types = chance.choice(([], ["consumer"], ["Consumer"], ["classic"], ["CLASSIC", "CONSUMER"]))
        states = chance.choice(([], ["stable"], ["Reconciling", "ASSIGNING"], ["Empty"]))
        version = 5 if types else 4 if states else chance.randint(0, 5)
        listed = await self.party.ask("list_groups", version, ListGroupsRequest(types_filter=types, states_filter=states))
        self.party.tell(
            f"list {types} {states} v{version}",
            listed.error_code,
            [(each.protocol_type, each.group_state, each.group_type) for each in listed.groups if each.group_id == self.group],
        )

    async def delete(self) -> None:
        """Offsets of topics; and the group, which stays because it has members."""
        chance = self.chance
        topics = [
            OffsetDeleteRequestTopic(
                name=name, partitions=[OffsetDeleteRequestPartition(partition_index=each) for each in (0, 9)]
            )
            for name in chance.choice(((self.topics["a"],), ("absent",), (self.topics["b"], "absent")))
        ]
        answer = await self.party.ask("offset_delete", 0, OffsetDeleteRequest(group_id=self.group, topics=topics))
        found = sorted(
            (topic.name, each.partition_index, ErrorCode(each.error_code).name)
            for topic in answer.topics
            for each in topic.partitions
        )
        self.party.tell(f"delete offsets of {[each.name for each in topics]}", answer.error_code, found)
        if self.consumers:
            deleted = await self.party.ask("delete_groups", chance.randint(0, 2), DeleteGroupsRequest(groups_names=[self.group]))
            self.party.tell("delete", deleted.results[0].error_code)

    async def step(self) -> None:
        acts = [self.join, self.odd, self.commit, self.fetch, self.describe, self.delete, self.nameless]
        weights = [14 if len(self.consumers) + len(self.away) < self.size else 0, 12, 10, 8, 8, 2, 2]
        if self.modern:
            acts += [self.beat, self.leave, self.again, self.odd_leave]
            acts += [self.classic_join, self.classic_sync, self.classic_heartbeat, self.classic_leave]
            weights += [40, 6, 4, 4, 8, 6, 4, 2]
        await self.chance.choices(acts, weights)[0]()


async def converse_at_random(host: str, port: int, seed: int, *, routed: bool = False) -> list[str]:
    circle = Circle(host, port, seed, routed=routed)
    try:
        await circle.begin()
        for _ in range(STEPS):
            await circle.step()
        await circle.describe()
    finally:
        circle.party.close()
    return circle.party.said
