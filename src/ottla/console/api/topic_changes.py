"""Changes of topics: create, delete, add partitions, delete records."""

from __future__ import annotations

import time
from typing import Any

from ottla.cli.connection import REQUEST_TIMEOUT_S, Connection, check_not_internal, result_of
from ottla.cli.console.settings import Role
from ottla.cli.failure import raise_together
from ottla.cli.positions import parse_position
from ottla.console.console import Console
from ottla.console.endpoint import Answer, Call, Endpoint, bad, executes
from ottla.console.schema import BOOLEAN, INTEGER, STRING, by_name, document, listed, maybe, request


async def create_topic(console: Console, call: Call) -> Answer:
    name = call.needed("topic", str)
    configs = call.field("configs", dict) or {}
    partitions, replicas = call.field("partitions", int), call.field("replication_factor", int)
    validate_only = bool(call.field("validate_only", bool))
    await call.blocking(_create, call.connection, name, partitions, replicas, configs, validate_only)
    if not validate_only:
        await call.watch.anew()
    return {"topic": name}


def _create(
    connection: Connection, name: str, partitions: int | None, replicas: int | None, configs: dict[str, Any], validate_only: bool
) -> None:
    from confluent_kafka.admin import NewTopic

    settings = {str(key): str(value) for key, value in configs.items() if value is not None}
    for what, count, most in (("partitions", partitions, 100_000), ("replication_factor", replicas, 10_000)):
        if count is not None and not 0 < count <= most:
            raise bad(f"{what} is {count}, not a number from 1 to {most}")
    check_not_internal([name])
    connection.metadata()
    new = NewTopic(name, num_partitions=partitions or -1, replication_factor=replicas or -1, config=settings)
    futures = connection.admin.create_topics(
        [new], operation_timeout=REQUEST_TIMEOUT_S, request_timeout=REQUEST_TIMEOUT_S, validate_only=validate_only
    )
    result_of(futures[name], f"topic {name}")


async def delete_topic(console: Console, call: Call) -> Answer:
    name = call.path("topic")
    await call.blocking(_delete, call.connection, name)
    await call.watch.anew()
    return {"topic": name}


def _delete(connection: Connection, name: str) -> None:
    connection.topic(name)
    futures = connection.admin.delete_topics([name], operation_timeout=REQUEST_TIMEOUT_S, request_timeout=REQUEST_TIMEOUT_S)
    result_of(futures[name], f"topic {name}")


async def add_partitions(console: Console, call: Call) -> Answer:
    name, count = call.path("topic"), call.needed("count", int)
    await call.blocking(_add_partitions, call.connection, name, count)
    await call.watch.anew()
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
        await call.watch.anew()
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


ENDPOINTS = (
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
