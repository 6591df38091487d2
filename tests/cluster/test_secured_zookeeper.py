"""A broker at a secured ZooKeeper: TLS, a login, and ACLs on the znodes it creates."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from ottla.broker.metadata.open_store import open_zookeeper, zookeeper_security
from ottla.cluster.settings import BrokerSettings
from ottla.ports import Create, StoreUnavailable
from ottla.runtime.free_ports import free_port
from ottla.testing import Broker
from tests.kit.certificates import Authority
from tests.kit.wait import until
from tests.kit.zookeeper import ZooKeeper

JAAS = 'Server { org.apache.zookeeper.server.auth.DigestLoginModule required user_kafka="zk-secret"; };'
CLIENT = 'Client { org.apache.zookeeper.server.auth.DigestLoginModule required username="kafka" password="%s"; };'
PASSWORD = "store-secret"


class Secured:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        authority = Authority()
        trust = authority.pem_file(folder / "ca.pem")
        key = authority.issue("zookeeper").pem_file(folder / "zookeeper.pem")
        authority.issue("broker").pkcs12_file(folder / "broker.p12", PASSWORD)
        Authority("other").pem_file(folder / "other.pem")
        (folder / "server.jaas").write_text(JAAS)
        (folder / "client.jaas").write_text(CLIENT % "zk-secret")
        (folder / "wrong.jaas").write_text(CLIENT % "hush")
        self.secure_port = free_port()
        config = (
            f"secureClientPort={self.secure_port}\nserverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n"
            f"ssl.keyStore.location={key}\nssl.keyStore.type=PEM\nssl.trustStore.location={trust}\nssl.trustStore.type=PEM\n"
            "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\nssl.clientAuth=want\n"
        )
        self.server = ZooKeeper(config=config, java=(f"-Djava.security.auth.login.config={folder / 'server.jaas'}",))

    def settings(self, *, tls: bool = True, **more: Any) -> dict[str, str]:
        """`more` with underscores for dots."""
        address = f"127.0.0.1:{self.secure_port}" if tls else self.server.address
        base = {"zookeeper.connect": f"{address}/kafka", "zookeeper.connection.timeout.ms": "5000"}
        if tls:
            base |= {
                "zookeeper.ssl.client.enable": "true",
                "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
                "zookeeper.ssl.truststore.location": str(self.folder / "ca.pem"),
                "zookeeper.ssl.truststore.type": "PEM",
            }
        return base | {name.replace("_", "."): str(value) for name, value in more.items()}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    found = Secured(tmp_path_factory.mktemp("zookeeper"))
    try:
        found.server.start()
        yield found
    finally:
        found.server.close()


def write(settings: dict[str, str], *paths: str) -> None:
    async def play() -> None:
        store = await open_zookeeper(BrokerSettings.parse(settings))
        try:
            for path in paths:
                if await store.get(path) is None:
                    await store.multi([Create(path, b"{}")])
        finally:
            await store.close()

    asyncio.run(play())


def test_tls_with_a_store_of_java_and_without_a_login(secured: Secured) -> None:
    store: dict[str, Any] = {
        "zookeeper_ssl_keystore_location": secured.folder / "broker.p12",
        "zookeeper_ssl_keystore_password": PASSWORD,
    }
    write(secured.settings(**store), "/tls")
    write(secured.settings(), "/tls-without-certificate")


def test_an_untrusted_zookeeper_is_refused_by_the_name_of_its_settings(secured: Secured) -> None:
    with pytest.raises(StoreUnavailable, match=r"certificate that is not trusted.*zookeeper\.ssl"):
        write(secured.settings(zookeeper_ssl_truststore_location=secured.folder / "other.pem"), "/x")


def test_a_wrong_password_is_told(secured: Secured) -> None:
    settings = secured.settings(tls=False, java_security_auth_login_config=secured.folder / "wrong.jaas")
    with pytest.raises(StoreUnavailable, match="refuses the login of kafka") as refused:
        write(settings | {"zookeeper.connection.timeout.ms": "2000"}, "/x")
    assert "hush" not in str(refused.value)


def test_secret_znodes_are_their_creators_only(secured: Secured, tmp_path: Path) -> None:
    """A whole broker over TLS with a login and zookeeper.set.acl; somebody else reads what is no secret, and changes nothing."""
    login: dict[str, Any] = {"java_security_auth_login_config": secured.folder / "client.jaas", "zookeeper_set_acl": "true"}
    settings = secured.settings(**login) | {"zookeeper.connect": f"127.0.0.1:{secured.secure_port}/guarded", "broker.id": "1"}
    with Broker(settings, data_dir=tmp_path / "data") as broker:
        broker.create_topic("orders")
        write({name: value for name, value in settings.items() if name != "broker.id"}, "/config/users/alice")
        other = KazooClient(f"{secured.server.address}/guarded")
        other.start(30)
        try:
            until(lambda: other.exists("/brokers/ids/1"))
            assert b"orders" in other.get("/brokers/topics/orders")[0] or other.exists("/brokers/topics/orders")
            acls = {(acl.id.scheme, acl.id.id, acl.perms) for acl in other.get_acls("/brokers/topics/orders")[0]}
            assert acls == {("sasl", "kafka", 31), ("world", "anyone", 1)}
            for secret in ("/config/users/alice", "/config/brokers"):
                with pytest.raises(NoAuthError):
                    other.get(secret)
            with pytest.raises(NoAuthError):
                other.set("/brokers/topics/orders", b"x")
        finally:
            other.stop()
            other.close()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"zookeeper.set.acl": "true"}, "needs an identity"),
        ({"zookeeper.ssl.client.enable": "true", "zookeeper.ssl.crl.enable": "true"}, "zookeeper.ssl.crl.enable=true"),
        (
            {"zookeeper.ssl.client.enable": "true", "zookeeper.ssl.truststore.location": "/none"},
            "zookeeper.ssl.truststore.location",
        ),
        ({"java.security.auth.login.config": "/none"}, "java.security.auth.login.config=/none cannot be read"),
    ],
)
def test_what_cannot_work_is_refused_by_name(settings: dict[str, str], said: str) -> None:
    with pytest.raises(StoreUnavailable) as refused:
        zookeeper_security(BrokerSettings.parse({"zookeeper.connect": "x:1", **settings}))
    assert said in str(refused.value)
