"""What a client sees of lists, fetch sessions and topics named by id, and what the audit log tells (MX01, AC10)."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.network.connection import Connection
from ottla.errors import ErrorCode
from ottla.protocol.headers import encode_request
from ottla.protocol.registry import API_BY_NAME
from ottla.runtime.loop import run
from ottla.security.acl import (
    ALL,
    ALLOW,
    ALTER,
    CLUSTER,
    CREATE,
    CREATE_TOKENS,
    DELEGATION_TOKEN,
    DELETE,
    DENY,
    DESCRIBE,
    DESCRIBE_TOKENS,
    GROUP,
    LITERAL,
    PREFIXED,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    USER,
    WRITE,
    AclEntry,
    ResourcePattern,
)
from tests.broker.test_authorization import ALICE, Asking, asking
from tests.kit.authorization_cases import CASES, T, message

AUDIT = "kafka.authorizer.logger"


def allow(kind: int, name: str, operation: int) -> tuple[ResourcePattern, AclEntry]:
    return ResourcePattern(kind, name), AclEntry(ALICE, "*", operation, ALLOW)


def play(tmp_path: Path, test: Any) -> None:
    async def in_broker() -> None:
        async with asking(tmp_path) as broker:
            await test(broker)

    run(in_broker())


def fetch_request(session_id: int = 0, epoch: int = 0, **topics: int) -> Any:
    named = [
        message(
            "fetch",
            "FetchTopic",
            topic=name.replace("_", "-"),
            partitions=[message("fetch", "FetchPartition", partition=0, fetch_offset=offset, partition_max_bytes=1000)],
        )
        for name, offset in topics.items()
    ]
    return message(
        "fetch",
        "FetchRequest",
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=100_000,
        session_id=session_id,
        session_epoch=epoch,
        topics=named,
    )


def fetched(response: Any) -> dict[str, int]:
    return {topic.topic: each.error_code for topic in response.responses for each in topic.partitions}


def test_a_fetch_session_keeps_denied_partitions_and_serves_them_when_they_are_allowed(tmp_path: Path) -> None:
    async def test(broker: Asking) -> None:
        client = broker.client()
        broker.set_acls([allow(TOPIC, "t-exists", READ)])
        first = await broker.ask(client, "fetch", 11, fetch_request(t_exists=0, t_other=0))
        assert fetched(first) == {"t-exists": 0, "t-other": T}
        again = await broker.ask(client, "fetch", 11, fetch_request(first.session_id, 1))
        assert fetched(again) == {"t-other": T}
        broker.set_acls([allow(TOPIC, "t-exists", READ), allow(TOPIC, "t-other", READ)])
        granted = await broker.ask(client, "fetch", 11, fetch_request(first.session_id, 2))
        assert fetched(granted) == {"t-other": 0}
        broker.set_acls([])
        taken = await broker.ask(client, "fetch", 11, fetch_request(first.session_id, 3))
        assert fetched(taken) == {"t-exists": T, "t-other": T}

    play(tmp_path, test)


def test_a_partition_added_to_a_session_is_authorized_with_every_later_fetch(tmp_path: Path) -> None:
    async def test(broker: Asking) -> None:
        client = broker.client()
        broker.set_acls([allow(TOPIC, "t-exists", READ)])
        first = await broker.ask(client, "fetch", 11, fetch_request(t_exists=0))
        for epoch in (1, 2):  # the session is known to be readable
            assert T not in fetched(await broker.ask(client, "fetch", 11, fetch_request(first.session_id, epoch))).values()
        added = await broker.ask(client, "fetch", 11, fetch_request(first.session_id, 3, t_other=0))
        assert fetched(added)["t-other"] == T
        assert fetched(await broker.ask(client, "fetch", 11, fetch_request(first.session_id, 4))) == {"t-other": T}

    play(tmp_path, test)


def test_another_principal_does_not_read_by_a_session_it_found(tmp_path: Path) -> None:
    async def test(broker: Asking) -> None:
        broker.set_acls([allow(TOPIC, "t-exists", READ)])
        alice = broker.client()
        first = await broker.ask(alice, "fetch", 11, fetch_request(t_exists=0))
        await broker.ask(alice, "fetch", 11, fetch_request(first.session_id, 1))
        stolen = await broker.ask(broker.client("User:bob"), "fetch", 11, fetch_request(first.session_id, 2))
        assert fetched(stolen) == {"t-exists": T}

    play(tmp_path, test)


def test_lists_have_what_may_be_described(tmp_path: Path) -> None:
    async def names(broker: Asking, client: Connection) -> tuple[set[str], set[str], set[str]]:
        groups = await broker.ask(client, "list_groups", 4, message("list_groups", "ListGroupsRequest"))
        listed = await broker.ask(client, "list_transactions", 1, message("list_transactions", "ListTransactionsRequest"))
        topics = await broker.ask(client, "metadata", 9, message("metadata", "MetadataRequest", topics=None))
        paged = await broker.ask(
            client, "describe_topic_partitions", 0, message("describe_topic_partitions", "DescribeTopicPartitionsRequest")
        )
        assert {topic.name for topic in topics.topics} == {topic.name for topic in paged.topics}
        return (
            {group.group_id for group in groups.groups},
            {each.transactional_id for each in listed.transaction_states},
            {topic.name for topic in topics.topics},
        )

    async def test(broker: Asking) -> None:
        everything = {"g-exists"}, {"x-exists"}, {"t-exists", "t-other", "__consumer_offsets", "__transaction_state"}
        assert await names(broker, broker.client("User:admin")) == everything
        broker.set_acls([])
        assert await names(broker, broker.client()) == (set(), set(), set())
        broker.set_acls([allow(GROUP, "g-exists", READ), allow(TOPIC, "t-other", WRITE), allow(TRANSACTIONAL_ID, "*", DESCRIBE)])
        assert await names(broker, broker.client()) == ({"g-exists"}, {"x-exists"}, {"t-other"})
        broker.set_acls([allow(CLUSTER, "kafka-cluster", DESCRIBE)])
        assert (await names(broker, broker.client()))[0] == {"g-exists"}

    play(tmp_path, test)


@pytest.mark.parametrize("version", [2, 5, 9])
def test_all_offsets_of_a_group_are_those_of_topics_that_may_be_described(tmp_path: Path, version: int) -> None:
    def asked() -> Any:
        if version < 8:
            return message("offset_fetch", "OffsetFetchRequest", group_id="g-exists", topics=None)
        group = message("offset_fetch", "OffsetFetchRequestGroup", group_id="g-exists", topics=None)
        return message("offset_fetch", "OffsetFetchRequest", groups=[group])

    def topics(response: Any) -> list[str]:
        return [topic.name for topic in (response.groups[0] if version >= 8 else response).topics]

    async def test(broker: Asking) -> None:
        broker.set_acls([allow(GROUP, "g-exists", DESCRIBE)])
        assert topics(await broker.ask(broker.client(), "offset_fetch", version, asked())) == []
        broker.set_acls([allow(GROUP, "g-exists", DESCRIBE), allow(TOPIC, "t-exists", DESCRIBE)])
        assert topics(await broker.ask(broker.client(), "offset_fetch", version, asked())) == ["t-exists"]

    play(tmp_path, test)


def test_a_topic_named_by_id_keeps_its_name(tmp_path: Path) -> None:
    async def test(broker: Asking) -> None:
        topic_id = broker.broker.image.topics["t-exists"].topic_id
        client = broker.client()
        by_id = message("metadata", "MetadataRequestTopic", topic_id=topic_id, name=None)
        asked = message("metadata", "MetadataRequest", topics=[by_id])
        broker.set_acls([])
        (told,) = (await broker.ask(client, "metadata", 12, asked)).topics
        assert (told.error_code, told.name, told.topic_id, told.partitions) == (T, None, topic_id, [])
        state = message("delete_topics", "DeleteTopicState", topic_id=topic_id)
        delete = message("delete_topics", "DeleteTopicsRequest", topics=[state], timeout_ms=1000)
        (gone,) = (await broker.ask(client, "delete_topics", 6, delete)).responses
        assert (gone.error_code, gone.name, gone.topic_id) == (T, None, topic_id)
        broker.set_acls([allow(TOPIC, "t-exists", DESCRIBE)])
        (gone,) = (await broker.ask(client, "delete_topics", 6, delete)).responses
        assert (gone.error_code, gone.name, gone.topic_id) == (T, "t-exists", topic_id)
        assert "t-exists" in broker.broker.image.topics

    play(tmp_path, test)


def test_a_topic_is_created_by_metadata_only_with_create(tmp_path: Path) -> None:
    async def test(broker: Asking) -> None:
        topics = [message("metadata", "MetadataRequestTopic", name="fresh")]
        asked = message("metadata", "MetadataRequest", topics=topics, allow_auto_topic_creation=True)
        broker.set_acls([allow(TOPIC, "fresh", READ)])
        (told,) = (await broker.ask(broker.client(), "metadata", 9, asked)).topics
        assert told.error_code == T
        assert "fresh" not in broker.broker.image.topics
        broker.set_acls([allow(TOPIC, "fresh", READ), allow(CLUSTER, "kafka-cluster", CREATE)])
        (told,) = (await broker.ask(broker.client(), "metadata", 9, asked)).topics
        assert told.error_code == 0

    play(tmp_path, test)


def test_configs_of_a_new_topic_are_told_with_describe_configs_only(tmp_path: Path) -> None:
    async def test(broker: Asking) -> None:
        topic = message("create_topics", "CreatableTopic", name="fresh", num_partitions=2, replication_factor=1)
        other = message("create_topics", "CreatableTopic", name="forbidden", num_partitions=2, replication_factor=1)
        asked = message("create_topics", "CreateTopicsRequest", topics=[topic, other], timeout_ms=1000)
        broker.set_acls([allow(TOPIC, "fresh", CREATE)])
        fresh, forbidden = (await broker.ask(broker.client(), "create_topics", 7, asked)).topics
        assert (fresh.error_code, fresh.topic_config_error_code, fresh.num_partitions, fresh.configs) == (0, T, -1, [])
        assert (forbidden.name, forbidden.error_code) == ("forbidden", T)
        assert "fresh" in broker.broker.image.topics
        assert "forbidden" not in broker.broker.image.topics

    play(tmp_path, test)


def test_of_a_produce_request_the_allowed_topics_are_written(tmp_path: Path) -> None:
    async def test(broker: Asking) -> None:
        (case,) = [case for case in CASES if case.id == "produce"]
        broker.set_acls([allow(TOPIC, "t-other", WRITE)])
        for acks in (1, 0):
            request: Any = case.build(broker.names("t-exists", 9))
            request.topic_data += case.build(broker.names("t-other", 9)).topic_data  # type: ignore[attr-defined]
            request.acks = acks
            before = {str(each.topic_partition): each.log.log_end_offset for each in broker.broker.partitions}
            response = await broker.ask(broker.client(), "produce", 9, request)
            after = {str(each.topic_partition): each.log.log_end_offset for each in broker.broker.partitions}
            assert after["t-other-0"] == before["t-other-0"] + 1
            assert after["t-exists-0"] == before["t-exists-0"]
            if acks:
                codes = {topic.name: topic.partition_responses[0].error_code for topic in response.responses}
                assert codes == {"t-exists": T, "t-other": 0}
            else:
                assert response == "closed"

    play(tmp_path, test)


def test_if_one_topic_of_a_transaction_is_denied_the_others_are_not_attempted(tmp_path: Path) -> None:
    async def test(broker: Asking) -> None:
        topics = [
            message("add_partitions_to_txn", "AddPartitionsToTxnTopic", name=name, partitions=[0])
            for name in ("t-exists", "t-other", "absent", "__consumer_offsets")
        ]
        asked = message(
            "add_partitions_to_txn",
            "AddPartitionsToTxnRequest",
            v3_and_below_transactional_id="x-exists",
            v3_and_below_producer_id=0,
            v3_and_below_topics=topics,
        )
        broker.set_acls([allow(TRANSACTIONAL_ID, "*", WRITE), allow(TOPIC, "t-exists", WRITE), allow(TOPIC, "absent", WRITE)])
        response = await broker.ask(broker.client(), "add_partitions_to_txn", 3, asked)
        codes = {
            topic.name: topic.results_by_partition[0].partition_error_code for topic in response.results_by_topic_v3_and_below
        }
        assert codes == {
            "t-exists": ErrorCode.OPERATION_NOT_ATTEMPTED,
            "t-other": T,
            "absent": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "__consumer_offsets": T,
        }

    play(tmp_path, test)


def test_cv03_a_group_is_described_with_describe_and_only_if_its_topics_may_be_too(tmp_path: Path) -> None:
    async def test(broker: Asking) -> None:
        (case,) = [case for case in CASES if case.id == "consumer_group_heartbeat"]
        admin = broker.client("User:admin")
        heartbeat: Any = case.build(broker.names("t-exists", 1))
        heartbeat.group_id = "g-consumer"
        assert (await broker.ask(admin, "consumer_group_heartbeat", 1, heartbeat)).error_code == 0
        asked = message("consumer_group_describe", "ConsumerGroupDescribeRequest", group_ids=["g-consumer"])

        async def code(*acls: tuple[ResourcePattern, AclEntry]) -> int:
            broker.set_acls(acls)
            (group,) = (await broker.ask(broker.client(), "consumer_group_describe", 1, asked)).groups
            assert bool(group.members) == (group.error_code == 0)
            return int(group.error_code)

        # READ implies DESCRIBE, but a DENY of DESCRIBE decides: that is what is asked for.
        hidden = ResourcePattern(GROUP, "g-consumer"), AclEntry(ALICE, "*", DESCRIBE, DENY)
        seen = allow(TOPIC, "t-exists", DESCRIBE)
        assert await code(allow(GROUP, "g-consumer", READ), hidden, seen) == ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert await code(allow(GROUP, "g-consumer", DESCRIBE)) == T
        assert await code(allow(GROUP, "g-consumer", DESCRIBE), seen) == 0

    play(tmp_path, test)


def test_a_regular_expression_skips_topics_that_may_not_be_described(tmp_path: Path) -> None:
    async def test(broker: Asking) -> None:
        (case,) = [case for case in CASES if case.id == "consumer_group_heartbeat"]
        heartbeat: Any = case.build(broker.names("t-exists", 1))
        heartbeat.group_id, heartbeat.subscribed_topic_names, heartbeat.subscribed_topic_regex = "g-pattern", None, "t-.*"
        broker.set_acls([allow(GROUP, "g-pattern", READ), allow(TOPIC, "t-other", DESCRIBE)])
        assert (await broker.ask(broker.client(), "consumer_group_heartbeat", 1, heartbeat)).error_code == 0
        group: Any = broker.broker.groups.shards.find("g-pattern")[1].groups.by_id["g-pattern"]
        assert group.patterns["t-.*"].topics == {"t-other"}

    play(tmp_path, test)


def test_ac10_authorized_operations_are_those_of_the_client(tmp_path: Path) -> None:
    async def test(broker: Asking) -> None:
        topics = [message("metadata", "MetadataRequestTopic", name="t-exists")]
        asked = message(
            "metadata",
            "MetadataRequest",
            topics=topics,
            include_topic_authorized_operations=True,
            include_cluster_authorized_operations=True,
        )
        groups = message("describe_groups", "DescribeGroupsRequest", groups=["g-exists"], include_authorized_operations=True)
        cluster = message(
            "describe_cluster", "DescribeClusterRequest", include_cluster_authorized_operations=True, endpoint_type=1
        )

        async def told(client: Connection) -> tuple[int, int, int, int]:
            metadata = await broker.ask(client, "metadata", 10, asked)
            described = await broker.ask(client, "describe_groups", 5, groups)
            whole = await broker.ask(client, "describe_cluster", 0, cluster)
            return (
                metadata.topics[0].topic_authorized_operations,
                described.groups[0].authorized_operations,
                metadata.cluster_authorized_operations,
                whole.cluster_authorized_operations,
            )

        broker.set_acls(
            [allow(TOPIC, "t-exists", READ), allow(GROUP, "g-exists", DELETE), allow(CLUSTER, "kafka-cluster", ALTER)]
        )
        assert await told(broker.client()) == (
            1 << READ | 1 << DESCRIBE,
            1 << DELETE | 1 << DESCRIBE,
            1 << ALTER | 1 << DESCRIBE,
            1 << ALTER | 1 << DESCRIBE,
        )
        broker.set_acls([allow(TOPIC, "t-exists", READ), allow(GROUP, "g-exists", DELETE)])
        assert (await told(broker.client()))[2:] == (0, 0)
        everything = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
        assert (await told(broker.client("User:admin")))[0] == everything
        asked.include_topic_authorized_operations = False
        assert (await told(broker.client()))[0] == -(2**31)

    play(tmp_path, test)


def test_denied_requests_are_audited_as_kafka_does(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test(broker: Asking) -> None:
        client = broker.client()
        broker.set_acls([])
        with caplog.at_level(logging.INFO, AUDIT):
            await broker.ask(client, "fetch", 11, fetch_request(t_exists=0))
            await broker.ask(client, "metadata", 9, message("metadata", "MetadataRequest", topics=None))
        assert [record.getMessage() for record in caplog.records if record.name == AUDIT] == [
            "Principal = User:alice is Denied Operation = Read from host = 10.0.0.1 on resource = Topic:LITERAL:t-exists "
            "for request = Fetch with resourceRefCount = 1"
        ]
        caplog.clear()
        broker.set_acls([(ResourcePattern(TOPIC, "t-", PREFIXED), AclEntry("User:*", "*", ALL, ALLOW))])
        with caplog.at_level(logging.DEBUG, AUDIT):
            for _ in range(2):  # also what the session has been told before
                await broker.ask(client, "fetch", 11, fetch_request(t_exists=0))
        lines = [record.getMessage() for record in caplog.records if record.name == AUDIT]
        assert len(lines) == 2
        assert "User:alice is Allowed Operation = Read" in lines[0]

    play(tmp_path, test)


def audited(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The audit lines since the last call, without what is the same in all of them."""
    lines = [record.getMessage() for record in caplog.records if record.name == AUDIT]
    caplog.clear()
    return [line.removeprefix("Principal = User:alice is ").removesuffix(" with resourceRefCount = 1") for line in lines]


