"""Figures of a broker with TLS: the loads of `measure` over an SSL listener, and handshakes.

Both brokers have the same certificate (RSA, 2048 bits, as PEM), TLS 1.3 with TLS_AES_256_GCM_SHA384, and a PLAINTEXT listener
beside the SSL one, over which topics are made.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from statistics import median

from bench.measure import PARTITIONS, READS, Cost, Figures, Scale, Server, cost, create, lines_file, load, start, touch_memory
from tests.kit.certificates import Authority
from tests.kit.peers import kcat

CIPHER = "TLS_AES_256_GCM_SHA384"


def stores(directory: Path) -> dict[str, str]:
    """The TLS settings of a broker, by Kafka's names, and the authority's certificate beside it in `authority.pem`."""
    authority = Authority()
    authority.pem_file(directory / "authority.pem")
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": authority.issue("localhost", rsa_key=True).pem_file(directory / "broker.pem"),
        "ssl.enabled.protocols": "TLSv1.3",
        "ssl.cipher.suites": CIPHER,
    }


def tls_round(server: Server, scale: Scale, directory: Path) -> Figures:
    """A fresh broker with an SSL listener, and its figures."""
    start(server)
    authority = str(directory / "authority.pem")
    create(server, "tls-warm")
    shape = {"topic": "tls-warm", "partitions": PARTITIONS, "record_bytes": 100}
    load(server, "produce", **shape, batch_records=1, connections=20, seconds=scale.warm_up_s, authority=authority, **_at(server))
    load(server, "handshakes", connections=8, seconds=scale.warm_up_s / 2, authority=authority, **_at(server))
    return {
        **_requests(server, scale, authority),
        **_handshakes(server, scale, authority),
        **_with_librdkafka(server, scale, directory),
    }


def _at(server: Server) -> dict[str, str]:
    return {"bootstrap": server.tls_bootstrap_servers}


def _requests(server: Server, scale: Scale, authority: str) -> Figures:
    create(server, "tls-requests")
    with cost(server) as spent:
        done = load(
            server, "produce", topic="tls-requests", partitions=PARTITIONS, record_bytes=100, batch_records=1,
            connections=100, requests=scale.requests, authority=authority, **_at(server),
        )  # fmt: skip
    return {"tls_requests": done["requests"] / done["seconds"], "tls_request_cpu": spent.cpu_s / done["requests"] * 1e6}


def _handshakes(server: Server, scale: Scale, authority: str) -> Figures:
    with cost(server) as spent:
        done = load(server, "handshakes", connections=8, seconds=scale.latency_s, authority=authority, **_at(server))
    return {"tls_handshakes": done["handshakes"] / done["seconds"], "tls_handshake_cpu": spent.cpu_s / done["handshakes"] * 1e6}


def _with_librdkafka(server: Server, scale: Scale, directory: Path) -> Figures:
    figures: Figures = {}
    secured = [kcat(), "-b", server.tls_bootstrap_servers, "-X", "security.protocol=SSL"]
    secured += ["-X", f"ssl.ca.location={directory / 'authority.pem'}"]
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
