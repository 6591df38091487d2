"""Who reads a topic, and who writes it."""

from __future__ import annotations

from ottla.cli.failure import Failure
from ottla.console.api.progress import MEMBERSHIP, READER_FIELDS, progress_document, reader_document
from ottla.console.api.topic import read_topic
from ottla.console.console import Console
from ottla.console.endpoint import Answer, Call, Endpoint
from ottla.console.schema import INTEGER, document, listed, maybe
from ottla.exporter.consumption import GroupProgress

CONSUMERS = document(
    as_of_ms=INTEGER,
    groups=listed(document(**READER_FIELDS, partitions=listed(MEMBERSHIP))),
)


async def get_topic_consumers(console: Console, call: Call) -> Answer:
    call.watch.look()
    snapshot = await call.watch.complete_snapshot()
    name = call.path("topic")
    if name not in snapshot.reading.topics:
        await read_topic(call.watch, name)  # says that there is none
    groups = []
    for whole in snapshot.by_topic.get(name, ()):
        progress = GroupProgress(whole.group, {name: whole.topics[name]}, None)
        partitions = [progress_document(snapshot.reading, each) for each in progress]
        groups.append({**reader_document(progress), "partitions": partitions})
    return {"as_of_ms": snapshot.as_of_ms, "groups": groups}


PRODUCERS = document(
    producers=listed(
        document(
            partition=INTEGER,
            producer_id=INTEGER,
            producer_epoch=INTEGER,
            last_sequence=INTEGER,
            last_timestamp_ms=INTEGER,
            coordinator_epoch=INTEGER,
            transaction_start_offset=maybe(INTEGER),
        )
    )
)


async def get_topic_producers(console: Console, call: Call) -> Answer:
    from ottla.client.brokers import Ask
    from ottla.errors import error_name
    from ottla.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest

    name = call.path("topic")
    _, topic = await read_topic(call.watch, name)
    by_leader: dict[int, list[int]] = {}
    for index, partition in topic.partitions.items():
        if partition.leader_id >= 0:
            by_leader.setdefault(partition.leader_id, []).append(index)
    asks = [
        Ask(
            leader,
            "describe_producers",
            DescribeProducersRequest(topics=[TopicRequest(name=name, partition_indexes=indexes)]),
        )
        for leader, indexes in by_leader.items()
    ]
    failures: list[str] = []
    found = []
    for _, answer in await call.brokers.ask_all(asks, failures):
        for answered in answer.topics:
            for each in answered.partitions:
                if each.error_code:
                    raise Failure(
                        f"{name}-{each.partition_index}: {error_name(each.error_code)}", code=error_name(each.error_code)
                    )
                found += [
                    {
                        "partition": each.partition_index,
                        "producer_id": producer.producer_id,
                        "producer_epoch": producer.producer_epoch,
                        "last_sequence": producer.last_sequence,
                        "last_timestamp_ms": producer.last_timestamp,
                        "coordinator_epoch": producer.coordinator_epoch,
                        "transaction_start_offset": producer.current_txn_start_offset
                        if producer.current_txn_start_offset >= 0
                        else None,
                    }
                    for producer in each.active_producers
                ]
    if failures:
        raise Failure("; ".join(failures), code="BROKER_AWAY")
    return {"producers": sorted(found, key=lambda each: (each["partition"], each["producer_id"]))}


ENDPOINTS = (
    Endpoint("GET", "/api/topics/{topic}/consumers", "The groups that read a topic", get_topic_consumers, CONSUMERS),
    Endpoint("GET", "/api/topics/{topic}/producers", "The producers that write a topic", get_topic_producers, PRODUCERS),
)
