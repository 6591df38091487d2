"""What a change of one member means for its group: the computation behind every heartbeat that says something new.

Owns the order of things: the member is written down; if subscriptions, patterns or topics changed, the group epoch rises; if the
target is older than the group epoch, another is computed; then the member takes a step towards the target. All of it in one list
of records, computed on the side: the group changes when they are replayed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla.coordinator.group import consumer_records as records
from ottla.coordinator.group import regex
from ottla.coordinator.group.assignors import ASSIGNORS, Assignment, GroupSpec, MemberSpec, enabled
from ottla.coordinator.group.consumer_group import ConsumerGroup, ResolvedPattern, assignor_for
from ottla.coordinator.group.consumer_member import ConsumerMember, Reconciliation
from ottla.coordinator.group.group import GroupConfig, Topics
from ottla.coordinator.group.subscription import MetadataHashes, all_alike, ids_of, topics_of, topics_of_all
from ottla.coordinator.shard import CoordinatorRecord, Now


@dataclass(frozen=True, slots=True)
class Setting:
    """What a change happens in."""

    topics: Topics
    config: GroupConfig
    hashes: MetadataHashes
    now: Now
    topics_may_differ: bool
    """The hash of the group's topics has not been compared with these topics yet."""
    patterns_are_old: bool
    """The patterns were resolved for other topics, or long ago."""


@dataclass(slots=True)
class Change:
    group: ConsumerGroup
    setting: Setting
    before: ConsumerMember
    """The member as it was; a fresh one if it is new."""
    member: ConsumerMember
    """The member as it wants to be, and in the end as it is."""
    replaced: ConsumerMember | None
    """The static member whose place it takes."""
    owned: Assignment | None
    """What the member says it has."""
    records: list[CoordinatorRecord] = field(default_factory=list)
    epoch: int = 0
    """The group's."""
    moved: bool = False
    """The member took a step."""
    _members: dict[str, ConsumerMember] = field(default_factory=dict)
    _patterns: dict[str, ResolvedPattern] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.epoch = self.group.epoch
        self._patterns = dict(self.group.patterns)

    @property
    def subscription_changed(self) -> bool:
        return self.member.topic_names != self.before.topic_names or self.member.pattern != self.before.pattern

    def write(self) -> None:
        """All of it. KafkaError if the member cannot be what it wants to be: then nothing has happened."""
        self.write_member()
        self.write_epoch()
        self.write_target_and_step()

    def write_member(self) -> None:
        group_id, member, replaced = self.group.group_id, self.member, self.replaced
        members = self._members = dict(self.group.members)
        if replaced is not None:
            del members[replaced.member_id]
            self.records += records.no_member(group_id, replaced.member_id)
            self.records.append(records.member(group_id, self.before))
            self.records.append(records.target(group_id, member.member_id, self.group.target_of(replaced.member_id)))
            self.records.append(records.current(group_id, self.before))
        is_new = replaced is None and member.member_id not in members
        members[member.member_id] = member
        if is_new or member != self.before:
            self.records.append(records.member(group_id, member))

    def write_epoch(self) -> None:
        """The group epoch rises if what the members subscribe to became another, or the topics did."""
        setting, group_id = self.setting, self.group.group_id
        patterns_changed = self._write_patterns()
        rises = self.subscription_changed or patterns_changed
        if not rises and not setting.topics_may_differ:
            return
        names = topics_of_all(self._members.values(), self._patterns)
        metadata_hash = setting.hashes.of(names, setting.topics)
        if rises or metadata_hash != self.group.metadata_hash:
            self.epoch += 1
            self.records.append(records.epoch(group_id, self.epoch, metadata_hash))
        if self.group.has_partition_metadata:
            self.records.append(records.no_partition_metadata(group_id))

    def _write_patterns(self) -> bool:
        """Whether one of them stands for other topics than before."""
        group_id, member, before = self.group.group_id, self.member, self.before
        used = {other.pattern for other in self._members.values() if other.pattern}
        if member.pattern and member.pattern != before.pattern:
            regex.check(member.pattern)
        for expression in sorted(self._patterns.keys() - used):
            del self._patterns[expression]
            self.records.append(records.no_pattern(group_id, expression))
        changed = False
        for expression in sorted(used):
            known = self._patterns.get(expression)
            if known is not None and not self.setting.patterns_are_old:
                continue
            topics = regex.matching(expression, self.setting.topics.topics)
            if known is None or known.topics != topics:
                changed = True
                self._patterns[expression] = ResolvedPattern(topics, self.setting.now.wall_ms)
                self.records.append(records.pattern(group_id, expression, topics, self.setting.now.wall_ms))
        return changed

    def write_target_and_step(self) -> None:
        target_epoch, target = self._target()
        self.step(target_epoch, target)

    def _target(self) -> tuple[int, Assignment]:
        """The assignment intended for the member, and its epoch."""
        group, setting, member = self.group, self.setting, self.member
        source_id = member.member_id if self.replaced is None else self.replaced.member_id
        if group.assignment_epoch >= self.epoch or not may_assign(group, setting):
            return group.assignment_epoch, group.target_of(source_id)
        former = dict(group.target)
        if self.replaced is not None:
            former[member.member_id] = former.pop(source_id, {})
        targets = targets_for(self._members, former, self._patterns, setting)
        for member_id in sorted(targets):
            if member_id not in former or targets[member_id] != former[member_id]:
                self.records.append(records.target(group.group_id, member_id, targets[member_id]))
        self.records.append(records.target_epoch(group.group_id, self.epoch, setting.now.wall_ms))
        return self.epoch, targets[member.member_id]

    def step(self, target_epoch: int, target: Assignment) -> None:
        member = self.member
        if not self.subscription_changed and member.is_reconciled_to(target_epoch):
            return
        own_ids = {member.member_id} if self.replaced is None else {member.member_id, self.replaced.member_id}
        owners = self.group.owners

        def is_held_by_others(topic_id: bytes, partition: int) -> bool:
            owner = owners.get(topic_id, {}).get(partition)
            return owner is not None and owner not in own_ids

        subscribed = ids_of(topics_of(member, self._patterns), self.setting.topics)
        reached = Reconciliation(target_epoch, target, subscribed, is_held_by_others, self.owned, self.subscription_changed).step(
            member
        )
        if reached != member:
            self.member = reached
            self.moved = True
            self.records.append(records.current(self.group.group_id, reached))


