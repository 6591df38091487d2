"""Topics: the list, one topic and its partitions, who reads and writes it, and changes."""

from __future__ import annotations

import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from typing import Any

from ottla.cli.connection import REQUEST_TIMEOUT_S, Connection, result_of, unknown_topic
from ottla.cli.console.settings import Role
from ottla.cli.dlq.letters import is_dead_letter_name
from ottla.cli.failure import Failure, raise_together
from ottla.cli.positions import parse_position
from ottla.console.api.overview import leader_bytes
from ottla.console.console import Console
from ottla.console.endpoint import Answer, Call, Endpoint, Param, bad, executes
from ottla.console.lists import PARAMS, Page, Window, list_schema, page
from ottla.console.live import View, follow
from ottla.console.schema import BOOLEAN, INTEGER, NUMBER, OBJECT, STRING, by_name, document, listed, maybe, request
from ottla.console.sse import event_stream
from ottla.console.watch import Snapshot, lag_of, lag_s_of, records_of
from ottla.exporter.consumption import GroupProgress, PartitionProgress
from ottla.exporter.reading import ClusterReading, Partition, Topic
from ottla.types import ZERO_UUID

_EVERY_S = 1.0
"""How often the partitions of a topic are asked for while somebody looks."""

# The list

ROW = document(
    topic=STRING,
    internal=BOOLEAN,
    partitions=INTEGER,
    replication_factor=INTEGER,
    records=maybe(INTEGER),
    log_bytes=maybe(INTEGER),
    replica_bytes=maybe(INTEGER),
    cleanup_policy=maybe(STRING),
    under_replicated=INTEGER,
    offline=INTEGER,
    records_per_s=maybe(NUMBER),
    groups=maybe(INTEGER),
    lag=maybe(INTEGER),
    lag_s=maybe(NUMBER),
    dead_letter=BOOLEAN,
)
_COLUMNS = {
    "name": "topic",
    "partitions": "partitions",
    "replication": "replication_factor",
    "records": "records",
    "bytes": "log_bytes",
    "rate": "records_per_s",
    "under_replicated": "under_replicated",
    "groups": "groups",
    "lag": "lag",
}


def is_internal(topic: Topic) -> bool:
    return topic.is_internal or topic.name.startswith("__")


def topic_row(snapshot: Snapshot, topic: Topic) -> dict[str, Any]:
    parts = topic.partitions.values()
    readers = [progress.topics[topic.name] for progress in snapshot.by_topic.get(topic.name, ())]
    return {
        "topic": topic.name,
        "internal": is_internal(topic),
        "partitions": len(parts),
        "replication_factor": replication_of(topic),
        "records": records_of(topic),
        "log_bytes": leader_bytes(snapshot, topic.name),
        "replica_bytes": topic.replica_bytes,
        "cleanup_policy": topic.cleanup_policy,
        "under_replicated": sum(is_short(each) for each in parts),
        "offline": sum(each.leader_id < 0 for each in parts),
        "records_per_s": snapshot.rates.get(topic.name),
        "groups": len(readers) if snapshot.complete else None,
        "lag": _sum_lag(readers) if snapshot.complete else None,
        "lag_s": max((each.lag_s for reader in readers for each in reader if each.lag_s is not None), default=None),
        "dead_letter": is_dead_letter_name(topic.name),
    }


def replication_of(topic: Topic) -> int:
    return max((len(each.replicas) for each in topic.partitions.values()), default=0)


def is_short(partition: Partition) -> bool:
    """Whether it is under-replicated."""
    return partition.leader_id >= 0 and len(partition.isr) < len(partition.replicas)


def _sum_lag(readers: Sequence[Sequence[PartitionProgress]]) -> int | None:
    lags = [each.lag for reader in readers for each in reader if each.lag is not None and each.lag >= 0]
    return sum(lags) if lags else None


