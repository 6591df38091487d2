"""One module per API (one for the three requests of the controller), and the table of all of them.

The table is what ApiVersions advertises. A module `handlers/<api name>.py` has

    def handle(<collaborators>, request, context)
                                                -> response, or an awaitable of one, or None for no reply
    def refuse(request, error) -> response      only if the response has no top-level error code

A handler names the parts of the broker it uses as its first parameters, in any number and order. `app.Broker._parts` lists them.
A module is imported when its API is first requested, so that a broker starts faster.
"""

from __future__ import annotations

from ottla.broker.network.handler import Handler
from ottla.protocol.registry import API_BY_NAME

_SERVED = (
    ("produce", 0, 13),
    ("fetch", 4, 18),
    ("list_offsets", 1, 11),
    ("metadata", 0, 13),
    ("offset_commit", 1, 10),
    ("offset_fetch", 1, 10),
    ("find_coordinator", 0, 6),
    ("join_group", 0, 9),
    ("heartbeat", 0, 4),
    ("leave_group", 0, 5),
    ("sync_group", 0, 5),
    ("describe_groups", 0, 6),
    ("list_groups", 0, 5),
    ("sasl_handshake", 0, 1),
    ("api_versions", 0, 4),
    ("create_topics", 0, 7),
    ("delete_topics", 0, 6),
    ("delete_records", 0, 2),
    ("init_producer_id", 0, 5),
    ("offset_for_leader_epoch", 0, 4),
    ("write_txn_markers", 0, 2),
    ("add_partitions_to_txn", 0, 5),
    ("add_offsets_to_txn", 0, 4),
    ("end_txn", 0, 5),
    ("txn_offset_commit", 0, 5),
    ("describe_acls", 0, 3),
    ("create_acls", 0, 3),
    ("delete_acls", 0, 3),
    ("describe_configs", 0, 4),
    ("alter_configs", 0, 2),
    ("alter_replica_log_dirs", 0, 2),
    ("describe_log_dirs", 0, 5),
    ("sasl_authenticate", 0, 2),
    ("create_partitions", 0, 3),
    ("elect_leaders", 0, 2),
    ("create_delegation_token", 0, 3),
    ("renew_delegation_token", 0, 2),
    ("expire_delegation_token", 0, 2),
    ("describe_delegation_token", 0, 3),
    ("delete_groups", 0, 2),
    ("incremental_alter_configs", 0, 1),
    ("alter_partition_reassignments", 0, 1),
    ("list_partition_reassignments", 0, 0),
    ("offset_delete", 0, 0),
    ("describe_client_quotas", 0, 1),
    ("alter_client_quotas", 0, 1),
    ("describe_user_scram_credentials", 0, 0),
    ("alter_user_scram_credentials", 0, 0),
    ("describe_cluster", 0, 2),
    ("describe_producers", 0, 0),
    ("describe_transactions", 0, 0),
    ("list_transactions", 0, 2),
    ("consumer_group_heartbeat", 0, 1),
    ("consumer_group_describe", 0, 1),
    ("get_telemetry_subscriptions", 0, 0),
    ("push_telemetry", 0, 0),
    ("list_config_resources", 0, 1),
    ("describe_topic_partitions", 0, 0),
)

_FROM_THE_CONTROLLER = (
    ("leader_and_isr", 0, 7),
    ("stop_replica", 0, 4),
    ("update_metadata", 0, 8),
)

_BETWEEN_BROKERS = (
    ("controlled_shutdown", 1, 3),
    ("alter_partition", 0, 3),
    ("allocate_producer_ids", 0, 0),
)

HANDLERS: dict[int, Handler] = {
    API_BY_NAME[name].key: Handler(API_BY_NAME[name], first, last, f"{__name__}.{module or name}", table is not _SERVED)
    for table, module in ((_SERVED, ""), (_FROM_THE_CONTROLLER, "control_request"), (_BETWEEN_BROKERS, ""))
    for name, first, last in table
}


def served(*, in_cluster: bool) -> dict[int, Handler]:
    """The APIs that a broker serves, alone or in a cluster, by api key."""
    return {key: handler for key, handler in HANDLERS.items() if in_cluster or not handler.between_brokers}
