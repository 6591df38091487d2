"""The async clients on a real broker: acknowledgement, cancellation, what counts as read, closing (F42-F44, F73)."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from ottla.client import AsyncConsumer, AsyncProducer, EndToEndLatency, Interceptor, ProducerRecord, RecordMetadata
from tests.kit.client import Watch, broker_address, new_topic

TIMEOUT_S = 60


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with broker_address() as found:
        yield found


@pytest.fixture
def topic(address: str) -> str:
    return new_topic(address)


def consumer_config(address: str, group: str | None = None, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": address,
        "group.id": group or f"g-{uuid.uuid4().hex[:8]}",
        "auto.offset.reset": "earliest",
        **more,
    }


async def fill(address: str, topic: str, count: int) -> None:
    async with AsyncProducer({"bootstrap.servers": address}) as producer:
        await asyncio.gather(*(producer.send(topic, str(number)) for number in range(count)))


async def committed(address: str, group: str, topic: str) -> int:
    async with AsyncConsumer(consumer_config(address, group, **{"enable.auto.commit": False})) as consumer:
        (found,) = await consumer.committed([TopicPartition(topic, 0)], TIMEOUT_S)
        return found.offset


class OnTheLoop(Watch):
    """Writes down in which thread it was called."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: set[int] = set()

    def on_acknowledgement(self, metadata: RecordMetadata, error: KafkaError | None) -> None:
        self.threads.add(threading.get_ident())
        super().on_acknowledgement(metadata, error)

    def before_handover(self, messages: list[Message]) -> list[Message]:
        self.threads.add(threading.get_ident())
        return super().before_handover(messages)

    def on_commit(self, offsets: list[TopicPartition], error: KafkaError | None) -> None:
        self.threads.add(threading.get_ident())
        super().on_commit(offsets, error)


def test_send_and_iterate(address: str, topic: str) -> None:
    watch, latency = OnTheLoop(), EndToEndLatency()
    group = f"g-{uuid.uuid4().hex[:8]}"

    async def run() -> None:
        async with AsyncProducer({"bootstrap.servers": address}, interceptors=[watch, latency]) as producer:
            first = await producer.send(topic, b"0", "key", headers={"a": b"1", "none": None}, timestamp_ms=1_700_000_000_000)
            assert first == RecordMetadata(topic, 0, 0, 1_700_000_000_000)
            assert (await producer.send(topic, None, b"tombstone")).offset == 1
            later = [producer.post(topic, str(number), partition=0, headers=None) for number in range(2, 10)]
            assert await producer.flush() == 0
            assert [future.result().offset for future in later] == list(range(2, 10))
        assert len(watch.acknowledged) == 10
        seen = []
        async with AsyncConsumer(consumer_config(address, group), interceptors=[watch, latency]) as consumer:
            await consumer.subscribe([topic])
            async for message in consumer:
                seen.append(message)
                if len(seen) == 10:
                    break
        assert [message.value() for message in seen] == [b"0", None, *(str(number).encode() for number in range(2, 10))]
        assert dict(seen[0].headers() or [])["none"] is None
        assert sum(map(len, watch.handed_over)) == 10
        assert latency.figures()[topic].count == 10
        assert await committed(address, group, topic) == 10
        assert [each.offset for offsets, _ in watch.committed for each in offsets if each.offset >= 0][-1] == 10

    asyncio.run(run())
    assert watch.closed == 2
    assert watch.threads == {threading.get_ident()}, "interceptors run on the event loop"
    ours = ("ottla-producer", "ottla-consumer")  # a broker that another test ran in this process had threads of its own
    left = [thread for thread in threading.enumerate() if thread.name.startswith(ours)]
    for thread in left:
        thread.join(60)  # it has nothing more to do, but may not have had the time for it
    assert [thread.name for thread in left if thread.is_alive()] == []


