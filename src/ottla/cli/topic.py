"""`ottla topic`: create, list, describe, alter, delete. (`clone` and `copy` are in `copying`.)"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.connection import REQUEST_TIMEOUT_S, Connection, check_not_internal, result_of, unknown_topic
from ottla.cli.copying.command import clone, copy
from ottla.cli.copying.destination import stays_here
from ottla.cli.failure import EXIT_USAGE, Failure, raise_together
from ottla.cli.options import DEFAULT_BOOTSTRAP_SERVERS, Bootstrap, CommandConfig, Commands, Json, Yes, confirm, parse_pairs
from ottla.cli.output import counted, note, print_document, print_table

if TYPE_CHECKING:
    from confluent_kafka.admin import TopicMetadata

PARTITIONS_MAX = 100_000
REPLICAS_MAX = 10_000
"""Limits of librdkafka, which raises a ValueError above them."""
BROKER_ID_MAX = 2**31 - 1

app = Commands(help="Topics: create, list, describe, alter, delete, clone, copy.", no_args_is_help=True)

Names = Annotated[list[str], typer.Argument(metavar="TOPIC", show_default=False)]


def parse_assignment(text: str) -> list[list[int]]:
    """`0:1,1:2` as [[0, 1], [1, 2]]: the brokers of each partition's replicas, the preferred leader first."""
    try:
        assignment = [[int(broker) for broker in partition.split(":")] for partition in text.split(",")]
    except ValueError:
        assignment = []
    possible = all(0 <= broker <= BROKER_ID_MAX for brokers in assignment for broker in brokers)
    if not assignment or not possible or len({len(brokers) for brokers in assignment}) != 1:
        raise Failure(
            f"{text!r} is not a replica assignment",
            "write the broker ids of a partition with ':', partitions with ',', as in 0:1,1:0",
            exit_code=EXIT_USAGE,
        )
    return assignment


