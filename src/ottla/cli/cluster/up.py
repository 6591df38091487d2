"""`ottla cluster up`: ZooKeeper and brokers on this machine, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.connection import Connection
from ottla.cli.failure import EXIT_USAGE, Failure
from ottla.cli.options import Json, parse_pairs
from ottla.cli.output import counted, note, print_document, print_table

if TYPE_CHECKING:
    from ottla.cli.cluster.processes import LocalCluster

BROKERS_MAX = 100
_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
_WATCH_S = 0.2
_JOIN_TIMEOUT_S = 120.0
_NO_BROKERS_S = 60.0
"""How long ZooKeeper outlives the last broker, for one that is started again by hand."""
_SESSION_MS, _SESSION_ELSEWHERE_MS = 2_000, 6_000
"""Session timeouts with our own ZooKeeper, where a silent broker is dead, and with another, which may be remote."""


class _StopRequested(Exception):
    """A signal asked for a stop."""


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
    """The settings of a broker that differ from Kafka's defaults."""
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
        # The last brokers to stop have no other broker for their partitions and must not retry for long.
        "controlled.shutdown.retry.backoff.ms": "500",
    }
    if rack is not None:
        properties["broker.rack"] = rack
    return properties | overrides


def up(
    brokers: Annotated[int, typer.Option("--brokers", "-n", min=1, max=BROKERS_MAX, help="The number of brokers.")] = 3,
    data_dir: Annotated[Path, typer.Option("--data-dir", "-d", metavar="DIR", help="The directory of all their files.")] = Path(
        "./ottla-cluster"
    ),
    port: Annotated[
        int,
        typer.Option(
            "--port",
            "-p",
            min=0,
            max=65535,
            help="The port of the first broker; the others have the following ports. 0: any free port.",
        ),
    ] = 9092,
    zookeeper_port: Annotated[
        int, typer.Option("--zookeeper-port", min=0, max=65535, help="The port of ZooKeeper. 0: any free port.")
    ] = 2181,
    zookeeper: Annotated[
        str | None, typer.Option("--zookeeper", metavar="HOST:PORT[/CHROOT]", help="Use this ZooKeeper instead of starting one.")
    ] = None,
    racks: Annotated[str | None, typer.Option("--racks", metavar="A,B,…", help="Racks, assigned to the brokers in turn.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", "-s", metavar="KEY=VALUE", help="A setting of all brokers (repeatable).")
    ] = None,
    secure: Annotated[
        bool, typer.Option("--secure", help="With TLS, users and ACLs; DIR/security has all files, also client.properties.")
    ] = False,
    json_output: Json = False,
) -> None:
    """Start ZooKeeper and brokers on this machine, each in its own process. Ctrl-C or SIGTERM stops them all.

    The data stays in --data-dir: the same command starts the same cluster again.
    """
    from ottla.cli.cluster.processes import LocalCluster, require_free
    from ottla.cli.cluster.zookeeper import find, server_command
    from ottla.runtime.free_ports import free_port

    overrides = parse_pairs(set_, "--set")
    rack_names = [rack.strip() for rack in racks.split(",")] if racks is not None else []
    if not all(rack_names):
        raise Failure("a rack has no name", "write --racks a,b,c", exit_code=EXIT_USAGE)
    if port and port + brokers - 1 > 65535:
        raise Failure(f"{brokers} brokers need ports {port} to {port + brokers - 1}: ports end at 65535", exit_code=EXIT_USAGE)
    cluster = LocalCluster(data_dir, note)
    _raise_on_signals()
    started = time.monotonic()
    controller_id = -1
    try:
        cluster.hold()
        for index in range(brokers if port else 0):
            require_free(port + index, f"broker {index + 1}", "--port")
        secured = _secured(data_dir / "security", brokers) if secure else {}
        if secure:
            cluster.command_config = data_dir / "security" / "client.properties"
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
            properties = broker_properties(number, brokers, broker_port, data_dir, connect, session_ms, rack, {})
            if secure:
                listeners = [f"SASL_SSL://127.0.0.1:{broker_port}"]
                listeners += [f"BROKERS://127.0.0.1:{free_port()}"] if brokers > 1 else []
                properties |= {**secured[number], "listeners": ",".join(listeners)}
            properties |= overrides
            cluster.start_broker(number, properties)
        cluster.wait_for_brokers()
        if cluster.command_config is not None:
            _name_brokers(cluster.command_config, cluster.bootstrap_servers)
        controller_id = _wait_for_cluster(cluster, brokers)
        _announce(cluster, connect, controller_id, time.monotonic() - started, json_output)
        _watch(cluster)
    except (_StopRequested, KeyboardInterrupt):
        _stop(cluster, controller_id)
        return
    except BaseException:
        cluster.kill()
        raise
    cluster.kill()
    raise _no_broker_left(cluster)


