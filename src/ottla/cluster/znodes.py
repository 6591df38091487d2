"""The metadata tree: its paths and the JSON of its nodes, as Kafka 2 and 3 keep them in ZooKeeper.

No other module builds a path or parses a node. Unknown fields are ignored, as in Kafka; a node that cannot be parsed is a
`StoreError` that names its path.
"""

from __future__ import annotations

import binascii
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, unquote

from ottla.cluster.image import BrokerImage, Endpoint, PartitionImage
from ottla.ports import Random, StoreError
from ottla.types import ZERO_UUID

_INT32_MAX: Final = (1 << 31) - 1
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
CLUSTER_ID: Final = "/cluster/id"
BROKER_IDS: Final = "/brokers/ids"
BROKER_SEQUENCE: Final = "/brokers/seqid"
TOPICS: Final = "/brokers/topics"
CONFIG_TOPICS: Final = "/config/topics"
CONFIG_BROKERS: Final = "/config/brokers"
CONFIG_GROUPS: Final = "/config/groups"
CONFIG_CLIENTS: Final = "/config/clients"
CONFIG_CLIENT_METRICS: Final = "/config/client-metrics"
CONFIG_IPS: Final = "/config/ips"
CONFIG_USERS: Final = "/config/users"
CONFIG_CHANGES: Final = "/config/changes"
CONFIG_CHANGE: Final = "/config/changes/config_change_"
"""Prefix of a change notification; the store appends a sequence number."""
DELETE_TOPICS: Final = "/admin/delete_topics"
LOG_DIR_EVENTS: Final = "/log_dir_event_notification"
PREFERRED_ELECTION: Final = "/admin/preferred_replica_election"
REASSIGN_PARTITIONS: Final = "/admin/reassign_partitions"
FEATURE: Final = "/feature"
NO_FEATURES: Final = b'{"features":{},"version":2,"status":1}'
"""What Kafka 3.9 writes to /feature if no feature is finalized."""
TRANSACTION_VERSION: Final = "transaction.version"
"""The only feature in the registration of a broker."""
PRODUCER_ID_BLOCK: Final = "/latest_producer_id_block"
LOGIN_SECRET: Final = "/ottla/login_secret"
"""Ottla's own, made by the first broker with a SASL listener."""
BOOTSTRAPPED_USERS: Final = "/ottla/bootstrapped_users"
"""Ottla's own: the users of `ottla.bootstrap.users.file` were added."""
ADOPTED: Final = "/ottla/adopted"
"""Ottla's own: the topics in the data directories were adopted."""
DEFAULT_ENTITY: Final = "<default>"
BASE_PATHS: Final = (
    "/admin",
    DELETE_TOPICS,
    "/brokers",
    BROKER_IDS,
    BROKER_SEQUENCE,
    TOPICS,
    "/cluster",
    "/config",
    CONFIG_BROKERS,
    CONFIG_CHANGES,
    CONFIG_CLIENTS,
    CONFIG_CLIENT_METRICS,
    CONFIG_GROUPS,
    CONFIG_IPS,
    CONFIG_TOPICS,
    CONFIG_USERS,
    "/consumers",
    "/isr_change_notification",
    PRODUCER_ID_BLOCK,
    LOG_DIR_EVENTS,
    "/ottla",
)
"""Created by the first start, parents before children."""


RESERVED_UUIDS: Final = (ZERO_UUID, bytes(15) + b"\x01")
"""Kafka uses these for "no id" and for its metadata topic."""


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    return f"{TOPICS}/{topic}/partitions"