@app.add("create", changes=lambda options: not options["dry_run"])
def create(
    names: Names,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", "-p", min=1, max=PARTITIONS_MAX, help="How many. (default: the broker's num.partitions)"),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor", "-r", min=1, max=REPLICAS_MAX, help="Replicas of each partition. (default: the broker's)"
        ),
    ] = None,
    replica_assignment: Annotated[
        str | None, typer.Option("--replica-assignment", metavar="0:1,1:0,…", help="The brokers of each partition.")
    ] = None,
    config: Annotated[
        list[str] | None, typer.Option("--config", "-c", metavar="KEY=VALUE", help="A topic setting (repeatable).")
    ] = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Do not fail if the topic exists.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Let the broker validate the request, create nothing.")] = False,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """Create topics."""
    from confluent_kafka.admin import NewTopic

    check_not_internal(names)
    settings = parse_pairs(config, "--config")
    layout: dict[str, Any] = {"num_partitions": partitions or -1}
    if replica_assignment is not None:
        if partitions is not None or replication_factor is not None:
            raise Failure("--replica-assignment already says how many partitions and replicas", exit_code=EXIT_USAGE)
        layout["replica_assignment"] = parse_assignment(replica_assignment)
        layout["num_partitions"] = len(layout["replica_assignment"])
    else:
        layout["replication_factor"] = replication_factor or -1
    connection = Connection(bootstrap_servers, command_config)
    connection.metadata()
    futures = connection.admin.create_topics(
        [NewTopic(name, config=settings, **layout) for name in names],
        operation_timeout=REQUEST_TIMEOUT_S,
        request_timeout=REQUEST_TIMEOUT_S,
        validate_only=dry_run,
    )
    results, failures = [], []
    for name, future in futures.items():
        try:
            result_of(future, f"topic {name}")
        except Failure as failure:
            if if_not_exists and failure.code == "TOPIC_ALREADY_EXISTS":
                results.append({"topic": name, "created": False})
            else:
                failures.append(failure)
        else:
            results.append({"topic": name, "created": not dry_run})
    if json_output and (results or not failures):
        print_document(results)
    elif not json_output:
        for result in results:
            word = "created" if result["created"] else "can be created" if dry_run else "already exists"
            print(f"topic {result['topic']} {word}")
    raise_together(failures)


def topic_rows(connection: Connection, *, internal: bool) -> list[dict[str, Any]]:
    known = connection.metadata().topics
    shown = [known[name] for name in sorted(known) if internal or not name.startswith("__")]
    return [
        {
            "topic": topic.topic,
            "partitions": len(topic.partitions),
            "replication_factor": max((len(partition.replicas) for partition in topic.partitions.values()), default=0),
        }
        for topic in shown
    ]


@app.add("list")
def list_topics(
    internal: Annotated[bool, typer.Option("--internal", help="Include internal topics (__…).")] = False,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """List topics."""
    rows = topic_rows(Connection(bootstrap_servers, command_config), internal=internal)
    if json_output:
        print_document(rows)
    elif rows:
        print_table(["TOPIC", "PARTITIONS", "REPLICAS"], [list(row.values()) for row in rows], right=["PARTITIONS", "REPLICAS"])
    else:
        note("no topics yet; create one with `ottla topic create NAME`")


@app.add("describe")
def describe(
    names: Names,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """Show partitions, leaders, replicas, offsets, and the settings of the topic itself."""
    connection = Connection(bootstrap_servers, command_config)
    documents = [topic_document(connection, topic) for topic in connection.topics(names)]
    if json_output:
        print_document(documents)
        return
    for index, document in enumerate(documents):
        if index:
            print()
        print(
            f"{document['topic']}  id {document['topic_id']}  {counted(len(document['partitions']), 'partition')},"
            f" {counted(document['replication_factor'], 'replica')}, {counted(document['records'], 'offset')}"
        )
        for name, value in document["config"].items():
            print(f"  {name}={value}")
        print_table(
            ["PARTITION", "LEADER", "REPLICAS", "ISR", "START", "END"],
            [
                (
                    row["partition"],
                    row["leader"] if row["leader"] >= 0 else "none",
                    ",".join(map(str, row["replicas"])),
                    ",".join(map(str, row["isr"])),
                    row["start_offset"],
                    row["end_offset"],
                )
                for row in document["partitions"]
            ],
            right=["PARTITION", "LEADER", "START", "END"],
        )


def topic_document(connection: Connection, topic: TopicMetadata) -> dict[str, Any]:
    from confluent_kafka import TopicCollection
    from confluent_kafka.admin import ConfigResource, ConfigSource, ResourceType

    from ottla.cli.offsets import log_bounds

    name = topic.topic
    assert name is not None
    description = result_of(connection.admin.describe_topics(TopicCollection([name]))[name], f"topic {name}")
    resource = ConfigResource(ResourceType.TOPIC, name)
    settings = result_of(connection.admin.describe_configs([resource])[resource], f"settings of {name}")
    bounds = log_bounds(connection, [(name, index) for index, part in topic.partitions.items() if part.leader >= 0])
    rows: list[dict[str, Any]] = []
    for index, partition in sorted(topic.partitions.items()):
        start, end = bounds.get((name, index), (None, None))
        rows.append(
            {
                "partition": index,
                "leader": partition.leader,
                "replicas": list(partition.replicas),
                "isr": list(partition.isrs),
                "start_offset": start,
                "end_offset": end,
            }
        )
    return {
        "topic": name,
        # Kafka prints topic ids in URL-safe base64, the library in standard base64.
        "topic_id": str(description.topic_id).translate(str.maketrans("+/", "-_")),
        "internal": bool(description.is_internal),
        "replication_factor": max((len(row["replicas"]) for row in rows), default=0),
        "records": sum(end - start for start, end in bounds.values()),
        "config": {
            entry.name: entry.value
            for entry in sorted(settings.values(), key=lambda entry: str(entry.name))
            if ConfigSource(entry.source) is ConfigSource.DYNAMIC_TOPIC_CONFIG
        },
        "partitions": rows,
    }


@app.add("alter", changes=True)
def alter(
    name: Annotated[str, typer.Argument(metavar="TOPIC")],
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", "-p", min=1, max=PARTITIONS_MAX, help="The new number of partitions; it can only grow."),
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", "-s", metavar="KEY=VALUE", help="Set a topic setting (repeatable).")
    ] = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", "-u", metavar="KEY", help="Reset a setting to its default.")
    ] = None,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """Add partitions or change settings."""
    from confluent_kafka.admin import NewPartitions

    from ottla.cli.config import alter_settings

    if partitions is None and not set_ and not unset:
        raise Failure("nothing to change", "pass --partitions, --set or --unset", exit_code=EXIT_USAGE)
    connection = Connection(bootstrap_servers, command_config)
    present = len(connection.topic(name).partitions)
    if set_ or unset:
        alter_settings(connection, "topic", name, parse_pairs(set_, "--set"), unset or [])
    if partitions is not None and partitions != present:
        if partitions < present:
            raise Failure(
                f"topic {name} has {present} partitions and cannot have {partitions}", "the number of partitions can only grow"
            )
        future = connection.admin.create_partitions([NewPartitions(name, partitions)], request_timeout=REQUEST_TIMEOUT_S)[name]
        result_of(future, f"topic {name}")
    if json_output:
        print_document(
            {"topic": name, "partitions": partitions or present, "set": parse_pairs(set_, "--set"), "unset": unset or []}
        )
    else:
        print(f"topic {name} altered")


@app.add("delete", changes=True)
def delete(
    names: Names,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Do not fail if the topic does not exist.")] = False,
    yes: Yes = False,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """Delete topics and all their records."""
    connection = Connection(bootstrap_servers, command_config)
    known = connection.metadata().topics
    present = [name for name in names if name in known]
    for name in names:
        if name not in known and not if_exists:
            raise unknown_topic(name, known, creatable=False)
    if present:
        confirm(f"Delete {', '.join(present)} and all records?", yes)
    failures = []
    deleted = []
    if present:
        futures = connection.admin.delete_topics(present, operation_timeout=REQUEST_TIMEOUT_S, request_timeout=REQUEST_TIMEOUT_S)
        for name, future in futures.items():
            try:
                result_of(future, f"topic {name}")
                deleted.append(name)
            except Failure as failure:
                failures.append(failure)
    if json_output:
        print_document([{"topic": name, "deleted": name in deleted} for name in names])
    else:
        for name in deleted:
            print(f"topic {name} deleted")
    raise_together(failures)


app.add("clone", changes=stays_here)(clone)
app.add("copy", changes=stays_here)(copy)