def _page(call: Call, snapshot: Snapshot) -> Page[dict[str, Any]]:
    window = Window.of(call, _COLUMNS)
    internal, state = call.flag("internal"), call.choice("state", ("any", "under_replicated", "offline", "internal"))
    shown = [
        topic
        for topic in snapshot.reading.topics.values()
        if internal or state == "internal" or window.names or not is_internal(topic)
    ]
    # Only the rows of the window are made, unless the order needs all.
    if window.sort == "name":
        found = page(shown, window, lambda topic: topic.name, lambda topic: None, lambda topic: _in_state(topic, state))
        return Page(found.total, found.matched, [topic_row(snapshot, topic) for topic in found.items])
    rows = [topic_row(snapshot, topic) for topic in shown if _in_state(topic, state)]
    found_rows = page(rows, window, lambda row: str(row["topic"]), lambda row: row[_COLUMNS[window.sort]])
    return Page(len(shown), found_rows.matched, found_rows.items)


def _in_state(topic: Topic, state: str) -> bool:
    if state == "under_replicated":
        return any(is_short(each) for each in topic.partitions.values())
    if state == "offline":
        return any(each.leader_id < 0 for each in topic.partitions.values())
    return state != "internal" or is_internal(topic)


def _head(snapshot: Snapshot, found: Page[dict[str, Any]]) -> dict[str, Any]:
    return {"total": found.total, "matched": found.matched, "as_of_ms": snapshot.as_of_ms, "complete": snapshot.complete}


async def list_topics(console: Console, call: Call) -> Answer:
    console.watch.look()
    snapshot = await console.watch.first()
    found = _page(call, snapshot)
    return {**_head(snapshot, found), "rows": list(found.items)}


async def live_topics(console: Console, call: Call) -> Answer:
    _page(call, await console.watch.first())  # a wrong parameter is told before the stream begins

    async def view() -> View:
        snapshot = await console.watch.first()
        found = _page(call, snapshot)
        return View(_head(snapshot, found), {str(row["topic"]): row for row in found.items})

    return event_stream(follow(console.watch, view))


# One topic

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


async def read_topic(console: Console, name: str) -> tuple[ClusterReading, Topic]:
    """A topic as of now."""
    reading = await console.watch.reader.read_topics([name])
    topic = reading.topics.get(name)
    if topic is None:
        snapshot = console.watch.snapshot
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
    console.watch.look()
    name = call.path("topic")
    reading, topic = await read_topic(console, name)
    found = topic_document(console.watch.snapshot, reading, topic)
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
    await read_topic(console, name)
    last: dict[int, tuple[float, int]] = {}

    async def view() -> View:
        reading, topic = await read_topic(console, name)
        found = topic_document(console.watch.snapshot, reading, topic)
        total: float | None = None
        for partition in found["partitions"]:
            rate = _rate(last, partition["partition"], reading.time_s, partition["high_watermark"])
            partition["records_per_s"] = rate
            total = total if rate is None else (total or 0.0) + rate
        head = {"records_per_s": total, "records": found["records"], "as_of_ms": found["as_of_ms"]}
        return View(head, {str(each["partition"]): each for each in found["partitions"]})

    return event_stream(follow(console.watch, view, _EVERY_S))


def _rate(last: dict[int, tuple[float, int]], index: int, now_s: float, end: int | None) -> float | None:
    """Records per second since the last look at the partition."""
    before = last.get(index)
    if end is None:
        return None
    last[index] = (now_s, end)
    if before is None or now_s <= before[0] or end < before[1]:
        return None
    return round((end - before[1]) / (now_s - before[0]), 1)


# Who reads and writes it

MEMBERSHIP = document(
    topic=STRING,
    partition=INTEGER,
    committed=maybe(INTEGER),
    log_start=maybe(INTEGER),
    log_end=maybe(INTEGER),
    lag=maybe(INTEGER),
    lag_s=maybe(NUMBER),
    lead=maybe(INTEGER),
    lead_s=maybe(NUMBER),
    member=maybe(STRING),
    client=maybe(STRING),
    host=maybe(STRING),
)
CONSUMERS = document(
    as_of_ms=INTEGER,
    groups=listed(
        document(
            group=STRING,
            state=STRING,
            members=maybe(INTEGER),
            lag=maybe(INTEGER),
            lag_s=maybe(NUMBER),
            lead=maybe(INTEGER),
            partitions=listed(MEMBERSHIP),
        )
    ),
)