def partition_path(topic: str, partition: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{partition}"


def partition_state_path(topic: str, partition: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{partition}/state"


def topic_config_path(topic: str) -> str:
    return f"{CONFIG_TOPICS}/{topic}"


def topic_of(path: str) -> str:
    """The topic whose node or config node is at a path or above it; empty for other paths."""
    for parent in (TOPICS, CONFIG_TOPICS):
        if path.startswith(f"{parent}/"):
            return path[len(parent) + 1 :].partition("/")[0]
    return ""


def broker_config_path(name: str) -> str:
    """The dynamic configs of a broker; "" is the cluster-wide default."""
    return f"{CONFIG_BROKERS}/{name or DEFAULT_ENTITY}"


def group_config_path(group_id: str) -> str:
    return f"{CONFIG_GROUPS}/{node_name(group_id)}"


def client_metrics_config_path(name: str) -> str:
    return f"{CONFIG_CLIENT_METRICS}/{node_name(name)}"


def node_name(text: str) -> str:
    """A text as the name of a node, escaped as Kafka escapes users and client ids."""
    name = quote(text, safe="").replace("~", "%7E")
    # ZooKeeper does not allow the path elements "." and "..".
    return name.replace(".", "%2E") if name.strip(".") == "" else name


def text_of_node(name: str) -> str:
    return unquote(name)


def broker_path(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def encode_controller(broker_id: int, now_ms: int) -> bytes:
    return _encode({"version": 2, "brokerid": broker_id, "timestamp": str(now_ms), "kraftControllerEpoch": -1})


def decode_controller(data: bytes) -> int:
    """The broker id of the controller."""
    with _parsing(CONTROLLER):
        return int(_decode(CONTROLLER, data)["brokerid"])


def decode_controller_epoch(data: bytes) -> int:
    with _parsing(CONTROLLER_EPOCH):
        return int(data)


def encode_cluster_id(cluster_id: str) -> bytes:
    return _encode({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    with _parsing(CLUSTER_ID):
        return str(_decode(CLUSTER_ID, data)["id"])


def encode_broker(broker: BrokerImage, now_ms: int) -> bytes:
    plain = next((endpoint for endpoint in broker.endpoints if endpoint.security_protocol == "PLAINTEXT"), None)
    fields: dict[str, object] = {
        "version": 5,
        "host": plain.host if plain else None,
        "port": plain.port if plain else -1,
        "jmx_port": -1,
        "timestamp": str(now_ms),
        "endpoints": [str(endpoint) for endpoint in broker.endpoints],
        "listener_security_protocol_map": {endpoint.listener: endpoint.security_protocol for endpoint in broker.endpoints},
    }
    if broker.rack is not None:
        fields["rack"] = broker.rack
    version = broker.transaction_version
    return _encode(fields | {"features": {TRANSACTION_VERSION: {"min_version": 0, "max_version": version}} if version else {}})


def decode_broker(broker_id: int, data: bytes, czxid: int) -> BrokerImage:
    path = broker_path(broker_id)
    with _parsing(path):
        fields = _decode(path, data)
        protocols = fields["listener_security_protocol_map"]
        endpoints = tuple(_decode_endpoint(text, protocols) for text in fields["endpoints"])
        features = fields.get("features") or {}
        version = int(features[TRANSACTION_VERSION]["max_version"]) if TRANSACTION_VERSION in features else 0
        return BrokerImage(broker_id, czxid, fields.get("rack"), endpoints, version)


def _decode_endpoint(text: str, protocols: Mapping[str, str]) -> Endpoint:
    listener, _, address = text.partition("://")
    host, _, port = address.rpartition(":")
    return Endpoint(listener, host.strip("[]"), int(port), protocols[listener])


@dataclass(frozen=True, slots=True)
class TopicNode:
    topic_id: bytes | None
    replicas: Mapping[int, tuple[int, ...]]
    adding: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """By partition, of partitions that are being reassigned."""
    removing: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


def encode_topic(topic_id: bytes, partitions: Sequence[PartitionImage]) -> bytes:
    moving = [(str(number), partition) for number, partition in enumerate(partitions) if partition.adding or partition.removing]
    return _encode(
        {
            "version": 3,
            "partitions": {str(number): list(partition.replicas) for number, partition in enumerate(partitions)},
            "adding_replicas": {number: list(partition.adding) for number, partition in moving if partition.adding},
            "removing_replicas": {number: list(partition.removing) for number, partition in moving if partition.removing},
            "topic_id": uuid_text(topic_id),
        }
    )


def decode_topic(topic: str, data: bytes) -> TopicNode:
    path = topic_path(topic)
    with _parsing(path):
        fields = _decode(path, data)
        topic_id = fields.get("topic_id")
        return TopicNode(
            uuid_bytes(topic_id) if topic_id else None,
            _by_partition(fields["partitions"]),
            _by_partition(fields.get("adding_replicas") or {}),
            _by_partition(fields.get("removing_replicas") or {}),
        )


def topic_outline(topic: str, data: bytes) -> tuple[bytes | None, int]:
    """(topic id, number of partitions): cheaper than `decode_topic` for a large topic."""
    path = topic_path(topic)
    with _parsing(path):
        fields = _decode(path, data)
        topic_id = fields.get("topic_id")
        return uuid_bytes(topic_id) if topic_id else None, len(fields["partitions"])


def _by_partition(fields: Mapping[str, Sequence[int]]) -> dict[int, tuple[int, ...]]:
    return {int(partition): _broker_ids(brokers) for partition, brokers in fields.items()}


def _broker_ids(found: object) -> tuple[int, ...]:
    """A list of broker ids. ValueError if one is out of range: every control request with it would fail to encode."""
    if not isinstance(found, list) or not all(type(each) is int and 0 <= each <= _INT32_MAX for each in found):
        raise ValueError(f"invalid broker ids: {found!r}")
    return tuple(found)


def encode_partition_state(partition: PartitionImage, controller_epoch: int) -> bytes:
    fields: dict[str, object] = {
        "version": 1,
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "controller_epoch": controller_epoch,
        "isr": list(partition.isr),
    }
    if partition.recovering:
        fields["leader_recovery_state"] = 1
    return _encode(fields)


def decode_partition_state(path: str, data: bytes, replicas: tuple[int, ...], version: int) -> PartitionImage:
    with _parsing(path):
        fields = _decode(path, data)
        leader, leader_epoch = int(fields["leader"]), int(fields["leader_epoch"])
        if not -2 <= leader <= _INT32_MAX or not 0 <= leader_epoch <= _INT32_MAX:
            raise ValueError(f"leader {leader}, leader epoch {leader_epoch}")
        return PartitionImage(
            leader,
            leader_epoch,
            _broker_ids(fields["isr"]),
            replicas,
            version,
            recovering=bool(fields.get("leader_recovery_state", 0)),
        )


def encode_config(config: Mapping[str, str]) -> bytes:
    return _encode({"version": 1, "config": dict(config)})


def decode_config(path: str, data: bytes) -> dict[str, str]:
    with _parsing(path):
        return {str(name): str(value) for name, value in _decode(path, data)["config"].items()}


def encode_config_change(entity_path: str) -> bytes:
    """A notification that the configs of `topics/T`, `brokers/1` … changed."""
    return _encode({"version": 2, "entity_path": entity_path})


def decode_config_change(data: bytes) -> str | None:
    """The entity path; None for a notification that cannot be parsed."""
    try:
        fields = _decode(CONFIG_CHANGES, data)
        if fields.get("version") == 1:
            return f"{fields['entity_type']}/{fields['entity_name']}"
        return str(fields["entity_path"])
    except (StoreError, KeyError):
        return None


def encode_log_dir_event(broker_id: int) -> bytes:
    return _encode({"version": 1, "broker": broker_id, "event": 1})


def decode_log_dir_event(data: bytes) -> int | None:
    """The broker with the failed directory; None if it cannot be parsed."""
    try:
        return int(_decode(LOG_DIR_EVENTS, data)["broker"])
    except (StoreError, KeyError, TypeError, ValueError):
        return None


def decode_reassignment(data: bytes) -> dict[tuple[str, int], tuple[int, ...]]:
    """(topic, partition) -> replicas, as tools before KIP-455 request a reassignment. Empty if it cannot be parsed."""
    try:
        partitions = _decode(REASSIGN_PARTITIONS, data)["partitions"]
        return {(str(each["topic"]), int(each["partition"])): tuple(map(int, each["replicas"])) for each in partitions}
    except (StoreError, KeyError, TypeError, ValueError):
        return {}


def encode_reassignment(wanted: Mapping[tuple[str, int], Sequence[int]]) -> bytes:
    partitions = [
        {"topic": topic, "partition": partition, "replicas": list(brokers)} for (topic, partition), brokers in wanted.items()
    ]
    return _encode({"version": 1, "partitions": partitions})


def decode_preferred_election(data: bytes) -> list[tuple[str, int]]:
    """The partitions, as tools before KIP-460 request an election. Empty if it cannot be parsed."""
    try:
        return [(str(each["topic"]), int(each["partition"])) for each in _decode(PREFERRED_ELECTION, data)["partitions"]]
    except (StoreError, KeyError, TypeError, ValueError):
        return []


def encode_producer_id_block(broker_id: int, first: int, last: int) -> bytes:
    return _encode({"version": 1, "broker": broker_id, "block_start": str(first), "block_end": str(last)})


def decode_producer_id_block(data: bytes) -> int:
    """The last producer id that was allocated; -1 if none was."""
    if not data:
        return -1
    with _parsing(PRODUCER_ID_BLOCK):
        return int(_decode(PRODUCER_ID_BLOCK, data)["block_end"])


@contextmanager
def _parsing(path: str) -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreError(f"{path} cannot be parsed: {error!r}") from error


def _encode(fields: Mapping[str, object]) -> bytes:
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()


def _decode(path: str, data: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(data)
    except ValueError as error:
        raise StoreError(f"{path} is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise StoreError(f"{path} does not hold a JSON object")
    return fields


def uuid_text(uuid: bytes) -> str:
    """A topic id or cluster id, 16 bytes, as 22 characters of URL-safe base64."""
    assert len(uuid) == 16, uuid
    return urlsafe_b64encode(uuid).decode("ascii")[:22]


def uuid_bytes(text: str) -> bytes:
    """The id of a text; ValueError if it is none."""
    if len(text) != 22:
        raise ValueError(f"{text!r} is not an id: 22 characters are needed")
    try:
        return urlsafe_b64decode(text + "==")
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{text!r} is not an id: {error}") from None


def new_uuid(random: Random) -> bytes:
    """A random id (version 4) whose text does not begin with a dash, which a command line would parse as an option."""
    while True:
        raw = bytearray(random.bytes(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        uuid = bytes(raw)
        if uuid not in RESERVED_UUIDS and not uuid_text(uuid).startswith("-"):
            return uuid
