"""The controller, leaders, replicas in sync."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.cli.cluster.view import PartitionState
from ottla.cli.config import describe_settings
from ottla.cli.doctor.case import Case
from ottla.cli.doctor.finding import Finding, Severity

_IMBALANCE_MAX = 0.1
"""As leader.imbalance.per.broker.percentage."""
_NAMED = 5


def controller(case: Case) -> Iterator[Finding]:
    if case.view.controller_id < 0:
        yield Finding(
            "controller", Severity.ERROR, "cluster", "no broker is the controller: nothing can change", "ottla cluster status"
        )
    why = case.view.why_changes_fail()
    if why is not None:
        what = f"topics, settings, ACLs and leaders cannot change: {why}"
        yield Finding("controller", Severity.ERROR, "cluster", what, "start ZooKeeper; the brokers connect to it by themselves")
    for broker in case.view.all_brokers:
        if broker.address is None:
            count = sum(broker.broker_id in each.replicas for each in case.view.partitions.values())
            what = f"it is not in the cluster, and has {count} replica{'' if count == 1 else 's'}"
            mend = "start it; to give it up: ottla reassign plan --all-topics -o plan.json && ottla reassign execute plan.json"
            yield Finding("controller", Severity.ERROR, f"broker {broker.broker_id}", what, mend)


def replicas(case: Case) -> Iterator[Finding]:
    partitions = list(case.view.partitions.values())
    offline = [each for each in partitions if each.is_offline]
    behind = [each for each in partitions if each.is_under_replicated and not each.is_offline]
    if offline:
        away = sorted({broker for each in offline for broker in each.replicas if broker not in case.view.brokers})
        mend = f"start broker {', '.join(map(str, away))}" if away else "ottla log-dirs"
        first = f"{offline[0].topic}:{offline[0].index}"
        mend += f"; if they are lost for good: ottla elect unclean {first} (loses records)"
        yield Finding("replicas", Severity.ERROR, _named(offline), f"offline: nobody leads {_them(offline)}", mend)
    below = [each for each in behind if len(each.isr) < _min_insync(case, each.topic)]
    if below:
        what = f"fewer replicas in sync than min.insync.replicas: writes with acks=all fail in {_them(below)}"
        yield Finding("replicas", Severity.ERROR, _named(below), what, "ottla cluster status --problems")
    rest = [each for each in behind if each not in below]
    if rest:
        what = f"under-replicated: {_them(rest)} lack replicas in sync"
        yield Finding("replicas", Severity.WARNING, _named(rest), what, "ottla cluster status --problems")


def leaders(case: Case) -> Iterator[Finding]:
    partitions = [each for each in case.view.partitions.values() if each.replicas and not each.is_offline]
    moved = [each for each in partitions if each.leader != each.replicas[0]]
    # Where the preferred leader is away an election cannot help.
    possible = [each for each in moved if each.replicas[0] in each.isr]
    if possible and len(possible) > _IMBALANCE_MAX * len(partitions):
        what = f"{len(possible)} of {len(partitions)} partitions are not led by their preferred leader"
        yield Finding("leaders", Severity.WARNING, _named(possible), what, "ottla elect preferred --all-topics")


def single_copies(case: Case) -> Iterator[Finding]:
    """Topics with one replica in a cluster that could have more."""
    if len(case.view.brokers) < 2:
        return
    single = sorted({each.topic for each in case.view.partitions.values() if len(each.replicas) == 1})
    if single:
        named = ", ".join(single[:_NAMED]) + (f" and {len(single) - _NAMED} more" if len(single) > _NAMED else "")
        copies = min(3, len(case.view.brokers))
        mend = f"ottla reassign plan {single[0]} -r {copies} -o plan.json && ottla reassign execute plan.json"
        yield Finding(
            "replicas",
            Severity.WARNING,
            named,
            "one replica only: they are gone while its broker is, and lost with its disk",
            mend,
        )


def _min_insync(case: Case, topic: str) -> int:
    entry = describe_settings(case.connection, "topic", topic).get("min.insync.replicas")
    return int(entry.value or 1) if entry is not None else 1


def _named(partitions: list[PartitionState]) -> str:
    more = f" and {len(partitions) - _NAMED} more" if len(partitions) > _NAMED else ""
    return ", ".join(f"{each.topic}-{each.index}" for each in partitions[:_NAMED]) + more


def _them(partitions: list[PartitionState]) -> str:
    return "1 partition" if len(partitions) == 1 else f"{len(partitions)} partitions"
