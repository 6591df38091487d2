"""The groups and offsets of one partition of `__consumer_offsets`.

Owns the routing of requests, records and timers to `classic_group_protocol`, `consumer_group_protocol` and `offset_store`.

Each protocol names the types of the records it replays; its name is the first part of its timer keys. Classic requests go to the
classic protocol unless the group is a consumer group with members.

1. A group id stands for one group of one kind at a time (`Groups.by_id`). Its offsets do not depend on the kind.
2. An offset record without a group creates one: an empty classic group without a protocol type, a "simple" group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ottla.coordinator.group.classic_group import ClassicGroup, described_group
from ottla.coordinator.group.classic_group_protocol import ClassicGroupProtocol
from ottla.coordinator.group.committed_offset import Commits
from ottla.coordinator.group.consumer_group import ConsumerGroup
from ottla.coordinator.group.consumer_group_protocol import ConsumerGroupProtocol
from ottla.coordinator.group.group import Caller, CommitCheck, Group, GroupConfig, Groups, Topics
from ottla.coordinator.group.offset_store import OffsetStore
from ottla.coordinator.shard import Decision, Now, TimerKey, Token, replied
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.internal.group_records import decode_record
from ottla.protocol.messages.consumer_group_describe import DescribedGroup as ConsumerDescribedGroup
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.delete_groups import DeletableGroupResult
from ottla.protocol.messages.describe_groups import DescribedGroup
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.join_group import JoinGroupRequest
from ottla.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from ottla.protocol.messages.list_groups import ListedGroup
from ottla.protocol.messages.offset_commit import OffsetCommitRequest
from ottla.protocol.messages.offset_delete import OffsetDeleteRequest
from ottla.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from ottla.types import NO_PRODUCER_ID, ZERO_UUID, ProducerIdAndEpoch

_OFFSET_TYPES: Final = frozenset({0, 1})
_GROUP_NOT_FOUND_FROM: Final = 9
"""The version of OffsetCommit from which an unknown group is GROUP_ID_NOT_FOUND instead of ILLEGAL_GENERATION."""


class GroupShard:
    def __init__(self, config: GroupConfig, partition: int) -> None:
        self.partition = partition
        self.offsets = OffsetStore()
        self.groups = Groups(config, self.offsets)
        self.classic = ClassicGroupProtocol(self.groups)
        self.consumer = ConsumerGroupProtocol(self.groups, self.classic)
        self._kinds = (self.classic, self.consumer)
        self._kind_of_record = {number: kind for kind in self._kinds for number in kind.record_types}
        self._kind_of_timer: dict[str, ClassicGroupProtocol | ConsumerGroupProtocol] = {kind.name: kind for kind in self._kinds}

    # The host's calls

    def replay(self, key: bytes, value: bytes | None, producer_id: int = NO_PRODUCER_ID) -> None:
        record = decode_record(key, value)
        if record is None:
            # A type of a later version or another broker. It stays in the log.
            return
        record_type, decoded_key, decoded_value = record
        if record_type in _OFFSET_TYPES:
            self.offsets.replay(decoded_key, decoded_value, producer_id)
            if decoded_value is not None and decoded_key.group not in self.groups.by_id:
                self.classic.make_simple_group(decoded_key.group)
        else:
            self._kind_of_record[record_type].replay(record_type, decoded_key, decoded_value)

    def replay_message(self, message: object, producer_id: int = NO_PRODUCER_ID) -> None:
        """`Commits`, or (type, key, value) of another record. Nothing mutable of it is kept."""
        if isinstance(message, Commits):
            self.offsets.put(message, producer_id)
            if message.group not in self.groups.by_id:
                self.classic.make_simple_group(message.group)
            return
        assert isinstance(message, tuple)
        record_type, key, value = message
        self._kind_of_record[record_type].replay(record_type, key, value)

    def replay_end_transaction_marker(self, producer_id: int, *, commit: bool) -> None:
        self.offsets.end_transaction(producer_id, commit=commit)

    def on_loaded(self, now: Now) -> Decision:
        decision = Decision()
        for kind in self._kinds:
            decision.add(kind.on_loaded(now))
        return decision

    def on_timer(self, key: TimerKey, now: Now) -> Decision:
        return self._kind_of_timer[key[0]].on_timer(key, now)

    def settings_changed(self, config: GroupConfig, own: Mapping[str, GroupConfig]) -> None:
        """`config` for all groups, `own` by group id for groups with overrides."""
        self.groups.config = config
        self.groups.own_configs = own

    def topics_changed(self, topics: Topics, deleted: frozenset[str], now: Now) -> Decision:
        """Apply a new cluster image. The offsets of `deleted` topics are deleted."""
        self.groups.topics = topics
        decision = Decision()
        if deleted:
            decision.records += self.offsets.tombstones_of_topics(deleted)
        for kind in self._kinds:
            decision.add(kind.topics_changed(now))
        return decision

    # Membership, classic protocol

    def join_group(self, request: JoinGroupRequest, caller: Caller, token: Token, now: Now) -> Decision:
        group = self.groups.by_id.get(request.group_id)
        if isinstance(group, ConsumerGroup) and not group.is_empty:
            return self.consumer.classic_members.join_group(group, request, caller, token, now)
        return self.classic.join_group(request, caller, token, now)

    def sync_group(self, request: SyncGroupRequest, token: Token, now: Now) -> Decision:
        group = self.groups.by_id.get(request.group_id)
        if isinstance(group, ClassicGroup) and not group.is_empty:
            return self.classic.sync_group(group, request, token, now)
        if isinstance(group, ConsumerGroup) and not group.is_empty:
            return self.consumer.classic_members.sync_group(group, request, token, now)
        return replied(token, SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))

    def heartbeat(self, request: HeartbeatRequest, token: Token, now: Now) -> Decision:
        group = self.groups.by_id.get(request.group_id)
        if isinstance(group, ClassicGroup):
            return self.classic.heartbeat(group, request, token, now)
        if isinstance(group, ConsumerGroup):
            return self.consumer.classic_members.heartbeat(group, request, token, now)
        return replied(token, HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))

    def leave_group(self, request: LeaveGroupRequest, token: Token, now: Now) -> Decision:
        group = self.groups.by_id.get(request.group_id)
        if isinstance(group, ClassicGroup):
            return self.classic.leave_group(group, request, token, now)
        if isinstance(group, ConsumerGroup):
            return self.consumer.classic_members.leave_group(group, request, token, now)
        unknown = [
            MemberResponse(
                member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=ErrorCode.UNKNOWN_MEMBER_ID
            )
            for member in request.members
        ]
        return replied(token, LeaveGroupResponse(members=unknown))

    # Membership, consumer protocol

    def consumer_group_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller, token: Token, now: Now
    ) -> Decision:
        return self.consumer.heartbeat(request, caller, token, now)

    # Offsets

    def offset_commit(self, request: OffsetCommitRequest, version: int, token: Token, now: Now) -> Decision:
        """KafkaError if nothing is committed."""
        generation = request.generation_id_or_member_epoch
        group = self.groups.by_id.get(request.group_id)
        if group is not None:
            check = group.check_commit(request.member_id, request.group_instance_id, generation, version)
            if check is not None:
                self._check_partitions(check, request)
            group.extend_session(request.member_id, now.ms)
        elif generation >= 0:
            if version >= _GROUP_NOT_FOUND_FROM:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {request.group_id} does not exist")
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        groups = self.groups
        records, commits, response = self.offsets.commit(
            request, groups.topics, groups.config.offset_metadata_bytes_max, now.wall_ms
        )
        return Decision(records, [(token, response)], pure=True, message=commits)

    def txn_offset_commit(self, request: TxnOffsetCommitRequest, version: int, token: Token, now: Now) -> Decision:
        """Commit offsets in a transaction: they are pending until its marker. KafkaError if none is written."""
        generation = request.generation_id
        group = self.groups.by_id.get(request.group_id)
        if group is not None:
            try:
                check = group.check_commit(request.member_id, request.group_instance_id, generation, version, transactional=True)
                if check is not None:
                    self._check_partitions(check, request)
            except KafkaError as error:
                if error.code == ErrorCode.STALE_MEMBER_EPOCH:
                    raise KafkaError(ErrorCode.ILLEGAL_GENERATION, error.detail) from error
                raise
        elif generation >= 0:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        groups = self.groups
        records, commits, response = self.offsets.commit_in_transaction(
            request, groups.topics, groups.config.offset_metadata_bytes_max, now.wall_ms
        )
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        return Decision(records, [(token, response)], producer=producer, pure=True, message=commits)

    def _check_partitions(self, check: CommitCheck, request: OffsetCommitRequest | TxnOffsetCommitRequest) -> None:
        known = self.groups.topics.topics
        for topic in request.topics:
            topic_id = known[topic.name].topic_id if topic.name in known else ZERO_UUID
            for partition in topic.partitions:
                check(topic_id, topic.name, partition.partition_index)

    def offset_fetch(self, asked: OffsetFetchRequestGroup, *, require_stable: bool) -> OffsetFetchResponseGroup:
        """KafkaError if the member may not fetch offsets."""
        group_id = asked.group_id
        group = self.groups.by_id.get(group_id)
        if group is not None:
            group.check_fetch(asked.member_id, asked.member_epoch)
        topics = self.groups.topics
        if asked.topics is None:
            found = self.offsets.fetch_all(group_id, topics, require_stable=require_stable)
        else:
            found = self.offsets.fetch(group_id, asked.topics, topics, require_stable=require_stable)
        return OffsetFetchResponseGroup(group_id=group_id, topics=found)

    def offset_delete(self, request: OffsetDeleteRequest, token: Token, now: Now) -> Decision:
        """KafkaError if nothing is deleted."""
        group = self.groups.get(request.group_id)
        group.check_offset_delete()
        records, response = self.offsets.delete(request, group)
        return Decision(records, [(token, response)], pure=True)

    def expire_offsets(self, wall_ms: int) -> Decision:
        """Delete expired offsets, and empty groups without offsets (G09)."""
        decision = Decision(pure=True)
        retention_ms = self.groups.config.offsets_retention_ms
        for group in self.groups.by_id.values():
            records, none_left = self.offsets.expire(group, wall_ms, retention_ms)
            decision.records += records
            awaited = isinstance(group, ClassicGroup) and group.pending_join
            if none_left and group.is_empty and not awaited:
                decision.records += group.tombstones()
        return decision

    # Administration

    def describe_groups(self, group_ids: Sequence[str], version: int) -> list[DescribedGroup]:
        return [described_group(group_id, self.groups.by_id.get(group_id), version) for group_id in group_ids]

    def consumer_group_describe(self, group_ids: Sequence[str]) -> list[ConsumerDescribedGroup]:
        described = []
        for group_id in group_ids:
            try:
                described.append(self.consumer.describe(group_id))
            except KafkaError as error:
                described.append(ConsumerDescribedGroup(group_id=group_id, error_code=error.code, error_message=error.detail))
        return described

    def list_groups(self, states: Sequence[str], types: Sequence[str]) -> list[ListedGroup]:
        """Filters ignore case; an empty filter matches all."""
        wanted_states = {state.lower() for state in states}
        wanted_types = {kind.lower() for kind in types}
        return [
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state_name,
                group_type=group.type,
            )
            for group in self.groups.by_id.values()
            if (not wanted_states or group.state_name.lower() in wanted_states)
            and (not wanted_types or group.type in wanted_types)
        ]

    def delete_groups(self, group_ids: Sequence[str], token: Token, now: Now) -> Decision:
        """The response is a list of DeletableGroupResult."""
        decision = Decision(pure=True)
        results: list[DeletableGroupResult] = []
        for group_id in group_ids:
            try:
                group: Group = self.groups.get(group_id)
                group.check_delete()
            except KafkaError as error:
                results.append(DeletableGroupResult(group_id=group_id, error_code=error.code))
                continue
            decision.records += self.offsets.tombstones(group_id)
            decision.records += group.tombstones()
            results.append(DeletableGroupResult(group_id=group_id))
        return decision.reply(token, results)
