"""All APIs by key and by name.

Owns the table of keys, names and versions that the message modules define: those of Kafka 3.9 and 4.3 together. The APIs that a
broker serves and advertises are in `broker.handlers`. A message module is imported when it is first used.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any


@dataclass(frozen=True, slots=True)
class Api:
    """One API. `flexible_from` is the first version with compact lengths and tagged fields, None if there is none."""

    key: int
    name: str
    min_version: int
    max_version: int
    flexible_from: int | None

    @property
    def request(self) -> type[Any]:
        return _message_class(self.name, "Request")

    @property
    def response(self) -> type[Any]:
        return _message_class(self.name, "Response")

    def is_flexible(self, version: int) -> bool:
        return self.flexible_from is not None and version >= self.flexible_from


@cache
def _message_class(name: str, kind: str) -> type[Any]:
    module = import_module(f"ottla.protocol.messages.{name}")
    found: type[Any] = getattr(module, "".join(word.capitalize() for word in name.split("_")) + kind)
    return found


_APIS = (
    Api(0, "produce", 0, 13, 9),
    Api(1, "fetch", 0, 18, 12),
    Api(2, "list_offsets", 0, 11, 6),
    Api(3, "metadata", 0, 13, 9),
    Api(4, "leader_and_isr", 0, 7, 4),
    Api(5, "stop_replica", 0, 4, 2),
    Api(6, "update_metadata", 0, 8, 6),
    Api(7, "controlled_shutdown", 0, 3, 3),
    Api(8, "offset_commit", 0, 10, 8),
    Api(9, "offset_fetch", 0, 10, 6),
    Api(10, "find_coordinator", 0, 6, 3),
    Api(11, "join_group", 0, 9, 6),
    Api(12, "heartbeat", 0, 4, 4),
    Api(13, "leave_group", 0, 5, 4),
    Api(14, "sync_group", 0, 5, 4),
    Api(15, "describe_groups", 0, 6, 5),
    Api(16, "list_groups", 0, 5, 3),
    Api(17, "sasl_handshake", 0, 1, None),
    Api(18, "api_versions", 0, 4, 3),
    Api(19, "create_topics", 0, 7, 5),
    Api(20, "delete_topics", 0, 6, 4),
    Api(21, "delete_records", 0, 2, 2),
    Api(22, "init_producer_id", 0, 6, 2),
    Api(23, "offset_for_leader_epoch", 0, 4, 4),
    Api(24, "add_partitions_to_txn", 0, 5, 3),
    Api(25, "add_offsets_to_txn", 0, 4, 3),
    Api(26, "end_txn", 0, 5, 3),
    Api(27, "write_txn_markers", 0, 2, 1),
    Api(28, "txn_offset_commit", 0, 5, 3),
    Api(29, "describe_acls", 0, 3, 2),
    Api(30, "create_acls", 0, 3, 2),
    Api(31, "delete_acls", 0, 3, 2),
    Api(32, "describe_configs", 0, 4, 4),
    Api(33, "alter_configs", 0, 2, 2),
    Api(34, "alter_replica_log_dirs", 0, 2, 2),
    Api(35, "describe_log_dirs", 0, 5, 2),
    Api(36, "sasl_authenticate", 0, 2, 2),
    Api(37, "create_partitions", 0, 3, 2),
    Api(38, "create_delegation_token", 0, 3, 2),
    Api(39, "renew_delegation_token", 0, 2, 2),
    Api(40, "expire_delegation_token", 0, 2, 2),
    Api(41, "describe_delegation_token", 0, 3, 2),
    Api(42, "delete_groups", 0, 2, 2),
    Api(43, "elect_leaders", 0, 2, 2),
    Api(44, "incremental_alter_configs", 0, 1, 1),
    Api(45, "alter_partition_reassignments", 0, 1, 0),
    Api(46, "list_partition_reassignments", 0, 0, 0),
    Api(47, "offset_delete", 0, 0, None),
    Api(48, "describe_client_quotas", 0, 1, 1),
    Api(49, "alter_client_quotas", 0, 1, 1),
    Api(50, "describe_user_scram_credentials", 0, 0, 0),
    Api(51, "alter_user_scram_credentials", 0, 0, 0),
    Api(55, "describe_quorum", 0, 2, 0),
    Api(56, "alter_partition", 0, 3, 0),
    Api(57, "update_features", 0, 2, 0),
    Api(60, "describe_cluster", 0, 2, 0),
    Api(61, "describe_producers", 0, 0, 0),
    Api(65, "describe_transactions", 0, 0, 0),
    Api(66, "list_transactions", 0, 2, 0),
    Api(67, "allocate_producer_ids", 0, 0, 0),
    Api(68, "consumer_group_heartbeat", 0, 1, 0),
    Api(69, "consumer_group_describe", 0, 1, 0),
    Api(71, "get_telemetry_subscriptions", 0, 0, 0),
    Api(72, "push_telemetry", 0, 0, 0),
    Api(74, "list_config_resources", 0, 1, 0),
    Api(75, "describe_topic_partitions", 0, 0, 0),
)

API_BY_KEY: dict[int, Api] = {api.key: api for api in _APIS}
API_BY_NAME: dict[str, Api] = {api.name: api for api in _APIS}
