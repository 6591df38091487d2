"""Groups in the broker world: which there are, what a restart of the broker must keep of them, and whether they settle.

Owns: the groups of a run, their members, which outlive the broker, and the checks that need the broker's own view: a restarted
broker has the groups it had, and a group that nobody disturbs becomes stable.
Never: changes anything in the broker.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING, Any, Final

from ottla.broker.coordinators.group_shards import OFFSETS_TOPIC
from ottla.coordinator.shard import positive_hash
from ottla.errors import ErrorCode
from ottla.ports import Network
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.sim.actors.client import Client
from ottla.sim.actors.member import NOT_WRITTEN, PROTOCOLS, Member
from ottla.sim.actors.workload import Workload
from ottla.sim.models.group_model import CONSUMER_SESSION_S, NOTHING_COMMITTED, GroupModel, Membership, differences, settled
from ottla.sim.violation import Violation, require
from ottla.types import TopicPartition
from ottla.wire.schema import definition_of

if TYPE_CHECKING:
    from ottla.broker.app import Broker

LOAD_S_MAX: Final = 60.0
SETTLE_S_MAX: Final = 90.0
SHORT_RETENTION_MINUTES: Final = 1
EXPIRY_INTERVAL_S: Final = 5.0
STEADY: Final = frozenset({"Stable", "Empty"})


def _plain(message: Any) -> Any:
    """A message as dicts and lists, to be compared."""
    if isinstance(message, list):
        return [_plain(part) for part in message]
    if hasattr(message, "__wire__"):
        return {field.name: _plain(getattr(message, field.name)) for field in definition_of(type(message)).fields}
    return bytes(message) if isinstance(message, memoryview) else message


def properties(rng: random.Random) -> dict[str, str]:
    """Settings of a broker with groups: short timeouts."""
    return {
        "offsets.topic.num.partitions": rng.choice(("1", "2", "4")),
        "offsets.topic.segment.bytes": rng.choice(("4000", "4000", "104857600")),
        "group.initial.rebalance.delay.ms": rng.choice(("0", "1000")),
        "group.min.session.timeout.ms": "1000",
        "group.consumer.min.session.timeout.ms": "1000",
        "group.consumer.session.timeout.ms": str(int(CONSUMER_SESSION_S * 1000)),
        "group.consumer.min.heartbeat.interval.ms": "500",
        "group.consumer.heartbeat.interval.ms": "1000",
        "group.consumer.assignment.interval.ms": rng.choice(("0", "1000")),
        "offsets.retention.minutes": rng.choice(("10080", "10080", str(SHORT_RETENTION_MINUTES))),
        "offsets.retention.check.interval.ms": str(int(EXPIRY_INTERVAL_S * 1000)),
    }


class Groups:
    """The groups of one run."""

    def __init__(self, rng: random.Random, shared: Workload, settings: dict[str, str], now: Callable[[], float]) -> None:
        self.rng = rng
        self.shared = shared
        self.now = now
        minutes = int(settings["offsets.retention.minutes"])
        self.is_short = minutes == SHORT_RETENTION_MINUTES
        retention_s = minutes * 60.0 if self.is_short else inf
        self.models: list[GroupModel] = []
        for number in range(rng.choice((1, 1, 2))):
            kind = rng.choice(("classic", "consumer"))
            topics = rng.choice((("t0",), ("t0", "t1")))
            model = GroupModel(f"{kind}-{number}", kind, topics, retention_s, now)
            model.protocols = rng.choice((PROTOCOLS, PROTOCOLS[:1], PROTOCOLS[1:]))
            for index in range(rng.randint(2, 3)):
                static = rng.random() < 0.3
                name = f"member-{number}-{index}"
                model.members.append(Membership(name, f"instance-{index}" if static else None))
            self.models.append(model)
        self.broker: Broker | None = None
        self._before: dict[str, Any] = {}
        self._ends: dict[int, int] = {}

    # --- clients

    def clients(self, network: Network) -> list[tuple[Client, Callable[[], Coroutine[Any, Any, None]], float]]:
        """The members, and a client that looks after the groups."""
        found: list[tuple[Client, Callable[[], Coroutine[Any, Any, None]], float]] = []
        for model in self.models:
            for membership in model.members:
                member = self._member(model, membership, network)
                found.append((member, member.act, 1.0))
            keeper = self._member(model, Membership(f"keeper-{model.group_id}", None), network)
            found.append((keeper, lambda keeper=keeper: self._keep(keeper), 4.0))  # type: ignore[misc]
        return found

    def _member(self, model: GroupModel, membership: Membership, network: Network) -> Member:
        return Member(model, membership, self.shared, network, self.position)

    async def _keep(self, keeper: Member) -> None:
        """Fetches offsets, finds the coordinator, deletes offsets and empty groups."""
        kind = self.rng.random()
        if not await keeper.find_coordinator():
            return
        if kind < 0.5:
            await keeper.fetch_offsets()
        elif kind < 0.7:
            await self._delete_offsets(keeper)
        elif kind < 0.75:
            await self._delete_group(keeper)

    async def _delete_group(self, keeper: Member) -> None:
        model = keeper.model
        topic_ids = {place: self.shared.topics[place[0]].topic_id for place in sorted(keeper.places())}
        topic_ids |= {place: commits[-1].topic_id for place, commits in model.commits.items() if commits}
        # A commit that is sent after this request may be before it in the log: all partitions count.
        erased = [(place, model.committing(place, NOTHING_COMMITTED, topic_id)) for place, topic_id in topic_ids.items()]
        response = await keeper.call("delete_groups", 2, DeleteGroupsRequest(groups_names=[model.group_id]))
        code = response.results[0].error_code
        certain = {ErrorCode.NON_EMPTY_GROUP, *NOT_WRITTEN}
        if keeper.went_well(code, "delete", *certain):
            self.shared.trace.add(f"{keeper.name} deletes {model.group_id}")
            model.may_be_another()
            for _, commit in erased:
                model.committed(commit, self.position(model.group_id))
        elif code in certain:
            for place, commit in erased:
                model.refused(place, commit)

    async def _delete_offsets(self, keeper: Member) -> None:
        model = keeper.model
        places = sorted(keeper.places())
        if not places:
            return
        name, index = self.rng.choice(places)
        topic_id = self.shared.topics[name].topic_id
        erased = model.committing((name, index), NOTHING_COMMITTED, topic_id)
        request = OffsetDeleteRequest(
            group_id=model.group_id,
            topics=[OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index)])],
        )
        response = await keeper.call("offset_delete", 0, request)
        code = response.error_code or response.topics[0].partitions[0].error_code
        certain = {ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, *NOT_WRITTEN}
        if name not in self.shared.topics or self.shared.topics[name].topic_id != topic_id:
            certain.add(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)  # the group is being deleted
        if keeper.went_well(code, "delete offsets of", *certain):
            self.shared.trace.add(f"{keeper.name} deletes the offset of {name}-{index}")
            model.committed(erased, self.position(model.group_id))
        elif code in certain:
            model.refused((name, index), erased)

    # --- what the broker has

    def number_of(self, group_id: str) -> int:
        assert self.broker is not None
        topic = self.broker.image.topics.get(OFFSETS_TOPIC)
        return -1 if topic is None else positive_hash(group_id) % len(topic.partitions)

    def position(self, group_id: str) -> int:
        """Log end offset of a group's coordinator."""
        return self._end(self.number_of(group_id))

    def _end(self, number: int) -> int:
        assert self.broker is not None
        partition = self.broker.partitions.find(TopicPartition(OFFSETS_TOPIC, number))
        return 0 if partition is None else partition.log.log_end_offset

    def _whole_until(self, number: int) -> int:
        """Up to which offset the log of a coordinator lacks nothing but what was compacted.

        A crash may take the tail of a segment and leave the next one. In a compacted log recovery does not truncate there, if it
        does not know how far the log was cleaned.
        """
        assert self.broker is not None
        partition = self.broker.partitions.find(TopicPartition(OFFSETS_TOPIC, number))
        for segment, follower in pairwise(partition.log.segments if partition is not None else ()):
            end = segment.base_offset
            try:
                for info, _ in segment.batches(0):
                    end = info.next_offset
            except OSError:
                return end  # the disk fails
            if end < follower.base_offset:
                return end
        return self._end(number)

    def _describe(self) -> dict[str, Any] | None:
        """Each group as its shard describes it; None while one is loading."""
        assert self.broker is not None
        topic = self.broker.image.topics.get(OFFSETS_TOPIC)
        found: dict[str, Any] = {}
        for number in range(0 if topic is None else len(topic.partitions)):
            hosted = self.broker.groups.shards.get(number)
            if hosted is None or hosted.shard is None:
                return None
            shard = hosted.shard
            for group_id, group in shard.groups.by_id.items():
                offsets = {(name, index): (kept.offset, kept.metadata) for name, index, kept in shard.offsets.of_group(group_id)}
                if group.type == "consumer":
                    state: Any = _plain(shard.consumer_group_describe([group_id])[0])
                elif group.state_name in STEADY:
                    state = _plain(shard.describe_groups([group_id], 5)[0])
                else:
                    state = None  # a rebalance is under way: it is not written
                if state is not None:
                    state["members"] = sorted(state["members"], key=lambda member: member["member_id"])
                found[group_id] = (state, offsets)
        return found

    # --- from life to life

    def on_death(self, interrupted: str) -> None:
        """The broker is dead; its state can still be read. `interrupted` is the path it was changing."""
        for model in self.models:
            model.coordinator_died()
        self._before = {}
        self._ends = {}
        if self.broker is None:
            return
        self._before = self._describe() or {}
        topic = self.broker.image.topics.get(OFFSETS_TOPIC)
        numbers = range(0 if topic is None else len(topic.partitions))
        # Nothing is known of a group that was being written.
        self._ends = {number: self._end(number) for number in numbers if f"/{OFFSETS_TOPIC}-{number}/" not in interrupted}

    async def on_start(self, broker: Broker, how: str) -> None:
        """The broker is back: once loaded, it has the groups it had (G07)."""
        self.broker = broker
        end_s = self.now() + LOAD_S_MAX
        while (after := self._describe()) is None:
            require(self.now() < end_s or not self.shared.disk_is_sound, "hang", "the groups are not loaded")
            if self.now() >= end_s:
                return
            await asyncio.sleep(0.01)
        before, self._before = self._before, {}
        for group_id, (state, offsets) in before.items():
            number = self.number_of(group_id)
            if how == "crash" or self._ends.get(number) != self._end(number):
                continue
            if state is None and not offsets:
                continue  # it was about to be created
            state_after, offsets_after = after.get(group_id, (None, {}))
            require(
                offsets == offsets_after,
                "reload",
                f"{group_id} had the offsets {offsets}, after the restart it has {offsets_after}",
            )
            if state is not None and (state_after is not None or offsets or state["group_state"] != "Empty"):
                # An empty group that never had a generation is not written.
                found = differences(state, state_after or {})
                require(not found, "reload", f"{group_id}: {found}")
        for model in self.models:
            number = self.number_of(model.group_id)
            model.coordinator_is_back(how == "crash", self._whole_until(number) if how == "crash" else self._end(number))

    # --- in quiet times

    async def settle(self, network: Network) -> None:
        """Undisturbed, the groups become stable; without one member the others take over; offsets stay."""
        for model in self.models:
            members = [self._member(model, membership, network) for membership in model.members]
            if not members[0].places():
                continue
            for member in members:
                member.diligent = True
            await self._until_settled(members, "members")
            if self.is_short:
                await self._outlast(members)
            if len(members) > 1:
                # One member dies.
                silent = members.pop()
                silent.member.valid_until_s = 0.0
                silent.member.owned = frozenset()
                await self._until_settled(members, f"members without {silent.name}")
            for member in members:
                await self._patiently(member, member.fetch_offsets)
            if self.is_short:
                await self._expire(members)

    async def _patiently(self, member: Member, act: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        try:
            return await act()
        except OSError:
            member._connection = None
            return None

    async def _until_settled(self, members: list[Member], who: str) -> None:
        model = members[0].model
        end_s = self.now() + SETTLE_S_MAX

        async def stay(member: Member) -> None:
            while not done.is_set():
                await self._patiently(member, member.act)
                await asyncio.sleep(0.3 + self.rng.random() * 0.4)

        done = asyncio.Event()
        tasks = [asyncio.ensure_future(stay(member)) for member in members]
        try:
            while not settled([member.member for member in members], members[0].places()):
                for task in tasks:
                    if task.done():
                        task.result()
                if self.now() >= end_s:
                    shares = {m.name: (m.member.epoch, sorted(m.member.owned)) for m in members}
                    raise Violation("settles", f"{model.group_id}: {who} do not settle in {SETTLE_S_MAX} s: {shares}")
                await asyncio.sleep(0.5)
            self.shared.trace.add(f"{model.group_id} has settled: {who}")
        finally:
            done.set()
        await asyncio.gather(*tasks)

    async def _outlast(self, members: list[Member]) -> None:
        """Offsets of a group with members do not expire (G09)."""
        for member in members:
            await self._patiently(member, member.commit)
        end_s = self.now() + members[0].model.retention_s + 3 * EXPIRY_INTERVAL_S
        while self.now() < end_s:
            for member in members:
                await self._patiently(member, member.act)
            await asyncio.sleep(1.4)
        await self._patiently(members[0], members[0].fetch_offsets)

    async def _expire(self, members: list[Member]) -> None:
        """Offsets of a group without members expire (G09)."""
        model = members[0].model
        for member in members:
            if member.member.epoch >= 0:
                await self._patiently(member, member.leave)
        await asyncio.sleep(model.retention_s + 3 * EXPIRY_INTERVAL_S + 30.0)
        found = await self._patiently(members[0], members[0].fetch_offsets)
        left = {place: value for place, value in (found or {}).items() if value != NOTHING_COMMITTED}
        require(not left, "expiry", f"{model.group_id}: no member is left, and {sorted(left.items())} did not expire")
