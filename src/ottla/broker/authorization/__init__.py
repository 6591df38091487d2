"""Authorization of requests: for every API what it needs, and how it is answered if that is denied (MX01).

Handlers know nothing of it. A route calls the function that the row of its API names: it strips what is denied from the request,
calls the handler with the rest, adds the denials to the response, and filters lists. Whether something exists is not looked up
before the right to know it. An API without a row is refused.

- `guard`: decisions for a request, and the audit log.
- `hot`: Produce, Fetch, OffsetCommit, Heartbeat. `partly`: the same where a part is new or denied.
- `rows`: rows that are data. `topics`, `groups`, `transactions`, `configs`, `tokens`: rows with code.
- `merging`: calls a handler with a part of a request.

A row names a function `module.function`, which names its collaborators as its first parameters, as handlers do. Besides the parts
of the broker they are `guard`, `handle` (the handler) and `refuse` (how the API is refused).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final

from ottla.broker.authorization.guard import Guard
from ottla.broker.authorization.rows import ByItem, Nothing, OfGroup, OnCluster
from ottla.broker.network.context import RequestContext
from ottla.broker.network.handler import Handler, bind
from ottla.errors import ErrorCode, KafkaError
from ottla.security.acl import (
    ALTER,
    ALTER_CONFIGS,
    CLUSTER_ACTION,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP,
    READ,
)

Handle = Callable[[Any, RequestContext], Any]

ROWS: Final[dict[str, Nothing | OnCluster | OfGroup | ByItem | str]] = {
    "produce": "hot.produce",
    "fetch": "hot.fetch",
    "list_offsets": ByItem(DESCRIBE, "topics", "topics", "name"),
    "metadata": "topics.metadata",
    "leader_and_isr": OnCluster(CLUSTER_ACTION),
    "stop_replica": OnCluster(CLUSTER_ACTION),
    "update_metadata": OnCluster(CLUSTER_ACTION),
    "controlled_shutdown": OnCluster(CLUSTER_ACTION),
    "offset_commit": "hot.offset_commit",
    "offset_fetch": "groups.offset_fetch",
    "find_coordinator": "groups.find_coordinator",
    "join_group": OfGroup(),
    "heartbeat": "hot.heartbeat",
    "leave_group": OfGroup(),
    "sync_group": OfGroup(),
    "describe_groups": "groups.describe_groups",
    "list_groups": "groups.list_groups",
    "sasl_handshake": Nothing(),
    "api_versions": Nothing(),
    "create_topics": "topics.create_topics",
    "delete_topics": "topics.delete_topics",
    "delete_records": ByItem(DELETE, "topics", "topics", "name"),
    "init_producer_id": "transactions.init_producer_id",
    "offset_for_leader_epoch": "topics.offset_for_leader_epoch",
    "add_partitions_to_txn": "transactions.add_partitions_to_txn",
    "add_offsets_to_txn": "transactions.add_offsets_to_txn",
    "end_txn": "transactions.end_txn",
    "write_txn_markers": "transactions.write_txn_markers",
    "txn_offset_commit": "transactions.txn_offset_commit",
    "describe_acls": OnCluster(DESCRIBE),
    "create_acls": OnCluster(ALTER),
    "delete_acls": OnCluster(ALTER),
    "describe_configs": "configs.describe_configs",
    "alter_configs": "configs.alter_configs",
    "alter_replica_log_dirs": OnCluster(ALTER),
    "describe_log_dirs": OnCluster(DESCRIBE),
    "sasl_authenticate": Nothing(),
    "create_partitions": ByItem(ALTER, "topics", "results", "name"),
    "create_delegation_token": "tokens.create_delegation_token",
    "renew_delegation_token": Nothing(),
    "expire_delegation_token": Nothing(),
    "describe_delegation_token": "tokens.describe_delegation_token",
    "delete_groups": ByItem(DELETE, "groups_names", "results", resource_type=GROUP),
    "elect_leaders": OnCluster(ALTER),
    "incremental_alter_configs": "configs.alter_configs",
    "alter_partition_reassignments": OnCluster(ALTER),
    "list_partition_reassignments": OnCluster(DESCRIBE),
    "offset_delete": "groups.offset_delete",
    "describe_client_quotas": OnCluster(DESCRIBE_CONFIGS),
    "alter_client_quotas": OnCluster(ALTER_CONFIGS),
    "describe_user_scram_credentials": OnCluster(DESCRIBE),
    "alter_user_scram_credentials": OnCluster(ALTER),
    "alter_partition": OnCluster(CLUSTER_ACTION),
    "update_features": OnCluster(ALTER),
    "describe_cluster": "topics.describe_cluster",
    "describe_producers": ByItem(READ, "topics", "topics", "name"),
    "describe_transactions": "transactions.describe_transactions",
    "list_transactions": "transactions.list_transactions",
    "allocate_producer_ids": OnCluster(CLUSTER_ACTION),
    "consumer_group_heartbeat": "groups.consumer_group_heartbeat",
    "consumer_group_describe": "groups.consumer_group_describe",
    "get_telemetry_subscriptions": Nothing(),
    "push_telemetry": Nothing(),
    "list_config_resources": OnCluster(DESCRIBE_CONFIGS),
    "describe_topic_partitions": "topics.describe_topic_partitions",
}
"""By API name, in the order of the API keys. A token is renewed and expired by its owner and renewers, whatever ACLs say."""


def authorized(guard: Guard, handler: Handler, handle: Handle, parts: Mapping[str, object]) -> Handle:
    """The handler of an API behind its row."""
    row = ROWS.get(handler.api.name)
    refuse = getattr(handler.module, "refuse", None)
    if row is None:
        return _no_row
    if not isinstance(row, str):
        return row.bind(guard, handle, refuse if refuse is not None else _no_refuse)
    module, _, function = row.partition(".")
    collaborators = {**parts, "guard": guard, "handle": handle, "refuse": refuse}
    return bind(getattr(import_module(f"{__name__}.{module}"), function), collaborators)


def _no_row(request: Any, context: RequestContext) -> Any:
    raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "this API has no rule of authorization")


def _no_refuse(request: Any, error: KafkaError) -> Any:
    raise error
