"""Brokers: the list, one with its directories and settings, changes of settings."""

from __future__ import annotations

from typing import Any

from ottla.cli.config import alter_settings
from ottla.cli.connection import Connection
from ottla.cli.console.settings import Role
from ottla.cli.failure import Failure
from ottla.console.configs import BROKER, CLUSTER_WIDE, CONFIG, TOPIC, read_configs
from ottla.console.console import Console
from ottla.console.endpoint import Answer, Call, Endpoint, bad
from ottla.console.schema import ANYTHING, BOOLEAN, INTEGER, NUMBER, STRING, by_name, document, listed, maybe, request
from ottla.console.watch import Snapshot

_ROW_FIELDS = {
    "broker": INTEGER,
    "host": maybe(STRING),
    "port": maybe(INTEGER),
    "rack": maybe(STRING),
    "is_controller": BOOLEAN,
    "up": BOOLEAN,
    "leaders": INTEGER,
    "replicas": INTEGER,
    "in_sync": INTEGER,
    "log_bytes": maybe(INTEGER),
    "leader_skew": maybe(NUMBER),
    "replica_skew": maybe(NUMBER),
}
_DIRECTORY = document(
    path=STRING,
    error=maybe(STRING),
    total_bytes=maybe(INTEGER),
    usable_bytes=maybe(INTEGER),
    log_bytes=INTEGER,
    replicas=INTEGER,
    topics=listed(document(topic=STRING, log_bytes=INTEGER, partitions=INTEGER)),
)


def broker_rows(snapshot: Snapshot) -> list[dict[str, Any]]:
    """The brokers of the cluster, and those that have replicas and are not in it."""
    reading = snapshot.reading
    known = {node.broker_id: node for node in reading.brokers}
    leaders: dict[int, int] = {}
    replicas: dict[int, int] = {}
    in_sync: dict[int, int] = {}
    for topic in reading.topics.values():
        for partition in topic.partitions.values():
            leaders[partition.leader_id] = leaders.get(partition.leader_id, 0) + 1
            for counts, members in ((replicas, partition.replicas), (in_sync, partition.isr)):
                for each in members:
                    counts[each] = counts.get(each, 0) + 1
    count = max(len(known), 1)
    fair_leaders = sum(leaders.get(each, 0) for each in known) / count
    fair_replicas = sum(replicas.get(each, 0) for each in known) / count
    rows = []
    for broker in sorted(known.keys() | replicas.keys()):
        node = known.get(broker)
        rows.append(
            {
                "broker": broker,
                "host": None if node is None else node.host,
                "port": None if node is None else node.port,
                "rack": None if node is None else node.rack or None,
                "is_controller": broker == reading.controller_id,
                "up": node is not None,
                "leaders": leaders.get(broker, 0),
                "replicas": replicas.get(broker, 0),
                "in_sync": in_sync.get(broker, 0),
                "log_bytes": None if node is None else node.log_bytes,
                "leader_skew": _skew(leaders.get(broker, 0), fair_leaders),
                "replica_skew": _skew(replicas.get(broker, 0), fair_replicas),
            }
        )
    return rows


def _skew(have: int, fair: float) -> float | None:
    """How much more than its part a broker has: 0.5 is half as much again."""
    return round(have / fair - 1, 3) if fair else None


async def list_brokers(console: Console, call: Call) -> Answer:
    call.watch.look()
    snapshot = await call.watch.complete_snapshot()
    return {"controller_id": snapshot.reading.controller_id, "as_of_ms": snapshot.as_of_ms, "brokers": broker_rows(snapshot)}


async def get_broker(console: Console, call: Call) -> Answer:
    number = call.path_number("broker")
    snapshot = await call.watch.complete_snapshot()
    row = next((each for each in broker_rows(snapshot) if each["broker"] == number), None)
    if row is None:
        known = ", ".join(str(each.broker_id) for each in snapshot.reading.brokers)
        raise Failure(f"broker {number} does not exist", f"the brokers are {known}", code="NOT_FOUND")
    if not row["up"]:
        return {**row, "log_dirs": [], "configs": []}
    directories = await call.blocking(_directories, call.connection, number)
    return {**row, "log_dirs": directories, "configs": await read_configs(call.brokers, BROKER, str(number))}


