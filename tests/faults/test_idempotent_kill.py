"""An idempotent producer through kills of the broker (I07, F63, F29): no record twice, none missing, each partition in order.

librdkafka keeps five requests in flight and sends again what was not acknowledged when its connection broke. To be sure that some
of it is in the log already, replies are swallowed on their way (`Line`) before the broker dies, stops in order, or only the
connections break. Segments are small, so that rolls, snapshots and recoveries fall into it.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from ottla.testing import Broker
from tests.kit.peers import free_ports
from tests.kit.present import present
from tests.kit.wait import until

TOPIC = "idempotent"
PARTITIONS = 2
ROUNDS = 9


class Line:
    """The way between clients and broker, in a thread. It can lose what comes back, and break."""

    def __init__(self, port: int, upstream: int) -> None:
        self._port, self._upstream = port, upstream
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()
        self._pumps: set[asyncio.Task[None]] = set()
        self.mute = False
        self.swallowed = 0
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,))
        self._thread.start()
        assert ready.wait(60)

    def _run(self, ready: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", self._port))
        ready.set()
        self._loop.run_forever()
        server.close()
        for task in self._pumps:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*self._pumps, return_exceptions=True))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._upstream)
        except OSError:
            writer.transport.abort()
            return
        for pump in (self._pump(reader, back, replies=False), self._pump(there, writer, replies=True)):
            task = asyncio.ensure_future(pump)
            self._pumps.add(task)
            task.add_done_callback(self._pumps.discard)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, replies: bool) -> None:
        self._writers.add(writer)
        try:
            while data := await reader.read(1 << 16):
                if replies and self.mute:
                    self.swallowed += len(data)
                    continue
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    def cut(self) -> None:
        """Break all connections; what comes back on new ones arrives."""

        def abort() -> None:
            for writer in list(self._writers):
                writer.transport.abort()
            self.mute = False

        self._loop.call_soon_threadsafe(abort)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


def test_i07_an_idempotent_producer_through_lost_replies_kills_and_restarts() -> None:
    chance = random.Random(11)
    line_port, port = free_ports(2)
    settings: dict[str, Any] = {
        "log.segment.bytes": 200_000,
        "log.index.interval.bytes": 1024,
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{line_port}",
    }
    failures: list[str] = []
    acknowledged: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
    line = Line(line_port, port)
    try:
        with Broker(settings) as broker:
            broker.create_topic(TOPIC, PARTITIONS)
            producer = Producer(
                {
                    "bootstrap.servers": f"127.0.0.1:{line_port}",
                    "enable.idempotence": True,
                    "batch.num.messages": 20,
                    "linger.ms": 1,
                    "message.timeout.ms": 120_000,
                    "reconnect.backoff.max.ms": 100,
                    "retry.backoff.ms": 10,
                }
            )
            stop = threading.Event()
            sent = [0] * PARTITIONS

            def delivered(error: KafkaError | None, message: Message) -> None:
                if error is not None:
                    failures.append(str(error))
                else:
                    acknowledged[message.partition()].append(int(present(message.value()).split(b":")[0]))  # type: ignore[index]

            def write() -> None:
                while not stop.is_set():
                    for partition in range(PARTITIONS):
                        value = b"%d:" % sent[partition] + bytes(100)
                        try:
                            producer.produce(TOPIC, value, partition=partition, on_delivery=delivered)
                            sent[partition] += 1
                        except BufferError:
                            producer.poll(0.05)
                    producer.poll(0)
                    if len(producer) > 2000:
                        producer.poll(0.01)

            writer = threading.Thread(target=write)
            writer.start()
            try:
                for number in range(ROUNDS):
                    target = len(acknowledged[0]) + chance.randrange(200, 1500)
                    until(lambda target=target: len(acknowledged[0]) >= target, f"no progress: {failures[:3]}")
                    before = line.swallowed
                    line.mute = True
                    until(lambda before=before: line.swallowed > before, "no reply came")
                    time.sleep(chance.random() / 50)
                    if number % 3 == 0:
                        broker.kill()
                    elif number % 3 == 1:
                        broker.stop()
                    line.cut()
                    broker.start()
            finally:
                stop.set()
                writer.join()
            assert producer.flush(90) == 0
            assert failures == []
            for partition in range(PARTITIONS):
                numbers = read_all(broker.bootstrap_servers, partition)
                assert numbers == list(range(sent[partition])), "doubled, lost or out of order"
                assert acknowledged[partition] == numbers
    finally:
        line.close()


def read_all(bootstrap_servers: str, partition: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "check", "enable.partition.eof": True})
    consumer.assign([TopicPartition(TOPIC, partition, 0)])
    numbers: list[int] = []
    while True:
        message = consumer.poll(60)
        assert message is not None
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF
            break
        assert message.offset() == len(numbers)
        numbers.append(int(present(message.value()).split(b":")[0]))
    consumer.close()
    return numbers
