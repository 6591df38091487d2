"""`ottla secure init`: a secured broker from nothing, and what commands say about a connection that is refused."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.cluster.properties import parse_properties
from ottla.runtime.free_ports import free_port
from ottla.testing import Broker
from ottla.tls.authority import Cryptography, OpenSsl
from tests.kit.certificates import Authority
from tests.kit.ottla_command import Ottla
from tests.kit.wait import until


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("secure") / "made"
    Ottla("").ok("secure", "init", str(folder), "--port", str(free_port()))
    return folder


@pytest.fixture(scope="module")
def secured(folder: Path) -> Iterator[Ottla]:
    with Broker(parse_properties((folder / "server.properties").read_text())) as broker:
        yield Ottla(broker.bootstrap_servers)


def changed(folder: Path, name: str, **changes: str | None) -> str:
    """client.properties with some properties changed or, with None, left out."""
    properties = parse_properties((folder / "client.properties").read_text())
    for key, value in changes.items():
        properties.pop(key.replace("_", "."), None)
        if value is not None:
            properties[key.replace("_", ".")] = value
    path = folder / name
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return str(path)


def test_secrets_are_readable_by_their_owner_only(folder: Path) -> None:
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir() if path.is_file()}
    assert modes.pop("ca.pem") == 0o644
    made = {name: mode for name, mode in modes.items() if not name.startswith("changed")}
    assert set(made.values()) == {0o600}, made
    assert {"server.properties", "client.properties", "users.properties", "ca.key", "client.pem", "broker-1.pem"} <= set(made)


def test_the_first_user_works_and_adds_others(secured: Ottla, folder: Path) -> None:
    admin = ("--command-config", str(folder / "client.properties"))
    secured.ok("topic", "create", "orders", *admin)
    secured.ok("produce", "orders", *admin, stdin="hello\n")
    assert secured.ok("consume", "orders", "-n", "1", *admin) == "hello\n"
    secured.ok("user", "add", "alice", "--password-file", "-", *admin, stdin="alice-secret\n")
    login = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="alice-secret";'
    alice = ("--command-config", changed(folder, "changed-alice", sasl_jaas_config=login, sasl_mechanism="SCRAM-SHA-256"))
    secured.ok("acl", "add", "-u", "alice", "--consumer", "-t", "orders", *admin)
    assert secured.ok("consume", "orders", "-n", "1", *alice) == "hello\n"
    # Commands whose requests librdkafka does not send use the same login.
    assert "brokers" in secured.ok("cluster", "status", "--json", *admin)


def test_what_is_wrong_with_a_connection_is_one_line(secured: Ottla, folder: Path) -> None:
    wrong = 'x required username="admin" password="hush";'
    for name, changes, said in (
        ("password", {"sasl_jaas_config": wrong}, "login refused by "),
        ("mechanism", {"sasl_mechanism": "PLAIN"}, "offers SCRAM-SHA-256, SCRAM-SHA-512, not PLAIN"),
        ("trust", {"ssl_truststore_location": None}, "shows a certificate that is not trusted"),
        (
            "no-tls",
            {"security_protocol": "SASL_PLAINTEXT"},
            "TLS, and security.protocol is SASL_PLAINTEXT, not SASL_SSL",
        ),
        ("no-sasl", {"security_protocol": "SSL"}, "wants a login: SCRAM-SHA-256, SCRAM-SHA-512"),
        (
            "plain",
            {"security_protocol": "PLAINTEXT"},
            "TLS, and security.protocol is PLAINTEXT, not SSL or SASL_SSL",
        ),
    ):
        heard = secured.fails("topic", "list", "--command-config", changed(folder, f"changed-{name}", **changes))
        assert said in heard.splitlines()[0], name
        assert "hush" not in heard


@pytest.mark.parametrize(
    ("names", "days", "said", "hint"),
    [
        (("localhost", "127.0.0.1"), -1, "certificate has expired", "the broker needs a new certificate"),
        (("elsewhere.example",), 30, "certificate is not valid for", "connect by a name that the certificate has"),
    ],
)
def test_what_is_wrong_with_a_certificate_is_told(
    tmp_path: Path, names: tuple[str, ...], days: int, said: str, hint: str
) -> None:
    authority = Authority()
    settings = {
        "listeners": "SSL://127.0.0.1:0",
        "security.inter.broker.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": authority.issue("broker", names, days=days).pem_file(tmp_path / "broker.pem"),
    }
    client = tmp_path / "client.properties"
    trusted = authority.pem_file(tmp_path / "ca.pem")
    client.write_text(f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={trusted}\n")
    with Broker(settings) as broker:
        heard = Ottla(broker.bootstrap_servers).fails("topic", "list", "--command-config", str(client)).splitlines()
        assert said in heard[0]
        assert hint in heard[1]
        if days < 0:
            until(lambda: "does not accept the certificate of this broker" in broker.log, "the log tells it")


def test_tls_to_a_port_without_it(ottla: Ottla, folder: Path) -> None:
    heard = ottla.fails("topic", "list", "--command-config", str(folder / "client.properties"))
    assert "TLS" in heard.splitlines()[0]


def test_a_cluster_has_a_listener_for_its_brokers(tmp_path: Path) -> None:
    folder = tmp_path / "three"
    hosts = ("--host", "a", "--host", "b", "--host", "c")
    Ottla("").ok("secure", "init", str(folder), "--brokers", "3", *hosts, "--zookeeper", "z:1/x")
    from ottla.cluster.settings import BrokerSettings

    for number, host in enumerate("abc", 1):
        settings = BrokerSettings.parse(parse_properties((folder / f"server-{number}.properties").read_text()))
        assert settings.listeners().inter_broker == "BROKERS"
        assert [str(each) for each in settings.listeners().advertised] == [f"SASL_SSL://{host}:9092", f"BROKERS://{host}:9093"]
        assert settings.tls_of("BROKERS").client_auth == "required"
        assert settings.str("zookeeper.connect") == "z:1/x"


def test_a_folder_that_exists_is_left_alone(folder: Path) -> None:
    assert "exists already" in Ottla("").fails("secure", "init", str(folder), code=2)


@pytest.mark.parametrize("maker", [Cryptography(), OpenSsl("openssl")], ids=["cryptography", "openssl"])
def test_both_makers_of_certificates_give_the_same(maker: Cryptography | OpenSsl) -> None:
    from cryptography import x509
    from cryptography.x509.oid import ExtensionOID

    authority = maker.authority("A", 100)
    _, server = maker.issue(authority, "broker-1", ["localhost", "127.0.0.1"], 10, is_server=True)
    root, found = (x509.load_pem_x509_certificate(pem.encode()) for pem in (authority[1], server))
    found.verify_directly_issued_by(root)
    assert found.subject.rfc4514_string() == "CN=broker-1"
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    kinds = {extension.oid for extension in found.extensions}
    assert kinds == {
        ExtensionOID.BASIC_CONSTRAINTS,
        ExtensionOID.KEY_USAGE,
        ExtensionOID.EXTENDED_KEY_USAGE,
        ExtensionOID.SUBJECT_KEY_IDENTIFIER,
        ExtensionOID.AUTHORITY_KEY_IDENTIFIER,
        ExtensionOID.SUBJECT_ALTERNATIVE_NAME,
    }
