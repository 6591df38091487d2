"""Client properties, names and addresses: can a client here reach every broker where it says it is?"""

from __future__ import annotations

import ipaddress
import socket
import stat
from collections.abc import Iterator

from ottla.cli.cluster.view import ClusterView
from ottla.cli.connection import CONNECT_TIMEOUT_S, split_servers
from ottla.cli.doctor.case import Case
from ottla.cli.doctor.finding import Finding, Severity
from ottla.cli.failure import Failure
from ottla.cli.plain_request import call
from ottla.cli.profile.definition import is_secret
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse


def client(case: Case) -> Iterator[Finding]:
    """The client properties."""
    security = case.connection.security
    remote = [host for host, _ in split_servers(case.connection.bootstrap_servers) if not is_here(host)]
    if security.protocol == "SASL_PLAINTEXT" and security.mechanism == "PLAIN" and remote:
        yield Finding(
            "client", Severity.WARNING, "security.protocol", f"the password goes to {remote[0]} in the clear",
            "use security.protocol=SASL_SSL, or sasl.mechanism=SCRAM-SHA-512, on a listener of the brokers that has it",
        )  # fmt: skip
    if security.protocol == "PLAINTEXT" and remote:
        yield Finding("client", Severity.INFO, "security.protocol", "records travel unencrypted, and nobody logs in")
    if security.encrypted and not security.tls.check_certificate:
        name = "enable.ssl.certificate.verification"
        what = "certificates of brokers are not checked: anybody can pretend to be one"
        yield Finding("client", Severity.WARNING, name, what, f"remove {name}=false")
    path = case.command_config
    if path is not None and any(is_secret(name, value) for name, value in case.connection.properties.items()):
        mode = path.stat().st_mode
        if mode & (stat.S_IRGRP | stat.S_IROTH):
            yield Finding(
                "client",
                Severity.WARNING,
                str(path),
                "it holds secrets, and other users of this machine can read it",
                f"chmod 600 {path}",
            )


def bootstrap(case: Case) -> Iterator[Finding]:
    """Each of the bootstrap servers: one that is away is noticed only when the others are."""
    for host, port in split_servers(case.connection.bootstrap_servers):
        problem = _unreachable(host, port)
        if problem is not None:
            yield Finding(
                "bootstrap",
                Severity.WARNING,
                f"{host}:{port}",
                problem,
                "remove it from bootstrap.servers, or start the broker there",
            )


def unreachable(view: ClusterView) -> dict[int, str]:
    """The brokers that cannot be reached at their advertised addresses, and why."""
    found = {broker.broker_id: _unreachable(*broker.address) for broker in view.brokers.values() if broker.address is not None}
    return {broker: why for broker, why in found.items() if why is not None}


def listeners(case: Case) -> Iterator[Finding]:
    """The advertised address of each broker: it is what clients connect to after the first answer."""
    from_afar = any(not is_here(host) for host, _ in split_servers(case.connection.bootstrap_servers))
    for broker in case.view.brokers.values():
        assert broker.address is not None
        host, port = broker.address
        where, mend = f"broker {broker.broker_id}", f"ottla config describe broker {broker.broker_id} advertised.listeners"
        if broker.broker_id in case.unreachable:
            what = f"it advertises {host}:{port}: {case.unreachable[broker.broker_id]}"
            yield Finding("listeners", Severity.ERROR, where, what, mend)
        elif from_afar and is_here(host):
            what = f"it advertises {host}:{port}, where each machine reaches only itself"
            yield Finding("listeners", Severity.ERROR, where, what, mend)
        else:
            yield from _same_cluster(case, where, broker.address, mend)


def _same_cluster(case: Case, where: str, address: tuple[str, int], mend: str) -> Iterator[Finding]:
    try:
        told = call(case.connection, "metadata", 9, MetadataRequest(topics=[]), MetadataResponse, address)
    except Failure as failure:
        yield Finding("listeners", Severity.ERROR, where, f"it does not answer there: {failure.message}", failure.hint or mend)
        return
    if told.cluster_id != case.view.cluster_id:
        what = f"at its advertised address {address[0]}:{address[1]} answers another cluster, {told.cluster_id}"
        yield Finding("listeners", Severity.ERROR, where, what, mend)


def _unreachable(host: str, port: int) -> str | None:
    try:
        socket.create_connection((host, port), CONNECT_TIMEOUT_S).close()
    except socket.gaierror:
        return f"the name {host} does not resolve here"
    except TimeoutError:
        return "nothing answers there (a firewall?)"
    except OSError as error:
        return f"it cannot be reached from here: {error.strerror or error}"
    return None


def is_here(host: str) -> bool:
    """Whether the address means the machine that uses it."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
