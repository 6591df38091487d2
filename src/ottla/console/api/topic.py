"""One topic: its partitions as of now, as they change, and as each replica has them."""

from __future__ import annotations

import uuid
from base64 import urlsafe_b64encode
from typing import Any

from ottla.cli.connection import Connection, unknown_topic
from ottla.console.api.overview import leader_bytes
from ottla.console.api.topics import is_internal, replication_of
from ottla.console.console import Console
from ottla.console.endpoint import Answer, Call, Endpoint, Param
from ottla.console.live import View, follow
from ottla.console.schema import BOOLEAN, INTEGER, NUMBER, OBJECT, STRING, document, listed, maybe
from ottla.console.sse import event_stream
from ottla.console.watch import Snapshot, Watch, records_of
from ottla.exporter.reading import ClusterReading, Partition, Topic
from ottla.types import ZERO_UUID

_EVERY_S = 1.0
"""How often the partitions of a topic are asked for while somebody looks."""

PARTITION = document(
    partition=INTEGER,
    leader=maybe(INTEGER),
    leader_epoch=INTEGER,
    replicas=listed(INTEGER),
    isr=listed(INTEGER),
    offline=listed(INTEGER),
    log_start=maybe(INTEGER),
    log_end=maybe(INTEGER),
    high_watermark=maybe(INTEGER),
    last_stable=maybe(INTEGER),
    log_bytes=maybe(INTEGER),
    records_per_s=maybe(NUMBER),
    replica_states_=listed(document(broker=INTEGER, log_end=maybe(INTEGER), lag=maybe(INTEGER), in_sync=BOOLEAN)),
)
TOPIC = document(
    topic=STRING,
    topic_id=maybe(STRING),
    internal=BOOLEAN,
    records=maybe(INTEGER),
    log_bytes=maybe(INTEGER),
    replica_bytes=maybe(INTEGER),
    records_per_s=maybe(NUMBER),
    cleanup_policy=maybe(STRING),
    replication_factor=INTEGER,
    as_of_ms=INTEGER,
    partitions=listed(PARTITION),
)


def partition_document(index: int, partition: Partition, log_bytes: int | None, rate: float | None) -> dict[str, Any]:
    return {
        "partition": index,
        "leader": partition.leader_id if partition.leader_id >= 0 else None,
        "leader_epoch": partition.leader_epoch,
        "replicas": partition.replicas,
        "isr": partition.isr,
        "offline": partition.offline,
        "log_start": partition.log_start,
        "log_end": partition.log_end,
        "high_watermark": partition.log_end,
        "last_stable": partition.last_stable,
        "log_bytes": log_bytes,
        "records_per_s": rate,
    }


async def read_topic(watch: Watch, name: str) -> tuple[ClusterReading, Topic]:
    """A topic as of now."""
    reading = await watch.reader.read_topics([name])
    topic = reading.topics.get(name)
    if topic is None:
        snapshot = watch.snapshot
        raise unknown_topic(name, snapshot.reading.topics if snapshot is not None else ())
    return reading, topic


def topic_document(snapshot: Snapshot | None, reading: ClusterReading, topic: Topic) -> dict[str, Any]:
    """The topic as of now, with the sizes and rates of the last round."""
    before = snapshot.reading.topics.get(topic.name) if snapshot is not None else None
    rate = None if snapshot is None else snapshot.rates.get(topic.name)
    partitions = []
    for index, each in topic.partitions.items():
        earlier = before.partitions.get(index) if before is not None else None
        partitions.append(partition_document(index, each, None if earlier is None else earlier.log_bytes, None))
    return {
        "topic": topic.name,
        "topic_id": id_text(topic.topic_id),
        "internal": is_internal(topic),
        "records": records_of(topic),
        "log_bytes": None if snapshot is None else leader_bytes(snapshot, topic.name),
        "replica_bytes": None if before is None else before.replica_bytes,
        "records_per_s": rate,
        "cleanup_policy": None if before is None else before.cleanup_policy,
        "replication_factor": replication_of(topic),
        "as_of_ms": int(reading.time_s * 1000),
        "partitions": partitions,
    }


def id_text(topic_id: bytes) -> str | None:
    """As Kafka prints it."""
    if topic_id in (b"", ZERO_UUID):
        return None
    return urlsafe_b64encode(uuid.UUID(bytes=bytes(topic_id)).bytes).decode().rstrip("=")


async def get_topic(console: Console, call: Call) -> Answer:
    call.watch.look()
    name = call.path("topic")
    reading, topic = await read_topic(call.watch, name)
    found = topic_document(call.watch.snapshot, reading, topic)
    if call.flag("replicas"):
        states = await call.blocking(_replica_states, call.connection, name)
        for partition in found["partitions"]:
            partition["replica_states"] = states.get(partition["partition"], [])
            ends = [each["log_end"] for each in partition["replica_states"] if each["broker"] == partition["leader"]]
            if ends and ends[0] is not None:
                partition["log_end"] = ends[0]
    return found


def _replica_states(connection: Connection, topic: str) -> dict[int, list[dict[str, Any]]]:
    """The log end of each replica, as its broker tells it."""
    from ottla.cli.cluster.view import ClusterView

    view = ClusterView(connection)
    partitions = view.of([topic])
    view.read_offsets(partitions)
    states: dict[int, list[dict[str, Any]]] = {}
    for partition in partitions:
        ends = partition.log_end_offsets
        leader_end = ends.get(partition.leader)
        states[partition.index] = [
            {
                "broker": broker,
                "log_end": ends.get(broker),
                "lag": None if leader_end is None or broker not in ends else max(leader_end - ends[broker], 0),
                "in_sync": broker in partition.isr,
            }
            for broker in partition.replicas
        ]
    return states


async def live_topic(console: Console, call: Call) -> Answer:
    name = call.path("topic")
    await read_topic(call.watch, name)
    last: dict[int, tuple[float, int]] = {}

    async def view() -> View:
        reading, topic = await read_topic(call.watch, name)
        found = topic_document(call.watch.snapshot, reading, topic)
        total: float | None = None
        for partition in found["partitions"]:
            rate = _rate(last, partition["partition"], reading.time_s, partition["high_watermark"])
            partition["records_per_s"] = rate
            total = total if rate is None else (total or 0.0) + rate
        head = {"records_per_s": total, "records": found["records"], "as_of_ms": found["as_of_ms"]}
        return View(head, {str(each["partition"]): each for each in found["partitions"]})

    return event_stream(follow(call.watch, view, _EVERY_S))


def _rate(last: dict[int, tuple[float, int]], index: int, now_s: float, end: int | None) -> float | None:
    """Records per second since the last look at the partition."""
    before = last.get(index)
    if end is None:
        return None
    last[index] = (now_s, end)
    if before is None or now_s <= before[0] or end < before[1]:
        return None
    return round((end - before[1]) / (now_s - before[0]), 1)


ENDPOINTS = (
    Endpoint(
        "GET",
        "/api/topics/{topic}",
        "A topic and its partitions, as of now",
        get_topic,
        TOPIC,
        params=(Param("replicas", "1: the log end of each replica too", BOOLEAN),),
    ),
    Endpoint(
        "GET",
        "/api/live/topics/{topic}",
        "The partitions of a topic as they change",
        live_topic,
        OBJECT,
        media_type="text/event-stream",
    ),
)