def test_what_is_refused_is_raised(address: str, topic: str) -> None:
    small = new_topic(address, **{"max.message.bytes": "500"})  # type: ignore[arg-type]

    async def run() -> None:
        watch = Watch()
        config = {"bootstrap.servers": address, "message.max.bytes": 10_000}
        async with AsyncProducer(config, interceptors=[watch]) as producer:
            for target, size in ((topic, 20_000), (small, 5_000)):
                with pytest.raises(KafkaException) as caught:
                    await producer.send(target, bytes(size))
                assert caught.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
        with pytest.raises(RuntimeError, match="closed"):
            await producer.send(topic, b"v")
        await producer.close()
        assert watch.sent == len(watch.acknowledged) == 3
        assert (watch.closed, all(error for _, error in watch.acknowledged)) == (1, True)

    asyncio.run(run())


def test_a_full_queue_makes_senders_wait_in_their_order(address: str, topic: str) -> None:
    async def run() -> None:
        watch = Watch()
        config = {"bootstrap.servers": address, "queue.buffering.max.messages": 10, "linger.ms": 1}
        async with AsyncProducer(config, interceptors=[watch]) as producer:
            sent = await asyncio.gather(*(producer.send(topic, str(number)) for number in range(200)))
            assert [each.offset for each in sent] == list(range(200))
        assert watch.sent == len(watch.acknowledged) == 200

    asyncio.run(run())


def test_a_sender_that_goes_away_leaves_its_record_in_the_queue(address: str, topic: str) -> None:
    async def run() -> None:
        watch = Watch()
        async with AsyncProducer({"bootstrap.servers": address, "linger.ms": 10_000}, interceptors=[watch]) as producer:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(producer.send(topic, b"v"), 0.01)
        assert [metadata.offset for metadata, _ in watch.acknowledged] == [0]

    asyncio.run(run())


def test_a_cancelled_wait_loses_no_message(address: str, topic: str) -> None:
    """Waits are cancelled all the time while records come in; each is handed over once, in order."""

    async def run() -> None:
        async with AsyncConsumer(consumer_config(address), batch_records=7) as consumer:
            await consumer.assign([TopicPartition(topic, 0, 0)])
            filling = asyncio.create_task(fill(address, topic, 300))
            seen: list[int] = []
            while len(seen) < 300:
                waiting = asyncio.create_task(consumer.poll(TIMEOUT_S))
                await asyncio.sleep(0)
                if len(seen) % 3 == 0 and not waiting.done():
                    waiting.cancel()
                    await asyncio.wait({waiting})
                    if not waiting.cancelled():
                        seen.append(int(_value(waiting.result())))
                    waiting = asyncio.create_task(consumer.poll(TIMEOUT_S))
                seen.append(int(_value(await waiting)))
            await filling
            assert seen == sorted(seen)
            assert len(set(seen)) == 300
            assert await consumer.poll(0.2) is None

    asyncio.run(run())


def _value(message: Message | None) -> bytes:
    assert message is not None
    assert message.error() is None
    value = message.value()
    assert value is not None
    return value


def test_only_what_was_handed_over_counts_as_read(address: str, topic: str) -> None:
    """A batch is fetched, three records of it are taken: three are committed, not the batch."""
    group = f"g-{uuid.uuid4().hex[:8]}"

    async def run() -> None:
        await fill(address, topic, 20)
        async with AsyncConsumer(consumer_config(address, group)) as consumer:
            await consumer.subscribe([topic])
            for number in range(3):
                assert _value(await consumer.poll(TIMEOUT_S)) == str(number).encode()
        assert await committed(address, group, topic) == 3
        async with AsyncConsumer(consumer_config(address, group)) as consumer:
            await consumer.subscribe([topic])
            assert _value(await consumer.poll(TIMEOUT_S)) == b"3"
            assert [each.offset for each in await consumer.commit()] == [4]
            assert len(await consumer.consume(5, TIMEOUT_S)) == 5
        assert await committed(address, group, topic) == 9

    asyncio.run(run())


def test_a_loop_left_by_an_exception_gets_its_record_again(address: str, topic: str) -> None:
    """F44: at least once, without a line of the program's."""
    group = f"g-{uuid.uuid4().hex[:8]}"

    async def work() -> None:
        async with AsyncConsumer(consumer_config(address, group), batch_records=1) as consumer:
            await consumer.subscribe([topic])
            async for message in consumer:
                1 / (1 - int(_value(message)))

    async def run() -> None:
        await fill(address, topic, 3)
        with pytest.raises(ZeroDivisionError):
            await work()
        assert await committed(address, group, topic) == 1

    asyncio.run(run())