def _directories(connection: Connection, broker: int) -> list[dict[str, Any]]:
    from ottla.cli.log_dirs.view import LogDirs

    found = []
    for directory in LogDirs(connection).of(broker):
        topics: dict[str, list[int]] = {}
        for replica in directory.replicas:
            topics.setdefault(replica.topic, []).append(replica.size_bytes)
        largest = sorted(topics.items(), key=lambda pair: (-sum(pair[1]), pair[0]))
        found.append(
            {
                "path": directory.path,
                "error": directory.error,
                "total_bytes": directory.total_bytes,
                "usable_bytes": directory.usable_bytes,
                "log_bytes": directory.size_bytes,
                "replicas": len(directory.replicas),
                "topics": [{"topic": name, "log_bytes": sum(sizes), "partitions": len(sizes)} for name, sizes in largest],
            }
        )
    return found


# Settings


async def get_topic_configs(console: Console, call: Call) -> Answer:
    name = call.path("topic")
    await call.blocking(call.connection.topic, name)
    return {"configs": await read_configs(call.brokers, TOPIC, name)}


async def get_cluster_configs(console: Console, call: Call) -> Answer:
    await call.watch.first()
    return {"configs": await read_configs(call.brokers, BROKER, "")}


async def alter_topic_configs(console: Console, call: Call) -> Answer:
    name = call.path("topic")
    await _alter(call, "topic", name)
    return {"configs": await read_configs(call.brokers, TOPIC, name)}


async def alter_broker_configs(console: Console, call: Call) -> Answer:
    name = call.path("broker")
    await _alter(call, "broker", name)
    return {"configs": await read_configs(call.brokers, BROKER, "" if name == CLUSTER_WIDE else name)}


async def _alter(call: Call, kind: str, name: str) -> None:
    changes, removals = call.field("set", dict) or {}, call.field("unset", list) or []
    if not changes and not removals:
        raise bad("nothing to change", "pass set or unset")
    if not all(isinstance(each, str) for each in removals) or not all(
        isinstance(value, (str, int, float)) for value in changes.values()
    ):
        raise bad("set is an object of texts and numbers, unset a list of names")
    words = {str(key): str(value).lower() if isinstance(value, bool) else str(value) for key, value in changes.items()}
    await call.blocking(alter_settings, call.connection, kind, name, words, [str(each) for each in removals])


_CHANGES = request(set_=by_name(ANYTHING), unset_=listed(STRING))
_CONFIGS = document(configs=listed(CONFIG))

ENDPOINTS = (
    Endpoint(
        "GET",
        "/api/brokers",
        "The brokers, and how leaders and replicas are spread over them",
        list_brokers,
        document(controller_id=INTEGER, as_of_ms=INTEGER, brokers=listed(document(**_ROW_FIELDS))),
    ),
    Endpoint("GET", "/api/brokers/default", "The dynamic settings of all brokers", get_cluster_configs, _CONFIGS),
    Endpoint(
        "GET",
        "/api/brokers/{broker}",
        "A broker with its directories and settings",
        get_broker,
        document(**_ROW_FIELDS, log_dirs=listed(_DIRECTORY), configs=listed(CONFIG)),
    ),
    Endpoint(
        "PATCH",
        "/api/brokers/{broker}/configs",
        "Change dynamic settings of a broker, or of all (`default`)",
        alter_broker_configs,
        _CONFIGS,
        role=Role.ADMIN,
        changes=True,
        body=_CHANGES,
    ),
    Endpoint("GET", "/api/topics/{topic}/configs", "The settings of a topic", get_topic_configs, _CONFIGS),
    Endpoint(
        "PATCH",
        "/api/topics/{topic}/configs",
        "Change settings of a topic",
        alter_topic_configs,
        _CONFIGS,
        role=Role.ADMIN,
        changes=True,
        body=_CHANGES,
    ),
)
