"""Bugs of the controller: elections, changes of the ISR, reassignments, settings, terms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ottla.broker.controller import broker_requests, leader_elections, partition_requests
from ottla.broker.controller.broker_requests import BrokerRequests
from ottla.broker.controller.cluster_controller import ClusterController
from ottla.broker.controller.controller_state import ControllerState
from ottla.broker.controller.election import Election
from ottla.broker.controller.leader_elections import LeaderElections
from ottla.broker.controller.topic_deletion import TopicDeletion
from ottla.broker.metadata import tree
from ottla.broker.metadata.dynamic_configs import DynamicConfigs
from ottla.cluster import broker_changes, control_requests, elections, reassignment, znodes
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
    return [(ControllerState, "unclean_allowed", lambda self, topic: True)]


@bug("unclean elections do not happen where they are allowed", world="stories", first=8, seeds_max=60)
def never_unclean() -> list[Patch]:
    return [(ControllerState, "unclean_allowed", lambda self, topic: False)]


@bug("an unclean leader keeps the others in sync", world="stories", first=8, seeds_max=60)
def unclean_keeps_isr() -> list[Patch]:
    original = elections.elect_leader

    def elect_leader(partition: Any, here: Any, may_lead: Any, *, unclean: bool) -> Any:
        after = original(partition, here, may_lead, unclean=unclean)
        is_unclean = after.recovering and not partition.recovering
        return replace(after, isr=tuple(dict.fromkeys((after.leader, *partition.isr)))) if is_unclean else after

    return [(broker_changes, "elect_leader", elect_leader)]


@bug("an election does not raise the leader epoch", world="cluster", seeds_max=20)
def leader_epoch_not_raised() -> list[Patch]:
    def changed(partition: Any) -> Any:
        return replace(partition, partition_epoch=partition.partition_epoch + 1)

    return [(elections, "bump_epochs", changed), (reassignment, "bump_epochs", changed)]


@bug("a preferred leader need not be in sync", world="stories", first=12, seeds_max=60)
def preferred_out_of_sync() -> list[Patch]:
    def prefer(partition: Any, may_lead: Any) -> Any:
        preferred = partition.replicas[0]
        if partition.leader == preferred or preferred not in may_lead:
            return partition if partition.leader == preferred else None
        return replace(elections.bump_epochs(partition), leader=preferred, isr=tuple(dict.fromkeys((preferred, *partition.isr))))

    return [(elections, "elect_preferred", prefer), (partition_requests, "elect_preferred", prefer)]


@bug("preferred leaders are not elected again", world="stories", first=12, seeds_max=60)
def never_balanced() -> list[Patch]:
    return [(leader_elections, "unbalanced", lambda *arguments: [])]


@bug("controlled shutdown does not move leaderships", world="stories", seeds_max=60)
def leaderships_not_moved() -> list[Patch]:
    async def relieve(self: BrokerRequests, broker_id: int, broker_epoch: int) -> list[Any]:
        return []

    return [(BrokerRequests, "controlled_shutdown", relieve)]


# --- changes of the ISR


@bug("the controller keeps dead brokers in the ISR", world="cluster", seeds_max=60)
def dead_in_isr() -> list[Patch]:
    original = elections.elect_leader

    def elect_leader(partition: Any, here: Any, may_lead: Any, *, unclean: bool) -> Any:
        after = original(partition, here, may_lead, unclean=unclean)
        return after if after is partition or after.leader < 0 else replace(after, isr=partition.replicas)

    return [(broker_changes, "elect_leader", elect_leader)]


@bug("a replica that has restarted since is added to the ISR", world="stories", first=36, seeds_max=60)
def restarted_replica_in_isr() -> list[Patch]:
    original = broker_changes.alter_partition

    def grant(image: Any, partition: Any, change: Any) -> Any:
        return original(
            image, partition, replace(change, isr=[(broker, broker_changes.UNKNOWN_EPOCH) for broker, _ in change.isr])
        )

    return [(broker_requests, "alter_partition", grant)]


@bug("an ISR change whose answer was lost is not recognised", world="stories", first=56, seeds_max=80)
def lost_answer_not_recognised() -> list[Patch]:
    original = broker_changes.alter_partition

    def grant(image: Any, partition: Any, change: Any) -> Any:
        if change.partition_epoch < partition.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION
        return original(image, partition, change)

    return [(broker_requests, "alter_partition", grant)]


@bug("an ISR change for an old partition epoch is accepted", world="late", seeds_max=20)
def stale_isr_change_accepted() -> list[Patch]:
    original = broker_changes.alter_partition

    def grant(image: Any, partition: Any, change: Any) -> Any:
        renewed = replace(change, partition_epoch=partition.partition_epoch)
        return original(image, partition, renewed if change.partition_epoch < partition.partition_epoch else change)

    return [(broker_requests, "alter_partition", grant)]


# --- reassignments


@bug("a reassignment ends when one of the new replicas is in sync", world="stories", first=44, seeds_max=60)
def moved_too_early() -> list[Patch]:
    def finished(partition: Any, may_lead: Any) -> Any:
        arrived = reassignment.target(partition)
        if not reassignment.is_moving(partition) or not set(arrived) & set(partition.isr):
            return None
        there = replace(elections.bump_epochs(partition), replicas=arrived, adding=(), removing=())
        left = reassignment._without(there, partition.removing, may_lead)
        return None if left.leader == NO_LEADER else left

    return [(broker_changes, "finished", finished)]


@bug("a new controller forgets reassignments that are under way", world="stories", first=44, seeds_max=60)
def reassignments_forgotten() -> list[Patch]:
    original: Any = vars(tree)["_partition"]

    def partition(*arguments: Any) -> Any:
        return replace(original(*arguments), adding=(), removing=())

    return [(tree, "_partition", partition)]


@bug("removed replicas get no StopReplica request", world="stories", first=44, seeds_max=60)
def removed_replicas_not_stopped() -> list[Patch]:
    original: Any = vars(control_requests)["_add_changes"]

    def add_changes(former: Any, topic: Any, after: Any, told: Any, *rest: Any, **options: Any) -> Any:
        states = original(former, topic, after, told, *rest, **options)
        for each in told.values():
            each.stop_replica.clear()
        return states

    return [(control_requests, "_add_changes", add_changes)]


# --- sessions and terms


@bug("the controller does not notice brokers that come and go", world="cluster", seeds_max=20)
def brokers_not_watched() -> list[Patch]:
    async def read(self: LeaderElections) -> None:
        return None

    return [(LeaderElections, "read_brokers", read)]


@bug("a term begins without raising the controller epoch", world="cluster", seeds_max=20)
def controller_epoch_not_raised() -> list[Patch]:
    original = Election._claim

    async def claim(self: Election) -> Any:
        store = self._store
        write = store.multi

        async def multi(changes: Any) -> Any:
            return await write([change for change in changes if isinstance(change, Create)])

        store.multi = multi  # type: ignore[method-assign]
        try:
            return await original(self)
        finally:
            store.multi = write  # type: ignore[method-assign]

    return [(Election, "_claim", claim)]


@bug("a broker does not notice that its session is over", world="cluster", first=2, seeds_max=20)
def session_loss_unnoticed() -> list[Patch]:
    return [(Election, "_session_changed", lambda self, event: None)]


@bug("a controller's writes do not check its epoch", world="late", seeds_max=20)
def writes_not_fenced() -> list[Patch]:
    def fence(self: ControllerState) -> list[Any]:
        self.active_term()
        return [Check(znodes.TOPICS, -1)]

    return [(ControllerState, "fence", fence)]


@bug("a new controller forgets deletions that are under way", world="stories", first=32, seeds_max=60)
def deletions_forgotten() -> list[Patch]:
    async def take_over(self: TopicDeletion, loaded: Any) -> dict[str, Any]:
        return {}

    async def read_marks(self: TopicDeletion) -> None:
        return None

    return [(TopicDeletion, "take_over", take_over), (TopicDeletion, "read_marks", read_marks)]


# --- settings and failed directories


@bug("a failed directory is not reported to the controller", world="stories", first=20, seeds_max=60)
def failed_directory_not_reported() -> list[Patch]:
    async def report(self: ClusterController) -> None:
        return None

    return [(ClusterController, "report_log_dir_failure", report)]


@bug("changed configs take effect only on the broker that was asked", world="stories", first=16, seeds_max=60)
def configs_not_spread() -> list[Patch]:
    async def read(self: DynamicConfigs) -> None:
        return None

    return [(DynamicConfigs, "_read_notified", read)]


@bug("configs that changed while a broker was disconnected are not read", world="stories", first=16, seeds_max=80)
def missed_configs_not_read() -> list[Patch]:
    async def read(self: DynamicConfigs) -> None:
        await self._notifications.skip()

    return [(DynamicConfigs, "_read_all", read)]
