"""Opens the metadata store: ZooKeeper in a cluster, a file for a broker alone.

The directory of the file is `metadata.log.dir` if it is set (as in KRaft), else the one of `log.dirs` that has the file, else the
first. So the order of `log.dirs` may change, and losing any other directory loses only its partitions (F6). If this directory is
lost the broker does not start: an empty file in its place would mean that there are no topics.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.cluster.settings import BrokerSettings
from ottla.ports import Disk, MetadataStore, StoreUnavailable
from ottla.security.jaas import BadJaas, parse_jaas_file
from ottla.storage.data_dir import make_durable_dir

if TYPE_CHECKING:
    import ssl

    from ottla.runtime.zookeeper_security import ZooKeeperSecurity

logger = logging.getLogger(__name__)


async def open_zookeeper(settings: BrokerSettings) -> MetadataStore:
    # Imported here, as below: a start loads only the store that it opens.
    from ottla.runtime.zookeeper_store import ZooKeeperStore

    connect = settings.str("zookeeper.connect")
    session_ms = settings.int("zookeeper.session.timeout.ms")
    connection_ms = settings.value("zookeeper.connection.timeout.ms")
    # This may take as long as the connection timeout, 18 s in Kafka's own server.properties.
    logger.info("Connecting to ZooKeeper at %s", connect)
    return await ZooKeeperStore.open(
        connect,
        session_timeout_ms=session_ms,
        connection_timeout_ms=connection_ms if isinstance(connection_ms, int) else session_ms,
        security=zookeeper_security(settings),
    )


def zookeeper_security(settings: BrokerSettings) -> ZooKeeperSecurity:
    """StoreUnavailable, with the setting's name, for what cannot work."""
    from ottla.runtime.zookeeper_security import UNSECURED, ZooKeeperSecurity

    path, set_acl = settings.optional_str("java.security.auth.login.config"), settings.bool("zookeeper.set.acl")
    encrypted = settings.bool("zookeeper.ssl.client.enable")
    if not (path or encrypted or set_acl):
        return UNSECURED
    for name in ("zookeeper.ssl.crl.enable", "zookeeper.ssl.ocsp.enable"):
        if settings.bool(name):
            raise StoreUnavailable(f"{name}=true is not supported")
    username, password = _zookeeper_login(path) if path else ("", "")
    with_certificate = encrypted and bool(settings.optional_str("zookeeper.ssl.keystore.location"))
    if set_acl and not username and not with_certificate:
        raise StoreUnavailable(
            "zookeeper.set.acl=true needs an identity at ZooKeeper: a section Client in java.security.auth.login.config, or "
            "zookeeper.ssl.client.enable=true with zookeeper.ssl.keystore.location"
        )
    return ZooKeeperSecurity(_zookeeper_tls(settings) if encrypted else None, username, password, set_acl)


