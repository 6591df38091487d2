"""Groups and transactions that this broker coordinates, and fetch sessions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ottla.broker.coordinators.group_coordinators import GroupCoordinators
from ottla.broker.coordinators.transaction_coordinators import TransactionCoordinators
from ottla.coordinator.txn.transaction_metadata import State
from ottla.metrics.family import PAUSE, Family, family, single
from ottla.metrics.table import GROUP_STATES, GROUPS_OF, METRICS
from ottla.ports import Clock


def group_families(groups: GroupCoordinators) -> Iterator[Family]:
    states: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    offsets = 0
    for _, shard in groups.shards.loaded():
        for group in shard.groups.by_id.values():
            states[group.state_name.lower()] += 1
            kinds[group.type] += 1
        offsets += shard.offsets.count()
        yield PAUSE
    yield single(METRICS[f"{GROUPS_OF}_numgroups"], sum(states.values()))
    for state in GROUP_STATES:
        yield single(METRICS[f"{GROUPS_OF}_numgroups{state}"], states[state])
    yield single(METRICS[f"{GROUPS_OF}_numoffsets"], offsets)
    yield family(METRICS["ottla_coordinator_groups"], [((kind,), kinds[kind]) for kind in ("classic", "consumer")])
    longest, average = groups.shards.load_times_s()
    yield single(METRICS["kafka_server_group_coordinator_metrics_partition_load_time_max"], round(longest * 1000, 3))
    yield single(METRICS["kafka_server_group_coordinator_metrics_partition_load_time_avg"], round(average * 1000, 3))


def transaction_families(transactions: TransactionCoordinators, clock: Clock) -> Iterator[Family]:
    states: Counter[State] = Counter()
    oldest_ms = now_ms = clock.now_ms()
    for _, shard in transactions.shards.loaded():
        for transaction in shard.transactions.values():
            states[transaction.state] += 1
            if transaction.state is State.ONGOING:
                oldest_ms = min(oldest_ms, transaction.start_ms)
        yield PAUSE
    shown = [state for state in State if state not in (State.DEAD, State.PREPARE_EPOCH_FENCE)]
    yield family(METRICS["ottla_coordinator_transactions"], [((state.title,), states[state]) for state in shown])
    yield single(METRICS["ottla_coordinator_transaction_open_seconds_max"], (now_ms - oldest_ms) / 1000)
    longest, average = transactions.shards.load_times_s()
    yield single(METRICS["kafka_server_transaction_coordinator_metrics_partition_load_time_max"], round(longest * 1000, 3))
    yield single(METRICS["kafka_server_transaction_coordinator_metrics_partition_load_time_avg"], round(average * 1000, 3))
