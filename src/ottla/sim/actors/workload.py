"""Clients of the virtual broker: producers, consumers, administrators, each with its own seeded habits.

Owns: what is asked, and the checks that need only an answer and the model. Speaks the wire protocol through `client.connection`.
Never: retries a produce request, so that a batch is stored at most once; an answer that does not come leaves its outcome open.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.client.connection import ClientConnection
from ottla.errors import ErrorCode
from ottla.ports import Network
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records.record import build_batch
from ottla.sim.kernel.machine import START_MS
from ottla.sim.kernel.trace import Trace
from ottla.sim.models.checkers import Violation, require, scan
from ottla.sim.models.keyed_model import KeyedModel, KeyedRecord
from ottla.sim.models.partition_model import PartitionModel, Sent

ANSWER_S_MAX: Final = 90.0
"""Longer than any timeout a request names, and than the slowest network takes for all of a log."""
SMALL_ANSWER_S_MAX: Final = 20.0
SAME_NAME_S: Final = 60.0
EARLIEST: Final = -2
LATEST: Final = -1

GONE: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID})


@dataclass(slots=True)
class Topic:
    name: str
    topic_id: bytes
    config: dict[str, str]
    partitions: list[PartitionModel] = field(default_factory=list)

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.config.get("cleanup.policy", "")

    def add_partitions(self, count: int, now_s: Callable[[], float]) -> None:
        """Up to so many."""
        for index in range(len(self.partitions), count):
            name = f"{self.name}-{index}"
            if self.is_compacted:
                self.partitions.append(KeyedModel(name, self.topic_id, now_s=now_s, config=self.config))
            else:
                self.partitions.append(PartitionModel(name, self.topic_id))

    @property
    def flushes_each(self) -> bool:
        """Every record is flushed before it is acknowledged."""
        return self.config.get("flush.messages") == "1"


class Shared:
    """What all clients of a run share: the topics, the trace, and how broken the world is at present."""

    def __init__(self, rng: random.Random, trace: Trace, port: int) -> None:
        self.rng = rng
        self.trace = trace
        self.port = port
        self.topics: dict[str, Topic] = {}
        self.disk_is_sound = True
        self.doubtful: list[Topic] = []
        """Topics whose deletion was asked for."""
        self.made = 0
        self.names = 0
        self.has_compaction = False
        self.log_dirs: list[str] = []
        """Those that replicas may be moved to; none if they are not moved."""
        self.on_acknowledged: Callable[[Topic, PartitionModel, Sent, int], None] = lambda *_: None
        self.requests = 0

    def pick(self) -> tuple[Topic, int] | None:
        if not self.topics:
            return None
        topic = self.rng.choice(list(self.topics.values()))
        return topic, self.rng.randrange(len(topic.partitions))


class Client:
    """One client with one connection, which it opens again when it breaks."""

    def __init__(self, name: str, shared: Shared, network: Network) -> None:
        self.name = name
        self.shared = shared
        self.rng = random.Random(shared.rng.random())
        self._network = network
        self._connection: ClientConnection | None = None
        self.answer_s_max = ANSWER_S_MAX

    async def run(self, act: Callable[[], Awaitable[None]], *, pause_s: float) -> None:
        """Act and pause, for as long as the process lives."""
        while True:
            try:
                await act()
            except OSError as error:
                require("the peer sent" not in str(error), "wire", f"{self.name}: {error}")
                self._connection = None
                self.shared.trace.add(f"{self.name} {type(error).__name__}")
                await asyncio.sleep(0.5)
            await asyncio.sleep(self.rng.random() * pause_s)

    async def connection(self) -> ClientConnection:
        if self._connection is None or self._connection.closed:
            self._connection = await ClientConnection.open(self._network, "127.0.0.1", self.shared.port, client_id=self.name)
        return self._connection

    async def call(self, api: str, version: int, request: object) -> Any:
        connection = await self.connection()
        self.shared.requests += 1
        try:
            async with asyncio.timeout(self.answer_s_max):
                return await connection.call(api, version, request)
        except TimeoutError:
            raise Violation("hang", f"{self.name} waited {self.answer_s_max} s for the answer to {api}") from None

    def expect(self, code: int, what: str, *allowed: ErrorCode) -> bool:
        """Whether it went well; anything but the errors allowed is a breach."""
        if code == 0:
            return True
        error = ErrorCode(code)
        # A directory that failed goes on being offline after the fault itself is over.
        fine = error in allowed or (error is ErrorCode.KAFKA_STORAGE_ERROR and not self.shared.disk_is_sound)
        require(fine, "error", f"{self.name}: {what} got {error.name}")
        self.shared.trace.add(f"{self.name} {what}: {error.name}")
        return False

    # --- produce

    def make_batch(self, now_ms: int, *, small: bool = False) -> tuple[bytes, tuple[int, ...]]:
        rng = self.rng
        records = []
        for _ in range(1 if small else rng.choice((1, 1, 2, 6))):
            self.shared.made += 1
            value = b"%d:" % self.shared.made + bytes(0 if small else rng.choice((0, 20, 200)))
            records.append((None, value, (), now_ms + rng.choice((0, 0, 1, -5000))))
        return build_batch(records, codec=rng.choice((0, 0, 0, 1, 2, 3, 4))), tuple(record[3] for record in records)

    def make_keyed_batch(self, now_ms: int) -> tuple[bytes, list[tuple[int, KeyedRecord]]]:
        """Few keys, some tombstones; each record carries its number."""
        rng = self.rng
        made: list[tuple[int, KeyedRecord]] = []
        for _ in range(rng.choice((1, 1, 2, 4))):
            self.shared.made += 1
            value = None if rng.random() < 0.2 else b"%d" % self.shared.made + bytes(rng.choice((0, 0, 20)))
            key = b"k%d" % rng.randrange(6)
            if rng.random() < 0.15:
                key, value = b"u%d" % self.shared.made, None  # nothing will replace this tombstone: it goes when its time comes
            made.append((self.shared.made, (key, value, now_ms + rng.choice((0, 0, 1, -500)))))
        records = [(key, value, (("n", b"%d" % number),), at_ms) for number, (key, value, at_ms) in made]
        return build_batch(records, codec=rng.choice((0, 0, 1, 4))), made

    async def produce(self) -> None:
        picked = self.shared.pick()
        if picked is not None:
            await self.produce_to(*picked, self.rng.choice((0, 1, 1, -1, -1)))

    async def produce_to(self, topic: Topic, index: int, acks: int) -> bool:
        """Send one batch. Whether it was acknowledged."""
        model = topic.partitions[index]
        now_ms = START_MS + int(asyncio.get_running_loop().time() * 1000)
        keyed: list[tuple[int, KeyedRecord]] = []
        if isinstance(model, KeyedModel):
            batch, keyed = self.make_keyed_batch(now_ms)
            timestamps: tuple[int, ...] = ()
        else:
            batch, timestamps = self.make_batch(now_ms)
            if len(batch) > int(topic.config.get("segment.bytes", "100000")):
                batch, timestamps = self.make_batch(timestamps[0], small=True)
        version = self.rng.choice((7, 9, 11, 13))
        request = ProduceRequest(
            acks=acks,
            timeout_ms=30_000,
            topic_data=[
                TopicProduceData(
                    name=topic.name, topic_id=topic.topic_id, partition_data=[PartitionProduceData(index=index, records=batch)]
                )
            ],
        )
        sent = model.send_keyed(batch, keyed) if isinstance(model, KeyedModel) else model.send(batch, timestamps)
        if acks == 0:
            (await self.connection()).tell("produce", version, request)
            self.shared.trace.add(f"{self.name} produce {model.name} acks=0")
            return False
        response = await self.call("produce", version, request)
        answer = response.responses[0].partition_responses[0]
        if not self.expect(answer.error_code, f"produce {model.name}", *GONE):
            return False
        self.shared.trace.add(f"{self.name} produce {model.name} acks={acks}: {answer.base_offset}")
        model.acknowledge(sent, answer.base_offset)
        self.shared.on_acknowledged(topic, model, sent, answer.base_offset)
        return True

    async def produce_ahead(self) -> None:
        """Several requests before the first answer: they are handled and answered in their order (W01)."""
        await self.connection()
        for outcome in await asyncio.gather(*(self.produce() for _ in range(self.rng.randint(1, 4))), return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    # --- consume

    async def follow(self) -> None:
        """Follow all partitions in one fetch session (KIP-227): the broker names only what has news."""
        session_id, epoch = 0, 0
        version = self.rng.choice((7, 11, 12, 13, 17))
        positions: dict[tuple[str, int], tuple[Topic, int]] = {}
        added: list[tuple[str, int]] = []
        for topic in list(self.shared.topics.values()):
            for index in range(len(topic.partitions)):
                start = await self.list_offset(topic, index, EARLIEST)
                if start is None:
                    return
                positions[topic.name, index] = (topic, start[1])
                added.append((topic.name, index))
        for _ in range(self.rng.randint(2, 8)):
            request = FetchRequest(
                max_wait_ms=self.rng.choice((0, 200)),
                min_bytes=1,
                max_bytes=self.rng.choice((500, 1 << 20)),
                session_id=session_id,
                session_epoch=epoch,
                topics=[
                    FetchTopic(
                        topic=name,
                        topic_id=positions[name, index][0].topic_id,
                        partitions=[
                            FetchPartition(partition=index, fetch_offset=positions[name, index][1], partition_max_bytes=2000)
                        ],
                    )
                    for name, index in added
                ],
            )
            response = await self.call("fetch", version, request)
            if not self.expect(
                response.error_code,
                "fetch in a session",
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
                ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
                *GONE,
            ):
                return
            require(response.session_id == session_id or not session_id, "session", f"{self.name}: another session answered")
            if not response.session_id:
                return
            session_id, epoch = response.session_id, epoch + 1
            added = self._follow_on(response, positions, version)
            if not positions:
                return
            await asyncio.sleep(self.rng.random() * 0.5)

    def _follow_on(
        self, response: Any, positions: dict[tuple[str, int], tuple[Topic, int]], version: int
    ) -> list[tuple[str, int]]:
        """Check what came; returns the partitions whose position the session must be told of."""
        moved: list[tuple[str, int]] = []
        names = {topic.topic_id: topic.name for topic, _ in positions.values()}
        for answered in response.responses:
            name = names.get(bytes(answered.topic_id), "") if version >= 13 else answered.topic
            for answer in answered.partitions:
                key = (name, answer.partition_index)
                require(key in positions, "session", f"{self.name}: {key} was not asked for")
                topic, offset = positions[key]
                if not self.expect(answer.error_code, f"fetch {key} at {offset}", ErrorCode.OFFSET_OUT_OF_RANGE, *GONE):
                    positions.clear()
                    return []
                model = topic.partitions[answer.partition_index]
                after = self.check_fetched(topic, model, offset, 1 << 30, answer, version)
                if after != offset:
                    positions[key] = (topic, after)
                    moved.append(key)
        return moved

    async def fetch(self, topic: Topic, index: int, offset: int, max_bytes: int) -> int | None:
        """Read from an offset and check what comes. The next offset, or None if this one is out of range or the topic gone."""
        model = topic.partitions[index]
        version = self.rng.choice((4, 7, 11, 12, 13, 17))
        request = FetchRequest(
            max_wait_ms=self.rng.choice((0, 100, 1000)),
            min_bytes=1,
            max_bytes=max_bytes,
            session_epoch=-1,
            topics=[
                FetchTopic(
                    topic=topic.name,
                    topic_id=topic.topic_id,
                    partitions=[FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=max_bytes)],
                )
            ],
        )
        deleted_below = model.deleted_below
        response = await self.call("fetch", version, request)
        if not response.responses:
            self.expect(response.error_code, f"fetch {model.name}", *GONE)
            return None
        answer = response.responses[0].partitions[0]
        if not self.expect(answer.error_code, f"fetch {model.name} at {offset}", ErrorCode.OFFSET_OUT_OF_RANGE, *GONE):
            if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and answer.high_watermark >= 0:
                require(
                    not (max(model.log_start_seen, model.deleted_below) <= offset <= model.high_watermark_seen)
                    or offset < answer.log_start_offset,
                    "read-bound",
                    f"{model.name}: offset {offset} is out of range of {answer.log_start_offset}..{answer.high_watermark}",
                )
            return None
        require(
            offset >= deleted_below, "delete-records", f"{model.name}: {offset} is read, below {deleted_below} all is deleted"
        )
        return self.check_fetched(topic, model, offset, max_bytes, answer, version)

    def check_fetched(self, topic: Topic, model: PartitionModel, offset: int, max_bytes: int, answer: Any, version: int) -> int:
        high_watermark, log_start = answer.high_watermark, answer.log_start_offset if version >= 5 else 0
        data = bytes(answer.records or b"")
        found, end = scan(data)
        name = model.name
        require(end == len(data), "read", f"{name}: a fetch at {offset} gave {len(data) - end} bytes that are no batch")
        require(len(found) <= 1 or len(data) <= max_bytes, "read", f"{name}: {len(data)} bytes, {max_bytes} were asked for")
        expected = None
        gaps = model.is_compacted
        for batch in found:
            model.fetched.append(batch.base_offset)
            first = (gaps or batch.base_offset <= offset) and offset <= batch.last_offset
            require(
                first if expected is None else batch.base_offset == expected or (gaps and batch.base_offset > expected),
                "read",
                f"{name}: a fetch at {offset} gave the batch {batch.base_offset}..{batch.last_offset}",
            )
            require(batch.last_offset < high_watermark, "read-bound", f"{name}: {batch.last_offset} above {high_watermark}")
            model.observe(batch)
            expected = batch.last_offset + 1
        # Answers to two clients may overtake each other on their way: only one client judges what may not go back.
        if self.name == "consumer" and self.shared.topics.get(topic.name) is topic:
            require(
                high_watermark >= model.high_watermark_seen,
                "high-watermark",
                f"{name}: the high watermark went back from {model.high_watermark_seen} to {high_watermark}",
            )
            require(
                version < 5 or log_start >= model.log_start_seen,
                "log-start",
                f"{name}: the log start went back from {model.log_start_seen} to {log_start}",
            )
            model.high_watermark_seen = high_watermark
            model.log_start_seen = max(model.log_start_seen, log_start)
        self.shared.trace.add(f"{self.name} fetch {name} at {offset}: {len(found)} batches, high watermark {high_watermark}")
        return offset if expected is None else expected

    async def list_offset(self, topic: Topic, index: int, timestamp: int) -> tuple[int, int] | None:
        """(timestamp, offset), or None if the topic is gone."""
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(name=topic.name, partitions=[ListOffsetsPartition(partition_index=index, timestamp=timestamp)])
            ],
        )
        response = await self.call("list_offsets", self.rng.choice((1, 4, 7, 9)), request)
        answer = response.topics[0].partitions[0]
        if not self.expect(answer.error_code, f"list offsets {topic.name}-{index}", *GONE):
            return None
        return answer.timestamp, answer.offset

    async def consume(self) -> None:
        """Follow one partition for a while, from somewhere."""
        picked = self.shared.pick()
        if picked is None:
            return
        topic, index = picked
        start = await self.list_offset(topic, index, self.rng.choice((EARLIEST, EARLIEST, LATEST)))
        if start is None:
            return
        position: int | None = start[1]
        for _ in range(self.rng.randint(1, 6)):
            if position is None:
                return
            position = await self.fetch(topic, index, position, self.rng.choice((1, 300, 2000, 1 << 20)))
            await asyncio.sleep(self.rng.random() * 0.3)

    # --- administrate

    def topic_config(self) -> dict[str, str]:
        rng = self.rng
        config = {
            "segment.bytes": rng.choice(("400", "1000", "5000", "100000")),
            "index.interval.bytes": rng.choice(("0", "50", "500", "4096")),
            "retention.ms": rng.choice(("-1", "60000", "604800000")),
            "retention.bytes": rng.choice(("-1", "-1", "2000")),
            "segment.ms": rng.choice(("10000", "604800000")),
            "file.delete.delay.ms": rng.choice(("0", "1000", "60000")),
        }
        if self.shared.has_compaction and rng.random() < 0.7:
            config["cleanup.policy"] = rng.choice(("compact", "compact", "compact,delete"))
            config["segment.bytes"] = rng.choice(("400", "1000", "2000"))
            config["min.cleanable.dirty.ratio"] = rng.choice(("0.01", "0.3"))
            config["delete.retention.ms"] = rng.choice(("2000", "86400000"))
            config["min.compaction.lag.ms"] = rng.choice(("0", "0", "3000"))
        if rng.random() < 0.4:
            config["flush.messages"] = rng.choice(("1", "1", "5"))
        if rng.random() < 0.3:
            config["flush.ms"] = rng.choice(("500", "5000"))
        return config

    async def create_topic(self, name: str | None = None) -> None:
        if name is None:
            name = f"t{self.shared.names}"
            self.shared.names += 1
        if name in self.shared.topics or len(self.shared.topics) >= 3:
            return
        config, count = self.topic_config(), self.rng.randint(1, 3)
        self.shared.trace.add(f"{self.name} create {name} {sorted(config.items())}")
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=count,
                    replication_factor=1,
                    configs=[CreatableTopicConfig(name=key, value=value) for key, value in config.items()],
                )
            ]
        )
        result = (await self.call("create_topics", 7, request)).topics[0]
        if self.expect(result.error_code, f"create {name}", ErrorCode.TOPIC_ALREADY_EXISTS):
            self.shared.topics[name] = Topic(name, bytes(result.topic_id), config)
            self.shared.topics[name].add_partitions(count, asyncio.get_running_loop().time)

    async def delete_topic(self) -> None:
        if len(self.shared.topics) < 2:
            return
        topic = self.rng.choice(list(self.shared.topics.values()))
        self.shared.trace.add(f"{self.name} delete {topic.name}")
        # From now on its fate is open; if the answer does not come, the next start tells.
        del self.shared.topics[topic.name]
        self.shared.doubtful.append(topic)
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic.name)], timeout_ms=10_000)
        result = (await self.call("delete_topics", 6, request)).responses[0]
        self.expect(result.error_code, f"delete {topic.name}", *GONE)
        if self.rng.random() < 0.6:
            # Not at once: requests by name that are on their way would reach the wrong topic.
            await asyncio.sleep(SAME_NAME_S)
            await self.create_topic(topic.name)

    async def add_partitions(self) -> None:
        picked = self.shared.pick()
        if picked is None:
            return
        topic = picked[0]
        count = len(topic.partitions) + 1
        if count > 4:
            return
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=topic.name, count=count, assignments=None)], timeout_ms=10_000
        )
        result = (await self.call("create_partitions", 3, request)).results[0]
        if self.expect(result.error_code, f"add a partition to {topic.name}", ErrorCode.INVALID_PARTITIONS, *GONE):
            topic.add_partitions(count, asyncio.get_running_loop().time)

    async def alter_topic(self) -> None:
        picked = self.shared.pick()
        if picked is None:
            return
        topic = picked[0]
        config = {
            "retention.ms": self.rng.choice(("-1", "30000", "604800000")),
            "retention.bytes": self.rng.choice(("-1", "1500")),
        }
        request = IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=2,
                    resource_name=topic.name,
                    configs=[AlterableConfig(name=key, config_operation=0, value=value) for key, value in config.items()],
                )
            ]
        )
        result = (await self.call("incremental_alter_configs", 1, request)).responses[0]
        if self.expect(result.error_code, f"alter {topic.name}", *GONE):
            topic.config.update(config)

    async def delete_records(self) -> None:
        picked = self.shared.pick()
        if picked is None:
            return
        topic, index = picked
        model = topic.partitions[index]
        end = max((offset + sent.count for offset, sent in model.at.items()), default=0)
        offset = self.rng.choice((-1, self.rng.randint(0, end)))
        request = DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(name=topic.name, partitions=[DeleteRecordsPartition(partition_index=index, offset=offset)])
            ],
            timeout_ms=10_000,
        )
        answer = (await self.call("delete_records", 2, request)).topics[0].partitions[0]
        allowed = (ErrorCode.OFFSET_OUT_OF_RANGE, *((ErrorCode.POLICY_VIOLATION,) if topic.is_compacted else ()))
        if self.expect(answer.error_code, f"delete records of {model.name}", *allowed, *GONE):
            require(
                answer.low_watermark >= offset, "delete-records", f"{model.name}: asked for {offset}, got {answer.low_watermark}"
            )
            model.deleted_below = max(model.deleted_below, answer.low_watermark)
            self.shared.trace.add(f"{self.name} delete records of {model.name} below {offset}: {answer.low_watermark}")

    async def move_replica(self) -> None:
        """To another of the broker's directories, or to where it is."""
        picked = self.shared.pick()
        if picked is None:
            return
        topic, index = picked
        target = self.rng.choice(self.shared.log_dirs)
        asked = AlterReplicaLogDirTopic(name=topic.name, partitions=[index])
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=target, topics=[asked])])
        answer = (await self.call("alter_replica_log_dirs", self.rng.choice((1, 2)), request)).results[0].partitions[0]
        if self.expect(answer.error_code, f"move {topic.name}-{index}", ErrorCode.REPLICA_NOT_AVAILABLE, *GONE):
            self.shared.trace.add(f"{self.name} moves {topic.name}-{index} to {target}")

    async def administrate(self) -> None:
        if self.shared.log_dirs and self.rng.random() < 0.3:
            await self.move_replica()
            return
        kind = self.rng.random()
        if kind < 0.25:
            await self.create_topic()
        elif kind < 0.35:
            await self.delete_topic()
        elif kind < 0.45:
            await self.add_partitions()
        elif kind < 0.6:
            await self.alter_topic()
        elif kind < 0.9:
            await self.delete_records()
        else:
            # A long silence: timers go off, segments age.
            await asyncio.sleep(self.rng.choice((10, 100, 400)))