def progress_document(reading: ClusterReading, each: PartitionProgress) -> dict[str, Any]:
    partition = reading.partition(each.topic, each.partition)
    committed = each.committed >= 0
    return {
        "topic": each.topic,
        "partition": each.partition,
        "committed": each.committed if committed else None,
        "log_start": None if partition is None else partition.log_start,
        "log_end": None if partition is None else partition.log_end,
        "lag": each.lag if committed else None,
        "lag_s": each.lag_s,
        "lead": each.lead,
        "lead_s": each.lead_s,
        "member": None if each.member is None else each.member.member_id,
        "client": None if each.member is None else each.member.client_id,
        "host": None if each.member is None else each.member.host,
    }


async def get_topic_consumers(console: Console, call: Call) -> Answer:
    console.watch.look()
    snapshot = await console.watch.settled()
    name = call.path("topic")
    if name not in snapshot.reading.topics:
        await read_topic(console, name)  # says that there is none
    groups = []
    for whole in snapshot.by_topic.get(name, ()):
        progress = GroupProgress(whole.group, {name: whole.topics[name]}, None)
        groups.append(
            {
                "group": whole.group.name,
                "state": whole.group.state,
                "members": None if whole.group.members is None else len(whole.group.members),
                "lag": lag_of(progress),
                "lag_s": lag_s_of(progress),
                "lead": min((each.lead for each in progress if each.lead is not None), default=None),
                "partitions": [progress_document(snapshot.reading, each) for each in progress],
            }
        )
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
    _, topic = await read_topic(console, name)
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
    for _, answer in await console.brokers.ask_all(asks, failures):
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


# Changes


async def create_topic(console: Console, call: Call) -> Answer:
    name = call.needed("topic", str)
    configs = call.field("configs", dict) or {}
    partitions, replicas = call.field("partitions", int), call.field("replication_factor", int)
    validate_only = bool(call.field("validate_only", bool))
    await call.blocking(_create, call.connection, name, partitions, replicas, configs, validate_only)
    if not validate_only:
        await console.watch.anew()
    return {"topic": name}


def _create(
    connection: Connection, name: str, partitions: int | None, replicas: int | None, configs: dict[str, Any], validate_only: bool
) -> None:
    from confluent_kafka.admin import NewTopic

    settings = {str(key): str(value) for key, value in configs.items() if value is not None}
    for what, count in (("partitions", partitions), ("replication_factor", replicas)):
        if count is not None and not 0 < count <= 100_000:
            raise bad(f"{what} is {count}, not a number from 1 to 100000")
    connection.metadata()
    new = NewTopic(name, num_partitions=partitions or -1, replication_factor=replicas or -1, config=settings)
    futures = connection.admin.create_topics(
        [new], operation_timeout=REQUEST_TIMEOUT_S, request_timeout=REQUEST_TIMEOUT_S, validate_only=validate_only
    )
    result_of(futures[name], f"topic {name}")


async def delete_topic(console: Console, call: Call) -> Answer:
    name = call.path("topic")
    await call.blocking(_delete, call.connection, name)
    await console.watch.anew()
    return {"topic": name}


def _delete(connection: Connection, name: str) -> None:
    connection.topic(name)
    futures = connection.admin.delete_topics([name], operation_timeout=REQUEST_TIMEOUT_S, request_timeout=REQUEST_TIMEOUT_S)
    result_of(futures[name], f"topic {name}")


async def add_partitions(console: Console, call: Call) -> Answer:
    name, count = call.path("topic"), call.needed("count", int)
    await call.blocking(_add_partitions, call.connection, name, count)
    await console.watch.anew()
    return {"topic": name, "partitions": count}


def _add_partitions(connection: Connection, name: str, count: int) -> None:
    from confluent_kafka.admin import NewPartitions

    present = len(connection.topic(name).partitions)
    if not present < count <= 100_000:
        raise bad(f"topic {name} has {present} partitions and cannot have {count}", "the number of partitions can only grow")
    future = connection.admin.create_partitions([NewPartitions(name, count)], request_timeout=REQUEST_TIMEOUT_S)[name]
    result_of(future, f"topic {name}")


