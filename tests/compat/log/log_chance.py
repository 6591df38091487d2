"""A dialogue about topics and their logs that a seed decides: what producers, consumers and administrators ask, right and wrong.

Two brokers that answer alike are asked alike, in any version. A connection that the broker closes is an answer too. Times are the
dialogue's own (or not told), ids and sessions are told apart, not compared; error texts are each broker's own.
"""

from __future__ import annotations

import asyncio
import random
import struct
import time
from collections.abc import Callable
from typing import Any, Final

import crc32c

from ottla.client.connection import ClientConnection
from ottla.errors import ErrorCode
from ottla.metrics import Counters
from ottla.protocol.messages import alter_configs, incremental_alter_configs
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from ottla.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, RequestCursor, TopicRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records.batch import scan_batches
from ottla.records.record import build_batch
from ottla.runtime.network import RealNetwork
from tests.kit.wait import until_async

STEPS: Final = 40
PATIENCE_S: Final = 120.0
HOUR_MS: Final = 3_600_000
NOWHERE: Final = bytes(range(16))
TOPICS: Final[dict[str, dict[str, str]]] = {
    "plain": {},
    "compact": {"cleanup.policy": "compact"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "small": {"max.message.bytes": "300", "message.timestamp.before.max.ms": str(HOUR_MS)},
    "packed": {"compression.type": "gzip"},
}


class Visitor:
    def __init__(self, host: str, port: int, seed: int) -> None:
        self.host, self.port, self.seed = host, port, seed
        self.chance = random.Random(seed)
        self.said: list[str] = []
        self.began_ms = int(time.time() * 1000) // 1000 * 1000
        self.ids: dict[str, bytes] = {}
        self.session: tuple[int, int] | None = None
        self.connection: ClientConnection | None = None

    # Saying and hearing

    def topic(self, kind: str) -> str:
        return f"log-{self.seed}-{kind}"

    def tell(self, what: str, *more: object) -> None:
        self.said.append(" ".join([f"{what}:", *(str(each) for each in more)]).replace(f"log-{self.seed}-", ""))

    async def ask(self, api: str, version: int, request: object) -> Any:
        """None if the broker hung up."""
        if self.connection is None or self.connection.closed:
            self.connection = await ClientConnection.open(RealNetwork(Counters()), self.host, self.port, client_id="visitor")
            self.session = None
        try:
            return await asyncio.wait_for(self.connection.call(api, version, request), PATIENCE_S)
        except ConnectionError:
            return None

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()

    def age(self, timestamp: int) -> object:
        """A time of the dialogue's own as it was chosen; the broker's as such."""
        if timestamp < 0:
            return timestamp
        if timestamp == 0:
            return "0"
        return timestamp - self.began_ms if timestamp <= self.began_ms else "now"

    async def begin(self) -> None:
        topics = [
            CreatableTopic(
                name=self.topic(kind),
                num_partitions=2,
                replication_factor=1,
                configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
            )
            for kind, configs in TOPICS.items()
        ]
        await self.ask("create_topics", 5, CreateTopicsRequest(topics=topics, timeout_ms=60_000))
        await until_async(self._is_ready, "the topics are there", every_s=0.1)

    async def _is_ready(self) -> bool:
        asked = [
            ListOffsetsTopic(
                name=self.topic(kind),
                partitions=[ListOffsetsPartition(partition_index=each, timestamp=-1) for each in range(2)],
            )
            for kind in TOPICS
        ]
        found = await self.ask("list_offsets", 7, ListOffsetsRequest(replica_id=-1, topics=asked))
        if any(each.error_code for topic in found.topics for each in topic.partitions):
            return False
        names = [MetadataRequestTopic(name=self.topic(kind)) for kind in TOPICS]
        known = await self.ask("metadata", 12, MetadataRequest(topics=names))
        self.ids = {each.name: each.topic_id for each in known.topics}
        return not any(each.error_code for each in known.topics)

    def somewhere(self) -> tuple[str, int]:
        chance = self.chance
        kind = chance.choice((*TOPICS, "plain", "plain"))
        if chance.random() < 0.04:
            return chance.choice(("absent", "bad name", "")), 0
        return self.topic(kind), chance.choices((0, 1, 2, -1), (50, 40, 6, 4))[0]

    # Records

    def records(self, version: int) -> tuple[str, bytes]:
        """What they are, and they themselves. Left out is what Kafka does not answer at all or calls its own mistake (no records,
        garbage that claims to be compressed), and what it lets pass and Ottla does not: bytes after a batch, unknown attributes,
        a producer's claim that a broker set the time."""
        chance = self.chance
        kind = chance.choices(
            (
                "good", "empty", "crc", "magic", "count", "last delta", "short", "two", "control", "old", "future",
                "keyless", "big", "none inside", "offsets", "huge count",
            ),
            (60, 2, 4, 4, 4, 4, 4, 4, 3, 4, 4, 6, 5, 3, 3, 3),
        )[0]  # fmt: skip
        codec = chance.choices((0, 1, 2, 3, 4), (60, 10, 10, 10, 10))[0]
        if version < 7 and kind != "good":
            codec %= 4  # which of two reasons is given is each one's own
        count = chance.randint(1, 4)
        at = self.began_ms - chance.randrange(0, HOUR_MS // 2, 1000)
        if kind == "old":
            at = self.began_ms - 2 * HOUR_MS
        if kind == "future":
            at = self.began_ms + 3 * HOUR_MS
        rows = [
            (
                None if kind == "keyless" and number == count - 1 else b"key %d" % chance.randrange(3),
                None if chance.random() < 0.1 else b"value " * (60 if kind == "big" else 1),
                [("h", b"x")] if chance.random() < 0.2 else [],
                at + number,
            )
            for number in range(count)
        ]
        batch = bytearray(build_batch(rows, codec=codec, control=kind == "control"))

        def put(form: str, at: int, value: int) -> None:
            struct.pack_into(form, batch, at, value)
            struct.pack_into(">I", batch, 17, crc32c.crc32c(bytes(batch[21:])))

        match kind:
            case "empty":
                return kind, b""
            case "crc":
                batch[17] ^= 1
            case "magic":
                batch[16] = chance.choice((0, 1, 3))
            case "count":
                put(">i", 57, count + chance.choice((1, -1, -count - 1)))
            case "huge count":
                put(">i", 57, 0x7FFFFFFF)
            case "last delta":
                put(">i", 23, count + 3)
            case "short":
                del batch[-chance.randint(1, 40) :]
            case "two":
                batch += build_batch(rows)
            case "none inside":
                batch = bytearray(build_batch([]))
            case "offsets":
                struct.pack_into(">q", batch, 0, chance.choice((5, -1, 1 << 40)))
        return f"{kind} {count} codec {codec}", bytes(batch)

    async def produce(self) -> None:
        chance, version = self.chance, self.chance.randint(3, 13)
        name, index = self.somewhere()
        what, records = self.records(version)
        acks = chance.choice((-1, 1))
        if name not in self.ids or index not in (0, 1):
            what, records = (
                "good",
                build_batch([(b"key", b"value", (), self.began_ms)]),
            )  # what is looked at first, is each one's own
        elif what.startswith("good") and version >= 7:
            acks = chance.choices((-1, 1, 2, -2), (45, 45, 5, 5))[0]
        topic = TopicProduceData(
            name=name,
            topic_id=self.ids.get(name, NOWHERE),
            partition_data=[PartitionProduceData(index=index, records=records)],
        )
        request = ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[topic])
        answer = await self.ask("produce", version, request)
        heard: Any = "hangs up"
        if answer is not None:
            heard = [
                (
                    each.index,
                    ErrorCode(each.error_code).name,
                    each.base_offset,
                    self.age(each.log_append_time_ms),
                    None if each.error_code else each.log_start_offset,
                    [error.batch_index for error in each.record_errors],
                )
                for found in answer.responses
                for each in found.partition_responses
            ]
        self.tell(f"produce {what} to {name} {index} acks {acks} v{version}", heard)

    # Reading

    def some_offset(self) -> int:
        return self.chance.choices((0, 1, 3, 5, 12, 500, -1), (30, 10, 10, 10, 10, 5, 5))[0]

    async def fetch(self) -> None:
        chance, version = self.chance, self.chance.randint(4, 18)
        places = [self.somewhere() for _ in range(chance.randint(1, 2))]
        if len({name for name, _ in places}) < len(places):
            places = places[:1]
        limit = chance.choice((1, 100, 1_000_000))
        topics = [
            FetchTopic(
                topic=name,
                topic_id=self.ids.get(name, NOWHERE),
                partitions=[
                    FetchPartition(
                        partition=index,
                        fetch_offset=self.some_offset(),
                        current_leader_epoch=chance.choices((-1, 0, 1), (70, 20, 10))[0] if version >= 9 else -1,
                        last_fetched_epoch=chance.choices((-1, 0, 3), (80, 15, 5))[0] if version >= 12 else -1,
                        partition_max_bytes=limit,
                    )
                ],
            )
            for name, index in places
        ]
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=chance.choice((0, 1)),
            max_bytes=chance.choice((1, 1_000_000)) if len(places) == 1 else 1_000_000,
            isolation_level=chance.choice((0, 1)),
            topics=topics,
        )
        how = "alone"
        if version >= 7:
            how = chance.choice(("alone", "new", "next", "wrong epoch", "wrong id"))
            if self.session is None and how in ("next", "wrong epoch"):
                how = "new"
            match how:
                case "new":
                    request.session_epoch = 0
                case "next":
                    assert self.session is not None
                    request.session_id, request.session_epoch = self.session
                case "wrong epoch":
                    assert self.session is not None
                    request.session_id, request.session_epoch = self.session[0], self.session[1] + 7
                case "wrong id":
                    request.session_id, request.session_epoch = 1, 5
            if how == "next" and chance.random() < 0.3:
                name, index = self.somewhere()
                request.forgotten_topics_data = [
                    ForgottenTopic(topic=name, topic_id=self.ids.get(name, NOWHERE), partitions=[index])
                ]
        if self.session is not None and how in ("next", "wrong epoch"):
            return  # a session is of one generation: with names or with ids
        answer = await self.ask("fetch", version, request)
        if answer is None:
            self.tell(f"fetch {places} v{version}", "hangs up")
            return
        names = {topic_id: name for name, topic_id in self.ids.items()}
        heard = []
        for found in answer.responses:
            for each in found.partitions:
                batches = scan_batches(each.records)[0] if each.records else []
                diverging = each.diverging_epoch
                heard.append(
                    (
                        found.topic if version < 13 else names.get(found.topic_id, "nowhere"),
                        each.partition_index,
                        ErrorCode(each.error_code).name,
                        each.high_watermark,
                        each.last_stable_offset,
                        each.log_start_offset,
                        None if diverging is None else (diverging.epoch, diverging.end_offset),
                        each.aborted_transactions or None,
                        each.preferred_read_replica,
                        [
                            (batch.base_offset, batch.last_offset, batch.attributes, self.age(batch.max_timestamp))
                            for batch in batches
                        ],
                    )
                )
        asked = [
            (
                name,
                index,
                topic.partitions[0].fetch_offset,
                topic.partitions[0].current_leader_epoch,
                topic.partitions[0].last_fetched_epoch,
            )
            for (name, index), topic in zip(places, topics, strict=True)
        ]
        self.tell(
            f"fetch {how} {asked} {limit} {request.max_bytes} v{version}",
            ErrorCode(answer.error_code).name,
            answer.session_id != 0,
            sorted(heard, key=str),
        )

    async def list_offsets(self) -> None:
        chance, version = self.chance, self.chance.randint(1, 11)
        name, index = self.somewhere()
        times = (
            -1,
            -2,
            -3,
            -4,
            -5,
            -6,
            -7,
            0,
            self.began_ms - HOUR_MS // 4,
            self.began_ms - HOUR_MS,
            self.began_ms + 9 * HOUR_MS,
        )
        at = chance.choice(times)
        epoch = chance.choices((-1, 0, 1), (80, 15, 5))[0] if version >= 4 else -1
        partition = ListOffsetsPartition(partition_index=index, timestamp=at, current_leader_epoch=epoch)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=chance.choice((0, 1)) if version >= 2 else 0,
            topics=[ListOffsetsTopic(name=name, partitions=[partition])],
            timeout_ms=1_000,
        )
        answer = await self.ask("list_offsets", version, request)
        heard = _of_partitions(answer, lambda each: (self.age(each.timestamp), each.offset, each.leader_epoch))
        self.tell(f"offset of {name} {index} at {self.age(at)} epoch {epoch} v{version}", heard)

    async def epochs(self) -> None:
        chance, version = self.chance, self.chance.randint(2, 4)
        name, index = self.somewhere()
        partition = OffsetForLeaderPartition(
            partition=index, current_leader_epoch=chance.choice((-1, 0, 1)), leader_epoch=chance.choice((-1, 0, 0, 1, 5))
        )
        request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=name, partitions=[partition])])
        if version >= 3:
            request.replica_id = -1
        answer = await self.ask("offset_for_leader_epoch", version, request)
        heard = _of_partitions(answer, lambda each: (each.leader_epoch, each.end_offset))
        self.tell(f"end of {name} {index} {partition.current_leader_epoch} {partition.leader_epoch} v{version}", heard)

    async def delete_records(self) -> None:
        chance, version = self.chance, self.chance.randint(0, 2)
        name, index = self.somewhere()
        offset = chance.choices((-1, 0, 1, 2, 500, -2), (10, 20, 40, 20, 10, 10))[0]
        topic = DeleteRecordsTopic(name=name, partitions=[DeleteRecordsPartition(partition_index=index, offset=offset)])
        answer = await self.ask("delete_records", version, DeleteRecordsRequest(topics=[topic], timeout_ms=30_000))
        heard = _of_partitions(answer, lambda each: (each.low_watermark,))
        self.tell(f"delete records of {name} {index} before {offset} v{version}", heard)

    # Topics

    async def metadata(self) -> None:
        chance, version = self.chance, self.chance.randint(1, 13)
        wanted: list[MetadataRequestTopic] = []
        for _ in range(chance.randint(1, 3)):
            name, _ = self.somewhere()
            if name == "":
                continue
            if version >= 12 and chance.random() < 0.4:
                wanted.append(MetadataRequestTopic(topic_id=self.ids.get(name, NOWHERE), name=None))
            else:
                wanted.append(MetadataRequestTopic(name=name))
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=version < 4)
        if version < 4:
            wanted[:] = [each for each in wanted if each.name in self.ids]
        if version >= 8:
            request.include_topic_authorized_operations = chance.random() < 0.5
        answer = await self.ask("metadata", version, request)
        heard: Any = "hangs up"
        if answer is not None:
            heard = sorted(
                (
                    str(found.name),
                    ErrorCode(found.error_code).name,
                    found.topic_id in self.ids.values() if found.topic_id != NOWHERE else "nowhere",
                    found.is_internal,
                    found.topic_authorized_operations,
                    sorted(
                        (
                            each.partition_index,
                            each.error_code,
                            each.leader_id,
                            each.leader_epoch,
                            each.replica_nodes,
                            each.isr_nodes,
                        )
                        for each in found.partitions
                    ),
                )
                for found in answer.topics
            )
        asked = [each.name if each.name is not None else each.topic_id in self.ids.values() for each in wanted]
        self.tell(f"metadata {asked} v{version}", heard)

    async def describe_partitions(self) -> None:
        chance = self.chance
        names = [self.topic("plain"), self.topic("small"), "absent"][: chance.randint(1, 3)]
        cursor = chance.choice((None, RequestCursor(topic_name=self.topic("plain"), partition_index=chance.choice((0, 1, 7)))))
        limit = chance.choice((1, 2, 100))
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in names], response_partition_limit=limit, cursor=cursor
        )
        answer = await self.ask("describe_topic_partitions", 0, request)
        heard: Any = "hangs up"
        if answer is not None:
            heard = [
                (found.name, ErrorCode(found.error_code).name, [each.partition_index for each in found.partitions])
                for found in answer.topics
            ]
            follows = answer.next_cursor
            heard.append(None if follows is None else (follows.topic_name, follows.partition_index))
        self.tell(f"partitions {names} {limit} {cursor and (cursor.topic_name, cursor.partition_index)}", heard)

    async def create(self) -> None:
        """What is refused, or only tried."""
        chance, version = self.chance, self.chance.randint(2, 7)
        name = self.topic("new")
        topic = CreatableTopic(name=name, num_partitions=2, replication_factor=1)
        what = chance.choice(
            (
                "fine", "defaults", "exists", "no partitions", "minus", "no replicas", "replicas", "bad name", "dots", "empty",
                "long", "twice", "assigned", "assigned both", "gap", "unknown broker", "same broker", "no brokers", "bad config",
                "bad value", "null value", "config twice", "collides", "uneven",
            )
        )  # fmt: skip
        assigned = [CreatableReplicaAssignment(partition_index=0, broker_ids=[1])]
        match what:
            case "defaults":
                topic.num_partitions = topic.replication_factor = -1
            case "exists":
                topic.name = self.topic("plain")
            case "no partitions":
                topic.num_partitions = 0
            case "minus":
                topic.num_partitions = -5
            case "no replicas":
                topic.replication_factor = 0
            case "replicas":
                topic.replication_factor = 5
            case "bad name":
                topic.name = chance.choice(("a b", "ä", "a/b", "a:b", "a\0b"))
            case "dots":
                topic.name = chance.choice((".", ".."))
            case "empty":
                topic.name = ""
            case "long":
                topic.name = "x" * chance.choice((249, 250))
            case "assigned" | "assigned both" | "gap" | "unknown broker" | "same broker" | "no brokers" | "uneven":
                topic.assignments = assigned
                if what != "assigned both":
                    topic.num_partitions = topic.replication_factor = -1
                if what == "gap":
                    assigned[0].partition_index = 1
                if what == "unknown broker":
                    assigned[0].broker_ids = [77]
                if what == "same broker":
                    assigned[0].broker_ids = [1, 1]
                if what == "no brokers":
                    assigned[0].broker_ids = []
                if what == "uneven":
                    assigned.append(CreatableReplicaAssignment(partition_index=1, broker_ids=[1, 2]))
            case "bad config":
                topic.configs = [CreatableTopicConfig(name="no.such", value="1")]
            case "bad value":
                topic.configs = [CreatableTopicConfig(name=key, value=value) for key, value in [chance.choice(BAD_VALUES)]]
            case "null value":
                topic.configs = [CreatableTopicConfig(name="retention.ms", value=None)]
            case "config twice":
                topic.configs = [CreatableTopicConfig(name="retention.ms", value=value) for value in ("1000", "2000")]
            case "collides":
                topic.name = self.topic("plain").replace("-", "_").replace("_", ".", 1)
        topics = [topic, topic] if what == "twice" else [topic]
        answer = await self.ask(
            "create_topics", version, CreateTopicsRequest(topics=topics, timeout_ms=30_000, validate_only=True)
        )
        heard: Any = "hangs up"
        if answer is not None:
            heard = [
                (
                    each.name,
                    ErrorCode(each.error_code).name,
                    each.num_partitions,
                    each.replication_factor,
                    None
                    if each.configs is None
                    else [one.value for one in each.configs if one.name in ("retention.ms", "cleanup.policy")],
                )
                for each in answer.topics
            ]
        self.tell(f"create {what} {topic.name} {[(each.name, each.value) for each in topic.configs]} v{version}", heard)

    async def more_partitions(self) -> None:
        chance, version = self.chance, self.chance.randint(0, 3)
        name = chance.choice((self.topic("plain"), "absent", "", "bad name"))
        count = chance.choice((0, -1, 1, 2, 3, 4))
        assignments: Any = chance.choice((None, None, [[1]], [[1], [1]], [[77]], [[1, 1]], [[]]))
        topic = CreatePartitionsTopic(
            name=name,
            count=count,
            assignments=None if assignments is None else [CreatePartitionsAssignment(broker_ids=each) for each in assignments],
        )
        topics = [topic, topic] if chance.random() < 0.1 else [topic]
        request = CreatePartitionsRequest(topics=topics, timeout_ms=30_000, validate_only=True)
        answer = await self.ask("create_partitions", version, request)
        heard = "hangs up" if answer is None else [(each.name, ErrorCode(each.error_code).name) for each in answer.results]
        self.tell(f"partitions of {name} {len(topics)} {count} {assignments} v{version}", heard)

    async def delete(self) -> None:
        """Those that are not there."""
        chance, version = self.chance, self.chance.randint(1, 6)
        request = DeleteTopicsRequest(timeout_ms=30_000)
        if version < 6:
            request.topic_names = chance.choice((["absent"], ["bad name"], ["absent", "other"], [""]))
        else:
            request.topics = chance.choice(
                (
                    [DeleteTopicState(name="absent")],
                    [DeleteTopicState(topic_id=NOWHERE)],
                    [DeleteTopicState(name="absent", topic_id=NOWHERE)],
                    [DeleteTopicState(name=self.topic("plain"), topic_id=self.ids[self.topic("plain")])],
                    [DeleteTopicState()],
                )
            )
        answer = await self.ask("delete_topics", version, request)
        heard: Any = "hangs up"
        if answer is not None:
            heard = sorted((str(each.name), ErrorCode(each.error_code).name) for each in answer.responses)
        asked: Any = request.topic_names or [(each.name, each.topic_id == NOWHERE) for each in request.topics]
        self.tell(f"delete {asked} v{version}", heard)

    # Settings

    async def describe_configs(self) -> None:
        chance, version = self.chance, self.chance.randint(1, 4)
        kind, name, keys = chance.choice(
            (
                (2, self.topic("compact"), ["cleanup.policy", "retention.ms", "segment.ms", "flush.ms", "no.such"]),
                (2, self.topic("small"), ["max.message.bytes", "segment.bytes"]),
                (2, "absent", None),
                (2, "bad name", None),
                (2, "", None),
                (4, "1", ["num.io.threads", "log.segment.bytes", "log.retention.ms", "log.roll.hours"]),
                (4, "99", None),
                (4, "x", None),
                (1, "x", None),
                (77, "x", None),
                (8, "1", ["root"] if chance.random() < 0 else []),
            )
        )
        resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
        request = DescribeConfigsRequest(resources=[resource], include_synonyms=version >= 1 and chance.random() < 0.5)
        answer = await self.ask("describe_configs", version, request)
        heard: Any = "hangs up"

        def synonyms(one: Any) -> list[object]:
            return [(synonym.name, synonym.value, synonym.source) for synonym in one.synonyms]

        if answer is not None:
            heard = [
                (
                    ErrorCode(each.error_code).name,
                    sorted(
                        (one.name, one.value, one.read_only, one.config_source, one.is_sensitive, one.config_type, synonyms(one))
                        for one in each.configs
                    )
                    if keys
                    else None,
                )
                for each in answer.results
            ]
        self.tell(f"configs {kind} {name} {keys} v{version}", heard)

    async def alter_configs(self) -> None:
        """What is refused, or only tried."""
        chance = self.chance
        kind, name = chance.choice(((2, self.topic("plain")), (2, self.topic("plain")), (1, "x"), (77, "x")))
        key, value = chance.choice((("retention.ms", "5000"), ("cleanup.policy", "compact"), ("no.such", "1"), *BAD_VALUES))
        if chance.random() < 0.15:
            name, key, value = chance.choice(("absent", "")), "cleanup.policy", "delete"
        if chance.random() < 0.5:
            op = chance.choice((0, 1, 2, 3))
            configs = [incremental_alter_configs.AlterableConfig(name=key, config_operation=op, value=value)]
            if chance.random() < 0.1:
                configs *= 2
            resource = incremental_alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
            request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)
            version = chance.randint(0, 1)
            answer = await self.ask("incremental_alter_configs", version, request)
            what = f"op {op} of {len(configs)}"
        else:
            plain = alter_configs.AlterConfigsResource(
                resource_type=kind, resource_name=name, configs=[alter_configs.AlterableConfig(name=key, value=value)]
            )
            version = chance.randint(0, 2)
            all_of = alter_configs.AlterConfigsRequest(resources=[plain], validate_only=True)
            answer = await self.ask("alter_configs", version, all_of)
            what = "all"
        heard = "hangs up" if answer is None else [ErrorCode(each.error_code).name for each in answer.responses]
        self.tell(f"alter {what} {kind} {name} {key}={value} v{version}", heard)

    async def step(self) -> None:
        acts: dict[Callable[[], Any], int] = {
            self.produce: 40,
            self.fetch: 24,
            self.list_offsets: 14,
            self.epochs: 4,
            self.delete_records: 5,
            self.metadata: 5,
            self.describe_partitions: 3,
            self.create: 8,
            self.more_partitions: 5,
            self.delete: 3,
            self.describe_configs: 4,
            self.alter_configs: 6,
        }
        await self.chance.choices(list(acts), list(acts.values()))[0]()


BAD_VALUES: Final = (
    ("retention.ms", "x"),
    ("retention.ms", "-2"),
    ("retention.ms", ""),
    ("cleanup.policy", "odd"),
    ("cleanup.policy", ""),
    ("min.insync.replicas", "0"),
    ("segment.bytes", "1"),
    ("max.message.bytes", "-1"),
    ("compression.type", "odd"),
    ("message.timestamp.type", "odd"),
    ("min.cleanable.dirty.ratio", "2"),
    ("unclean.leader.election.enable", "maybe"),
    ("max.compaction.lag.ms", "0"),
    ("segment.ms", "0"),
    ("flush.messages", "0"),
)


def _of_partitions(answer: Any, of: Callable[[Any], tuple[object, ...]]) -> str | list[tuple[object, ...]]:
    """The code of each partition, and what `of` finds worth telling of it."""
    if answer is None:
        return "hangs up"
    return [(ErrorCode(each.error_code).name, *of(each)) for found in answer.topics for each in found.partitions]


async def converse(visitor: Visitor) -> list[str]:
    try:
        await visitor.begin()
        for _ in range(STEPS):
            await visitor.step()
    finally:
        visitor.close()
    return visitor.said