def _zookeeper_login(path: str) -> tuple[str, str]:
    name = f"java.security.auth.login.config={path}"
    try:
        sections = parse_jaas_file(Path(path).read_text())
    except OSError as error:
        raise StoreUnavailable(f"{name} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, BadJaas) as error:
        raise StoreUnavailable(f"{name}: {error}") from None
    for section in sections:
        if section.endswith("KafkaServer"):
            logger.warning(
                "%s: the section %s has no effect; put its modules into listener.name.<listener>.<mechanism>.sasl.jaas.config",
                name,
                section,
            )
    if "Client" not in sections:
        return "", ""
    options = sections["Client"][0].options if sections["Client"] else {}
    if not options.get("username") or not options.get("password"):
        raise StoreUnavailable(
            f"{name}: the section Client must have username and password; only SASL DIGEST-MD5 is supported at ZooKeeper"
        )
    return options["username"], options["password"]


def _zookeeper_tls(settings: BrokerSettings) -> ssl.SSLContext:
    from ottla.tls.config import PROTOCOLS, KeyStore, TlsSettings, TrustStore
    from ottla.tls.context import TlsError, client_context

    def text(name: str) -> str | None:
        return settings.optional_str(f"zookeeper.ssl.{name}") or None

    key, trust = text("keystore.location"), text("truststore.location")
    password = text("keystore.password")
    protocols = (
        settings.list("zookeeper.ssl.enabled.protocols") if settings.given("zookeeper.ssl.enabled.protocols") else PROTOCOLS
    )
    ciphers = settings.list("zookeeper.ssl.cipher.suites") if settings.given("zookeeper.ssl.cipher.suites") else ()
    tls = TlsSettings(
        KeyStore((text("keystore.type") or "").upper(), key, password, password) if key else None,
        TrustStore((text("truststore.type") or "").upper(), trust, text("truststore.password")) if trust else None,
        protocols=tuple(name for name in PROTOCOLS if name in protocols) or PROTOCOLS,
        cipher_suites=ciphers,
        check_host=bool(text("endpoint.identification.algorithm")),
    )
    try:
        return client_context(tls)
    except TlsError as error:
        raise StoreUnavailable(f"TLS with ZooKeeper: zookeeper.{error}") from None


def open_embedded(
    settings: BrokerSettings, disk: Disk, failed_paths: Sequence[str]
) -> tuple[MetadataStore, Callable[[], Awaitable[None]]]:
    """The store, and a function that makes durable what was written since. `failed_paths`: unusable ones of `log.dirs`."""
    from ottla.runtime.embedded_store import FILE_NAME, EmbeddedStore

    place = _directory(disk, FILE_NAME, settings.log_dirs(), failed_paths, settings.optional_str("metadata.log.dir"))
    store = EmbeddedStore.open(f"{place}/{FILE_NAME}", durable=False)
    return store, store.make_durable


def _directory(disk: Disk, file_name: str, log_dirs: Sequence[str], failed: Sequence[str], chosen: str | None) -> str:
    """The directory of the file; StoreUnavailable if there is none. `failed`: those of `log_dirs` that cannot be used."""
    usable = [path for path in log_dirs if path not in failed]
    found = [path for path in usable if disk.exists(f"{path}/{file_name}")]
    if chosen:
        return _as_chosen(disk, file_name, chosen, failed, [path for path in found if path.rstrip("/") != chosen.rstrip("/")])
    if found:
        for other in found[1:]:
            logger.warning("Ignoring %s/%s: the metadata is read from %s", other, file_name, found[0])
        return found[0]
    if log_dirs[0] in failed:
        raise StoreUnavailable(
            f"the metadata of this broker is in the first of log.dirs, {log_dirs[0]}, which cannot be used; "
            f"make it usable again (for a new broker: name another directory first, or set metadata.log.dir)"
        )
    if failed and any(_has_partitions(disk, path) for path in usable):
        raise StoreUnavailable(
            f"the metadata of this broker must be in {' or '.join(failed)}, which cannot be used; make it usable again"
        )
    return log_dirs[0]


def _has_partitions(disk: Disk, path: str) -> bool:
    inside = [f"{path}/{name}" for name in disk.list(path)]
    return any(disk.is_dir(each) and disk.exists(f"{each}/partition.metadata") for each in inside)


def _as_chosen(disk: Disk, file_name: str, chosen: str, failed: Sequence[str], elsewhere: Sequence[str]) -> str:
    if chosen in failed:
        raise StoreUnavailable(f"the metadata of this broker is in metadata.log.dir={chosen}, which cannot be used")
    try:
        make_durable_dir(disk, chosen)
        has_file = disk.exists(f"{chosen}/{file_name}")
    except OSError as error:
        raise StoreUnavailable(f"metadata.log.dir={chosen} cannot be used: {error.strerror or error}") from error
    if elsewhere and not has_file:
        raise StoreUnavailable(
            f"metadata.log.dir={chosen} has no {file_name}, but {elsewhere[0]} has one; "
            f"move it (and {file_name}-wal) there, or leave metadata.log.dir out"
        )
    return chosen
