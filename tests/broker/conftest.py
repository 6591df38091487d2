"""A real broker on a real socket, in the test's own loop.

`play(case, settings...)` starts a broker in a fresh directory, runs `await case(stage)`, stops it. `stage` opens connections:
`connect` speaks the protocol, `raw` sends bytes as they are.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.app import Broker
from ottla.client.connection import ClientConnection
from ottla.cluster.requests import NewTopic
from ottla.cluster.settings import BrokerSettings
from ottla.metrics import Counters
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from ottla.protocol.messages.produce import PartitionProduceData, PartitionProduceResponse, ProduceRequest, TopicProduceData
from ottla.records.batch import scan_batches
from ottla.records.record import Record, build_batch, read_records
from ottla.runtime.loop import ThreadWorkers, real_world, run

NOW_MS = 1_700_000_000_000


class Raw:
    """A socket that says what it is told to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def send_frame(self, data: bytes) -> None:
        self.writer.write(struct.pack(">i", len(data)) + data)

    async def frame(self) -> bytes:
        size = struct.unpack(">i", await self.reader.readexactly(4))[0]
        return await self.reader.readexactly(size)

    async def closed(self) -> bool:
        """The broker closed the connection without sending anything."""
        try:
            return await asyncio.wait_for(self.reader.read(1), 60) == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        self.writer.transport.abort()


class Stage:
    def __init__(self, broker: Broker, counters: Counters) -> None:
        self.broker = broker
        self.counters = counters
        self._open: list[ClientConnection | Raw] = []

    @property
    def port(self) -> int:
        return next(iter(self.broker.bound_ports.values()))

    async def connect(self, tls: ssl.SSLContext | None = None) -> ClientConnection:
        connection = await ClientConnection.open(self.broker.world.network, "127.0.0.1", self.port, tls=tls)
        self._open.append(connection)
        return connection

    async def raw(self, **options: Any) -> Raw:
        raw = Raw(*await asyncio.open_connection("127.0.0.1", self.port, **options))
        self._open.append(raw)
        return raw

    async def topic(self, name: str = "t", partitions: int = 1, **config: Any) -> None:
        """Make a topic; settings as keywords, with _ for the dots."""
        settings = {key.replace("_", "."): value for key, value in config.items()}
        [outcome] = await self.broker.controller.topic_requests.create([NewTopic(name, partitions, 1, config=settings)])
        if isinstance(outcome, Exception):
            raise outcome

    def close(self) -> None:
        for connection in self._open:
            connection.close()

    # Words that most cases use

    def batch(self, *values: bytes, **options: Any) -> bytes:
        timestamp = options.pop("timestamp", None) or self.broker.world.clock.now_ms()
        key = options.pop("key", b"key")
        return build_batch([(key, value, [], timestamp) for value in values], **options)

    def produce_request(self, batch: bytes | None, *, acks: int = -1, topic: str = "t", partition: int = 0) -> ProduceRequest:
        data = [PartitionProduceData(index=partition, records=batch)]
        return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[TopicProduceData(name=topic, partition_data=data)])

    async def produce(
        self, connection: ClientConnection, batch: bytes | None, *, version: int = 9, **options: Any
    ) -> PartitionProduceResponse:
        response = await connection.call("produce", version, self.produce_request(batch, **options))
        answer: PartitionProduceResponse = response.responses[0].partition_responses[0]
        return answer

    def fetch_request(
        self,
        offset: int,
        *,
        topic: str = "t",
        partition: int = 0,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 50 << 20,
        partition_max_bytes: int = 1 << 20,
        current_leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
        **options: Any,
    ) -> FetchRequest:
        asked = FetchPartition(
            partition=partition,
            fetch_offset=offset,
            partition_max_bytes=partition_max_bytes,
            current_leader_epoch=current_leader_epoch,
            last_fetched_epoch=last_fetched_epoch,
        )
        return FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            topics=[FetchTopic(topic=topic, partitions=[asked])],
            **options,
        )

    async def fetch(self, connection: ClientConnection, offset: int, *, version: int = 12, **options: Any) -> PartitionData:
        response = await connection.call("fetch", version, self.fetch_request(offset, **options))
        data: PartitionData = response.responses[0].partitions[0]
        return data


def records_of(data: PartitionData) -> list[Record]:
    if not data.records:
        return []
    batches, _ = scan_batches(data.records)  # type: ignore[arg-type]
    return [record for batch in batches for record in read_records(data.records, batch)]  # type: ignore[arg-type]


Play = Callable[..., None]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    def run_case(case: Callable[[Stage], Awaitable[None]], **settings: Any) -> None:
        run(_perform(case, tmp_path, settings))

    return run_case


async def _perform(case: Callable[[Stage], Awaitable[None]], path: Path, given: dict[str, str]) -> None:
    properties = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(path / "data"), "broker.id": "1"}
    properties |= {key.replace("_", "."): value for key, value in given.items()}
    settings = BrokerSettings.parse(properties)
    counters = Counters()
    world = real_world(counters, settings)
    broker = Broker(settings, world, counters=counters)
    await broker.start()
    stage = Stage(broker, counters)
    try:
        await asyncio.wait_for(case(stage), 120)
    finally:
        stage.close()
        await broker.stop()
        if isinstance(world.workers, ThreadWorkers):
            world.workers.close()
