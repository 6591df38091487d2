"""`ottla exporter`: metrics of a whole cluster for Prometheus, until SIGTERM or Ctrl-C. The work is in `ottla.exporter`."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.connection import Connection, split_servers
from ottla.cli.failure import EXIT_USAGE, Failure
from ottla.cli.options import DEFAULT_BOOTSTRAP_SERVERS, Bootstrap, CommandConfig, Properties, parse_pairs

if TYPE_CHECKING:
    from ottla.client.brokers import Brokers
    from ottla.exporter.filters import NameFilter
    from ottla.exporter.service import Exporter

DEFAULT_LISTEN = "127.0.0.1:9308"
ALL_NAMES = "kafka_exporter,kminion,lag_exporter"


def _regex(help: str) -> Any:
    return typer.Option(metavar="REGEX", help=help)


def exporter(
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where to serve /metrics and /healthz.")] = DEFAULT_LISTEN,
    interval: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="How often to read the cluster.")] = 15.0,
    topics: Annotated[str | None, _regex("Only topics in whose name it is found.")] = None,
    exclude_topics: Annotated[str | None, _regex("Without these topics.")] = None,
    groups: Annotated[str | None, _regex("Only groups in whose name it is found.")] = None,
    exclude_groups: Annotated[str | None, _regex("Without these groups.")] = None,
    per_partition: Annotated[
        bool, typer.Option("--partitions/--no-partitions", help="Series of each partition, or only of topics and groups.")
    ] = True,
    names: Annotated[str, typer.Option(metavar="NAME[,…]", help="Whose names to write, beside our own.")] = ALL_NAMES,
    cluster_name: Annotated[
        str | None, typer.Option(metavar="NAME", help="The label cluster_name of lag_exporter. (default: the cluster id)")
    ] = None,
    properties: Properties = None,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
) -> None:
    """Serve metrics of topics, consumer groups and transactions for Prometheus, until SIGTERM or Ctrl-C.

    Works with any Kafka. It reads the cluster in the background; a scrape gets what was read last. While no broker answers it
    goes on: ottla_exporter_up is 0, and the log says why.
    """
    from ottla.exporter.cluster_reader import ClusterReader
    from ottla.exporter.service import Exporter, Shape

    brokers = _brokers(Connection(bootstrap_servers, command_config, parse_pairs(properties, "-X")))
    reader = ClusterReader(
        brokers,
        time.time,
        topics=_filter("topics", topics, exclude_topics),
        groups=_filter("groups", groups, exclude_groups),
    )
    _serve(brokers, Exporter(reader, interval_s=interval, shape=Shape(cluster_name, per_partition, _spellings(names))), listen)


def _brokers(connection: Connection) -> Brokers:
    from ottla.client.brokers import Brokers
    from ottla.client.security import InvalidOption
    from ottla.metrics import Counters
    from ottla.runtime.network import RealNetwork

    try:
        servers = split_servers(connection.bootstrap_servers)
        return Brokers(RealNetwork(Counters()), servers, connection.security, client_id="ottla-exporter")
    except InvalidOption as error:
        raise Failure(f"invalid client property: {error}", exit_code=EXIT_USAGE) from None


def _serve(brokers: Brokers, service: Exporter, listen: str) -> None:
    import logging

    from ottla.runtime.loop import run

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)-7s %(message)s")
    run(_until_told(brokers, service, listen))


async def _until_told(brokers: Brokers, service: Exporter, listen: str) -> None:
    """Run rounds and serve their text until SIGTERM or SIGINT."""
    import asyncio
    import logging
    import signal

    from ottla.exporter.endpoint import Endpoint
    from ottla.metrics import Counters
    from ottla.runtime.http_server import HttpServer
    from ottla.runtime.loop import end
    from ottla.runtime.network import RealNetwork

    server = HttpServer(RealNetwork(Counters()), Endpoint(service.text).answer)
    host, port = _listen_address(listen)
    try:
        port = await server.listen(host, port)
    except OSError as error:
        raise Failure(f"cannot listen on {listen}: {error.strerror or error}", "choose another address with --listen") from None
    loop = asyncio.get_running_loop()
    told = asyncio.Event()
    rounds = loop.create_task(service.run())
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    rounds.add_done_callback(lambda _: told.set())
    address = listen.rpartition(":")[0] or "127.0.0.1"
    logging.getLogger("ottla.exporter").info("Metrics of %s at http://%s:%d/metrics", brokers, address, port)
    await told.wait()
    await end(rounds)
    server.close()
    brokers.close()


def _listen_address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise Failure(f"--listen {text!r} is not an address", f"write host:port, as in {DEFAULT_LISTEN}", exit_code=EXIT_USAGE)
    return host.removeprefix("[").removesuffix("]"), int(port)


def _filter(what: str, included: str | None, excluded: str | None) -> NameFilter:
    from ottla.exporter.filters import NameFilter

    try:
        return NameFilter.of(included, excluded)
    except re.error as error:
        which = f"--{what} or --exclude-{what}"
        raise Failure(f"{which} {error.pattern!r} is not a regular expression: {error}", exit_code=EXIT_USAGE) from None


def _spellings(names: str) -> tuple[str, ...]:
    from ottla.exporter.names import WRITERS

    chosen = tuple(name.strip() for name in names.split(",") if name.strip())
    unknown = [name for name in chosen if name not in WRITERS]
    if unknown:
        raise Failure(f"--names: {', '.join(unknown)} is unknown", f"it can be {', '.join(WRITERS)}", exit_code=EXIT_USAGE)
    return chosen