def _secured(folder: Path, brokers: int) -> dict[int, dict[str, str]]:
    """The security settings of each broker. Made once: the same command starts the same cluster again."""
    from ottla.cluster.properties import parse_properties

    names = ["server.properties"] if brokers == 1 else [f"server-{number}.properties" for number in range(1, brokers + 1)]
    if not folder.exists():
        import secrets

        from ottla.cli.secure.command import make_files

        password = secrets.token_urlsafe(18)
        make_files(folder, brokers=brokers, hosts=[], port=9092, zookeeper=None, admin="admin", password=password, days=3650)
    if not (folder / names[-1]).exists():
        raise Failure(f"{folder} was made for another number of brokers", "remove it, or use another --data-dir")
    security = ("ssl.", "sasl.", "authorizer.", "super.", "listener.", "inter.", "delegation.", "ottla.")
    return {
        number: {key: value for key, value in parse_properties((folder / name).read_text()).items() if key.startswith(security)}
        for number, name in enumerate(names, 1)
    }


def _name_brokers(client_properties: Path, servers: str) -> None:
    """Set `bootstrap.servers`: each start may choose other ports."""
    from ottla.cli.secure.files import write_secret

    lines = [line for line in client_properties.read_text().splitlines() if not line.startswith("bootstrap.servers=")]
    new = client_properties.with_suffix(".new")
    new.unlink(missing_ok=True)
    write_secret(new, "".join(f"{line}\n" for line in [f"bootstrap.servers={servers}", *lines]))
    new.replace(client_properties)


def _watch(cluster: LocalCluster) -> None:
    """Return when no broker is left. A broker that the user starts again is not our process, but uses our ZooKeeper."""
    last_seen = time.monotonic()
    is_noted = False
    while True:
        time.sleep(_WATCH_S)
        cluster.report_ended()
        if cluster.has_brokers or cluster.is_zookeeper_used:
            last_seen, is_noted = time.monotonic(), False
        elif not cluster.has_zookeeper or time.monotonic() - last_seen > _NO_BROKERS_S:
            return
        elif not is_noted:
            is_noted = True
            note(f"no broker is left; ZooKeeper stops in {_NO_BROKERS_S:.0f} s unless one is started again, or on Ctrl-C")


def _raise_on_signals() -> None:
    def stop(number: int, frame: FrameType | None) -> None:
        raise _StopRequested

    for number in _SIGNALS:
        signal.signal(number, stop)


def _stop(cluster: LocalCluster, controller_id: int) -> None:
    note("stopping the brokers, then ZooKeeper; Ctrl-C again kills them")
    try:
        cluster.report_ended()
        cluster.stop(controller_id=_controller(cluster, controller_id))
    except (_StopRequested, KeyboardInterrupt):
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        cluster.kill()
        raise Failure("the brokers were killed; the next start recovers their logs") from None


def _controller(cluster: LocalCluster, otherwise: int) -> int:
    from ottla.cli.cluster.view import ClusterView

    try:
        return (
            ClusterView(Connection(cluster.bootstrap_servers, cluster.command_config)).controller_id
            if cluster.addresses
            else otherwise
        )
    except Failure:
        return otherwise


def _wait_for_cluster(cluster: LocalCluster, count: int) -> int:
    """Wait until all brokers know each other and one controller. Returns the controller's id."""
    from ottla.cli.cluster.view import ClusterView

    deadline = time.monotonic() + _JOIN_TIMEOUT_S
    known = 0
    while time.monotonic() < deadline:
        cluster.report_ended()
        if not cluster.has_brokers:
            raise _no_broker_left(cluster)
        try:
            views = [ClusterView(Connection(address, cluster.command_config)) for address in cluster.addresses.values()]
        except Failure:
            time.sleep(_WATCH_S)  # a broker is busy or stopping
            continue
        known = min(len(view.brokers) for view in views)
        controllers = {view.controller_id for view in views}
        if known >= count and len(controllers) == 1 and (controller := controllers.pop()) >= 0:
            return controller
        time.sleep(_WATCH_S)
    raise Failure(
        f"only {known} of {count} brokers joined the cluster in {_JOIN_TIMEOUT_S:.0f} s", f"their logs are in {cluster.directory}"
    )


def _no_broker_left(cluster: LocalCluster) -> Failure:
    return Failure("all brokers have ended", f"their logs are in {cluster.directory}")


def _announce(cluster: LocalCluster, connect: str, controller_id: int, took_s: float, json_output: bool) -> None:
    brokers = sorted(cluster.brokers.items())
    if json_output:
        print_document(
            {
                "bootstrap_servers": cluster.bootstrap_servers,
                "zookeeper": connect,
                "controller_id": controller_id,
                "brokers": [
                    {"id": number, "address": cluster.addresses[number], "pid": member.process.pid} for number, member in brokers
                ],
            }
        )
    else:
        print_table(
            ["BROKER", "ADDRESS", "PID", "LOG"],
            [(number, cluster.addresses[number], member.process.pid, member.log) for number, member in brokers],
            right=["BROKER", "PID"],
        )
        own = cluster.zookeeper
        print(f"ZooKeeper: {connect}" + ("" if own is None else f", process {own.process.pid}, log {own.log}"))
        print(f"bootstrap servers: {cluster.bootstrap_servers}")
        if cluster.command_config is not None:
            print(f"client properties: {cluster.command_config}")
    sys.stdout.flush()
    note(f"{counted(len(cluster.brokers), 'broker')} up in {took_s:.1f} s, controller {controller_id}; Ctrl-C stops them all")
