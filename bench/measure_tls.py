"""Figures of a broker with TLS, ACLs and quotas: the loads of `measure` over an SSL listener, and handshakes.

Both brokers have the same certificate (RSA, 2048 bits, as PEM), TLS 1.3 with TLS_AES_256_GCM_SHA384, and a PLAINTEXT listener
beside the SSL one, for whoever sets them up: a super user. Clients are known by their certificates. There are 10,000 ACLs, of
which two are theirs, and quotas for every user, which nobody exceeds. A second broker with TLS alone answers the same requests in
turn with the first.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from bench.measure import (
    PARTITIONS,
    READS,
    Cost,
    Figures,
    Scale,
    Server,
    cost,
    create,
    high_watermark,
    lines_file,
    load,
    start,
    touch_memory,
)
from tests.kit.certificates import Authority
from tests.kit.peers import kcat
from tests.kit.raw import RawConnection

CIPHER = "TLS_AES_256_GCM_SHA384"
ACLS = 10_000
ACLS_AT_ONCE = 1_000
QUOTAS = ("producer_byte_rate=1000000000000", "consumer_byte_rate=1000000000000", "request_percentage=1000000")
TURNS = 4
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
"""Over PLAINTEXT everybody is anonymous."""


def stores(directory: Path) -> dict[str, str]:
    """The TLS settings of a broker, by Kafka's names. Beside them the authority's certificate in `authority.pem`, and a client's
    with its key in `client.pem`."""
    authority = Authority()
    trusted = authority.pem_file(directory / "authority.pem")
    authority.issue("client").pem_file(directory / "client.pem")
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": authority.issue("localhost", rsa_key=True).pem_file(directory / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": trusted,
        "ssl.client.auth": "requested",
        "ssl.enabled.protocols": "TLSv1.3",
        "ssl.cipher.suites": CIPHER,
    }


def tls_round(new: Callable[[dict[str, str]], Server], close: Callable[[Server], None], scale: Scale, directory: Path) -> Figures:
    """Two fresh brokers, of which one has ACLs and quotas, and their figures. `new` makes one with these settings."""
    tls = stores(directory)
    server, unsecured = new(tls | AUTHORIZER), new(tls)
    known = {"authority": str(directory / "authority.pem"), "certificate": str(directory / "client.pem")}
    try:
        for each in (server, unsecured):
            start(each)
            if each is server:
                _limit(server)
            create(each, "tls-warm")
            shape = {"topic": "tls-warm", "partitions": PARTITIONS, "record_bytes": 100}
            load(each, "produce", **shape, batch_records=1, connections=20, seconds=scale.warm_up_s, **known, **_at(each))
        requests = _requests(server, unsecured, scale, known)
        close(unsecured)
        load(server, "handshakes", connections=8, seconds=scale.warm_up_s / 2, authority=known["authority"], **_at(server))
        return {
            **requests,
            **_handshakes(server, scale, known["authority"]),
            **_with_raw_load(server, scale, known),
            **_with_librdkafka(server, scale, directory),
        }
    finally:
        close(server)
        close(unsecured)


def _limit(server: Server) -> None:
    """ACLs of many, among them those of the client, and quotas for all."""
    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})

    def allow(principal: str, topic: str, pattern: ResourcePatternType, operation: AclOperation) -> AclBinding:
        return AclBinding(ResourceType.TOPIC, topic, pattern, principal, "*", operation, AclPermissionType.ALLOW)

    operations = (AclOperation.READ, AclOperation.WRITE)
    bindings = [allow("User:CN=client", "tls-", ResourcePatternType.PREFIXED, operation) for operation in operations]
    bindings += [
        allow(f"User:CN=other-{number}", f"topic-{number}", ResourcePatternType.LITERAL, AclOperation.READ)
        for number in range(ACLS - len(bindings))
    ]
    for begin in range(0, ACLS, ACLS_AT_ONCE):
        for done in admin.create_acls(bindings[begin : begin + ACLS_AT_ONCE]).values():
            done.result(60)
    command = [sys.executable, "-m", "ottla", "quota", "set", "-b", server.bootstrap_servers, "--user-defaults", *QUOTAS]
    subprocess.run(command, check=True, capture_output=True)


def _at(server: Server) -> dict[str, str]:
    return {"bootstrap": server.tls_bootstrap_servers}


def _requests(server: Server, unsecured: Server, scale: Scale, known: dict[str, str]) -> Figures:
    found: dict[str, list[float]] = {}
    both = [("", server), ("_open", unsecured)]
    for turn in range(TURNS):
        for suffix, each in both if turn % 2 else both[::-1]:  # who comes first has more to do, whoever it is
            create(each, f"tls-requests-{turn}")
            with cost(each) as spent:
                done = load(
                    each, "produce", topic=f"tls-requests-{turn}", partitions=PARTITIONS, record_bytes=100, batch_records=1,
                    connections=100, requests=scale.requests, **known, **_at(each),
                )  # fmt: skip
            found.setdefault(f"tls_requests{suffix}", []).append(done["requests"] / done["seconds"])
            found.setdefault(f"tls_request{suffix}_cpu", []).append(spent.cpu_s / done["requests"] * 1e6)
    return {name: median(values) for name, values in found.items()}


def _with_raw_load(server: Server, scale: Scale, known: dict[str, str]) -> Figures:
    """As `measure.with_raw_load`: prepared 64 KB batches over six connections, and fetches of 1 MB."""
    shape: dict[str, Any] = {"topic": "tls-raw", "partitions": PARTITIONS, "record_bytes": 1_000, "batch_records": 64}
    requests = scale.client_bytes // 64_000 // PARTITIONS * PARTITIONS
    create(server, "tls-raw")
    touch_memory(scale.client_bytes)
    with cost(server) as spent:
        done = load(
            server, "produce", **shape, acks=-1, connections=PARTITIONS, in_flight=5, requests=requests, **known, **_at(server)
        )
    figures = {"tls_raw_produce": done["bytes"] / done["seconds"] / 1e6, "tls_raw_produce_cpu": spent.cpu_s / done["bytes"] * 1e9}
    with RawConnection(server.bootstrap_servers) as connection:
        shortest = min(high_watermark(connection, "tls-raw", each) or 0 for each in range(PARTITIONS)) // 64
    layout = {"batch_bytes": done["batch_bytes"], "batch_records": 64, "batches": shortest}
    fetch: dict[str, Any] = {"topic": "tls-raw", "partitions": PARTITIONS, "layout": layout, "connections": PARTITIONS}
    reads: list[tuple[float, float]] = []
    for _ in range(READS):
        with cost(server) as spent:
            done = load(server, "fetch", **fetch, **known, **_at(server))
        reads.append((done["bytes"] / done["seconds"] / 1e6, spent.cpu_s / done["bytes"] * 1e9))
    figures["tls_raw_consume"], figures["tls_raw_consume_cpu"] = (median(values) for values in zip(*reads, strict=True))
    return figures


def _handshakes(server: Server, scale: Scale, authority: str) -> Figures:
    with cost(server) as spent:
        done = load(server, "handshakes", connections=8, seconds=scale.latency_s, authority=authority, **_at(server))
    return {"tls_handshakes": done["handshakes"] / done["seconds"], "tls_handshake_cpu": spent.cpu_s / done["handshakes"] * 1e6}


def _with_librdkafka(server: Server, scale: Scale, directory: Path) -> Figures:
    figures: Figures = {}
    secured = [kcat(), "-b", server.tls_bootstrap_servers, "-X", "security.protocol=SSL"]
    secured += ["-X", f"ssl.ca.location={directory / 'authority.pem'}"]
    secured += [word for kind in ("certificate", "key") for word in ("-X", f"ssl.{kind}.location={directory / 'client.pem'}")]
    for size in (100, 1_000):
        count = scale.client_bytes // size // 2_000 * 2_000
        lines = lines_file(directory, size, count)
        topic = f"tls-client-{size}"
        create(server, topic)
        touch_memory(scale.client_bytes)
        with cost(server) as spent:
            subprocess.run([*secured, "-P", "-t", topic, "-X", "acks=all", "-l", str(lines)], check=True, capture_output=True)
        figures[f"tls_produce_{size}"] = count * size / spent.seconds / 1e6
        figures[f"tls_produce_{size}_cpu"] = spent.cpu_s / (count * size) * 1e9
        command = [*secured, "-C", "-t", topic, "-o", "beginning", "-q", "-f", "%o", "-c", str(count)]
        command += ["-X", "queued.min.messages=10000000", "-X", "queued.max.messages.kbytes=1048576"]
        reads: list[Cost] = []
        for _ in range(READS):
            with cost(server) as spent:
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            reads.append(spent)
        figures[f"tls_consume_{size}"] = count * size / median(read.seconds for read in reads) / 1e6
        figures[f"tls_consume_{size}_cpu"] = median(read.cpu_s for read in reads) / (count * size) * 1e9
    return figures