def may_assign(group: ConsumerGroup, setting: Setting) -> bool:
    """Not more often than `group.consumer.assignment.interval.ms`, so that members who come together are dealt with together."""
    passed_ms = setting.now.wall_ms - group.assignment_ms
    # A clock that was set back says nothing of how long ago it was: the group must not wait until it is that late again.
    return not group.assignment_ms or not 0 <= passed_ms < setting.config.consumer_assignment_interval_ms


def targets_for(
    members: Mapping[str, ConsumerMember],
    former: Mapping[str, Assignment],
    patterns: Mapping[str, ResolvedPattern],
    setting: Setting,
) -> dict[str, Assignment]:
    topics = setting.topics
    subscribed: dict[frozenset[str], frozenset[bytes]] = {}
    specs: dict[str, MemberSpec] = {}
    for member_id, member in members.items():
        names = topics_of(member, patterns)
        ids = subscribed.get(names)
        if ids is None:
            ids = subscribed[names] = ids_of(names, topics)
        specs[member_id] = MemberSpec(ids, former.get(member_id, {}), member.instance_id)
    counts = {
        topic_id: len(topics.topics[topics.topic_names[topic_id]].partitions)
        for topic_id in frozenset[bytes]().union(*subscribed.values())
    }
    name = assignor_for(members, enabled(setting.config.consumer_assignors)[0])
    return ASSIGNORS[name](GroupSpec(specs, counts, all_alike(members.values())))
