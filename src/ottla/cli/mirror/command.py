"""`ottla mirror`: topics of one cluster, continuously, in another."""

from __future__ import annotations

import signal
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.connection import Connection
from ottla.cli.copying.destination import Destination
from ottla.cli.failure import EXIT_USAGE, Failure
from ottla.cli.options import DEFAULT_BOOTSTRAP_SERVERS, Bootstrap, CommandConfig, Json, Yes
from ottla.cli.output import counted, note, print_line, size_text
from ottla.cli.parameters import with_option_groups

if TYPE_CHECKING:
    from ottla.cli.mirror.mirror import MirrorOptions, Report

_FINAL = frozenset({"PRODUCER_FENCED", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "SASL_AUTHENTICATION_FAILED"})
"""Failures that a later attempt will not mend."""
_BACKOFF_S = 2.0
_BACKOFF_MAX_S = 30.0


@with_option_groups
def mirror(
    topics: Annotated[
        list[str],
        typer.Argument(metavar="TOPIC", show_default=False, help="Topics, or patterns such as 'orders*'."),
    ],
    destination: Destination,
    exclude: Annotated[
        list[str] | None, typer.Option("--exclude", metavar="PATTERN", help="Topics to leave out (repeatable).")
    ] = None,
    prefix: Annotated[str, typer.Option("--prefix", help="Put this in front of the names in the target: 'east.'.")] = "",
    groups: Annotated[
        list[str] | None,
        typer.Option("--groups", metavar="PATTERN", help="Translate the committed offsets of these groups (repeatable)."),
    ] = None,
    acls: Annotated[bool, typer.Option("--acls", help="Copy the ACLs of the topics, except WRITE.")] = False,
    start: Annotated[
        str, typer.Option("--from", metavar="beginning|end", help="Where topics start that are not mirrored yet.")
    ] = "beginning",
    follow: Annotated[
        bool, typer.Option("--follow/--exit-at-end", "-f/-e", help="Go on with new records and topics, or stop at the end.")
    ] = True,
    name: Annotated[
        str, typer.Option("--name", help="Tells mirrors of the same two clusters apart; each has its own progress.")
    ] = "",
    replication_factor: Annotated[
        int | None, typer.Option("--replication-factor", "-r", min=1, help="Replicas of new topics. (default: as in the source)")
    ] = None,
    interval_s: Annotated[
        float,
        typer.Option("--interval", metavar="SECONDS", min=0.1, help="How often to look for topics and to report."),
    ] = 10.0,
    compression: Annotated[
        str, typer.Option("--compression", "-z", metavar="none|gzip|snappy|lz4|zstd", help="The codec of the mirrored records.")
    ] = "lz4",
    yes: Yes = False,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """Keep topics of this cluster, with their records and settings, in another cluster. Each record arrives exactly once.

    A mirror that is run again continues where its last commit was.
    """
    from ottla.cli.mirror.mirror import MirrorOptions
    from ottla.cli.mirror.naming import Naming

    if start not in ("beginning", "end"):
        raise Failure(f"--from {start}: a mirror starts at beginning or at end", exit_code=EXIT_USAGE)
    options = MirrorOptions(
        Naming(tuple(topics), tuple(exclude or ()), prefix),
        name,
        tuple(groups or ()),
        acls,
        from_beginning=start == "beginning",
        replication_factor=replication_factor,
        interval_s=interval_s,
        compression=compression,
    )
    source = Connection(bootstrap_servers, command_config)
    target = destination.connect(source, yes=yes)
    if follow:
        signal.signal(signal.SIGTERM, _interrupt)
    _run(source, target, options, _Printed(json_output), follow=follow)


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def _run(source: Connection, target: Connection, options: MirrorOptions, printed: _Printed, *, follow: bool) -> None:
    """Mirror; with `follow`, again after failures that may pass, such as a broker that is away."""
    from ottla.cli.mirror.mirror import Mirror

    backoff_s = _BACKOFF_S
    has_begun = False
    while True:
        seen = printed.count
        mirror = None
        try:
            mirror = Mirror(source, target, options)
            mirror.run(printed, follow=follow)
            return
        except Failure as failure:
            has_begun = has_begun or (mirror is not None and mirror.has_begun)
            if not follow or not has_begun or failure.exit_code == EXIT_USAGE or failure.code in _FINAL:
                raise
            backoff_s = _BACKOFF_S if printed.count > seen else min(2 * backoff_s, _BACKOFF_MAX_S)
            note(f"{failure.message}; trying again in {backoff_s:g} s")
        finally:
            if mirror is not None:
                mirror.close()
        time.sleep(backoff_s)


class _Printed:
    """Prints reports: what was done, and a line of figures."""

    def __init__(self, as_json: bool) -> None:
        self.count = 0
        self._as_json = as_json

    def __call__(self, report: Report) -> None:
        self.count += 1
        lost = {f"{topic}-{index}": count for (topic, index), count in sorted(report.lost.items())}
        if self._as_json:
            print_line(
                {
                    "records": report.records,
                    "size_bytes": report.size_bytes,
                    "lag": report.lag,
                    "lost": lost,
                    "groups": report.groups,
                    "done": report.done,
                }
            )
        else:
            for line in report.done:
                print(line)
            for partition, count in lost.items():
                note(f"{partition}: the source removed {counted(count, 'offset')} before they were mirrored")
            groups = f", {counted(sum(report.groups.values()), 'offset')} of groups moved" if report.groups else ""
            lag = sum(report.lag.values())
            behind = f"lag {lag:,}" + (f" ({_worst(report.lag)})" if lag else "")
            amount = f"{counted(report.records, 'record')} ({size_text(report.size_bytes)})"
            print(f"mirrored {amount} of {counted(len(report.lag), 'topic')}, {behind}{groups}")
        sys.stdout.flush()


def _worst(lag: dict[str, int]) -> str:
    topics = sorted(lag, key=lambda topic: -lag[topic])
    return ", ".join(f"{topic} {lag[topic]:,}" for topic in topics[:3] if lag[topic]) + (", …" if len(topics) > 3 else "")
