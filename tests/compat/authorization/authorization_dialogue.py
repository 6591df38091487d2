"""The same requests by the same principals with the same ACLs, written and by chance: what a broker denies, and where it says so.

A transcript has one line for each request: case, version, principal, and the fields with a code of denied authorization. Other
codes are not compared: they depend on what was done before.
"""

from __future__ import annotations

import random
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from ottla.protocol.headers import decode_response, encode_request
from ottla.protocol.registry import API_BY_NAME
from ottla.runtime.free_ports import free_port
from ottla.security.acl import (
    ALL,
    ALLOW,
    ALTER,
    ALTER_CONFIGS,
    CLUSTER,
    CLUSTER_ACTION,
    CREATE,
    CREATE_TOKENS,
    DELETE,
    DENY,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    DESCRIBE_TOKENS,
    GROUP,
    IDEMPOTENT_WRITE,
    LITERAL,
    PREFIXED,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    USER,
    WRITE,
)
from ottla.testing import Broker
from tests.kit.authorization_cases import CASES, DENIALS, Case, Names, errors, message
from tests.kit.peers import ApacheKafka
from tests.kit.wait import until

ACL_AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
PASSWORD = "secret"
LOGINS = " ".join(f'user_{name}="{PASSWORD}"' for name in ("admin", "alice", "bob"))
JAAS = f"org.apache.kafka.common.security.plain.PlainLoginModule required {LOGINS};"
OPERATIONS = {
    TOPIC: (READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS, ALL),
    GROUP: (READ, DELETE, DESCRIBE, ALL),
    CLUSTER: (CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE, ALL),
    TRANSACTIONAL_ID: (WRITE, DESCRIBE, ALL),
    USER: (CREATE_TOKENS, DESCRIBE_TOKENS, ALL),
}
Acl = tuple[int, str, int, str, str, int, int]
"""Resource type, name, pattern type, principal, host, operation, permission."""


@dataclass
class Place:
    admin_port: int
    """PLAINTEXT: everyone there is a super user."""
    port: int
    """SASL_PLAINTEXT."""


@contextmanager
def secured(name: str) -> Iterator[Place]:
    """A broker with ACLs: `ottla`, `kafka-4.3.0` or `kafka-3.9.2`."""
    place = Place(free_port(), free_port())
    listeners = f"PLAINTEXT://127.0.0.1:{place.admin_port},SASL_PLAINTEXT://127.0.0.1:{place.port}"
    settings = {
        "super.users": "User:ANONYMOUS;User:admin",
        "authorizer.class.name": ACL_AUTHORIZER if name == "kafka-3.9.2" else STANDARD_AUTHORIZER,
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
    }
    if name == "ottla":
        with Broker({**settings, "listeners": listeners, "broker.id": "1"}):
            yield place
        return
    kafka = ApacheKafka(name.removeprefix("kafka-"))
    kafka.settings.update(settings)
    place.admin_port = kafka.port
    listeners = f"PLAINTEXT://127.0.0.1:{kafka.port},SASL_PLAINTEXT://127.0.0.1:{place.port}"
    if kafka.kraft:
        kafka.settings["advertised.listeners"] = f"{listeners},CONTROLLER://{kafka.controller_address}"
        kafka.settings["listener.security.protocol.map"] = (
            "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"
        )
        listeners = f"{listeners},CONTROLLER://{kafka.controller_address}"
    kafka.settings["listeners"] = listeners
    with kafka:
        yield place


