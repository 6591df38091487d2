"""The effect of one member's change on its consumer group, as records.

Owns the order: the member is written; if subscriptions, regular expressions or topics changed, the group epoch is bumped; if the
target assignment is older than the group epoch, a new one is computed; then the member reconciles towards it. The group itself
changes when the records are replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ottla.coordinator.group import consumer_records as records
from ottla.coordinator.group.assignors import ASSIGNORS, Assignment, GroupSpec, MemberSpec, enabled
from ottla.coordinator.group.consumer_group import ConsumerGroup, ResolvedPattern, assignor_for
from ottla.coordinator.group.consumer_member import ConsumerMember, Reconciliation
from ottla.coordinator.group.group import GroupConfig, Topics
from ottla.coordinator.group.subscription import MetadataHashes, all_alike, ids_of, topics_of, topics_of_all
from ottla.coordinator.shard import CoordinatorRecord, Now
from ottla.patterns import check_pattern, matching_names


@dataclass(frozen=True, slots=True)
class ChangeContext:
    """The topics, configuration and time of a change."""

    topics: Topics
    config: GroupConfig
    hashes: MetadataHashes
    now: Now
    topics_may_differ: bool
    """The metadata hash of the group has not been compared with these topics yet."""
    patterns_are_old: bool
    """The regular expressions were resolved for other topics, or too long ago."""
    may_describe: Callable[[str], bool] | None = None
    """Topics for which it is false match no regular expression."""


@dataclass(slots=True)
class Change:
    group: ConsumerGroup
    context: ChangeContext
    before: ConsumerMember
    """The member before the change; a new one if it joins."""
    member: ConsumerMember
    """The member as requested, and in the end as it is."""
    replaced: ConsumerMember | None
    """The static member that it replaces."""
    owned: Assignment | None
    """The partitions that the member reports to own."""
    records: list[CoordinatorRecord] = field(default_factory=list)
    epoch: int = 0
    """The group epoch."""
    moved: bool = False
    """The member's epoch, state or assignment changed."""
    _members: dict[str, ConsumerMember] = field(default_factory=dict)
    _patterns: dict[str, ResolvedPattern] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.epoch = self.group.epoch
        self._patterns = dict(self.group.patterns)

    @property
    def subscription_changed(self) -> bool:
        return self.member.topic_names != self.before.topic_names or self.member.pattern != self.before.pattern

    def write(self) -> None:
        """Write all records. KafkaError if the change is refused."""
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
        """Bump the group epoch if the subscriptions or the topics changed."""
        context, group_id = self.context, self.group.group_id
        patterns_changed = self._write_patterns()
        rises = self.subscription_changed or patterns_changed
        if not rises and not context.topics_may_differ:
            return
        names = topics_of_all(self._members.values(), self._patterns)
        metadata_hash = context.hashes.of(names, context.topics)
        if rises or metadata_hash != self.group.metadata_hash:
            self.epoch += 1
            self.records.append(records.epoch(group_id, self.epoch, metadata_hash))
        if self.group.has_partition_metadata:
            self.records.append(records.no_partition_metadata(group_id))

    def _write_patterns(self) -> bool:
        """Resolve regular expressions. Whether one of them matches other topics than before."""
        group_id, member, before = self.group.group_id, self.member, self.before
        used = {other.pattern for other in self._members.values() if other.pattern}
        if member.pattern and member.pattern != before.pattern:
            check_pattern(member.pattern)
        for expression in sorted(self._patterns.keys() - used):
            del self._patterns[expression]
            self.records.append(records.no_pattern(group_id, expression))
        changed = False
        for expression in sorted(used):
            known = self._patterns.get(expression)
            if known is not None and not self.context.patterns_are_old:
                continue
            topics = matching_names(expression, self.context.topics.topics)
            if self.context.may_describe is not None:
                topics = frozenset(filter(self.context.may_describe, topics))
            if known is None or known.topics != topics:
                changed = True
                self._patterns[expression] = ResolvedPattern(topics, self.context.now.wall_ms)
                self.records.append(records.pattern(group_id, expression, topics, self.context.now.wall_ms))
        return changed

    def write_target_and_step(self) -> None:
        self.step(*self._target())

    def _target(self) -> tuple[int, Assignment]:
        """The target assignment of the member and its epoch."""
        group, context, member = self.group, self.context, self.member
        source_id = member.member_id if self.replaced is None else self.replaced.member_id
        if group.assignment_epoch >= self.epoch or not may_assign(group, context):
            return group.assignment_epoch, group.target_of(source_id)
        previous = dict(group.target)
        if self.replaced is not None:
            previous[member.member_id] = previous.pop(source_id, {})
        targets = targets_for(self._members, previous, self._patterns, context)
        for member_id in sorted(targets):
            if member_id not in previous or targets[member_id] != previous[member_id]:
                self.records.append(records.target(group.group_id, member_id, targets[member_id]))
        self.records.append(records.target_epoch(group.group_id, self.epoch, context.now.wall_ms))
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

        subscribed = ids_of(topics_of(member, self._patterns), self.context.topics)
        reached = Reconciliation(target_epoch, target, subscribed, is_held_by_others, self.owned, self.subscription_changed).step(
            member
        )
        if reached != member:
            self.member = reached
            self.moved = True
            self.records.append(records.current(self.group.group_id, reached))


def may_assign(group: ConsumerGroup, context: ChangeContext) -> bool:
    """Whether `group.consumer.assignment.interval.ms` has passed, so that members who join together get one assignment."""
    passed_ms = context.now.wall_ms - group.assignment_ms
    # After the clock was set back the time is unknown: assign now.
    return not group.assignment_ms or not 0 <= passed_ms < context.config.consumer_assignment_interval_ms


def targets_for(
    members: Mapping[str, ConsumerMember],
    previous: Mapping[str, Assignment],
    patterns: Mapping[str, ResolvedPattern],
    context: ChangeContext,
) -> dict[str, Assignment]:
    topics = context.topics
    subscribed: dict[frozenset[str], frozenset[bytes]] = {}
    specs: dict[str, MemberSpec] = {}
    for member_id, member in members.items():
        names = topics_of(member, patterns)
        ids = subscribed.get(names)
        if ids is None:
            ids = subscribed[names] = ids_of(names, topics)
        specs[member_id] = MemberSpec(ids, previous.get(member_id, {}), member.instance_id)
    counts = {
        topic_id: len(topics.topics[topics.topic_names[topic_id]].partitions)
        for topic_id in frozenset[bytes]().union(*subscribed.values())
    }
    name = assignor_for(members, enabled(context.config.consumer_assignors)[0])
    return ASSIGNORS[name](GroupSpec(specs, counts, all_alike(members.values())))