def test_dt02_dt04_tokens_of_other_users_are_authorized_and_audited(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test(broker: Asking) -> None:
        alice, admin = broker.client(), broker.client("User:admin")

        async def create(client: Connection, owner: str | None, renewer: str = "nobody") -> Any:
            renewers = [message("create_delegation_token", "CreatableRenewers", principal_type="User", principal_name=renewer)]
            fields = {"owner_principal_type": "User", "owner_principal_name": owner} if owner else {}
            request = message("create_delegation_token", "CreateDelegationTokenRequest", renewers=renewers, **fields)
            return await broker.ask(client, "create_delegation_token", 3, request)

        async def seen() -> set[str]:
            request = message("describe_delegation_token", "DescribeDelegationTokenRequest", owners=None)
            return {token.token_id for token in (await broker.ask(alice, "describe_delegation_token", 3, request)).tokens}

        own, shared, others = await create(alice, None), await create(admin, "carol", "alice"), await create(admin, "carol")
        assert {token.error_code for token in (own, shared, others)} == {0}
        assert audited(caplog) == []  # a token of one's own needs no ACL, and what a super user may is no news

        refused = await create(alice, "carol")
        assert (refused.error_code, refused.token_id) == (ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED, "")
        assert (refused.principal_name, refused.token_requester_principal_name) == ("carol", "alice")
        assert (refused.issue_timestamp_ms, refused.expiry_timestamp_ms, refused.max_timestamp_ms) == (-1, -1, -1)
        assert audited(caplog) == [
            "Denied Operation = CreateTokens from host = 10.0.0.1 on resource = User:LITERAL:User:carol "
            "for request = CreateDelegationToken"
        ]
        assert await seen() == {own.token_id, shared.token_id}
        assert audited(caplog) == [
            "Denied Operation = Describe from host = 10.0.0.1 "
            f"on resource = DelegationToken:LITERAL:{others.token_id} for request = DescribeDelegationToken",
            "Denied Operation = DescribeTokens from host = 10.0.0.1 on resource = User:LITERAL:User:carol "
            "for request = DescribeDelegationToken",
        ]
        everything = {own.token_id, shared.token_id, others.token_id}
        broker.set_acls([allow(DELEGATION_TOKEN, others.token_id, DESCRIBE)])
        assert await seen() == everything
        broker.set_acls([allow(USER, "User:carol", DESCRIBE_TOKENS), allow(USER, "User:carol", CREATE_TOKENS)])
        assert await seen() == everything
        assert (await create(alice, "carol")).error_code == 0

    with caplog.at_level(logging.INFO, AUDIT):
        play(tmp_path, test)


def test_ac06_version_0_creates_literal_patterns_only(tmp_path: Path) -> None:
    async def test(broker: Asking) -> None:
        def creations(pattern: int) -> Any:
            entry = {"principal": "User:x", "host": "*", "operation": READ, "permission_type": ALLOW}
            named = {"resource_type": TOPIC, "resource_name": "t", "resource_pattern_type": pattern}
            return message(
                "create_acls", "CreateAclsRequest", creations=[message("create_acls", "AclCreation", **named, **entry)]
            )

        admin = broker.client("User:admin")
        parts: Any = encode_request(API_BY_NAME["create_acls"], 1, 7, "me", creations(PREFIXED))
        frame = b"".join(parts)[4:]
        older = frame[:2] + b"\0\0" + frame[4:]  # the pattern type stands where version 0 has the principal
        assert await broker.answer_to(admin, older) == "closed"
        assert broker.authorizer.index.entries == {}
        assert [each.error_code for each in (await broker.ask(admin, "create_acls", 0, creations(LITERAL))).results] == [0]
        assert list(broker.authorizer.index.entries) == [ResourcePattern(TOPIC, "t", LITERAL)]

    play(tmp_path, test)


def test_changes_are_logged_with_who_made_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test(broker: Asking) -> None:
        broker.set_acls([allow(TOPIC, "fresh", ALL), allow(CLUSTER, "kafka-cluster", ALTER)])
        client = broker.client()
        topic = message("create_topics", "CreatableTopic", name="fresh", num_partitions=2, replication_factor=1)
        await broker.ask(client, "create_topics", 5, message("create_topics", "CreateTopicsRequest", topics=[topic]))
        grown = message("create_partitions", "CreatePartitionsTopic", name="fresh", count=3, assignments=None)
        await broker.ask(client, "create_partitions", 3, message("create_partitions", "CreatePartitionsRequest", topics=[grown]))
        await broker.ask(client, "delete_topics", 5, message("delete_topics", "DeleteTopicsRequest", topic_names=["fresh"]))
        (case,) = [case for case in CASES if case.id == "create_acls"]
        await broker.ask(client, "create_acls", 3, case.build(broker.names("t-exists", 3)))
        every: dict[str, Any] = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
        every |= {"resource_name_filter": None, "host_filter": None}
        delete = message("delete_acls", "DeleteAclsFilter", principal_filter="User:x", **every)
        await broker.ask(client, "delete_acls", 3, message("delete_acls", "DeleteAclsRequest", filters=[delete]))

    with caplog.at_level(logging.INFO, "ottla.broker.handlers"):
        play(tmp_path, test)
    assert [record.getMessage() for record in caplog.records if "User:alice" in record.getMessage()] == [
        "User:alice from 10.0.0.1 created topic fresh with 2 partitions",
        "User:alice from 10.0.0.1 raised topic fresh to 3 partitions",
        "User:alice from 10.0.0.1 deleted topic fresh",
        "User:alice from 10.0.0.1 created ACLs: Allow Read to User:x from * on Topic:LITERAL:other",
        "User:alice from 10.0.0.1 deleted ACLs: Allow Read to User:x from * on Topic:LITERAL:other",
    ]


def test_a_suspended_authorizer_closes_connections(tmp_path: Path) -> None:
    async def test(broker: Asking) -> None:
        client = broker.client("User:admin")
        asked = message("list_groups", "ListGroupsRequest")
        assert (await broker.ask(client, "list_groups", 4, asked)).error_code == 0
        broker.authorizer.suspend()
        assert await broker.ask(client, "list_groups", 4, asked) == "closed"
        broker.authorizer.resume()
        assert (await broker.ask(client, "list_groups", 4, asked)).error_code == 0

    play(tmp_path, test)