class Speaker:
    """One connection, one request at a time."""

    def __init__(self, port: int, user: str | None = None) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), 8)
        if user is not None:
            handshake = message("sasl_handshake", "SaslHandshakeRequest", mechanism="PLAIN")
            assert self.ask("sasl_handshake", 1, handshake).error_code == 0
            token = f"\0{user}\0{PASSWORD}".encode()
            answer = self.ask("sasl_authenticate", 1, message("sasl_authenticate", "SaslAuthenticateRequest", auth_bytes=token))
            assert answer.error_code == 0, answer.error_message

    def send(self, api: str, version: int, request: object) -> None:
        self._socket.sendall(b"".join(encode_request(API_BY_NAME[api], version, 5, "me", request)))  # type: ignore[arg-type]

    def ask(self, api: str, version: int, request: object) -> Any:
        """ConnectionError if the broker closes the connection."""
        self.send(api, version, request)
        size = struct.unpack(">i", self._exactly(4))[0]
        return decode_response(API_BY_NAME[api], version, memoryview(self._exactly(size)))[1]

    def _exactly(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            more = self._socket.recv(count - len(found))
            if not more:
                raise ConnectionError("closed")
            found += more
        return found

    def close(self) -> None:
        self._socket.close()


def versions(place: Place) -> dict[str, tuple[int, int]]:
    request = message("api_versions", "ApiVersionsRequest", client_software_name="x", client_software_version="1")
    with closing(Speaker(place.admin_port)) as admin:
        told = admin.ask("api_versions", 3, request)
    served = {each.api_key: (each.min_version, each.max_version) for each in told.api_keys}
    return {name: served[api.key] for name, api in API_BY_NAME.items() if api.key in served}


def prepare(place: Place) -> bytes:
    """Topics, a group with an offset, a transactional id. Returns the id of the topic that exists."""
    with closing(Speaker(place.admin_port)) as admin:
        topics = [
            message("create_topics", "CreatableTopic", name=name, num_partitions=1, replication_factor=1)
            for name in ("t-exists", "t-other")
        ]
        admin.ask("create_topics", 5, message("create_topics", "CreateTopicsRequest", topics=topics, timeout_ms=30_000))
        for kind in (0, 1):
            request = message("find_coordinator", "FindCoordinatorRequest", key="x", key_type=kind)
            until(lambda request=request: admin.ask("find_coordinator", 3, request).error_code == 0, timeout_s=60)
        by_id = {case.id: case for case in CASES}
        names = Names("t-exists", "g-exists", "x-exists", version=4)
        commit = by_id["offset_commit"]
        until(lambda: not set(errors(admin.ask(commit.api, 4, commit.build(names)))), timeout_s=60)
        init = by_id["init_producer_id-transactional"]
        until(lambda: not set(errors(admin.ask(init.api, 4, init.build(names)))), timeout_s=60)
        asked = [message("metadata", "MetadataRequestTopic", name="t-exists")]
        (topic,) = admin.ask("metadata", 10, message("metadata", "MetadataRequest", topics=asked)).topics
        return bytes(topic.topic_id)


def set_acls(place: Place, acls: list[Acl]) -> None:
    """Replace all ACLs, and wait until the broker applies them."""
    any_acl = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
    any_name = dict.fromkeys(("resource_name_filter", "principal_filter", "host_filter"))
    with closing(Speaker(place.admin_port)) as admin:
        delete = message("delete_acls", "DeleteAclsFilter", **any_acl, **any_name)
        admin.ask("delete_acls", 2, message("delete_acls", "DeleteAclsRequest", filters=[delete]))
        creations = [
            message(
                "create_acls",
                "AclCreation",
                resource_type=kind,
                resource_name=name,
                resource_pattern_type=pattern,
                principal=principal,
                host=host,
                operation=operation,
                permission_type=permission,
            )
            for kind, name, pattern, principal, host, operation, permission in acls
        ]
        created = admin.ask("create_acls", 2, message("create_acls", "CreateAclsRequest", creations=creations))
        assert not [result for result in created.results if result.error_code]
        describe = message("describe_acls", "DescribeAclsRequest", **any_acl, **any_name)
        deadline = time.monotonic() + 60
        while True:
            told = admin.ask("describe_acls", 2, describe)
            found = {
                (each.resource_type, each.resource_name, each.pattern_type, e.principal, e.host, e.operation, e.permission_type)
                for each in told.resources
                for e in each.acls
            }
            if found == set(acls):
                return
            assert time.monotonic() < deadline, (found, acls)


def line(place: Place, case: Case, names: Names, user: str) -> str:
    """One request, and what was denied of it."""
    with closing(Speaker(place.port, user)) as client:
        request: Any = case.build(names)
        try:
            if getattr(request, "acks", 1) == 0:
                client.send(case.api, names.version, request)
                after = message("api_versions", "ApiVersionsRequest", client_software_name="x", client_software_version="1")
                client.ask("api_versions", 3, after)
                told: object = "none"
            else:
                found = errors(client.ask(case.api, names.version, request))
                told = sorted((path, code) for path, code in found if code in DENIALS)
        except ConnectionError:
            told = "closed"
        except TimeoutError:
            told = "silent"
    return f"{case.id} v{names.version} by {user}: {told}"


def names_of(case: Case, version: int, topic_id: bytes, rng: random.Random) -> Names:
    missing = case.api in ("delete_topics", "delete_groups", "join_group") or (rng.random() < 0.2 and not by_id(case, version))
    suffix = "absent" if missing else "exists"
    return Names(f"t-{suffix}", f"g-{suffix}", f"x-{suffix}", topic_id, version)


def by_id(case: Case, version: int) -> bool:
    return {"produce": 13, "fetch": 13, "offset_commit": 10, "offset_fetch": 10}.get(case.api, 99) <= version


def chance_acls(rng: random.Random) -> list[Acl]:
    exists = Names("t-exists", "g-exists", "x-exists")
    names = {kind: exists.of(kind) for kind in (TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, USER)}
    found = set()
    for _ in range(rng.randrange(25)):
        kind = rng.choice(list(names))
        name, pattern = names[kind], LITERAL
        if kind != CLUSTER:
            name, pattern = rng.choice(
                [(name, LITERAL), (name.replace("exists", "absent"), LITERAL), ("*", LITERAL), (name[:2], PREFIXED)]
            )
        found.add(
            (
                kind,
                name,
                pattern,
                rng.choice(["User:alice", "User:alice", "User:bob", "User:*"]),
                rng.choice(["*", "*", "127.0.0.1", "10.9.9.9"]),
                rng.choice(OPERATIONS[kind]),
                rng.choice([ALLOW, ALLOW, ALLOW, DENY]),
            )
        )
    return sorted(found)


NOT_COMPARED: dict[str, set[str]] = {
    # KRaft's controller tells whom may describe topics that a topic to delete does not exist, before it looks for DELETE.
    "kafka-4.3.0": {"delete_topics"},
    # With ZooKeeper there are neither configs of groups nor groups of the new protocol. A topic that is denied has two codes.
    "kafka-3.9.2": {
        "describe_configs-group",
        "incremental_alter_configs-group",
        "consumer_group_heartbeat",
        "consumer_group_describe",
        "create_topics",
    },
}


def converse(place: Place, kafka: str, seeds: range, served: Mapping[str, tuple[int, int]]) -> dict[str, list[str]]:
    """`served`: the versions that both brokers serve."""
    topic_id = prepare(place)
    transcripts: dict[str, list[str]] = {}
    nothing: list[Acl] = []
    set_acls(place, nothing)
    rng = random.Random(0)
    written: list[str] = []
    for case in comparable(kafka, served):
        low, high = served[case.api]
        for version in range(max(low, case.first_version), min(high, case.last_version) + 1):
            written.append(line(place, case, names_of(case, version, topic_id, rng), "alice"))
    transcripts["no ACL"] = written
    for seed in seeds:
        rng = random.Random(seed)
        acls = chance_acls(rng)
        set_acls(place, acls)
        lines = [f"ACLs {acls}"]
        for case in comparable(kafka, served):
            low, high = served[case.api]
            version = rng.randint(max(low, case.first_version), min(high, case.last_version))
            lines.append(
                line(place, case, names_of(case, version, topic_id, rng), rng.choice(["alice", "alice", "bob", "admin"]))
            )
        transcripts[f"seed {seed}"] = lines
    return transcripts


def comparable(kafka: str, served: Mapping[str, tuple[int, int]]) -> list[Case]:
    return [
        case
        for case in CASES
        if case.id not in NOT_COMPARED[kafka]
        and case.api in served
        and max(served[case.api][0], case.first_version) <= min(served[case.api][1], case.last_version)
    ]
