"""`ottla cluster`: up (a cluster on this machine, for as long as the command runs), status (of any cluster)."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.connection import Connection
from ottla.cli.failure import EXIT_FAILED, EXIT_USAGE, Failure, guarded
from ottla.cli.options import DEFAULT_BOOTSTRAP_SERVERS, Bootstrap, CommandConfig, Json, parse_pairs
from ottla.cli.output import counted, note, print_document, print_table

if TYPE_CHECKING:
    from ottla.cli.cluster.processes import LocalCluster
    from ottla.cli.cluster.view import ClusterView, PartitionState

BROKERS_MAX = 100
_WATCH_S = 0.2
_JOIN_TIMEOUT_S = 120.0
_ALONE_S = 60.0
_SESSION_MS, _SESSION_ELSEWHERE_MS = 2_000, 6_000
"""On one machine nobody is cut off; who is silent for so long is dead, or stopped. (A ZooKeeper of others may be anywhere.) A
machine that sleeps stops all of them, and the clocks they count by."""

app = typer.Typer(help="A cluster: start one on this machine, look at any.", no_args_is_help=True)


class _Asked(Exception):
    """A signal asked for the end."""


def broker_properties(
    number: int,
    count: int,
    port: int,
    directory: Path,
    connect: str,
    session_ms: int,
    rack: str | None,
    overrides: dict[str, str],
) -> dict[str, str]:
    """A broker's settings: Kafka's defaults but for what a few brokers on one machine need."""
    copies = min(3, count)
    properties = {
        "broker.id": str(number),
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "log.dirs": str((directory / f"broker-{number}" / "data").absolute()),
        "zookeeper.connect": connect,
        "zookeeper.session.timeout.ms": str(session_ms),
        "zookeeper.connection.timeout.ms": "18000",
        "default.replication.factor": str(copies),
        "offsets.topic.replication.factor": str(copies),
        "transaction.state.log.replication.factor": str(copies),
        "transaction.state.log.min.isr": str(min(2, copies)),
        # The last brokers to stop have nobody to hand their partitions to: they should not try for long.
        "controlled.shutdown.retry.backoff.ms": "500",
    }
    if rack is not None:
        properties["broker.rack"] = rack
    return properties | overrides


@app.command("up")
@guarded
def up(
    brokers: Annotated[int, typer.Option("--brokers", "-n", min=1, max=BROKERS_MAX, help="How many.")] = 3,
    data_dir: Annotated[Path, typer.Option("--data-dir", "-d", metavar="DIR", help="Where all their files are kept.")] = Path(
        "./ottla-cluster"
    ),
    port: Annotated[
        int, typer.Option("--port", "-p", min=0, max=65535, help="Of the first broker; the others have the next. 0: any free.")
    ] = 9092,
    zookeeper_port: Annotated[int, typer.Option("--zookeeper-port", min=0, max=65535, help="0: any free.")] = 2181,
    zookeeper: Annotated[
        str | None,
        typer.Option("--zookeeper", metavar="HOST:PORT[/CHROOT]", help="One that runs already, instead of one of our own."),
    ] = None,
    racks: Annotated[
        str | None, typer.Option("--racks", metavar="A,B,…", help="Racks, dealt out to the brokers in turn.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", "-s", metavar="KEY=VALUE", help="One setting of all brokers.")
    ] = None,
    json_output: Json = False,
) -> None:
    """Start ZooKeeper and brokers on this machine; stop them all on Ctrl-C or SIGTERM.

    Each is a process of its own. The data stays in --data-dir: the same command brings the same cluster back.
    """
    from ottla.cli.cluster.processes import LocalCluster, require_free
    from ottla.cli.cluster.zookeeper import find, server_command
    from ottla.runtime.free_ports import free_port

    overrides = parse_pairs(set_, "--set")
    rack_names = [rack.strip() for rack in racks.split(",")] if racks is not None else []
    if not all(rack_names):
        raise Failure("a rack has no name", "write them as a,b,c", exit_code=EXIT_USAGE)
    if port and port + brokers - 1 > 65535:
        raise Failure(f"there are no ports for {brokers} brokers from {port} on", exit_code=EXIT_USAGE)
    cluster = LocalCluster(data_dir, note)
    _raise_on_signals()
    started = time.monotonic()
    controller_id = -1
    try:
        cluster.hold()
        for index in range(brokers if port else 0):
            require_free(port + index, f"broker {index + 1}", "--port")
        connect = zookeeper
        if connect is None:
            zookeeper_port = zookeeper_port or free_port()
            cluster.start_zookeeper(server_command(find(), data_dir / "zookeeper", zookeeper_port), zookeeper_port)
            connect = f"127.0.0.1:{zookeeper_port}"
        for index in range(brokers):
            rack = rack_names[index % len(rack_names)] if rack_names else None
            number = index + 1
            broker_port = port + index if port else 0
            session_ms = _SESSION_MS if zookeeper is None else _SESSION_ELSEWHERE_MS
            properties = broker_properties(number, brokers, broker_port, data_dir, connect, session_ms, rack, overrides)
            cluster.start_broker(number, properties)
        cluster.wait_for_brokers()
        controller_id = _wait_until_all_are_in(cluster, brokers)
        _announce(cluster, connect, controller_id, time.monotonic() - started, json_output)
        _watch(cluster)
    except (_Asked, KeyboardInterrupt):
        _stop(cluster, controller_id)
        return
    except BaseException:
        cluster.kill()
        raise
    cluster.kill()
    raise Failure("no broker is left", f"their logs are in {data_dir}", exit_code=EXIT_FAILED)


def _watch(cluster: LocalCluster) -> None:
    """Until no broker is left. One that is started again by hand, as we advise, is none of ours and needs our ZooKeeper."""
    last_seen = time.monotonic()
    is_told = False
    while True:
        time.sleep(_WATCH_S)
        cluster.tell_ended()
        if cluster.has_brokers or cluster.is_zookeeper_used:
            last_seen, is_told = time.monotonic(), False
        elif not cluster.has_zookeeper or time.monotonic() - last_seen > _ALONE_S:
            return
        elif not is_told:
            is_told = True
            note(f"no broker is left; ZooKeeper waits {_ALONE_S:.0f} s for one to be started again. Ctrl-C ends it")


def _raise_on_signals() -> None:
    def asked(number: int, frame: FrameType | None) -> None:
        raise _Asked

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, asked)


def _stop(cluster: LocalCluster, controller_id: int) -> None:
    note("stopping the brokers, then ZooKeeper; once more to kill them")
    try:
        cluster.tell_ended()
        cluster.stop(controller_id=_controller(cluster, controller_id))
    except (_Asked, KeyboardInterrupt):
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        cluster.kill()
        raise Failure("the brokers were killed; the next start checks what they had not flushed") from None


def _controller(cluster: LocalCluster, otherwise: int) -> int:
    from ottla.cli.cluster.view import ClusterView

    try:
        return ClusterView(Connection(cluster.bootstrap_servers)).controller_id if cluster.addresses else otherwise
    except Failure:
        return otherwise


def _wait_until_all_are_in(cluster: LocalCluster, count: int) -> int:
    """The id of the controller, once the brokers know of each other."""
    from ottla.cli.cluster.view import ClusterView

    deadline = time.monotonic() + _JOIN_TIMEOUT_S
    known = 0
    while time.monotonic() < deadline:
        cluster.tell_ended()
        if not cluster.has_brokers:
            raise Failure("no broker is left", f"their logs are in {cluster.directory}")
        try:
            views = [ClusterView(Connection(address)) for address in cluster.addresses.values()]
        except Failure:
            time.sleep(_WATCH_S)  # one that is busy, or on its way out
            continue
        known = min(len(view.brokers) for view in views)
        controllers = {view.controller_id for view in views}
        if known >= count and len(controllers) == 1 and (controller := controllers.pop()) >= 0:
            return controller
        time.sleep(_WATCH_S)
    raise Failure(f"only {known} of {count} brokers are in the cluster", f"their logs are in {cluster.directory}")


def _announce(cluster: LocalCluster, connect: str, controller_id: int, took_s: float, json_output: bool) -> None:
    import sys

    if json_output:
        print_document(
            {
                "bootstrap_servers": cluster.bootstrap_servers,
                "zookeeper": connect,
                "controller_id": controller_id,
                "brokers": [
                    {"id": number, "address": cluster.addresses[number], "pid": member.process.pid}
                    for number, member in sorted(cluster.brokers.items())
                ],
            }
        )
    else:
        print_table(
            ["BROKER", "ADDRESS", "PID", "LOG"],
            [
                (number, cluster.addresses[number], member.process.pid, member.log)
                for number, member in sorted(cluster.brokers.items())
            ],
            right=["BROKER", "PID"],
        )
        print(f"ZooKeeper: {connect}")
        print(f"bootstrap servers: {cluster.bootstrap_servers}")
    sys.stdout.flush()
    note(f"{counted(len(cluster.brokers), 'broker')} up in {took_s:.1f} s, controller {controller_id}; Ctrl-C stops them all")


@app.command("status")
@guarded
def status(
    topics: Annotated[list[str] | None, typer.Option("--topic", "-t", metavar="TOPIC", help="Only these topics.")] = None,
    problems: Annotated[bool, typer.Option("--problems", help="Only partitions that are offline or under-replicated.")] = False,
    internal: Annotated[bool, typer.Option("--internal", help="Also the cluster's own topics (__…).")] = False,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """Show brokers, controller, leaders, in-sync replicas, high watermark and the log end of each replica."""
    # The protocol's messages are not needed to show what commands there are.
    from ottla.cli.cluster.view import ClusterView

    view = ClusterView(Connection(bootstrap_servers, command_config))
    chosen = view.of(topics) if topics else [each for each in view.partitions.values() if internal or not each.is_internal]
    # What is wrong is shown wherever it is.
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
    print_table(
        ["BROKER", "ADDRESS", "RACK", "LEADS", "REPLICAS", "IN-SYNC"],
        [
            (
                row["id"],
                f"{row['host']}:{row['port']}" if row["alive"] else "away",
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
