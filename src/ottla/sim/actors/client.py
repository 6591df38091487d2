"""A client of the virtual broker that produces and consumes, with seeded habits.

Owns: the requests, and the checks that need only an answer and the model. Speaks the wire protocol through `client.connection`.
Never: retries a produce request, so a batch is stored at most once; without an answer its outcome stays open.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, Final

from ottla.client.connection import ClientConnection
from ottla.errors import ErrorCode
from ottla.ports import Network
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records.record import build_batch
from ottla.sim.actors.workload import Topic, Workload
from ottla.sim.kernel.machine import START_MS
from ottla.sim.models.keyed_model import KeyedModel, KeyedRecord
from ottla.sim.models.log_files import scan
from ottla.sim.models.partition_model import PartitionModel
from ottla.sim.violation import Violation, require

ANSWER_S_MAX: Final = 90.0
"""Longer than any timeout of a request, and than the slowest network takes for a whole log."""
SMALL_ANSWER_S_MAX: Final = 20.0
EARLIEST: Final = -2
LATEST: Final = -1

GONE: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID})


class Client:
    """A client with one connection, which it opens again when it breaks."""

    def __init__(self, name: str, shared: Workload, network: Network) -> None:
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
        """Whether the request succeeded. An error that is not allowed is a violation."""
        if code == 0:
            return True
        error = ErrorCode(code)
        # A directory stays offline after the fault is over.
        fine = error in allowed or (error is ErrorCode.KAFKA_STORAGE_ERROR and not self.shared.disk_is_sound)
        require(fine, "error", f"{self.name}: {what} is answered with {error.name}")
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
        """A batch with few keys and some tombstones; each record has its number in a header."""
        rng = self.rng
        made: list[tuple[int, KeyedRecord]] = []
        for _ in range(rng.choice((1, 1, 2, 4))):
            self.shared.made += 1
            value = None if rng.random() < 0.2 else b"%d" % self.shared.made + bytes(rng.choice((0, 0, 20)))
            key = b"k%d" % rng.randrange(6)
            if rng.random() < 0.15:
                key, value = b"u%d" % self.shared.made, None  # nothing replaces this tombstone: it expires
            made.append((self.shared.made, (key, value, now_ms + rng.choice((0, 0, 1, -500)))))
        records = [(key, value, (("n", b"%d" % number),), at_ms) for number, (key, value, at_ms) in made]
        return build_batch(records, codec=rng.choice((0, 0, 1, 4))), made

    async def produce(self) -> None:
        picked = self.shared.pick()
        if picked is not None:
            await self.produce_to(*picked, self.rng.choice((0, 1, 1, -1, -1)))

    async def produce_to(self, topic: Topic, index: int, acks: int) -> bool:
        """Send one batch. Returns whether it was acknowledged."""
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
        """Several requests before the first answer: they are handled and answered in order (W01)."""
        await self.connection()
        for outcome in await asyncio.gather(*(self.produce() for _ in range(self.rng.randint(1, 4))), return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    # --- consume

    async def follow(self) -> None:
        """Follow all partitions in one fetch session (KIP-227)."""
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
        """Check the answer. Returns the partitions whose position the next request must name."""
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
        """Fetch from an offset and check the answer. Returns the next offset; None: out of range, or the topic is gone."""
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
            offset >= deleted_below,
            "delete-records",
            f"{model.name}: offset {offset} is read, records below {deleted_below} are deleted",
        )
        return self.check_fetched(topic, model, offset, max_bytes, answer, version)

    def check_fetched(self, topic: Topic, model: PartitionModel, offset: int, max_bytes: int, answer: Any, version: int) -> int:
        high_watermark, log_start = answer.high_watermark, answer.log_start_offset if version >= 5 else 0
        data = bytes(answer.records or b"")
        found, end = scan(data)
        name = model.name
        require(end == len(data), "read", f"{name}: a fetch at {offset} gave {len(data) - end} bytes that are no batch")
        require(len(found) <= 1 or len(data) <= max_bytes, "read", f"{name}: a fetch of {max_bytes} bytes gave {len(data)}")
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
            require(
                batch.last_offset < high_watermark,
                "read-bound",
                f"{name}: a fetch gave offset {batch.last_offset}, the high watermark is {high_watermark}",
            )
            model.observe(batch)
            expected = batch.last_offset + 1
        # Answers to two clients may overtake each other: only one client checks that offsets do not go back.
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
        """Follow one partition for a while, from its start or its end."""
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