async def delete_records(console: Console, call: Call) -> Answer:
    name, before = call.path("topic"), call.needed("before", str)
    partitions = call.field("partitions", list)
    if partitions is not None and not all(type(each) is int and each >= 0 for each in partitions):
        raise bad("partitions is a list of numbers")
    found = await call.blocking(_delete_records, call.connection, name, partitions, before, executes(call))
    if executes(call):
        await console.watch.anew()
    return found


def _delete_records(
    connection: Connection, name: str, partitions: list[int] | None, before: str, execute: bool
) -> dict[str, Any]:
    from ottla.cli.delete_records import delete_before, planned_deletion

    bounds, target = planned_deletion(connection, name, partitions, parse_position(before, int(time.time() * 1000)))
    if execute:
        raise_together(delete_before(connection, {key: offset for key, offset in target.items() if offset > bounds[key][0]}))
    return {
        "executed": execute,
        "partitions": [
            {
                "partition": key[1],
                "log_start": bounds[key][0],
                "before": offset,
                "log_end": bounds[key][1],
                "deleted": offset - bounds[key][0],
            }
            for key, offset in sorted(target.items())
        ],
    }


_LIST_PARAMS = (
    *PARAMS,
    Param("internal", "1: internal topics too", BOOLEAN),
    Param("state", "under_replicated, offline or internal", STRING),
)
_STREAM = "text/event-stream"

ENDPOINTS = (
    Endpoint("GET", "/api/topics", "A window of the list of topics", list_topics, list_schema(ROW), params=_LIST_PARAMS),
    Endpoint(
        "GET",
        "/api/live/topics",
        "A window of the list as it changes",
        live_topics,
        OBJECT,
        params=_LIST_PARAMS,
        media_type=_STREAM,
    ),
    Endpoint(
        "GET",
        "/api/topics/{topic}",
        "A topic and its partitions, as of now",
        get_topic,
        TOPIC,
        params=(Param("replicas", "1: the log end of each replica too", BOOLEAN),),
    ),
    Endpoint(
        "GET", "/api/live/topics/{topic}", "The partitions of a topic as they change", live_topic, OBJECT, media_type=_STREAM
    ),
    Endpoint("GET", "/api/topics/{topic}/consumers", "The groups that read a topic", get_topic_consumers, CONSUMERS),
    Endpoint("GET", "/api/topics/{topic}/producers", "The producers that write a topic", get_topic_producers, PRODUCERS),
    Endpoint(
        "POST",
        "/api/topics",
        "Create a topic",
        create_topic,
        document(topic=STRING),
        role=Role.ADMIN,
        changes=True,
        body=request(
            topic=STRING,
            partitions_=maybe(INTEGER),
            replication_factor_=maybe(INTEGER),
            configs_=by_name({}),
            validate_only_=BOOLEAN,
        ),
        status=201,
        audit=lambda call: not call.body.get("validate_only"),
    ),
    Endpoint(
        "DELETE",
        "/api/topics/{topic}",
        "Delete a topic and all its records",
        delete_topic,
        document(topic=STRING),
        role=Role.ADMIN,
        changes=True,
    ),
    Endpoint(
        "POST",
        "/api/topics/{topic}/partitions",
        "Add partitions",
        add_partitions,
        document(topic=STRING, partitions=INTEGER),
        role=Role.ADMIN,
        changes=True,
        body=request(count=INTEGER),
    ),
    Endpoint(
        "POST",
        "/api/topics/{topic}/delete-records",
        "Delete the records before a position; a preview unless `execute`",
        delete_records,
        document(
            executed=BOOLEAN,
            partitions=listed(document(partition=INTEGER, log_start=INTEGER, before=INTEGER, log_end=INTEGER, deleted=INTEGER)),
        ),
        role=Role.ADMIN,
        changes=True,
        body=request(before=STRING, partitions_=maybe(listed(INTEGER)), execute_=BOOLEAN),
        audit=executes,
    ),
)
