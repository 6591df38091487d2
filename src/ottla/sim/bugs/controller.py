"""Bugs of the controller: elections, changes of the ISR, reassignments, settings, terms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ottla.broker.controller import broker_requests, cluster_host, partition_requests
from ottla.broker.controller.cluster_host import ClusterHost
from ottla.broker.controller.controller_host import ControllerHost
from ottla.broker.controller.election import Election
from ottla.broker.controller.tree_events import WatchingHost
from ottla.broker.handlers import controlled_shutdown as controlled_shutdown_handler
from ottla.broker.metadata import tree
from ottla.broker.metadata.dynamic_configs import DynamicConfigs
from ottla.cluster import balance, broker_changes, elections, isr_changes, orders, reassignment, znodes
from ottla.cluster.image import NO_LEADER
from ottla.errors import ErrorCode
from ottla.ports import Check, Create
from ottla.sim.bugs.registry import Patch, bug

# --- elections


@bug("a leader need not have been in sync", world="cluster", seeds_max=60)
def leader_out_of_sync() -> list[Patch]:
    def first_in_sync(partition: Any, may_lead: Any) -> int | None:
        return next((replica for replica in reversed(partition.replicas) if replica in may_lead), None)

    return [(elections, "first_in_sync", first_in_sync)]


@bug("unclean elections happen although they are not allowed", world="cluster", seeds_max=20)
def always_unclean() -> list[Patch]:
    return [(ControllerHost, "unclean_allowed", lambda self, topic: True)]


@bug("unclean elections do not happen where they are allowed", world="stories", first=8, seeds_max=60)
def never_unclean() -> list[Patch]:
    return [(ControllerHost, "unclean_allowed", lambda self, topic: False)]


@bug("an unclean leader keeps the others in sync", world="stories", first=8, seeds_max=60)
def unclean_keeps_isr() -> list[Patch]:
    original = elections.settle

    def settle(partition: Any, here: Any, may_lead: Any, *, unclean: bool) -> Any:
        after = original(partition, here, may_lead, unclean=unclean)
        is_unclean = after.recovering and not partition.recovering
        return replace(after, isr=tuple(dict.fromkeys((after.leader, *partition.isr)))) if is_unclean else after

    return [(broker_changes, "settle", settle)]


@bug("an election does not raise the leader epoch", world="cluster", seeds_max=20)
def leader_epoch_not_raised() -> list[Patch]:
    def changed(partition: Any) -> Any:
        return replace(partition, partition_epoch=partition.partition_epoch + 1)

    return [(elections, "_changed", changed)]


@bug("a preferred leader need not be in sync", world="stories", first=12, seeds_max=60)
def preferred_out_of_sync() -> list[Patch]:
    def prefer(partition: Any, may_lead: Any) -> Any:
        preferred = partition.replicas[0]
        if partition.leader == preferred or preferred not in may_lead:
            return partition if partition.leader == preferred else None
        return replace(elections.bump(partition), leader=preferred, isr=tuple(dict.fromkeys((preferred, *partition.isr))))

    return [(balance, "prefer", prefer), (partition_requests, "prefer", prefer)]


@bug("leaders do not go back to where they belong", world="stories", first=12, seeds_max=60)
def never_balanced() -> list[Patch]:
    return [(cluster_host, "unbalanced", lambda *arguments: [])]


@bug("a broker that stops is not relieved of what it leads", world="stories", seeds_max=60)
def not_relieved() -> list[Patch]:
    async def relieve(host: ClusterHost, broker_id: int, broker_epoch: int) -> list[Any]:
        return []

    return [(controlled_shutdown_handler, "controlled_shutdown", relieve)]


# --- changes of the ISR


@bug("the controller takes a broker into the ISR that is not alive", world="cluster", seeds_max=60)
def dead_in_isr() -> list[Patch]:
    original = elections.settle

    def settle(partition: Any, here: Any, may_lead: Any, *, unclean: bool) -> Any:
        after = original(partition, here, may_lead, unclean=unclean)
        return after if after is partition or after.leader < 0 else replace(after, isr=partition.replicas)

    return [(broker_changes, "settle", settle)]


@bug("a replica that was restarted since is taken into the ISR", world="stories", first=36, seeds_max=60)
def former_life_in_isr() -> list[Patch]:
    original = isr_changes.grant

    def grant(image: Any, partition: Any, wish: Any) -> Any:
        return original(image, partition, replace(wish, isr=[(broker, isr_changes.UNKNOWN_EPOCH) for broker, _ in wish.isr]))

    return [(broker_requests, "grant", grant)]


@bug("a change of the ISR whose answer was lost is not known again", world="stories", first=56, seeds_max=80)
def lost_answer_not_known() -> list[Patch]:
    original = isr_changes.grant

    def grant(image: Any, partition: Any, wish: Any) -> Any:
        if wish.partition_epoch < partition.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION
        return original(image, partition, wish)

    return [(broker_requests, "grant", grant)]


@bug("a wish for in-sync replicas is granted although the partition has changed since", world="late", seeds_max=20)
def former_wish_granted() -> list[Patch]:
    original = isr_changes.grant

    def grant(image: Any, partition: Any, wish: Any) -> Any:
        renewed = replace(wish, partition_epoch=partition.partition_epoch)
        return original(image, partition, renewed if wish.partition_epoch < partition.partition_epoch else wish)

    return [(broker_requests, "grant", grant)]


# --- reassignments


@bug("a move is over when one of the new replicas is in sync", world="stories", first=44, seeds_max=60)
def moved_too_early() -> list[Patch]:
    def finished(partition: Any, may_lead: Any) -> Any:
        arrived = reassignment.target(partition)
        if not reassignment.is_moving(partition) or not set(arrived) & set(partition.isr):
            return None
        there = replace(elections.bump(partition), replicas=arrived, adding=(), removing=())
        left = reassignment._without(there, partition.removing, may_lead)
        return None if left.leader == NO_LEADER else left

    return [(broker_changes, "finished", finished)]


@bug("a new controller forgets moves that are under way", world="stories", first=44, seeds_max=60)
def moves_forgotten() -> list[Patch]:
    original: Any = vars(tree)["_partition"]

    def partition(*arguments: Any) -> Any:
        return replace(original(*arguments), adding=(), removing=())

    return [(tree, "_partition", partition)]


@bug("former replicas are not told that they are none any more", world="stories", first=44, seeds_max=60)
def former_replicas_not_told() -> list[Patch]:
    original: Any = vars(orders)["_tell_changes"]

    def tell_changes(former: Any, topic: Any, after: Any, told: Any, *rest: Any, **options: Any) -> Any:
        states = original(former, topic, after, told, *rest, **options)
        for each in told.values():
            each.stop_replica.clear()
        return states

    return [(orders, "_tell_changes", tell_changes)]


# --- sessions and terms


@bug("a controller does not see that brokers have gone or come", world="cluster", seeds_max=20)
def brokers_not_watched() -> list[Patch]:
    async def look(self: ClusterHost) -> None:
        return None

    return [(ClusterHost, "_look_at_brokers", look)]


@bug("the office is taken without raising the controller epoch", world="cluster", seeds_max=20)
def controller_epoch_not_raised() -> list[Patch]:
    original = Election._bid

    async def bid(self: Election) -> Any:
        store = self._store
        write = store.multi

        async def multi(changes: Any) -> Any:
            return await write([change for change in changes if isinstance(change, Create)])

        store.multi = multi  # type: ignore[method-assign]
        try:
            return await original(self)
        finally:
            store.multi = write  # type: ignore[method-assign]

    return [(Election, "_bid", bid)]


@bug("a broker does not notice that its session is over", world="cluster", first=2, seeds_max=20)
def session_loss_unnoticed() -> list[Patch]:
    return [(Election, "_session_changed", lambda self, event: None)]


@bug("a controller's writes do not check its epoch", world="late", seeds_max=20)
def writes_not_fenced() -> list[Patch]:
    def fence(self: ControllerHost) -> list[Any]:
        self._office()
        return [Check(znodes.TOPICS, -1)]

    return [(ControllerHost, "_fence", fence)]


@bug("a new controller forgets deletions that are under way", world="stories", first=32, seeds_max=60)
def deletions_forgotten() -> list[Patch]:
    async def doomed(self: WatchingHost, loaded: Any) -> dict[str, Any]:
        return {}

    async def look(self: WatchingHost) -> None:
        return None

    return [(WatchingHost, "_doomed_topics", doomed), (WatchingHost, "_look_at_deletions", look)]


# --- settings and failed directories


@bug("the controller is not told of a directory that failed", world="stories", first=20, seeds_max=60)
def failed_directory_not_told() -> list[Patch]:
    async def report(self: ClusterHost) -> None:
        return None

    return [(ClusterHost, "report_log_dir_failure", report)]


@bug("changed settings hold only where they were asked for", world="stories", first=16, seeds_max=60)
def settings_not_spread() -> list[Patch]:
    async def read(self: DynamicConfigs) -> None:
        return None

    return [(DynamicConfigs, "_read_notices", read)]


@bug("settings that changed while a broker was out of touch are not read", world="stories", first=16, seeds_max=80)
def missed_settings_not_read() -> list[Patch]:
    async def read(self: DynamicConfigs) -> None:
        await self._pass_over()

    return [(DynamicConfigs, "_read_all", read)]
