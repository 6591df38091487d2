"""Bugs planted in replication and in the controller; the rest is in `bugs` and its neighbours."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ottla.broker.app import Broker
from ottla.broker.controller import broker_requests
from ottla.broker.controller.cluster_host import ClusterHost
from ottla.broker.controller.controller_host import ControllerHost
from ottla.broker.controller.election import Election
from ottla.broker.coordinators.groups import Coordinators
from ottla.broker.coordinators.transactions import Transactions
from ottla.broker.handlers import produce
from ottla.broker.replicas import replica_fetcher
from ottla.broker.replicas.control_requests import ControllerOrders
from ottla.broker.replicas.partition import Partition
from ottla.cluster import broker_changes, elections, isr_changes, znodes
from ottla.errors import ErrorCode
from ottla.ports import Check, Create
from ottla.replication.follower import Truncation
from ottla.replication.leader import Leadership
from ottla.sim.bugs.catalog import Patch, bug
from ottla.storage import log as log_module
from ottla.types import NO_OFFSET

# --- the leader


@bug(
    "the high watermark is the smallest end of the confirmed ISR, not of the maximal one",
    world="stories",
    first=56,
    seeds_max=123,
)
def isr_instead_of_maximal() -> list[Patch]:
    def high_watermark(self: Leadership, log_end_offset: int, now_ms: int) -> int:
        if self.is_under_min_isr:
            return NO_OFFSET
        return min([log_end_offset, *(self.followers[each].log_end_offset for each in self.isr if each in self.followers)])

    return [(Leadership, "high_watermark", high_watermark)]


@bug("a smaller ISR counts before the controller has agreed to it", world="cluster", seeds_max=40)
def shrunk_before_agreed() -> list[Patch]:
    original = Leadership._propose

    def propose(self: Leadership, isr: tuple[int, ...]) -> Any:
        found = original(self, isr)
        self._maximal = frozenset(isr)
        return found

    def high_watermark(self: Leadership, log_end_offset: int, now_ms: int) -> int:
        return min([log_end_offset, *(self.followers[each].log_end_offset for each in self._maximal if each in self.followers)])

    return [(Leadership, "_propose", propose), (Leadership, "high_watermark", high_watermark)]


@bug("what the leader has is committed", world="cluster", seeds_max=20)
def leader_alone_commits() -> list[Patch]:
    return [(Leadership, "high_watermark", lambda self, log_end_offset, now_ms: log_end_offset)]


@bug("what was sent to a follower counts as being there", world="cluster", seeds_max=20)
def sent_counts_as_stored() -> list[Patch]:
    original = Leadership.follower_fetched

    def follower_fetched(self: Leadership, replica: int, offset: int, start: int, log_end_offset: int, *rest: Any) -> Any:
        return original(self, replica, log_end_offset, start, log_end_offset, *rest)

    return [(Leadership, "follower_fetched", follower_fetched)]


@bug("a new leader takes all in-sync replicas to be where it is", world="cluster", seeds_max=40)
def positions_assumed() -> list[Patch]:
    original = Leadership._assign

    def assign(self: Leadership, replicas: Any, now_ms: int) -> None:
        original(self, replicas, now_ms)
        for number, follower in self.followers.items():
            if number in self.isr and follower.log_end_offset < 0:
                follower.log_end_offset = self.epoch_start_offset

    return [(Leadership, "_assign", assign)]


@bug("a follower joins the ISR before it has reached the high watermark", world="cluster", seeds_max=20)
def joins_behind() -> list[Patch]:
    original = Leadership.follower_fetched

    def follower_fetched(
        self: Leadership, replica: int, offset: int, start: int, end: int, high_watermark: int, *rest: Any
    ) -> Any:
        self.epoch_start_offset = 0
        return original(self, replica, offset, start, end, 0, *rest)

    return [(Leadership, "follower_fetched", follower_fetched)]


@bug("acks=all is answered when the leader has written", world="cluster", seeds_max=20)
def all_means_one() -> list[Patch]:
    original = produce._Wait.settled

    def settled(self: Any) -> bool:
        if self.open:
            return bool(self._close(ErrorCode.NONE))
        return bool(original(self))

    return [(produce._Wait, "settled", settled)]


@bug("who waits for replicas is told success when the leader is deposed", world="cluster", seeds_max=40)
def deposed_says_success() -> list[Patch]:
    original = produce._Wait.settled

    def settled(self: Any) -> bool:
        if self.open and (not self.partition.is_leader or self.partition.reign != self.reign):
            return bool(self._close(ErrorCode.NONE))
        return bool(original(self))

    return [(produce._Wait, "settled", settled)]


# --- the follower


@bug("a follower cuts its log to its high watermark", world="cluster", seeds_max=20)
def truncates_to_high_watermark() -> list[Patch]:
    original = replica_fetcher.ReplicaFetchers.follow

    def follow(self: Any, partition: Partition) -> None:
        partition.truncate_to(partition.log.high_watermark, self._broker.world.clock.now_ms())
        original(self, partition)

    return [(replica_fetcher.ReplicaFetchers, "follow", follow)]


@bug("a leader does not notice that a follower has another history", world="cluster", seeds_max=40)
def divergence_unnoticed() -> list[Patch]:
    return [(Partition, "divergence", lambda self, *arguments: None)]


@bug("a log with another history is cut one batch too late", world="cluster", first=5, seeds_max=20)
def cut_too_late() -> list[Patch]:
    original: Any = vars(replica_fetcher)["truncation"]

    def truncation(log: Any, *rest: Any) -> Truncation:
        found: Truncation = original(log, *rest)
        return replace(found, offset=min(found.offset + 1, log.log_end_offset))

    return [(replica_fetcher, "truncation", truncation)]


@bug("a log with another history is cut one record too far", world="cluster", seeds_max=40)
def cut_too_far() -> list[Patch]:
    original: Any = vars(replica_fetcher)["truncation"]

    def truncation(log: Any, *rest: Any) -> Truncation:
        found: Truncation = original(log, *rest)
        return replace(found, offset=max(found.offset - 3, 0))

    return [(replica_fetcher, "truncation", truncation)]


@bug("a cut does not bring the state of producers back", world="cluster", seeds_max=40)
def producers_not_cut() -> list[Patch]:
    return [(log_module, "rebuild", lambda *arguments: None)]


@bug("after an error a partition is not fetched any more", world="cluster", seeds_max=20)
def fetching_given_up() -> list[Patch]:
    def later(self: Any, followed: Any) -> None:
        followed.not_before = 1e12

    return [(replica_fetcher._Fetcher, "_later", later)]


@bug("a follower takes the leader's high watermark for records it does not have", world="cluster", seeds_max=40)
def high_watermark_ahead() -> list[Patch]:
    original = Partition.append_as_follower

    def append_as_follower(self: Partition, records: Any, leader_high_watermark: int, *rest: Any) -> Any:
        info = original(self, records, leader_high_watermark, *rest)
        self.log._high_watermark = self.log.log_end_offset
        return info

    return [(Partition, "append_as_follower", append_as_follower)]


# --- changes of the ISR


@bug("the controller takes a broker into the ISR that is not alive", world="cluster", seeds_max=60)
def dead_in_isr() -> list[Patch]:
    original = elections.settle

    def settle(partition: Any, here: Any, may_lead: Any, *, unclean: bool) -> Any:
        after = original(partition, here, may_lead, unclean=unclean)
        return after if after is partition or after.leader < 0 else replace(after, isr=partition.replicas)

    return [(broker_changes, "settle", settle)]


# --- the controller


@bug("a leader need not have been in sync", world="cluster", seeds_max=60)
def leader_out_of_sync() -> list[Patch]:
    def first_in_sync(partition: Any, may_lead: Any) -> int | None:
        return next((replica for replica in reversed(partition.replicas) if replica in may_lead), None)

    return [(elections, "first_in_sync", first_in_sync)]


@bug("unclean elections happen although they are not allowed", world="cluster", seeds_max=20)
def always_unclean() -> list[Patch]:
    return [(ControllerHost, "unclean_allowed", lambda self, topic: True)]


@bug("an election does not raise the leader epoch", world="cluster", seeds_max=20)
def leader_epoch_not_raised() -> list[Patch]:
    def changed(partition: Any) -> Any:
        return replace(partition, partition_epoch=partition.partition_epoch + 1)

    return [(elections, "_changed", changed)]


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


@bug("the last of the roles in an order is not taken", world="cluster", seeds_max=20)
def orders_lost() -> list[Patch]:
    original = ControllerOrders._take

    async def take(self: ControllerOrders, roles: Any, errors: Any, *, is_new: bool) -> None:
        await original(self, roles[:-1] if len(roles) > 1 and not is_new else roles, errors, is_new=is_new)

    return [(ControllerOrders, "_take", take)]


# --- coordinators that move


@bug("coordinators do not move with their partitions", world="cluster", seeds_max=20)
def coordinators_stay() -> list[Patch]:
    return [(Broker, "roles_changed", lambda self: None)]


@bug("markers for partitions of other brokers are not sent", world="cluster", seeds_max=20)
def markers_not_sent() -> list[Patch]:
    return [(Transactions, "_send", lambda self, *arguments: None)]


@bug("a marker does not settle pending offsets after the coordinator has moved", world="cluster", seeds_max=20)
def pending_not_settled() -> list[Patch]:
    return [(Coordinators, "_settle", lambda self, shard, producer_id, *, commit: None)]


# --- fences


@bug("an order for an epoch that is over is obeyed", world="cluster", seeds_max=40)
def order_epoch_not_looked_at() -> list[Patch]:
    original = ControllerOrders._refusal

    def refusal(self: ControllerOrders, key: Any, state: Any, topic_id: bytes) -> ErrorCode:
        found = original(self, key, state, topic_id)
        return ErrorCode.NONE if found == ErrorCode.STALE_CONTROLLER_EPOCH else found

    # The connection it comes on would tell too.
    return [(ControllerOrders, "_refusal", refusal), (ControllerOrders, "_check_connection", lambda *_: None)]


@bug("an order of a controller that was replaced is obeyed", world="late", seeds_max=40)
def former_controller_obeyed() -> list[Patch]:
    original = ControllerOrders._check

    def check(self: ControllerOrders, controller_epoch: int, broker_epoch: int, controller_id: int) -> None:
        original(self, max(controller_epoch, self.controller_epoch), broker_epoch, controller_id)

    return [(ControllerOrders, "_check", check)]


@bug("an order for a former life of a broker is obeyed", world="late", seeds_max=40)
def former_life_obeyed() -> list[Patch]:
    original = ControllerOrders._check

    def check(self: ControllerOrders, controller_epoch: int, broker_epoch: int, controller_id: int) -> None:
        original(self, controller_epoch, max(broker_epoch, self._broker.broker_epoch), controller_id)

    # The connection it comes on would tell too.
    return [(ControllerOrders, "_check", check), (ControllerOrders, "_check_connection", lambda *_: None)]


@bug("an order that was told again on another connection is obeyed when it comes at last", world="late", seeds_max=40)
def former_connection_obeyed() -> list[Patch]:
    return [(ControllerOrders, "_check_connection", lambda *_: None)]


@bug("a wish for in-sync replicas is granted although the partition has changed since", world="late", seeds_max=20)
def former_wish_granted() -> list[Patch]:
    original = isr_changes.grant

    def grant(image: Any, partition: Any, wish: Any) -> Any:
        renewed = replace(wish, partition_epoch=partition.partition_epoch)
        return original(image, partition, renewed if wish.partition_epoch < partition.partition_epoch else wish)

    return [(broker_requests, "grant", grant)]


@bug("a controller's writes do not check its epoch", world="late", seeds_max=20)
def writes_not_fenced() -> list[Patch]:
    def fence(self: ControllerHost) -> list[Any]:
        self._office()
        return [Check(znodes.TOPICS, -1)]

    return [(ControllerHost, "_fence", fence)]


@bug("a fetch for an epoch that is over is believed, whatever the history of its last record", world="late", seeds_max=30)
def former_fetch_believed() -> list[Patch]:
    """Two fences at once: either of them is enough."""
    original, divergence = Partition._check_epoch, Partition.divergence
    former: set[int] = set()

    def check_epoch(self: Partition, current_leader_epoch: int) -> None:
        is_former = 0 <= current_leader_epoch < self.leader_epoch
        (former.add if is_former else former.discard)(id(self))
        original(self, self.leader_epoch if is_former else current_leader_epoch)

    def no_divergence(self: Partition, *arguments: Any) -> Any:
        return None if id(self) in former else divergence(self, *arguments)

    return [(Partition, "_check_epoch", check_epoch), (Partition, "divergence", no_divergence)]
