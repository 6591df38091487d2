"""What the teaching view of a partition shows beside its offsets: who waits for it, what the metadata holds."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from ottla.cli.connection import Connection
from ottla.cli.failure import Failure
from ottla.client.brokers import Brokers
from ottla.console.api.topic import id_text, read_topic
from ottla.console.configs import BROKER, TOPIC, read_configs
from ottla.console.console import Console
from ottla.console.endpoint import Answer, Call, Endpoint, Param
from ottla.console.schema import BOOLEAN, INTEGER, NUMBER, STRING, document, listed, maybe, one_of
from ottla.exporter.reading import BrokerNode, ClusterReading, Topic
from ottla.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse, RequestPartition, RequestTopic

ZOOKEEPER, SQLITE, KRAFT = "zookeeper", "sqlite", "kraft"
_METADATA_TOPIC = "__cluster_metadata"
_UNTOLD = ("NO_METRICS_LISTENER", "METRICS_AWAY")

# Who waits


async def get_waiting(console: Console, call: Call) -> Answer:
    topic, partition = call.word("topic"), call.number("partition", 0)
    return await call.blocking(_waiting, call.connection, call.path_number("broker"), topic, partition)


def _waiting(connection: Connection, broker: int, topic: str | None, partition: int) -> dict[str, Any]:
    from ottla.cli.connections import waiting_at

    try:
        found = waiting_at(connection, broker)
    except Failure as failure:
        if failure.code not in _UNTOLD:
            raise
        return {"broker": broker, "told": False, "why": failure.message, "hint": failure.hint, "others": 0, "requests": []}
    wanted = [each for each in found if topic is None or partition in each.get("waits_for", {}).get(topic, ())]
    return {
        "broker": broker,
        "told": True,
        "why": None,
        "hint": None,
        "others": len(found) - len(wanted),
        "requests": [
            {
                "request": str(each["waits_in"]),
                "client": each["client_id"] or None,
                "address": f"{each['address']}:{each['port']}",
                "seconds": each["idle_seconds"],
            }
            for each in wanted
        ],
    }


# The metadata


async def get_metadata(console: Console, call: Call) -> Answer:
    """What the cluster's metadata holds of a topic, in the form in which it keeps it, as far as the protocol tells."""
    name = call.path("topic")
    reading, topic = await read_topic(call.watch, name)
    asked = str(reading.brokers[0].broker_id)
    settings = {each["name"]: each["value"] for each in await read_configs(call.brokers, BROKER, asked)}
    kind = KRAFT if settings.get("process.roles") else ZOOKEEPER if settings.get("zookeeper.connect") else SQLITE
    own = {each["name"]: each["value"] for each in await read_configs(call.brokers, TOPIC, name) if each["source"] == "topic"}
    entries = list((_records if kind == KRAFT else _znodes)(reading, topic, own))
    if kind == KRAFT and (quorum := await _quorum(call.brokers)) is not None:
        entries.insert(0, ("quorum", quorum))
    return {"kind": kind, "entries": [{"path": path, "value": json.dumps(value)} for path, value in entries]}


Entries = Iterator[tuple[str, Mapping[str, Any]]]


def _znodes(reading: ClusterReading, topic: Topic, settings: Mapping[str, Any]) -> Entries:
    """Kafka's znodes; a broker alone keeps the same tree in SQLite."""
    yield "/controller", {"version": 2, "brokerid": reading.controller_id}
    for broker in reading.brokers:
        yield f"/brokers/ids/{broker.broker_id}", {"version": 5, **_address(broker)}
    partitions = {str(index): each.replicas for index, each in topic.partitions.items()}
    yield f"/brokers/topics/{topic.name}", {"version": 3, "topic_id": id_text(topic.topic_id), "partitions": partitions}
    for index, each in topic.partitions.items():
        state = {"version": 1, "leader": each.leader_id, "leader_epoch": each.leader_epoch, "isr": each.isr}
        yield f"/brokers/topics/{topic.name}/partitions/{index}/state", state
    yield f"/config/topics/{topic.name}", {"version": 1, "config": settings}


def _records(reading: ClusterReading, topic: Topic, settings: Mapping[str, Any]) -> Entries:
    """Records of the log `__cluster_metadata`."""
    for broker in reading.brokers:
        yield "RegisterBrokerRecord", {"brokerId": broker.broker_id, **_address(broker)}
    topic_id = id_text(topic.topic_id)
    yield "TopicRecord", {"name": topic.name, "topicId": topic_id}
    for index, each in topic.partitions.items():
        yield (
            "PartitionRecord",
            {
                "partitionId": index,
                "topicId": topic_id,
                "replicas": each.replicas,
                "isr": each.isr,
                "leader": each.leader_id,
                "leaderEpoch": each.leader_epoch,
            },
        )
    for key, value in settings.items():
        yield "ConfigRecord", {"resourceType": 2, "resourceName": topic.name, "name": key, "value": value}


async def _quorum(brokers: Brokers) -> dict[str, Any] | None:
    """Who leads the log of the metadata, and how far its voters and the brokers have it. None if this user may not know."""
    request = DescribeQuorumRequest(
        topics=[RequestTopic(topic_name=_METADATA_TOPIC, partitions=[RequestPartition(partition_index=0)])]
    )
    answer: DescribeQuorumResponse = await brokers.call_any("describe_quorum", request)
    found = [each for topic in answer.topics for each in topic.partitions if not each.error_code]
    if answer.error_code or not found:
        return None
    log = found[0]
    return {
        "topic": _METADATA_TOPIC,
        "leader": log.leader_id,
        "leaderEpoch": log.leader_epoch,
        "highWatermark": log.high_watermark,
        "voters": {str(each.replica_id): each.log_end_offset for each in log.current_voters},
        "observers": {str(each.replica_id): each.log_end_offset for each in log.observers},
    }


def _address(broker: BrokerNode) -> dict[str, Any]:
    return {"host": broker.host, "port": broker.port, "rack": broker.rack or None}


ENDPOINTS = (
    Endpoint(
        "GET",
        "/api/brokers/{broker}/waiting",
        "The requests that wait at a broker, or for a partition: only Ottla with a metrics listener tells it",
        get_waiting,
        document(
            broker=INTEGER,
            told=BOOLEAN,
            why=maybe(STRING),
            hint=maybe(STRING),
            others=INTEGER,
            requests=listed(document(request=STRING, client=maybe(STRING), address=STRING, seconds=NUMBER)),
        ),
        params=(
            Param("topic", "only requests that wait for a partition of this topic", STRING),
            Param("partition", "that partition", INTEGER),
        ),
    ),
    Endpoint(
        "GET",
        "/api/topics/{topic}/metadata",
        "What the cluster's metadata holds of a topic, as znodes or KRaft's records, made from what the protocol tells",
        get_metadata,
        document(kind=one_of(ZOOKEEPER, SQLITE, KRAFT), entries=listed(document(path=STRING, value=STRING))),
    ),
)