def test_what_interceptors_leave_out_counts_as_read(address: str, topic: str) -> None:
    group = f"g-{uuid.uuid4().hex[:8]}"

    class OnlySeven(Interceptor):
        def before_handover(self, messages: list[Message]) -> list[Message]:
            return [message for message in messages if message.value() == b"7"]

    async def run() -> None:
        await fill(address, topic, 20)
        async with AsyncConsumer(consumer_config(address, group), interceptors=[OnlySeven()]) as consumer:
            await consumer.subscribe([topic])
            assert _value(await consumer.poll(TIMEOUT_S)) == b"7"
            for _ in range(5):
                assert await consumer.poll(0.2) is None
        assert await committed(address, group, topic) == 20

    asyncio.run(run())


def test_nothing_from_before_a_seek_comes_after_it(address: str, topic: str) -> None:
    async def run() -> None:
        await fill(address, topic, 20)
        async with AsyncConsumer(consumer_config(address)) as consumer:
            await consumer.assign([TopicPartition(topic, 0, 0)])
            assert _value(await consumer.poll(TIMEOUT_S)) == b"0"
            await consumer.seek(TopicPartition(topic, 0, 15))
            assert _value(await consumer.poll(TIMEOUT_S)) == b"15"
            assert [each.partition for each in await consumer.assignment()] == [0]

    asyncio.run(run())


def test_closing_ends_an_iteration_that_waits(address: str, topic: str) -> None:
    async def run() -> None:
        consumer = AsyncConsumer(consumer_config(address))
        await consumer.assign([TopicPartition(topic, 0, 0)])

        async def read() -> list[Message]:
            return [message async for message in consumer]

        reading = asyncio.create_task(read())
        assert await consumer.call(consumer.client.assignment)
        await consumer.close()
        assert await asyncio.wait_for(reading, TIMEOUT_S) == []
        await consumer.close()
        with pytest.raises(RuntimeError, match="closed"):
            await consumer.commit()

    asyncio.run(run())


def test_an_error_of_the_consumer_is_raised_and_iterating_may_go_on(address: str, topic: str) -> None:
    async def run() -> None:
        config = consumer_config(address, **{"auto.offset.reset": "error", "enable.partition.eof": True})  # type: ignore[arg-type]
        await fill(address, topic, 1)
        async with AsyncConsumer(config) as consumer:
            await consumer.assign([TopicPartition(topic, 0, 99)])
            with pytest.raises(KafkaException) as caught:
                await asyncio.wait_for(anext(aiter(consumer)), TIMEOUT_S)
            assert caught.value.args[0].code() == KafkaError._AUTO_OFFSET_RESET
            await consumer.assign([TopicPartition(topic, 0, 0)])
            assert _value(await asyncio.wait_for(anext(aiter(consumer)), TIMEOUT_S)) == b"0"
            event = await consumer.poll(TIMEOUT_S)
            assert event is not None
            assert event.error() is not None

    asyncio.run(run())


def test_interceptors_that_raise_cost_nothing(address: str, topic: str) -> None:
    class Spoiling(Interceptor):
        def before_send(self, record: ProducerRecord) -> ProducerRecord:
            raise RuntimeError("spoilt")

        def on_acknowledgement(self, metadata: RecordMetadata, error: KafkaError | None) -> None:
            raise RuntimeError("spoilt")

        def before_handover(self, messages: list[Message]) -> list[Message]:
            raise RuntimeError("spoilt")

        def on_commit(self, offsets: list[TopicPartition], error: KafkaError | None) -> None:
            raise RuntimeError("spoilt")

        def close(self) -> None:
            raise RuntimeError("spoilt")

    async def run() -> None:
        async with AsyncProducer({"bootstrap.servers": address}, interceptors=[Spoiling()]) as producer:
            assert (await producer.send(topic, b"v")).offset == 0
        async with AsyncConsumer(consumer_config(address), interceptors=[Spoiling()]) as consumer:
            await consumer.subscribe([topic])
            assert _value(await consumer.poll(TIMEOUT_S)) == b"v"
            assert [each.offset for each in await consumer.commit()] == [1]

    asyncio.run(run())
