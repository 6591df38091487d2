"""GSSAPI with a real KDC: MIT's krb5kdc, Java's client, kinit's ticket cache (SA02)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from ottla.runtime.free_ports import free_port
from ottla.testing import Broker
from tests.kit.peers import KAFKA_3, java_command, popen, program, tool_class
from tests.kit.wait import until

# Slow: `gssapi` is built from source with the headers of libkrb5, which `make setup` does not ask for.
pytestmark = [pytest.mark.java, pytest.mark.slow]

INSTALL = (
    "Debian: `apt-get install krb5-kdc krb5-admin-server krb5-user libkrb5-dev`, then `.venv/bin/pip install -e '.[kerberos]'`"
)
REALM = "OTTLA.TEST"


class Kdc:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        self.config = directory / "krb5.conf"
        self.config.write_text(
            f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n rdns = false\n"
            f" dns_canonicalize_hostname = false\n udp_preference_limit = 1\n"
            f"[realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{self.port}\n }}\n[domain_realm]\n localhost = {REALM}\n"
        )
        (directory / "kdc.conf").write_text(
            f"[kdcdefaults]\n kdc_ports = {self.port}\n kdc_tcp_ports = {self.port}\n[realms]\n {REALM} = {{\n"
            f"  database_name = {directory}/principal\n  key_stash_file = {directory}/stash\n  acl_file = {directory}/acl\n }}\n"
        )
        self.environment = {
            **os.environ,
            "KRB5_CONFIG": str(self.config),
            "KRB5_KDC_PROFILE": str(directory / "kdc.conf"),
            "KRB5RCACHETYPE": "none",
        }

    def start(self) -> None:
        assert find_spec("gssapi") is not None, f"the package gssapi is not installed. {INSTALL}"
        self._run(program("kdb5_util", INSTALL), "create", "-s", "-r", REALM, "-P", "planted-master")
        server = popen([program("krb5kdc", INSTALL), "-n"], env=self.environment, stderr=subprocess.DEVNULL)
        self.process = server

    def keytab(self, principal: str) -> Path:
        path = self.directory / f"{principal.replace('/', '-')}.keytab"
        self._run(program("kadmin.local", INSTALL), "-q", f"addprinc -randkey {principal}@{REALM}")
        self._run(program("kadmin.local", INSTALL), "-q", f"ktadd -k {path} {principal}@{REALM}")
        return path

    def _run(self, *command: str) -> None:
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    one = Kdc(tmp_path_factory.mktemp("kdc"))
    one.start()
    try:
        yield one
    finally:
        one.close()


@pytest.fixture(scope="module")
def broker(kdc: Kdc) -> Iterator[Broker]:
    keytab = kdc.keytab("kafka/localhost")
    settings = {
        "listeners": f"SASL_PLAINTEXT://localhost:{free_port()}",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.principal.to.local.rules": "RULE:[1:$1](x.*)/U,DEFAULT",
        "listener.name.sasl_plaintext.gssapi.sasl.jaas.config": (
            "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
            f'keyTab="{keytab}" principal="kafka/localhost@{REALM}";'
        ),
    }
    with pytest.MonkeyPatch.context() as patch:
        for name in ("KRB5_CONFIG", "KRB5RCACHETYPE"):
            patch.setenv(name, kdc.environment[name])
        one = Broker(settings).start()
    try:
        yield one
    finally:
        one.close()


def test_java_logs_in_with_a_ticket(kdc: Kdc, broker: Broker, tmp_path: Path) -> None:
    keytab = kdc.keytab("ada")
    properties = tmp_path / "client.properties"
    properties.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\nsasl.kerberos.service.name=kafka\n"
        "sasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
        f'keyTab="{keytab}" principal="ada@{REALM}";\n'
    )

    def topics() -> subprocess.CompletedProcess[str]:
        words = ("--bootstrap-server", broker.bootstrap_servers, "--command-config", str(properties), "--list")
        command = java_command(KAFKA_3, tool_class(KAFKA_3, "TopicCommand"), *words)
        command.insert(1, f"-Djava.security.krb5.conf={kdc.config}")
        return subprocess.run(command, capture_output=True, text=True, timeout=120)

    done = until(lambda: (found := topics()).returncode == 0 and found, lambda: broker.log[-2000:], timeout_s=60)
    assert done.returncode == 0
    assert "Failed authentication" not in broker.log


def test_our_client_logs_in_with_a_keytab(kdc: Kdc, broker: Broker, tmp_path: Path) -> None:
    """Requests that librdkafka does not send go over our own connection; its wheels have no GSSAPI."""
    keytab = kdc.keytab("grace")
    properties = tmp_path / "client.properties"
    properties.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\nsasl.kerberos.service.name=kafka\n"
        "sasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true "
        f'keyTab="{keytab}" principal="grace@{REALM}";\n'
    )
    words = ["cluster", "status", "--json", "-b", broker.bootstrap_servers, "--command-config", str(properties)]
    command = [sys.executable, "-P", "-m", "ottla", *words]
    done = subprocess.run(command, env=kdc.environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert '"brokers"' in done.stdout
