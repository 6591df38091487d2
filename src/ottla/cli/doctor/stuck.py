"""What no longer moves: hanging transactions, and groups that do not get on."""

from __future__ import annotations

import time
from collections.abc import Iterator

from ottla.cli.doctor.case import Case
from ottla.cli.doctor.finding import Finding, Severity
from ottla.cli.group.view import Group, find_groups, list_groups, with_partitions
from ottla.cli.txn.view import Transactions

_IDLE_MS = 15 * 60_000
"""The default of transaction.max.timeout.ms."""
_REBALANCING = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")


def transactions(case: Case) -> Iterator[Finding]:
    view = Transactions(case.connection)
    for each in view.hanging(view.partitions([]), _IDLE_MS):
        what = (
            f"a transaction of producer {each.producer_id} is open from offset {each.start_offset}, and no coordinator knows it"
        )
        mend = f"ottla txn abort {each.topic}:{each.partition} --start-offset {each.start_offset}"
        yield Finding(
            "transactions", Severity.ERROR, f"{each.topic}-{each.partition}", f"{what}: read_committed consumers wait", mend
        )


def groups(case: Case) -> Iterator[Finding]:
    """Looks twice at groups that have members and lag: they should move meanwhile."""
    first = _described(case, [row["group"] for row in list_groups(case.connection)])
    for group in first:
        yield from _lost(group)
    suspects = {group.name: group for group in first if _may_be_stuck(group)}
    if not suspects:
        return
    time.sleep(case.watch_s)
    for group in _described(case, list(suspects)):
        before = suspects[group.name]
        if before.state in _REBALANCING and group.state in _REBALANCING:
            what = f"it has been in a rebalance for at least {case.watch_s:.0f} s: its members read nothing"
            yield Finding("groups", Severity.WARNING, f"group {group.name}", what, f"ottla group members {group.name}")
        yield from _standing(before, group, case.watch_s)


def _described(case: Case, names: list[str]) -> list[Group]:
    found = find_groups(case.connection, names, missing_ok=True) if names else []
    return [with_partitions(case.connection, group) for group in found]


def _may_be_stuck(group: Group) -> bool:
    return group.state in _REBALANCING or (bool(group.members) and bool(group.lag))


def _lost(group: Group) -> Iterator[Finding]:
    for each in group.partitions:
        if each.lead is not None and each.lead < 0:
            what = f"its offset {each.committed} of {each.topic}-{each.partition} was deleted: the log begins at {each.log_start}"
            mend = f"ottla group reset-offsets {group.name} -t {each.topic}:{each.partition} --to-earliest --execute"
            yield Finding("groups", Severity.ERROR, f"group {group.name}", what, mend)


def _standing(before: Group, now: Group, watch_s: float) -> Iterator[Finding]:
    committed = {(each.topic, each.partition): each.committed for each in before.partitions}
    standing = [
        each
        for each in now.partitions
        if each.member is not None and each.lag and committed.get((each.topic, each.partition), -1) == each.committed
    ]
    moving = any(
        committed.get((each.topic, each.partition)) != each.committed for each in now.partitions if each.member is not None
    )
    if standing and not moving:
        lag = sum(each.lag or 0 for each in standing)
        what = f"{len(standing)} partitions with lag {lag} have members, but no offset was committed in {watch_s:.0f} s"
        yield Finding("groups", Severity.WARNING, f"group {now.name}", what, f"ottla group describe {now.name}")
