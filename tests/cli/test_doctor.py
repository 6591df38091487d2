"""`ottla doctor`: what is planted is found, each finding's command mends it, and a bundle holds no secret."""

from __future__ import annotations

import json
import shlex
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from ottla.cli.doctor import machine
from ottla.runtime.free_ports import free_port
from ottla.testing import Broker
from tests.kit.ottla_command import Ottla

QUICK = ("--watch-groups", "200ms")


def examined(ottla: Ottla, *words: str, code: int = 1) -> list[dict[str, Any]]:
    done = ottla.run("doctor", *QUICK, "--json", *words)
    assert done.returncode == code, done.stdout + done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["findings"]
    return found


def of(check: str, findings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for each in findings if each["check"] == check]


@pytest.fixture(scope="module")
def alone() -> Iterator[Ottla]:
    """A broker whose groups and disks are those of these tests only."""
    with Broker({"group.initial.rebalance.delay.ms": 0, "broker.id": 4}) as broker:
        ottla = Ottla(broker.bootstrap_servers)
        ottla.ok("topic", "create", "orders", "-p", "2")
        ottla.ok("produce", "orders", "a", "b", "c", "-p", "0")
        ottla.ok("consume", "orders", "-g", "billing")
        yield ottla


def test_a_healthy_cluster(alone: Ottla) -> None:
    assert [each["severity"] for each in examined(alone, code=0)] == ["info"]
    assert examined(alone, "--probe", code=0) == []
    assert alone.ok("doctor", *QUICK).splitlines()[-1] == "0 errors, 0 warnings; 14 checks, 1 broker"
    assert "ottla-doctor" not in alone.ok("group", "list")


def test_an_offset_that_was_deleted_and_the_command_that_mends_it(alone: Ottla) -> None:
    alone.ok("produce", "orders", "d", "e", "f", "-p", "0")
    alone.ok("delete-records", "orders", "--before", "5", "-p", "0")
    (finding,) = of("groups", examined(alone))
    assert finding["severity"] == "error"
    assert finding["what"] == "its offset 3 of orders-0 was deleted: the log begins at 5"
    assert "error    groups: group billing: its offset 3" in alone.run("doctor", *QUICK).stdout
    alone.ok(*shlex.split(finding["mend"])[1:])
    assert of("groups", examined(alone, code=0)) == []


def test_a_member_that_does_not_get_on(alone: Ottla) -> None:
    settings = {"group.id": "slow", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": alone.bootstrap_servers, **settings})
    consumer.subscribe(["orders"])
    message = None
    while message is None or message.error() is not None:
        message = consumer.poll(1)
    consumer.commit(message=message, asynchronous=False)
    alone.ok("produce", "orders", "g", "h", "-p", "0")
    (finding,) = of("groups", examined(alone))
    consumer.close()
    assert (finding["subject"], finding["severity"]) == ("group slow", "warning")
    assert "no offset was committed" in finding["what"]
    assert finding["mend"] == "ottla group describe slow"


def test_disks_files_and_clocks(alone: Ottla, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_LOW", 1.1)
    monkeypatch.setattr(machine, "_FILES_MIN", 10**9)
    found = examined(alone)
    (disk,) = of("disks", found)
    assert disk["severity"] in ("warning", "error")
    assert "are free" in disk["what"]
    alone.ok(*shlex.split(disk["mend"])[1:])
    (files,) = of("files", found)
    assert files["subject"].startswith("broker 4 (process ")
    assert "LimitNOFILE" in files["mend"]
    real = time.time
    for off_s, words, what in ((-90, (), "ahead of"), (90, ("--probe",), "behind"), (-5, ("--probe",), "ahead of")):
        with monkeypatch.context() as patched:
            patched.setattr("ottla.cli.doctor.clock.time.time", lambda off_s=off_s: real() + off_s)
            (finding,) = [each for each in of("clock", examined(alone, *words)) if each["subject"] == "broker 4"]
        assert f"s {what} the one here" in finding["what"]
        assert finding["severity"] == ("error" if abs(off_s) > 30 else "warning")


def test_an_advertised_address_that_nobody_reaches() -> None:
    port = free_port()
    settings = {"listeners": f"PLAINTEXT://127.0.0.1:{port}", "advertised.listeners": "PLAINTEXT://no-such-host.invalid:9092"}
    with Broker({**settings, "broker.id": 3}):
        words = ("--skip", "transactions", "--skip", "groups", "--skip", "clock")
        away = f"127.0.0.1:{free_port()}"
        found = examined(Ottla(f"{away},127.0.0.1:{port}"), *words)
    (finding,) = of("listeners", found)
    assert (finding["severity"], finding["subject"]) == ("error", "broker 3")
    assert finding["what"] == "it advertises no-such-host.invalid:9092: the name no-such-host.invalid does not resolve here"
    assert finding["mend"] == "ottla config describe broker 3 advertised.listeners"
    assert [each["subject"] for each in of("bootstrap", found)] == [away]


def test_what_cannot_be(alone: Ottla, tmp_path: Path) -> None:
    assert "there is no check nothing" in alone.fails("doctor", "--skip", "nothing", code=2)
    assert "is not a duration" in alone.fails("doctor", "--watch-groups", "soon", code=2)
    assert "cannot write" in alone.fails("doctor", "--bundle", str(tmp_path / "no" / "b.zip"), code=2)
    error = json.loads(alone.fails("doctor", "--json", "-b", "127.0.0.1:1"))["error"]
    assert error["code"] == "BROKER_AWAY"


def test_a_bundle_of_a_secured_broker_holds_no_secret(tmp_path: Path) -> None:
    planted = "planted-broker-secret"
    with Broker({"delegation.token.secret.key": planted}, security="SASL_SSL") as broker:
        ottla = Ottla(broker.bootstrap_servers)
        properties = broker.client_properties("admin", "PLAIN")
        password = properties["sasl.jaas.config"].partition('password="')[2].partition('"')[0]
        assert password
        login = tmp_path / "client.properties"
        properties["ssl.key.password"] = "planted-key-secret"
        login.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        login.chmod(0o644)
        words = ("--command-config", str(login))
        ottla.ok("topic", "create", f"not-{password}-at-all", *words)
        bundle = tmp_path / "bundle.zip"
        done = ottla.run("doctor", *QUICK, "--bundle", str(bundle), *words)
        assert done.returncode == 1, "the file of client properties is open to others"
        assert f"mend: chmod 600 {login}" in done.stdout
        login.chmod(0o600)
        (soon,) = [each for each in examined(ottla, *words) if each["severity"] != "info"]
        assert soon["check"] == "tls"
        assert "its certificate expires in" in soon["what"]
        assert bundle.stat().st_mode & 0o077 == 0
        with zipfile.ZipFile(bundle) as file:
            texts = {name: file.read(name).decode() for name in file.namelist()}
        assert "ssl.keystore.password" in texts["brokers.json"]
        assert "(hidden)" in texts["client.json"]
        assert json.loads(texts["cluster.json"])["brokers"]
        secrets = {planted, "planted-key-secret", password}
        for name, text in texts.items():
            assert not [secret for secret in secrets if secret in text], name
            assert "BEGIN PRIVATE KEY" not in text
