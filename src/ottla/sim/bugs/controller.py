"""Bugs planted in the controller: moves, stops, preferred leaders, settings, and what a new term inherits; the rest is in `bugs`
and its neighbours."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ottla.broker.controller import cluster_host, partition_requests
from ottla.broker.controller.cluster_host import ClusterHost
from ottla.broker.controller.controller_host import ControllerHost
from ottla.broker.controller.tree_events import WatchingHost
from ottla.broker.handlers import controlled_shutdown as controlled_shutdown_handler
from ottla.broker.metadata import tree
from ottla.broker.metadata.dynamic_configs import DynamicConfigs
from ottla.cluster import balance, broker_changes, elections, orders, reassignment
from ottla.cluster.image import NO_LEADER
from ottla.sim.bugs.catalog import Patch, bug

# --- moves


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


# --- leaders


@bug("a broker that stops is not relieved of what it leads", world="stories", seeds_max=60)
def not_relieved() -> list[Patch]:
    async def relieve(host: ClusterHost, broker_id: int, broker_epoch: int) -> list[Any]:
        return []

    return [(controlled_shutdown_handler, "controlled_shutdown", relieve)]


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


@bug("the controller is not told of a directory that failed", world="stories", first=20, seeds_max=60)
def failed_directory_not_told() -> list[Patch]:
    async def report(self: ClusterHost) -> None:
        return None

    return [(ClusterHost, "report_log_dir_failure", report)]


# --- what everybody has to hear, and what a new term inherits


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


@bug("a new controller forgets deletions that are under way", world="stories", first=32, seeds_max=60)
def deletions_forgotten() -> list[Patch]:
    async def doomed(self: WatchingHost, loaded: Any) -> dict[str, Any]:
        return {}

    async def look(self: WatchingHost) -> None:
        return None

    return [(WatchingHost, "_doomed_topics", doomed), (WatchingHost, "_look_at_deletions", look)]
