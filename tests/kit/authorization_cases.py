"""One request for every API: what it needs, and where it says that this is denied (MX01).

`tests/broker/test_authorization.py` holds Ottla to it, `tests/compat/authorization` compares Apache Kafka's answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from ottla.protocol.registry import API_BY_NAME
from ottla.records.record import build_batch
from ottla.security.acl import (
    ALTER,
    ALTER_CONFIGS,
    CLUSTER,
    CLUSTER_ACTION,
    CLUSTER_NAME,
    CREATE,
    CREATE_TOKENS,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP,
    IDEMPOTENT_WRITE,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    USER,
    WRITE,
)
from ottla.types import ZERO_UUID
from ottla.wire.schema import definition_of

T, G, C, X, D = 29, 30, 31, 53, 65
"""TOPIC_, GROUP_, CLUSTER_, TRANSACTIONAL_ID_ and DELEGATION_TOKEN_AUTHORIZATION_FAILED."""
DENIALS = {T, G, C, X, D}
NOW_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Names:
    topic: str
    group: str
    transactional_id: str
    topic_id: bytes = ZERO_UUID
    version: int = 0

    def of(self, kind: int) -> str:
        return {
            TOPIC: self.topic,
            GROUP: self.group,
            TRANSACTIONAL_ID: self.transactional_id,
            CLUSTER: CLUSTER_NAME,
            USER: f"User:{self.owner}",
        }[kind]

    @property
    def owner(self) -> str:
        """Of a delegation token."""
        return self.topic


@dataclass(frozen=True)
class Case:
    api: str
    build: Callable[[Names], object]
    needs: tuple[tuple[int, int], ...] = ()
    """(resource type, operation): allowed if all of them are."""
    denied: frozenset[tuple[str, int]] = frozenset()
    """The fields that are not 0 if nothing is allowed, with their codes."""
    in_version: dict[int, frozenset[tuple[str, int]]] = field(default_factory=dict)
    """The same from a version on, where it differs."""
    closes: bool = False
    """Denied, the connection is closed."""
    label: str = ""
    first_version: int = 0
    last_version: int = 99

    @property
    def id(self) -> str:
        return f"{self.api}-{self.label}" if self.label else self.api

    def denied_in(self, version: int) -> frozenset[tuple[str, int]]:
        found = self.denied
        for first, wanted in sorted(self.in_version.items()):
            if version >= first:
                found = wanted
        return found


def message(api: str, name: str, /, **fields: Any) -> Any:
    return getattr(import_module(f"ottla.protocol.messages.{api}"), name)(**fields)


def errors(response: Any, path: str = "") -> Iterator[tuple[str, int]]:
    """Fields of error codes that are not 0, at any depth."""
    for each in definition_of(type(response)).fields:
        value = getattr(response, each.name)
        here = f"{path}{each.name}"
        if each.name.endswith("error_code"):
            if value:
                yield here, int(value)
            continue
        for item in value if isinstance(value, list) else [value]:
            if type(item).__module__.startswith("ottla.protocol.messages"):
                yield from errors(item, f"{here}.")


def on(*fields: tuple[str, int]) -> frozenset[tuple[str, int]]:
    return frozenset(fields)


TOP_C = on(("error_code", C))
TOP_G = on(("error_code", G))
TOP_X = on(("error_code", X))


def _produce(acks: int = 1, *, transactional: bool = False, wrong_id: bool = False) -> Callable[[Names], object]:
    def build(names: Names) -> object:
        options: dict[str, Any] = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0} if transactional else {}
        batch = build_batch([(b"k", b"v", [], NOW_MS)], transactional=transactional, **options)
        data = [message("produce", "PartitionProduceData", index=0, records=batch)]
        by_id = names.version >= 13
        topic = message(
            "produce",
            "TopicProduceData",
            name="" if by_id else names.topic,
            topic_id=names.topic_id if by_id else ZERO_UUID,
            partition_data=data,
        )
        transactional_id = names.transactional_id if transactional and not wrong_id else None
        return message(
            "produce", "ProduceRequest", transactional_id=transactional_id, acks=acks, timeout_ms=1000, topic_data=[topic]
        )

    return build


def _fetch(replica_id: int = -1) -> Callable[[Names], object]:
    def build(names: Names) -> object:
        by_id = names.version >= 13
        partitions = [message("fetch", "FetchPartition", partition=0, fetch_offset=0, partition_max_bytes=1000)]
        topic = message(
            "fetch",
            "FetchTopic",
            topic="" if by_id else names.topic,
            topic_id=names.topic_id if by_id else ZERO_UUID,
            partitions=partitions,
        )
        request = message("fetch", "FetchRequest", max_wait_ms=0, min_bytes=0, max_bytes=1000, topics=[topic])
        if names.version >= 15:
            request.replica_state = message("fetch", "ReplicaState", replica_id=replica_id)
        else:
            request.replica_id = replica_id
        return request

    return build


def _metadata(names: Names) -> object:
    topics = [message("metadata", "MetadataRequestTopic", name=names.topic)]
    return message("metadata", "MetadataRequest", topics=topics, allow_auto_topic_creation=names.version < 4)


def _offset_commit(names: Names) -> object:
    by_id = names.version >= 10
    partitions = [message("offset_commit", "OffsetCommitRequestPartition", committed_offset=1, committed_metadata="")]
    topic = message(
        "offset_commit",
        "OffsetCommitRequestTopic",
        name="" if by_id else names.topic,
        topic_id=names.topic_id if by_id else ZERO_UUID,
        partitions=partitions,
    )
    return message("offset_commit", "OffsetCommitRequest", group_id=names.group, generation_id_or_member_epoch=-1, topics=[topic])


def _offset_fetch(names: Names) -> object:
    if names.version < 8:
        topics = [message("offset_fetch", "OffsetFetchRequestTopic", name=names.topic, partition_indexes=[0])]
        return message("offset_fetch", "OffsetFetchRequest", group_id=names.group, topics=topics)
    by_id = names.version >= 10
    named = message(
        "offset_fetch",
        "OffsetFetchRequestTopics",
        name="" if by_id else names.topic,
        topic_id=names.topic_id if by_id else ZERO_UUID,
        partition_indexes=[0],
    )
    group = message("offset_fetch", "OffsetFetchRequestGroup", group_id=names.group, topics=[named])
    return message("offset_fetch", "OffsetFetchRequest", groups=[group])


def _find_coordinator(key_type: int) -> Callable[[Names], object]:
    def build(names: Names) -> object:
        key = names.group if key_type == 0 else names.transactional_id
        if names.version >= 4:
            return message("find_coordinator", "FindCoordinatorRequest", key_type=key_type, coordinator_keys=[key])
        return message("find_coordinator", "FindCoordinatorRequest", key_type=key_type, key=key)

    return build


def _delete_topics(names: Names) -> object:
    if names.version >= 6:
        topics = [message("delete_topics", "DeleteTopicState", name=names.topic)]
        return message("delete_topics", "DeleteTopicsRequest", topics=topics, timeout_ms=1000)
    return message("delete_topics", "DeleteTopicsRequest", topic_names=[names.topic], timeout_ms=1000)


def _add_partitions(names: Names) -> object:
    topics = [message("add_partitions_to_txn", "AddPartitionsToTxnTopic", name=names.topic, partitions=[0])]
    if names.version >= 4:
        transaction = message(
            "add_partitions_to_txn",
            "AddPartitionsToTxnTransaction",
            transactional_id=names.transactional_id,
            producer_id=5,
            topics=topics,
        )
        return message("add_partitions_to_txn", "AddPartitionsToTxnRequest", transactions=[transaction])
    return message(
        "add_partitions_to_txn",
        "AddPartitionsToTxnRequest",
        v3_and_below_transactional_id=names.transactional_id,
        v3_and_below_producer_id=5,
        v3_and_below_topics=topics,
    )


def _configs(api: str, resource_type: int) -> Callable[[Names], object]:
    name, resource = {
        "describe_configs": ("DescribeConfigsRequest", "DescribeConfigsResource"),
        "alter_configs": ("AlterConfigsRequest", "AlterConfigsResource"),
        "incremental_alter_configs": ("IncrementalAlterConfigsRequest", "AlterConfigsResource"),
    }[api]

    def build(names: Names) -> object:
        of = {2: names.topic, 4: "1", 32: names.group}[resource_type]
        fields: dict[str, Any] = {"configuration_keys": []} if api == "describe_configs" else {"configs": []}
        resources = [message(api, resource, resource_type=resource_type, resource_name=of, **fields)]
        return message(api, name, resources=resources)

    return build


def _topics(api: str, request: str, topic: str, **fields: Any) -> Callable[[Names], object]:
    def build(names: Names) -> object:
        return message(api, request, topics=[message(api, topic, name=names.topic, **fields)])

    return build


def _of_group(api: str, request: str, **fields: Any) -> Callable[[Names], object]:
    def build(names: Names) -> object:
        return message(api, request, group_id=names.group, **fields)

    return build


def _plain(api: str, request: str, **fields: Any) -> Callable[[Names], object]:
    def build(names: Names) -> object:
        return message(api, request, **fields)

    return build


def _acl_filter(names: Names) -> dict[str, Any]:
    return {
        "resource_type_filter": 1,
        "operation": 1,
        "permission_type": 1,
        "pattern_type_filter": 3 if names.version == 0 else 1,
        "resource_name_filter": None,
        "host_filter": None,
    }


CASES: tuple[Case, ...] = (
    Case("produce", _produce(), ((TOPIC, WRITE),), on(("responses.partition_responses.error_code", T)), first_version=3),
    Case("produce", _produce(acks=0), ((TOPIC, WRITE),), closes=True, label="acks0", first_version=3),
    Case(
        "produce",
        _produce(transactional=True),
        ((TRANSACTIONAL_ID, WRITE), (TOPIC, WRITE)),
        on(("responses.partition_responses.error_code", X)),
        label="transactional",
        first_version=3,
    ),
    Case(
        "produce",
        _produce(acks=0, transactional=True),
        ((TRANSACTIONAL_ID, WRITE), (TOPIC, WRITE)),
        closes=True,
        label="transactional-acks0",
        first_version=3,
    ),
    Case("fetch", _fetch(), ((TOPIC, READ),), on(("responses.partitions.error_code", T))),
    Case("fetch", _fetch(7), ((CLUSTER, CLUSTER_ACTION),), on(("responses.partitions.error_code", T)), label="replica"),
    Case(
        "list_offsets",
        lambda names: message(
            "list_offsets",
            "ListOffsetsRequest",
            replica_id=-1,
            topics=[
                message(
                    "list_offsets",
                    "ListOffsetsTopic",
                    name=names.topic,
                    partitions=[message("list_offsets", "ListOffsetsPartition", timestamp=-1)],
                )
            ],
        ),
        ((TOPIC, DESCRIBE),),
        on(("topics.partitions.error_code", T)),
    ),
    Case("metadata", _metadata, ((TOPIC, DESCRIBE),), on(("topics.error_code", T))),
    Case("offset_commit", _offset_commit, ((GROUP, READ), (TOPIC, READ)), on(("topics.partitions.error_code", G))),
    Case(
        "offset_fetch",
        _offset_fetch,
        ((GROUP, DESCRIBE), (TOPIC, DESCRIBE)),
        on(("topics.partitions.error_code", G)),
        {2: TOP_G, 8: on(("groups.error_code", G))},
    ),
    Case(
        "find_coordinator",
        _find_coordinator(0),
        ((GROUP, DESCRIBE),),
        TOP_G,
        {4: on(("coordinators.error_code", G))},
    ),
    Case(
        "find_coordinator",
        _find_coordinator(1),
        ((TRANSACTIONAL_ID, DESCRIBE),),
        TOP_X,
        {4: on(("coordinators.error_code", X))},
        label="transaction",
        first_version=1,
    ),
    Case(
        "join_group",
        lambda names: message(
            "join_group",
            "JoinGroupRequest",
            group_id=names.group,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id="m",
            protocol_type="consumer",
            protocols=[message("join_group", "JoinGroupRequestProtocol", name="range", metadata=b"")],
        ),
        ((GROUP, READ),),
        TOP_G,
    ),
    Case("heartbeat", _of_group("heartbeat", "HeartbeatRequest", member_id="m"), ((GROUP, READ),), TOP_G),
    Case(
        "leave_group",
        lambda names: message(
            "leave_group",
            "LeaveGroupRequest",
            group_id=names.group,
            **(
                {"members": [message("leave_group", "MemberIdentity", member_id="m")]}
                if names.version >= 3
                else {"member_id": "m"}
            ),
        ),
        ((GROUP, READ),),
        TOP_G,
    ),
    Case(
        "sync_group",
        lambda names: message(
            "sync_group",
            "SyncGroupRequest",
            group_id=names.group,
            member_id="m",
            protocol_type="consumer" if names.version >= 5 else None,
            protocol_name="range" if names.version >= 5 else None,
        ),
        ((GROUP, READ),),
        TOP_G,
    ),
    Case(
        "describe_groups",
        lambda names: message("describe_groups", "DescribeGroupsRequest", groups=[names.group]),
        ((GROUP, DESCRIBE),),
        on(("groups.error_code", G)),
    ),
    Case("list_groups", _plain("list_groups", "ListGroupsRequest")),
    Case("sasl_handshake", _plain("sasl_handshake", "SaslHandshakeRequest", mechanism="PLAIN")),
    Case(
        "api_versions",
        _plain("api_versions", "ApiVersionsRequest", client_software_name="x", client_software_version="1"),
    ),
    Case(
        "create_topics",
        lambda names: message(
            "create_topics",
            "CreateTopicsRequest",
            topics=[message("create_topics", "CreatableTopic", name=names.topic, num_partitions=1, replication_factor=1)],
            timeout_ms=1000,
            validate_only=names.version >= 1,
        ),
        ((TOPIC, CREATE), (TOPIC, DESCRIBE_CONFIGS)),
        on(("topics.error_code", T)),
        first_version=1,
    ),
    Case("delete_topics", _delete_topics, ((TOPIC, DELETE),), on(("responses.error_code", T))),
    Case(
        "delete_records",
        _topics(
            "delete_records",
            "DeleteRecordsRequest",
            "DeleteRecordsTopic",
            partitions=[message("delete_records", "DeleteRecordsPartition", offset=0)],
        ),
        ((TOPIC, DELETE),),
        on(("topics.partitions.error_code", T)),
    ),
    Case(
        "init_producer_id",
        lambda names: message(
            "init_producer_id",
            "InitProducerIdRequest",
            transactional_id=names.transactional_id,
            transaction_timeout_ms=60_000,
        ),
        ((TRANSACTIONAL_ID, WRITE),),
        TOP_X,
        label="transactional",
    ),
    Case(
        "init_producer_id",
        _plain("init_producer_id", "InitProducerIdRequest", transactional_id=None, transaction_timeout_ms=60_000),
        ((CLUSTER, IDEMPOTENT_WRITE),),
        TOP_C,
    ),
    Case(
        "init_producer_id",
        _plain("init_producer_id", "InitProducerIdRequest", transactional_id=None, transaction_timeout_ms=60_000),
        ((TOPIC, WRITE),),
        TOP_C,
        label="any-topic",
    ),
    Case(
        "offset_for_leader_epoch",
        lambda names: message(
            "offset_for_leader_epoch",
            "OffsetForLeaderEpochRequest",
            topics=[
                message(
                    "offset_for_leader_epoch",
                    "OffsetForLeaderTopic",
                    topic=names.topic,
                    partitions=[message("offset_for_leader_epoch", "OffsetForLeaderPartition", leader_epoch=0)],
                )
            ],
        ),
        ((TOPIC, DESCRIBE),),
        on(("topics.partitions.error_code", T)),
    ),
    Case(
        "write_txn_markers",
        lambda names: message(
            "write_txn_markers",
            "WriteTxnMarkersRequest",
            markers=[
                message(
                    "write_txn_markers",
                    "WritableTxnMarker",
                    producer_id=99,
                    topics=[message("write_txn_markers", "WritableTxnMarkerTopic", name=names.topic, partition_indexes=[0])],
                )
            ],
        ),
        ((CLUSTER, CLUSTER_ACTION),),
        on(("markers.topics.partitions.error_code", C)),
    ),
    Case(
        "add_partitions_to_txn",
        _add_partitions,
        ((TRANSACTIONAL_ID, WRITE), (TOPIC, WRITE)),
        on(("results_by_topic_v3_and_below.results_by_partition.partition_error_code", X)),
        last_version=3,
    ),
    Case(
        "add_partitions_to_txn",
        _add_partitions,
        ((CLUSTER, CLUSTER_ACTION),),
        TOP_C,
        label="between-brokers",
        first_version=4,
    ),
    Case(
        "add_offsets_to_txn",
        lambda names: message(
            "add_offsets_to_txn",
            "AddOffsetsToTxnRequest",
            transactional_id=names.transactional_id,
            producer_id=5,
            group_id=names.group,
        ),
        ((TRANSACTIONAL_ID, WRITE), (GROUP, READ)),
        TOP_X,
    ),
    Case(
        "end_txn",
        lambda names: message("end_txn", "EndTxnRequest", transactional_id=names.transactional_id, producer_id=5),
        ((TRANSACTIONAL_ID, WRITE),),
        TOP_X,
    ),
    Case(
        "txn_offset_commit",
        lambda names: message(
            "txn_offset_commit",
            "TxnOffsetCommitRequest",
            transactional_id=names.transactional_id,
            group_id=names.group,
            producer_id=5,
            topics=[
                message(
                    "txn_offset_commit",
                    "TxnOffsetCommitRequestTopic",
                    name=names.topic,
                    partitions=[
                        message("txn_offset_commit", "TxnOffsetCommitRequestPartition", committed_offset=1, committed_metadata="")
                    ],
                )
            ],
        ),
        ((TRANSACTIONAL_ID, WRITE), (GROUP, READ), (TOPIC, READ)),
        on(("topics.partitions.error_code", X)),
    ),
    Case(
        "describe_acls",
        lambda names: message("describe_acls", "DescribeAclsRequest", principal_filter=None, **_acl_filter(names)),
        ((CLUSTER, DESCRIBE),),
        TOP_C,
    ),
    Case(
        "create_acls",
        lambda names: message(
            "create_acls",
            "CreateAclsRequest",
            creations=[
                message(
                    "create_acls",
                    "AclCreation",
                    resource_type=2,
                    resource_name="other",
                    principal="User:x",
                    host="*",
                    operation=3,
                    permission_type=3,
                )
            ],
        ),
        ((CLUSTER, ALTER),),
        on(("results.error_code", C)),
    ),
    Case(
        "delete_acls",
        lambda names: message(
            "delete_acls",
            "DeleteAclsRequest",
            filters=[message("delete_acls", "DeleteAclsFilter", principal_filter="User:nobody", **_acl_filter(names))],
        ),
        ((CLUSTER, ALTER),),
        on(("filter_results.error_code", C)),
    ),
    Case("describe_configs", _configs("describe_configs", 2), ((TOPIC, DESCRIBE_CONFIGS),), on(("results.error_code", T))),
    Case(
        "describe_configs",
        _configs("describe_configs", 4),
        ((CLUSTER, DESCRIBE_CONFIGS),),
        on(("results.error_code", C)),
        label="broker",
    ),
    Case(
        "describe_configs",
        _configs("describe_configs", 32),
        ((GROUP, DESCRIBE_CONFIGS),),
        on(("results.error_code", G)),
        label="group",
    ),
    Case("alter_configs", _configs("alter_configs", 2), ((TOPIC, ALTER_CONFIGS),), on(("responses.error_code", T))),
    Case(
        "alter_configs",
        _configs("alter_configs", 4),
        ((CLUSTER, ALTER_CONFIGS),),
        on(("responses.error_code", C)),
        label="broker",
    ),
    Case(
        "alter_replica_log_dirs",
        lambda names: message(
            "alter_replica_log_dirs",
            "AlterReplicaLogDirsRequest",
            dirs=[
                message(
                    "alter_replica_log_dirs",
                    "AlterReplicaLogDir",
                    path="/nowhere",
                    topics=[message("alter_replica_log_dirs", "AlterReplicaLogDirTopic", name=names.topic, partitions=[0])],
                )
            ],
        ),
        ((CLUSTER, ALTER),),
        on(("results.partitions.error_code", C)),
    ),
    Case(
        "describe_log_dirs",
        _plain("describe_log_dirs", "DescribeLogDirsRequest", topics=None),
        ((CLUSTER, DESCRIBE),),
        on(),
        {3: TOP_C},
    ),
    Case("sasl_authenticate", _plain("sasl_authenticate", "SaslAuthenticateRequest", auth_bytes=b"")),
    Case(
        "create_partitions",
        _topics("create_partitions", "CreatePartitionsRequest", "CreatePartitionsTopic", count=1, assignments=None),
        ((TOPIC, ALTER),),
        on(("results.error_code", T)),
    ),
    Case(
        "elect_leaders",
        lambda names: message(
            "elect_leaders",
            "ElectLeadersRequest",
            topic_partitions=[message("elect_leaders", "TopicPartitions", topic=names.topic, partitions=[0])],
        ),
        ((CLUSTER, ALTER),),
        on(("replica_election_results.partition_result.error_code", C)),
        {1: on(("error_code", C), ("replica_election_results.partition_result.error_code", C))},
    ),
    Case("create_delegation_token", _plain("create_delegation_token", "CreateDelegationTokenRequest", max_lifetime_ms=-1)),
    Case(
        "create_delegation_token",
        lambda names: message(
            "create_delegation_token",
            "CreateDelegationTokenRequest",
            owner_principal_type="User",
            owner_principal_name=names.owner,
            max_lifetime_ms=-1,
        ),
        ((USER, CREATE_TOKENS),),
        on(("error_code", D)),
        label="other-owner",
        first_version=3,
    ),
    Case("renew_delegation_token", _plain("renew_delegation_token", "RenewDelegationTokenRequest", hmac=b"x")),
    Case("expire_delegation_token", _plain("expire_delegation_token", "ExpireDelegationTokenRequest", hmac=b"x")),
    Case("describe_delegation_token", _plain("describe_delegation_token", "DescribeDelegationTokenRequest", owners=None)),
    Case(
        "delete_groups",
        lambda names: message("delete_groups", "DeleteGroupsRequest", groups_names=[names.group]),
        ((GROUP, DELETE),),
        on(("results.error_code", G)),
    ),
    Case(
        "incremental_alter_configs",
        _configs("incremental_alter_configs", 2),
        ((TOPIC, ALTER_CONFIGS),),
        on(("responses.error_code", T)),
    ),
    Case(
        "incremental_alter_configs",
        _configs("incremental_alter_configs", 32),
        ((GROUP, ALTER_CONFIGS),),
        on(("responses.error_code", G)),
        label="group",
    ),
    Case(
        "alter_partition_reassignments",
        _plain("alter_partition_reassignments", "AlterPartitionReassignmentsRequest"),
        ((CLUSTER, ALTER),),
        TOP_C,
    ),
    Case(
        "list_partition_reassignments",
        _plain("list_partition_reassignments", "ListPartitionReassignmentsRequest", topics=None),
        ((CLUSTER, DESCRIBE),),
        TOP_C,
    ),
    Case(
        "offset_delete",
        lambda names: message(
            "offset_delete",
            "OffsetDeleteRequest",
            group_id=names.group,
            topics=[
                message(
                    "offset_delete",
                    "OffsetDeleteRequestTopic",
                    name=names.topic,
                    partitions=[message("offset_delete", "OffsetDeleteRequestPartition", partition_index=0)],
                )
            ],
        ),
        ((GROUP, DELETE), (TOPIC, READ)),
        TOP_G,
    ),
    Case(
        "describe_client_quotas",
        _plain("describe_client_quotas", "DescribeClientQuotasRequest"),
        ((CLUSTER, DESCRIBE_CONFIGS),),
        TOP_C,
    ),
    Case(
        "alter_client_quotas",
        lambda names: message(
            "alter_client_quotas",
            "AlterClientQuotasRequest",
            entries=[
                message(
                    "alter_client_quotas",
                    "EntryData",
                    entity=[message("alter_client_quotas", "EntityData", entity_type="user", entity_name="u")],
                    ops=[message("alter_client_quotas", "OpData", key="producer_byte_rate", value=1e9)],
                )
            ],
            validate_only=True,
        ),
        ((CLUSTER, ALTER_CONFIGS),),
        on(("entries.error_code", C)),
    ),
    Case(
        "describe_user_scram_credentials",
        _plain(
            "describe_user_scram_credentials",
            "DescribeUserScramCredentialsRequest",
            users=[message("describe_user_scram_credentials", "UserName", name="nobody")],
        ),
        ((CLUSTER, DESCRIBE),),
        on(("error_code", C), ("results.error_code", C)),
    ),
    Case(
        "alter_user_scram_credentials",
        lambda names: message(
            "alter_user_scram_credentials",
            "AlterUserScramCredentialsRequest",
            deletions=[message("alter_user_scram_credentials", "ScramCredentialDeletion", name="nobody", mechanism=1)],
        ),
        ((CLUSTER, ALTER),),
        on(("results.error_code", C)),
    ),
    Case("describe_cluster", _plain("describe_cluster", "DescribeClusterRequest", endpoint_type=1)),
    Case(
        "describe_producers",
        _topics("describe_producers", "DescribeProducersRequest", "TopicRequest", partition_indexes=[0]),
        ((TOPIC, READ),),
        on(("topics.partitions.error_code", T)),
    ),
    Case(
        "describe_transactions",
        lambda names: message("describe_transactions", "DescribeTransactionsRequest", transactional_ids=[names.transactional_id]),
        ((TRANSACTIONAL_ID, DESCRIBE),),
        on(("transaction_states.error_code", X)),
    ),
    Case("list_transactions", _plain("list_transactions", "ListTransactionsRequest")),
    Case(
        "consumer_group_heartbeat",
        lambda names: message(
            "consumer_group_heartbeat",
            "ConsumerGroupHeartbeatRequest",
            group_id=names.group,
            member_id="m" * 22,
            member_epoch=0,
            rebalance_timeout_ms=1000,
            subscribed_topic_names=[names.topic],
            topic_partitions=[],
        ),
        ((GROUP, READ), (TOPIC, DESCRIBE)),
        TOP_G,
    ),
    Case(
        "consumer_group_describe",
        lambda names: message("consumer_group_describe", "ConsumerGroupDescribeRequest", group_ids=[names.group]),
        ((GROUP, DESCRIBE), (TOPIC, DESCRIBE)),
        on(("groups.error_code", G)),
    ),
    Case(
        "get_telemetry_subscriptions",
        _plain("get_telemetry_subscriptions", "GetTelemetrySubscriptionsRequest"),
    ),
    Case("push_telemetry", _plain("push_telemetry", "PushTelemetryRequest")),
    Case(
        "list_config_resources",
        _plain("list_config_resources", "ListConfigResourcesRequest"),
        ((CLUSTER, DESCRIBE_CONFIGS),),
        TOP_C,
    ),
    Case(
        "describe_topic_partitions",
        _topics("describe_topic_partitions", "DescribeTopicPartitionsRequest", "TopicRequest"),
        ((TOPIC, DESCRIBE),),
        on(("topics.error_code", T)),
    ),
    *(
        Case(api, _plain(api, API_BY_NAME[api].request.__name__), ((CLUSTER, CLUSTER_ACTION),), TOP_C)
        for api in (
            "leader_and_isr",
            "stop_replica",
            "update_metadata",
            "controlled_shutdown",
            "alter_partition",
            "allocate_producer_ids",
        )
    ),
)


PARTLY: tuple[tuple[str, int, int, frozenset[tuple[str, int]]], ...] = (
    ("produce-transactional", TOPIC, 3, on(("responses.partition_responses.error_code", T))),
    ("offset_commit", TOPIC, 1, on(("topics.partitions.error_code", T))),
    ("offset_fetch", TOPIC, 1, on(("topics.partitions.error_code", T))),
    ("offset_fetch", TOPIC, 8, on(("groups.topics.partitions.error_code", T))),
    ("add_partitions_to_txn", TOPIC, 0, on(("results_by_topic_v3_and_below.results_by_partition.partition_error_code", T))),
    ("add_offsets_to_txn", GROUP, 0, TOP_G),
    ("txn_offset_commit", GROUP, 0, on(("topics.partitions.error_code", G))),
    ("txn_offset_commit", TOPIC, 0, on(("topics.partitions.error_code", T))),
    ("offset_delete", TOPIC, 0, on(("topics.partitions.error_code", T))),
    ("consumer_group_heartbeat", TOPIC, 0, on(("error_code", T))),
)
"""(case, the resource type that is not allowed while the others are, from version, the fields that say so)."""
