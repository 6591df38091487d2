"""`ottla cluster status`: brokers, controller, partitions and their replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.connection import Connection
from ottla.cli.options import DEFAULT_BOOTSTRAP_SERVERS, Bootstrap, CommandConfig, Json
from ottla.cli.output import counted, print_document, print_table

if TYPE_CHECKING:
    from ottla.cli.cluster.view import ClusterView, PartitionState


def status(
    topics: Annotated[list[str] | None, typer.Option("--topic", "-t", metavar="TOPIC", help="Only these topics.")] = None,
    problems: Annotated[bool, typer.Option("--problems", help="Only partitions that are offline or under-replicated.")] = False,
    internal: Annotated[bool, typer.Option("--internal", help="Include internal topics (__…).")] = False,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """Show brokers, controller, leaders, in-sync replicas, high watermarks, and the log end offset of each replica."""
    # Imported late: `ottla --help` does not need the protocol's messages.
    from ottla.cli.cluster.view import ClusterView

    view = ClusterView(Connection(bootstrap_servers, command_config))
    chosen = view.of(topics) if topics else [each for each in view.partitions.values() if internal or not each.is_internal]
    # Internal topics with problems are always shown.
    hidden = [] if topics else [each for each in view.partitions.values() if each.is_internal and not internal]
    chosen += [each for each in hidden if each.is_offline or each.is_under_replicated]
    if problems:
        chosen = [each for each in chosen if each.is_offline or each.is_under_replicated]
    view.read_offsets(chosen)
    if json_output:
        print_document(_document(view, chosen))
    else:
        _print_status(view, chosen)


def _document(view: ClusterView, chosen: list[PartitionState]) -> dict[str, Any]:
    everything = view.partitions.values()
    return {
        "cluster_id": view.cluster_id,
        "controller_id": view.controller_id,
        "brokers": [
            {
                "id": broker.broker_id,
                "host": broker.address[0] if broker.address else None,
                "port": broker.address[1] if broker.address else None,
                "rack": broker.rack,
                "alive": broker.address is not None,
                "leads": sum(each.leader == broker.broker_id for each in everything),
                "replicas": sum(broker.broker_id in each.replicas for each in everything),
                "in_sync": sum(broker.broker_id in each.isr for each in everything),
            }
            for broker in view.all_brokers
        ],
        "changes_fail": view.why_changes_fail(),
        "partitions": [each.document() for each in chosen],
        "partition_count": len(everything),
        "under_replicated_count": sum(each.is_under_replicated for each in everything),
        "offline_count": sum(each.is_offline for each in everything),
    }


def _print_status(view: ClusterView, chosen: list[PartitionState]) -> None:
    document = _document(view, chosen)
    print(
        f"cluster {view.cluster_id}: {counted(len(view.brokers), 'broker')}, controller"
        f" {view.controller_id if view.controller_id >= 0 else 'none'}, {counted(document['partition_count'], 'partition')},"
        f" {document['under_replicated_count']} under-replicated, {document['offline_count']} offline"
    )
    if document["changes_fail"]:
        print(f"metadata cannot be changed: {document['changes_fail']}")
    print_table(
        ["BROKER", "ADDRESS", "RACK", "LEADS", "REPLICAS", "IN-SYNC"],
        [
            (
                row["id"],
                f"{row['host']}:{row['port']}" if row["alive"] else "down",
                row["rack"] or "-",
                row["leads"],
                row["replicas"],
                row["in_sync"],
            )
            for row in document["brokers"]
        ],
        right=["BROKER", "LEADS", "REPLICAS", "IN-SYNC"],
    )
    if not chosen:
        return
    print()
    print_table(
        ["TOPIC", "PARTITION", "LEADER", "EPOCH", "ISR", "HW", "LOG-END OF REPLICAS", ""],
        [
            (
                each.topic,
                each.index,
                each.leader if each.leader >= 0 else "none",
                each.leader_epoch,
                ",".join(map(str, each.isr)),
                "-" if each.high_watermark is None else each.high_watermark,
                " ".join(f"{broker}:{each.log_end_offsets.get(broker, '-')}" for broker in each.replicas),
                "offline" if each.is_offline else "under-replicated" if each.is_under_replicated else "",
            )
            for each in chosen
        ],
        right=["PARTITION", "LEADER", "EPOCH", "HW"],
    )
