"""Ten thousand clients that never log in: bounded memory, and a place left for one that does (F87)."""

from __future__ import annotations

import os
import resource
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from ottla.testing import Broker, Security
from tests.kit.wait import until

CONNECTIONS = 10_000
RESIDENT_BYTES_MAX = 400 << 20
"""Of 10,000 connections, most of which have sent the beginning of a request of half a megabyte: 40 KB each."""
BEGUN = (
    b"",
    b"\0\0\0",
    struct.pack(">i", 524_288) + b"x" * 1000,
    struct.pack(">ihhih", 10, 18, 0, 1, -1),
    bytes.fromhex("16030100c8010000c40303"),
)
"""Nothing, half a length, the beginning of a large request, ApiVersions, the beginning of a TLS handshake."""


@pytest.fixture
def descriptors() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limits[1] != resource.RLIM_INFINITY and limits[1] < CONNECTIONS + 1000:
        pytest.fail(f"needs {CONNECTIONS + 1000} open files: raise the hard limit (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (CONNECTIONS + 1000, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.slow
@pytest.mark.usefixtures("descriptors")
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_sa04_ten_thousand_clients_that_do_not_log_in_leave_a_place(protocol: str) -> None:
    with Broker(security=Security(protocol, mechanisms=("PLAIN", "SCRAM-SHA-256"))) as broker:
        assert broker.process is not None
        process = Path(f"/proc/{broker.process.pid}")
        host, _, port = broker.bootstrap_servers.rpartition(":")
        before_bytes, before_files = resident_bytes(process), open_files(process)
        clients = [begin(host, int(port), BEGUN[number % len(BEGUN)]) for number in range(CONNECTIONS)]
        assert resident_bytes(process) - before_bytes < RESIDENT_BYTES_MAX
        admin = AdminClient(broker.client_config())
        assert len(admin.list_topics(timeout=60).brokers) == 1
        for client in clients:
            client.close()
        del admin
        until(lambda: open_files(process) <= before_files, "all are closed", timeout_s=60)
        assert "Traceback" not in broker.log
        assert len(broker.log) < 1 << 20, "a few lines stand for all of them"


def begin(host: str, port: int, data: bytes) -> socket.socket:
    client = socket.create_connection((host, port), timeout=60)
    try:
        client.sendall(data)
    except OSError:
        pass  # the broker has closed it
    return client


def resident_bytes(process: Path) -> int:
    return int((process / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def open_files(process: Path) -> int:
    return len(os.listdir(process / "fd"))
