"""Connects to ZooKeeper: parses zookeeper.connect, starts a kazoo client, and says why it cannot connect."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from typing import TYPE_CHECKING, Final

from ottla.ports import StoreError, StoreUnavailable
from ottla.runtime.zookeeper_security import UNSECURED, ZooKeeperSecurity

if TYPE_CHECKING:
    from kazoo.client import KazooClient

_PROBE_S: Final = 1.0
_LOGIN_SETTING: Final = "check the section Client of java.security.auth.login.config"
_POLL_S: Final = 0.01


async def connect_client(
    connect: str, session_timeout_ms: int, connection_timeout_ms: int, security: ZooKeeperSecurity = UNSECURED
) -> KazooClient:
    """A connected client whose root is the chroot. StoreError if there is none."""
    try:
        from kazoo.client import KazooClient
        from kazoo.exceptions import AuthFailedError, KazooException
        from kazoo.retry import KazooRetry
    except ImportError:
        raise StoreUnavailable("zookeeper.connect needs the package kazoo: pip install 'ottla[cluster]'") from None
    hosts, chroot = parse_connect(connect)
    logging.getLogger("kazoo").setLevel(logging.ERROR)
    client = KazooClient(
        hosts=",".join(hosts),
        timeout=session_timeout_ms / 1000,
        connection_retry=KazooRetry(max_tries=-1, delay=0.05, backoff=2, max_delay=1.0, max_jitter=0.2),
        command_retry=KazooRetry(max_tries=0),
        **security.client_options(),
    )
    try:
        async with asyncio.timeout(connection_timeout_ms / 1000):
            await _start(client, security)
        if chroot:
            await asyncio.to_thread(client.ensure_path, chroot, security.acl_of(chroot))
            client.chroot = chroot
    except (KazooException, OSError) as error:
        await asyncio.to_thread(stop_client, client)
        login_refused = f"it refuses the login of {security.username}: {_LOGIN_SETTING}"
        if isinstance(error, AuthFailedError):
            why = login_refused
        else:
            if isinstance(error, TimeoutError):
                why = "; ".join(await asyncio.gather(*(asyncio.to_thread(_why_not, host, security.tls) for host in hosts)))
            else:
                why = str(error) or type(error).__name__
            if security.username:
                # On a wrong password ZooKeeper often closes the connection without a word, before or after the session began.
                why += f"; or {login_refused}"
        raise StoreUnavailable(
            f"ZooKeeper cannot be reached at zookeeper.connect={connect} within {connection_timeout_ms} ms: {why}"
        ) from error
    except BaseException:
        await asyncio.to_thread(stop_client, client)
        raise
    return client


def parse_connect(connect: str) -> tuple[list[str], str]:
    """(hosts, chroot) of `host:port,host:port/chroot`, as Kafka parses it. StoreError for anything else."""
    addresses, slash, path = connect.strip().partition("/")
    hosts = [address.strip() for address in addresses.split(",") if address.strip()]
    if not hosts:
        raise StoreError(
            f"zookeeper.connect={connect!r} names no host; allowed: host:2181,host2:2181/path; leave it out for a single broker"
        )
    checked: list[str] = []
    for host in hosts:
        name, colon, port = host.rpartition(":")
        if not colon:
            name, port = host, "2181"
        is_name = bool(name) and (":" not in name or (name[0] == "[" and name[-1] == "]"))
        if not is_name or not port.isdigit() or not 0 < int(port) < 65536:
            raise StoreError(f"zookeeper.connect={connect!r}: {host!r} is not host:port")
        checked.append(f"{name}:{port}")
    chroot = f"{slash}{path}".rstrip("/")
    if "//" in chroot or any(part in (".", "..") for part in path.split("/")):
        raise StoreError(f"zookeeper.connect={connect!r}: {chroot!r} is not a ZooKeeper path")
    return checked, chroot


def _why_not(address: str, tls: ssl.SSLContext | None) -> str:
    """Why a server cannot be reached, as a probe finds it."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _PROBE_S) as plain:
            if tls is not None:
                tls.wrap_socket(plain, server_hostname=host.strip("[]")).close()
            return f"{address} accepts connections but does not answer as ZooKeeper"
    except ssl.SSLCertVerificationError as error:
        return f"{address} shows a certificate that is not trusted: {error.verify_message} (zookeeper.ssl.*)"
    except ssl.SSLError as error:
        return f"{address}: TLS failed: {error.reason or error} (zookeeper.ssl.*)"
    except socket.gaierror:
        return f"unknown host {host}"
    except TimeoutError:
        return f"{address} does not answer"
    except OSError as error:
        return f"{address}: {(error.strerror or str(error)).lower()}"


async def _start(client: KazooClient, security: ZooKeeperSecurity) -> None:
    """`client.start` waits in a thread that cannot be interrupted: a broker that is asked to stop meanwhile would hang."""
    from kazoo.protocol.states import KeeperState

    connected = client.start_async()
    while not connected.is_set():
        if client.client_state == KeeperState.AUTH_FAILED:
            raise StoreUnavailable(f"ZooKeeper refuses the login of {security.username}: {_LOGIN_SETTING}")
        await asyncio.sleep(_POLL_S)


def stop_client(client: KazooClient) -> None:
    client.stop()
    client.close()
