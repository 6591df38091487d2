"""`ottla doctor`: looks for what is wrong with a cluster and with the way to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.connection import Connection
from ottla.cli.failure import EXIT_USAGE, Failure
from ottla.cli.options import DEFAULT_BOOTSTRAP_SERVERS, Bootstrap, CommandConfig, Json
from ottla.cli.output import counted, note, print_document

if TYPE_CHECKING:
    from ottla.cli.doctor.case import Case
    from ottla.cli.doctor.finding import Finding

Check = Callable[["Case"], Iterator["Finding"]]


def doctor(
    bundle: Annotated[
        Path | None, typer.Option("--bundle", metavar="FILE.zip", help="Write settings, versions and findings, without secrets.")
    ] = None,
    probe: Annotated[
        bool, typer.Option("--probe", help="Measure clocks by a write: an offset of a group of its own, deleted again.")
    ] = False,
    watch: Annotated[
        str, typer.Option("--watch-groups", metavar="DURATION", help="How long groups with lag are watched for progress.")
    ] = "3s",
    skip: Annotated[list[str] | None, typer.Option("--skip", metavar="CHECK", help="Leave out a check (repeatable).")] = None,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """Look for what is wrong with a cluster and the way to it.

    It checks client properties, addresses, TLS, versions, replicas, leaders, disks, file limits, clocks, transactions and groups.
    Each finding says what mends it. Exit code 1 if there is an error or a warning.
    """
    from ottla.cli.cluster.view import ClusterView
    from ottla.cli.doctor.bundle import write_bundle
    from ottla.cli.doctor.case import Case
    from ottla.cli.doctor.finding import ORDER, Severity
    from ottla.cli.doctor.reach import unreachable
    from ottla.filters.times import duration_ms

    watch_ms = 0 if watch == "0" else duration_ms(watch)
    if watch_ms is None:
        raise Failure(f"--watch-groups {watch!r} is not a duration", "write 3s or 1m", exit_code=EXIT_USAGE)
    checks = _checks()
    for name in skip or ():
        if name not in checks:
            raise Failure(f"there is no check {name}", f"the checks are {', '.join(checks)}", exit_code=EXIT_USAGE)
    connection = Connection(bootstrap_servers, command_config)
    connection.metadata()  # says best why nobody answers
    view = ClusterView(connection)
    now_ms = int(time.time() * 1000)
    case = Case(connection, command_config, view, now_ms, watch_ms / 1000, probe, unreachable(view))
    findings = [finding for name, check in checks.items() if name not in (skip or ()) for finding in _examined(name, check, case)]
    findings.sort(key=lambda finding: ORDER.index(finding.severity))
    if bundle is not None:
        names = write_bundle(bundle, case, findings)
        note(f"{bundle}: {', '.join(names)}")
    errors, warnings = (sum(each.severity is kind for each in findings) for kind in (Severity.ERROR, Severity.WARNING))
    if json_output:
        print_document({"errors": errors, "warnings": warnings, "findings": [finding.document() for finding in findings]})
    else:
        _print(findings)
        made = counted(len(checks.keys() - set(skip or ())), "check")
        brokers = counted(len(case.brokers), "broker")
        print(f"{counted(errors, 'error')}, {counted(warnings, 'warning')}; {made}, {brokers}")
    if errors or warnings:
        raise typer.Exit(1)


def _checks() -> dict[str, Check]:
    from ottla.cli.doctor import clock, machine, reach, replicas, software, stuck, tls

    return {
        "client": reach.client,
        "bootstrap": reach.bootstrap,
        "listeners": reach.listeners,
        "tls": tls.certificates,
        "versions": software.versions,
        "controller": replicas.controller,
        "replicas": replicas.replicas,
        "leaders": replicas.leaders,
        "copies": replicas.single_copies,
        "disks": machine.disks,
        "files": machine.file_limits,
        "clock": clock.clocks,
        "transactions": stuck.transactions,
        "groups": stuck.groups,
    }


def _examined(name: str, check: Check, case: Case) -> Iterator[Finding]:
    """The findings of a check. One that fails is a finding itself: the others go on."""
    from confluent_kafka import KafkaException

    from ottla.cli.doctor.finding import Finding, Severity
    from ottla.cli.failure import explain

    try:
        yield from check(case)
    except KafkaException as exception:
        failure = explain(exception.args[0])
        yield Finding(name, Severity.WARNING, "check", f"it could not be made: {failure.message}", failure.hint)
    except Failure as failure:
        denied = "AUTHORIZATION" in (failure.code or "")
        severity = Severity.INFO if denied else Severity.WARNING
        yield Finding(name, severity, "check", f"it could not be made: {failure.message}", failure.hint)


def _print(findings: list[Finding]) -> None:
    for finding in findings:
        print(f"{finding.severity:<8} {finding.check}: {finding.subject}: {finding.what}")
        if finding.mend is not None:
            print(f"         mend: {finding.mend}")
