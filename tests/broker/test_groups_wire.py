"""Groups on the wire: every version of every group API on a real broker, and what happens around the shards (G01-G11)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.handlers import HANDLERS
from ottla.coordinator.shard import CancelTimer, Decision, Now, SetTimer
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.protocol.registry import API_BY_NAME

NO_DELAY = {"group_initial_rebalance_delay_ms": "0", "offsets_topic_num_partitions": "4"}
SUBSCRIPTION = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"


def versions_of(name: str) -> range:
    handler = HANDLERS[API_BY_NAME[name].key]
    return range(handler.min_version, handler.max_version + 1)


class Member:
    """A member of a classic group, one request at a time."""

    def __init__(self, connection: Any, group: str = "g", *, instance: str | None = None) -> None:
        self.connection = connection
        self.group = group
        self.instance = instance
        self.id = ""
        self.generation = -1

    async def join(self, version: int = 9) -> Any:
        while True:
            request = JoinGroupRequest(
                group_id=self.group,
                session_timeout_ms=10_000,
                rebalance_timeout_ms=30_000,
                member_id=self.id,
                group_instance_id=self.instance,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
            )
            response = await self.connection.call("join_group", version, request)
            if response.error_code != ErrorCode.MEMBER_ID_REQUIRED:
                break
            assert version >= 4
            self.id = response.member_id
        if not response.error_code:
            self.id, self.generation = response.member_id, response.generation_id
        return response

    async def sync(self, assignments: dict[str, bytes] | None = None, version: int = 5) -> Any:
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.id,
            group_instance_id=self.instance if version >= 3 else None,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[SyncGroupRequestAssignment(member_id=k, assignment=v) for k, v in (assignments or {}).items()],
        )
        return await self.connection.call("sync_group", version, request)

    async def heartbeat(self, version: int = 4) -> int:
        request = HeartbeatRequest(group_id=self.group, generation_id=self.generation, member_id=self.id)
        if version >= 3:
            request.group_instance_id = self.instance
        return int((await self.connection.call("heartbeat", version, request)).error_code)


async def find(stage: Any) -> Any:
    """A connection to the coordinator of all groups; the topic of offsets is there afterwards."""
    connection = await stage.connect()
    found = await connection.call("find_coordinator", 3, FindCoordinatorRequest(key="g"))
    assert (found.error_code, found.port) == (0, stage.port)
    return connection


def commit_request(offset: int, *, group: str = "g", partition: int = 0, topic: str = "t", **options: Any) -> Any:
    committed = OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata=options.pop("metadata", "note")
    )
    return OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=[committed])], **options)


async def committed(connection: Any, group: str = "g", partition: int = 0, topic: str = "t") -> int:
    asked = OffsetFetchRequestGroup(group_id=group, topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])])
    response = await connection.call("offset_fetch", 8, OffsetFetchRequest(groups=[asked]))
    assert response.groups[0].error_code == 0
    return int(response.groups[0].topics[0].partitions[0].committed_offset)


# FindCoordinator


@pytest.mark.parametrize("version", versions_of("find_coordinator"))
def test_f37_the_coordinator_is_found_and_its_topic_made(play: Any, version: int) -> None:
    async def case(stage: Any) -> None:
        connection = await stage.connect()
        request = FindCoordinatorRequest(key="g") if version < 4 else FindCoordinatorRequest(coordinator_keys=["g", "h"])
        first, second = await asyncio.gather(
            *(c.call("find_coordinator", version, request) for c in (connection, await stage.connect()))
        )
        assert first == second
        answers = [first] if version < 4 else first.coordinators
        assert [(answer.error_code, answer.node_id, answer.host, answer.port) for answer in answers] == [
            (0, 1, "127.0.0.1", stage.port)
        ] * len(answers)
        topic = stage.broker.image.topics["__consumer_offsets"]
        assert len(topic.partitions) == 50
        assert topic.config["cleanup.policy"] == "compact"
        assert topic.config["segment.bytes"] == "104857600"
        assert topic.internal

    play(case)


def test_without_the_topic_of_offsets_nobody_coordinates(play: Any) -> None:
    async def case(stage: Any) -> None:
        connection = await stage.connect()
        member = Member(connection)
        assert (await member.join()).error_code == ErrorCode.NOT_COORDINATOR
        assert await member.heartbeat() == ErrorCode.NOT_COORDINATOR
        assert (await member.sync()).error_code == ErrorCode.NOT_COORDINATOR
        listed = await connection.call("list_groups", 4, ListGroupsRequest())
        assert (listed.error_code, listed.groups) == (0, [])
        described = await connection.call("describe_groups", 5, DescribeGroupsRequest(groups=["g"]))
        assert described.groups[0].error_code == ErrorCode.NOT_COORDINATOR
        deleted = await connection.call("delete_groups", 2, DeleteGroupsRequest(groups_names=["g"]))
        assert deleted.results[0].error_code == ErrorCode.NOT_COORDINATOR

    play(case)


# Membership


@pytest.mark.parametrize("protocols", ["classic,consumer", "classic"])
def test_what_is_wrong_with_a_heartbeat_is_told_before_who_coordinates(play: Any, protocols: str) -> None:
    async def case(stage: Any) -> None:
        connection = await stage.connect()
        joins = {"member_id": "m", "rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["t"], "topic_partitions": []}
        codes = []
        for request in (ConsumerGroupHeartbeatRequest(group_id="g", **joins), ConsumerGroupHeartbeatRequest(group_id="g")):  # type: ignore[arg-type]
            codes.append((await connection.call("consumer_group_heartbeat", 1, request)).error_code)
        described = await connection.call("consumer_group_describe", 1, ConsumerGroupDescribeRequest(group_ids=["g"]))
        codes.append(described.groups[0].error_code)
        if protocols == "classic":
            assert codes == [ErrorCode.UNSUPPORTED_VERSION] * 3
        else:
            assert codes == [ErrorCode.NOT_COORDINATOR, ErrorCode.INVALID_REQUEST, ErrorCode.NOT_COORDINATOR]

    play(case, group_coordinator_rebalance_protocols=protocols)


@pytest.mark.parametrize("version", versions_of("join_group"))
def test_g01_g02_two_members_in_every_version(play: Any, version: int) -> None:
    """JoinGroup, SyncGroup, Heartbeat, LeaveGroup, each in this version or the nearest it has."""

    def nearest(name: str) -> int:
        served = versions_of(name)
        return min(max(version, served.start), served.stop - 1)

    async def case(stage: Any) -> None:
        await stage.topic(partitions=2)
        await find(stage)
        first, second = Member(await stage.connect()), Member(await stage.connect())
        joined = await first.join(version)
        assert (joined.error_code, joined.generation_id, joined.leader) == (0, 1, first.id)
        assert (await first.sync({first.id: b"all"}, nearest("sync_group"))).assignment == b"all"
        assert await first.heartbeat(nearest("heartbeat")) == 0

        joining = asyncio.ensure_future(second.join(version))
        while await first.heartbeat(nearest("heartbeat")) != ErrorCode.REBALANCE_IN_PROGRESS:
            await asyncio.sleep(0.01)
        again = await first.join(version)
        other = await joining
        assert (again.generation_id, other.generation_id) == (2, 2)
        assert {bytes(member.metadata) for member in again.members} == {SUBSCRIPTION}
        assert other.members == []
        waiting = asyncio.ensure_future(second.sync(version=nearest("sync_group")))
        led = await first.sync({first.id: b"one", second.id: bytes(range(256))}, nearest("sync_group"))
        assert (led.assignment, (await waiting).assignment) == (b"one", bytes(range(256)))

        leave = nearest("leave_group")
        request = LeaveGroupRequest(group_id="g", member_id=second.id)
        if leave >= 3:
            request = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=second.id)])
        assert (await first.connection.call("leave_group", leave, request)).error_code == 0
        assert await first.heartbeat(nearest("heartbeat")) == ErrorCode.REBALANCE_IN_PROGRESS
        gone = await first.connection.call("leave_group", leave, request)
        assert (gone.error_code if leave < 3 else gone.members[0].error_code) == ErrorCode.UNKNOWN_MEMBER_ID

    play(case, **NO_DELAY)


def test_g02_errors_on_the_wire(play: Any) -> None:
    async def case(stage: Any) -> None:
        member = Member(await find(stage))
        await member.join()
        await member.sync({member.id: b""})
        member.generation += 1
        assert await member.heartbeat() == ErrorCode.ILLEGAL_GENERATION
        assert (await member.sync()).error_code == ErrorCode.ILLEGAL_GENERATION
        member.id = "nobody"
        assert await member.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
        assert (await member.join()).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        for api, request in (
            ("heartbeat", HeartbeatRequest(group_id="")),
            ("sync_group", SyncGroupRequest(group_id="")),
            ("leave_group", LeaveGroupRequest(group_id="")),
            ("join_group", JoinGroupRequest(group_id="", session_timeout_ms=10_000)),
        ):
            answer = await member.connection.call(api, versions_of(api).stop - 1, request)
            assert answer.error_code == ErrorCode.INVALID_GROUP_ID, api

    play(case, **NO_DELAY)


@pytest.mark.parametrize("version", [2, 9, 10])
def test_a_refused_commit_names_all_that_was_asked_also_what_is_unknown(play: Any, version: int) -> None:
    """Found by the simulator: a topic was deleted while somebody who was no member committed to it and to another."""

    async def case(stage: Any) -> None:
        await stage.topic()
        connection = await find(stage)
        request = commit_request(1, generation_id_or_member_epoch=3, member_id="nobody")
        request.topics[0].topic_id = stage.broker.image.topics["t"].topic_id
        request.topics[0].partitions.append(OffsetCommitRequestPartition(partition_index=7, committed_offset=1))
        unknown = commit_request(1, topic="gone").topics[0]
        unknown.topic_id = bytes(range(16))
        request.topics.append(unknown)
        answer = await connection.call("offset_commit", version, request)
        found = [(each.partition_index, each.error_code) for topic in answer.topics for each in topic.partitions]
        refused = ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION
        absent = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        # As Apache Kafka: what does not exist is not the group's to refuse.
        assert found == [(0, refused), (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (0, absent)]

    play(case)


def test_g06_a_member_whose_connection_breaks_goes_by_its_session_only(play: Any) -> None:
    async def case(stage: Any) -> None:
        await find(stage)
        first, second = Member(await stage.connect()), Member(await stage.connect())
        await first.join()
        joining = asyncio.ensure_future(second.join())
        while await first.heartbeat() != ErrorCode.REBALANCE_IN_PROGRESS:
            await asyncio.sleep(0.01)
        await asyncio.gather(first.join(), joining)
        parked = asyncio.ensure_future(second.sync())
        await asyncio.sleep(0)
        second.connection.close()
        with pytest.raises(ConnectionError):
            await parked
        assert (await first.sync({first.id: b"1", second.id: b"2"})).error_code == 0
        described = await first.connection.call("describe_groups", 5, DescribeGroupsRequest(groups=["g"]))
        assert {member.member_id for member in described.groups[0].members} == {first.id, second.id}
        second.connection = await stage.connect()
        assert (await second.sync()).assignment == b"2"

    play(case, **NO_DELAY)


# Offsets


@pytest.mark.parametrize("version", versions_of("offset_commit"))
def test_g08_offsets_are_committed_in_every_version(play: Any, version: int) -> None:
    async def case(stage: Any) -> None:
        await stage.topic(partitions=2)
        connection = await find(stage)
        topic_id = stage.broker.image.topics["t"].topic_id
        request = commit_request(7)
        bad = OffsetCommitRequestPartition(partition_index=9, committed_offset=1, committed_metadata="")
        request.topics[0].partitions.append(bad)
        request.topics[0].topic_id = topic_id
        request.topics.append(OffsetCommitRequestTopic(name="none", topic_id=b"?" * 16, partitions=[bad]))
        response = await connection.call("offset_commit", version, request)
        known, unknown = response.topics
        assert {p.partition_index: p.error_code for p in known.partitions} == {
            0: 0,
            9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        expected = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert [p.error_code for p in unknown.partitions] == [expected]
        assert (known.topic_id if version >= 10 else known.name) == (topic_id if version >= 10 else "t")
        assert await committed(connection) == 7

    play(case, **NO_DELAY)


@pytest.mark.parametrize("version", versions_of("offset_fetch"))
def test_g08_offsets_are_fetched_in_every_version(play: Any, version: int) -> None:
    async def case(stage: Any) -> None:
        await stage.topic(partitions=2)
        connection = await find(stage)
        topic_id = stage.broker.image.topics["t"].topic_id
        await connection.call("offset_commit", 8, commit_request(7, metadata="ein Wort"))
        if version < 8:
            topic = OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])
            response = await connection.call("offset_fetch", version, OffsetFetchRequest(group_id="g", topics=[topic]))
            topics = response.topics
            assert response.error_code == 0
        else:
            asked = OffsetFetchRequestTopics(name="t", topic_id=topic_id, partition_indexes=[0, 1])
            groups = [OffsetFetchRequestGroup(group_id=name, topics=[asked]) for name in ("g", "none")]
            response = await connection.call("offset_fetch", version, OffsetFetchRequest(groups=groups, require_stable=True))
            assert [(group.group_id, group.error_code) for group in response.groups] == [("g", 0), ("none", 0)]
            assert [p.committed_offset for p in response.groups[1].topics[0].partitions] == [-1, -1]
            topics = response.groups[0].topics
        found = [(p.partition_index, p.committed_offset, p.metadata, p.error_code) for p in topics[0].partitions]
        assert found == [(0, 7, "ein Wort", 0), (1, -1, "", 0)]
        if version >= 2:
            everything = (
                OffsetFetchRequest(group_id="g", topics=None)
                if version < 8
                else OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
            )
            response = await connection.call("offset_fetch", version, everything)
            topics = response.topics if version < 8 else response.groups[0].topics
            assert [(p.partition_index, p.committed_offset) for topic in topics for p in topic.partitions] == [(0, 7)]
            if version >= 10:
                assert topics[0].topic_id == topic_id

    play(case, **NO_DELAY)


def test_commit_is_answered_without_a_task(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        connection = await find(stage)
        await connection.call("offset_commit", 8, commit_request(1))
        made: list[Any] = []
        loop = asyncio.get_running_loop()

        def make(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
            made.append(coroutine)
            return asyncio.Task(coroutine, loop=loop, **options)

        loop.set_task_factory(make)
        try:
            reply = connection.send("offset_commit", 8, commit_request(2))
            beat = connection.send("heartbeat", 4, HeartbeatRequest(group_id="g", member_id="m"))
            await reply
            await beat
        finally:
            loop.set_task_factory(None)
        assert made == []

    play(case, **NO_DELAY)


# Administration


@pytest.mark.parametrize("version", versions_of("list_groups"))
def test_groups_are_listed(play: Any, version: int) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        connection = await find(stage)
        for group in ("a", "b", "c"):
            await connection.call("offset_commit", 8, commit_request(1, group=group))
        member = Member(connection, "live")
        await member.join()
        await member.sync({})
        listed = await connection.call("list_groups", version, ListGroupsRequest())
        assert {group.group_id for group in listed.groups} == {"a", "b", "c", "live"}
        if version >= 4:
            listed = await connection.call("list_groups", version, ListGroupsRequest(states_filter=["Stable"]))
            assert [(group.group_id, group.protocol_type, group.group_state) for group in listed.groups] == [
                ("live", "consumer", "Stable")
            ]
        if version >= 5:
            listed = await connection.call("list_groups", version, ListGroupsRequest(types_filter=["consumer"]))
            assert listed.groups == []

    play(case, **NO_DELAY)


@pytest.mark.parametrize("version", versions_of("describe_groups"))
def test_groups_are_described(play: Any, version: int) -> None:
    async def case(stage: Any) -> None:
        member = Member(await find(stage))
        await member.join()
        await member.sync({member.id: b"mine"})
        request = DescribeGroupsRequest(groups=["g", "none"], include_authorized_operations=version >= 3)
        found, missing = (await member.connection.call("describe_groups", version, request)).groups
        assert (found.error_code, found.group_state, found.protocol_data) == (0, "Stable", "range")
        [described] = found.members
        assert (described.member_id, described.client_id, described.client_host) == (member.id, "ottla", "/127.0.0.1")
        assert (bytes(described.member_metadata), bytes(described.member_assignment)) == (SUBSCRIPTION, b"mine")
        assert missing.group_state == "Dead"
        assert missing.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)
        if version >= 3:
            assert found.authorized_operations > 0

    play(case, **NO_DELAY)


@pytest.mark.parametrize("version", versions_of("delete_groups"))
def test_g10_groups_are_deleted(play: Any, version: int) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        connection = await find(stage)
        member = Member(connection, "live")
        await member.join()
        for group in ("a", "b"):
            await connection.call("offset_commit", 8, commit_request(1, group=group))
        request = DeleteGroupsRequest(groups_names=["a", "b", "live", "none", "a"])
        response = await connection.call("delete_groups", version, request)
        assert {result.group_id: result.error_code for result in response.results} == {
            "a": 0,
            "b": 0,
            "live": ErrorCode.NON_EMPTY_GROUP,
            "none": ErrorCode.GROUP_ID_NOT_FOUND,
        }
        assert await committed(connection, "a") == -1

    play(case, **NO_DELAY)


def test_g10_offsets_are_deleted(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic(partitions=2)
        await stage.topic("u")
        connection = await find(stage)
        member = Member(connection)
        await member.join()
        await member.sync({})
        for topic in ("t", "u"):
            request = commit_request(3, topic=topic, member_id=member.id, generation_id_or_member_epoch=1)
            await connection.call("offset_commit", 8, request)
        request = OffsetDeleteRequest(
            group_id="g",
            topics=[
                OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(partition_index=n) for n in (0, 5)])
                for name in ("t", "u", "none")
            ],
        )
        response = await connection.call("offset_delete", 0, request)
        found = {(topic.name, p.partition_index): p.error_code for topic in response.topics for p in topic.partitions}
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert found == {
            ("t", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
            ("t", 5): missing,
            ("u", 0): 0,
            ("u", 5): missing,
            ("none", 0): missing,
            ("none", 5): missing,
        }
        assert (await committed(connection), await committed(connection, topic="u")) == (3, -1)
        unknown = await connection.call("offset_delete", 0, OffsetDeleteRequest(group_id="nobody"))
        assert unknown.error_code == ErrorCode.GROUP_ID_NOT_FOUND

    play(case, **NO_DELAY)


def test_offsets_of_a_deleted_topic_are_gone(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        connection = await find(stage)
        await connection.call("offset_commit", 8, commit_request(5))
        await stage.broker.controller.topic_requests.delete(["t"])
        assert await committed(connection) == -1
        await stage.topic()
        assert await committed(connection) == -1

    play(case, **NO_DELAY)


# Restarts and failures


def test_g07_g11_a_restarted_broker_knows_its_groups(play: Any) -> None:
    kept: dict[str, Any] = {}

    async def before(stage: Any) -> None:
        await stage.topic()
        connection = await find(stage)
        member = Member(connection)
        await member.join()
        await member.sync({member.id: b"mine"})
        for offset in range(20):
            request = commit_request(offset, member_id=member.id, generation_id_or_member_epoch=1)
            await connection.call("offset_commit", 8, request)
        for number in range(8):
            await connection.call("offset_commit", 8, commit_request(number, group=f"simple-{number}"))
        await connection.call("delete_groups", 2, DeleteGroupsRequest(groups_names=["simple-0"]))
        kept["member"] = member

    async def after(stage: Any) -> None:
        member = kept["member"]
        connection = member.connection = await stage.connect()
        while await committed_or_none(connection) is None:
            await asyncio.sleep(0.01)
        assert await member.heartbeat() == 0, "no rebalance"
        assert (await member.sync()).assignment == b"mine"
        assert await committed(connection) == 19
        assert [await committed(connection, f"simple-{number}") for number in range(8)] == [-1, *range(1, 8)]
        request = commit_request(20, member_id=member.id, generation_id_or_member_epoch=1)
        assert (await connection.call("offset_commit", 8, request)).topics[0].partitions[0].error_code == 0

    async def committed_or_none(connection: Any) -> int | None:
        try:
            return await committed(connection)
        except AssertionError:
            return None

    play(before, **NO_DELAY)
    play(after, **NO_DELAY)


def test_a_shard_that_is_being_loaded_says_so(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        connection = await find(stage)
        await connection.call("offset_commit", 8, commit_request(5))
        shards = stage.broker.groups.shards
        hosted, _ = shards.find("g")
        shard, hosted.shard = hosted.shard, None
        member = Member(connection)
        assert (await member.join()).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert await member.heartbeat() == 0, "it is left in peace"
        listed = await connection.call("list_groups", 4, ListGroupsRequest())
        assert listed.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        answer = await connection.call("offset_commit", 8, commit_request(6))
        assert answer.topics[0].partitions[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        for version in (1, 2, 7):
            topic = OffsetFetchRequestTopic(name="t", partition_indexes=[0])
            fetched = await connection.call("offset_fetch", version, OffsetFetchRequest(group_id="g", topics=[topic]))
            code = fetched.error_code if version >= 2 else fetched.topics[0].partitions[0].error_code
            assert code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        hosted.shard = shard
        assert await committed(connection) == 5

    play(case, **NO_DELAY)


def test_if_a_record_cannot_be_written_those_who_wait_hear_it_and_the_log_counts(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        await find(stage)
        first, second = Member(await stage.connect()), Member(await stage.connect())
        await first.join()
        await first.sync({first.id: b"kept"})
        joining = asyncio.ensure_future(second.join())
        while await first.heartbeat() != ErrorCode.REBALANCE_IN_PROGRESS:
            await asyncio.sleep(0.01)
        await asyncio.gather(first.join(), joining)
        waiting = asyncio.ensure_future(second.sync())
        for _ in range(3):
            await first.heartbeat()  # what comes after it is answered: it waits
        hosted, _ = stage.broker.groups.shards.find("g")
        partition = stage.broker.partitions.get(hosted.topic_partition)
        in_sync, partition.isr = partition.isr, ()
        refused = await first.sync({first.id: b"1", second.id: b"2"})
        assert refused.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await waiting).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        answer = await first.connection.call("offset_commit", 8, commit_request(1, group="g2"))
        assert answer.topics[0].partitions[0].error_code in (0, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        partition.isr = in_sync
        while await first.heartbeat() != ErrorCode.ILLEGAL_GENERATION:
            await asyncio.sleep(0.01)
        first.generation = 1
        assert await first.heartbeat() == 0, "the group is what the log says"
        assert (await first.sync()).assignment == b"kept"

    play(case, **NO_DELAY)


def test_a_commit_that_cannot_be_written_leaves_the_group_alone(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        member = Member(await find(stage))
        await member.join()
        await member.sync({member.id: b"kept"})
        hosted, shard = stage.broker.groups.shards.find("g")
        partition = stage.broker.partitions.get(hosted.topic_partition)
        in_sync, partition.isr = partition.isr, ()
        request = commit_request(1, member_id=member.id, generation_id_or_member_epoch=1)
        answer = await member.connection.call("offset_commit", 8, request)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        partition.isr = in_sync
        assert stage.broker.groups.shards.find("g") == (hosted, shard)
        assert await member.heartbeat() == 0
        assert await committed(member.connection) == -1

    play(case, **NO_DELAY)


def test_replies_wait_until_the_records_are_replicated(play: Any) -> None:
    """With a follower in sync that has not fetched yet, a commit and a fetch behind it wait for the high watermark."""

    async def case(stage: Any) -> None:
        await stage.topic()
        connection, reader = await find(stage), await stage.connect()
        hosted, _ = stage.broker.groups.shards.find("g")
        partition = stage.broker.partitions.get(hosted.topic_partition)
        partition.isr = (1, 2)
        commit = connection.send("offset_commit", 8, commit_request(5))
        await (await stage.connect()).call("list_groups", 4, ListGroupsRequest())
        read = asyncio.ensure_future(committed(reader))
        await asyncio.sleep(0.05)
        assert not commit.done()
        assert not read.done()
        partition.log.high_watermark = partition.log.log_end_offset
        stage.broker.purgatory.wake(partition.topic_partition)
        assert (await commit).topics[0].partitions[0].error_code == 0
        assert await read == 5
        partition.isr = (1,)

    play(case, **NO_DELAY)


def test_a_commit_that_is_not_replicated_in_time_fails(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        connection = await find(stage)
        hosted, _ = stage.broker.groups.shards.find("g")
        partition = stage.broker.partitions.get(hosted.topic_partition)
        partition.isr = (1, 2)
        answer = await connection.call("offset_commit", 8, commit_request(5))
        assert answer.topics[0].partitions[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        partition.isr = (1,)

    play(case, offsets_commit_timeout_ms="50", **NO_DELAY)


def test_a_shard_goes_with_its_leadership(play: Any) -> None:  # G07
    async def case(stage: Any) -> None:
        await find(stage)
        first, second = Member(await stage.connect()), Member(await stage.connect())
        await first.join()
        parked = asyncio.ensure_future(second.join())
        while await first.heartbeat() != ErrorCode.REBALANCE_IN_PROGRESS:
            await asyncio.sleep(0.01)
        shards = stage.broker.groups.shards
        hosted, _ = shards.find("g")
        shards._unload(hosted, KafkaError(ErrorCode.NOT_COORDINATOR))
        assert (await parked).error_code == ErrorCode.NOT_COORDINATOR
        assert await first.heartbeat() == ErrorCode.NOT_COORDINATOR

    play(case, **NO_DELAY)


def test_many_tombstones_are_cut_into_batches(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic(partitions=3000)
        connection = await find(stage)
        partitions = [
            OffsetCommitRequestPartition(partition_index=n, committed_offset=n, committed_metadata="") for n in range(3000)
        ]
        hosted, shard = stage.broker.groups.shards.find("g")
        for start in range(0, 3000, 100):
            topic = OffsetCommitRequestTopic(name="t", partitions=partitions[start : start + 100])
            await connection.call("offset_commit", 8, OffsetCommitRequest(group_id="g", topics=[topic]))
        log = stage.broker.partitions.get(hosted.topic_partition).log
        await stage.broker.controller.config_requests.alter([])
        partition = stage.broker.partitions.get(hosted.topic_partition)
        partition.rules = type(partition.rules)(
            **{name: getattr(partition.rules, name) for name in partition.rules.__dataclass_fields__}
            | {"max_message_bytes": 20_000}
        )
        before = log.log_end_offset
        deleted = await connection.call("delete_groups", 2, DeleteGroupsRequest(groups_names=["g"]))
        assert deleted.results[0].error_code == 0
        assert log.log_end_offset == before + 3001
        assert shard.groups.by_id == {}

    play(case, **NO_DELAY)


def test_timers_that_are_due_already_fire_too(play: Any) -> None:
    """uvloop gives another kind of handle for a time that has passed: a timer set meanwhile must not stumble over it."""

    async def case(stage: Any) -> None:
        await find(stage)
        shards = stage.broker.groups.shards
        hosted, _ = shards.find("g")
        fired: list[Any] = []
        all_fired = asyncio.get_running_loop().create_future()

        def on_timer(key: Any, now: Now) -> Decision:
            fired.append(key)
            if len(fired) == 4:
                all_fired.set_result(None)
            return Decision(timers=[SetTimer(("classic", "again", "g"), now.ms - 1)]) if len(fired) == 1 else Decision()

        hosted.shard = SimpleNamespace(on_timer=on_timer)
        now_ms = shards.now().ms
        dues = [("a", now_ms - 1000), ("b", now_ms - 2000), ("gone", now_ms - 3000), ("c", now_ms + 20)]
        hosted.perform(Decision(timers=[SetTimer(("classic", name, "g"), due_ms) for name, due_ms in dues]))
        hosted.perform(Decision(timers=[CancelTimer(("classic", "gone", "g"))]))
        await asyncio.wait_for(all_fired, 60)
        assert sorted(key[1] for key in fired) == ["a", "again", "b", "c"]
        assert hosted.timers == {}

    play(case, **NO_DELAY)


class WrongByTenDays:
    """A clock that somebody has just set ahead."""

    def __init__(self, right: Any) -> None:
        self._right = right

    def now_ms(self) -> int:
        return int(self._right.now_ms()) + 10 * 86_400_000

    def monotonic(self) -> float:
        return float(self._right.monotonic())


def test_a_clock_that_jumps_ahead_expires_no_offsets(play: Any) -> None:
    """By more than offsets are kept."""

    async def case(stage: Any) -> None:
        await stage.topic()
        connection = await find(stage)
        await connection.call("offset_commit", 8, commit_request(5))
        broker = stage.broker
        wrong = WrongByTenDays(broker.world.clock)
        broker.groups.shards._clock = broker.clock_watch._clock = wrong
        broker.groups._expire_offsets()
        assert await committed(connection) == 5
        broker.groups.shards._clock = broker.clock_watch._clock = broker.world.clock
        broker.groups._expire_offsets()
        assert await committed(connection) == 5

    play(case, **NO_DELAY)


def test_g09_expired_offsets_are_looked_for(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        connection = await find(stage)
        await connection.call("offset_commit", 4, commit_request(5, retention_time_ms=1))
        while await committed(connection) != -1:
            await asyncio.sleep(0.02)
        listed = await connection.call("list_groups", 4, ListGroupsRequest())
        assert listed.groups == []

    play(case, offsets_retention_check_interval_ms="20", **NO_DELAY)
