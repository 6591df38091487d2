"""SR11: logins against the users of the cluster, rules by subject, TLS, and what is refused without them."""

from __future__ import annotations

import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from ottla.registry.http.routes import ROUTES
from ottla.testing import Broker, Registry
from tests.console.running import running_console
from tests.registry.conftest import Client

RULES = """
[[rule]]
users = ["admin"]
subjects = ["*"]
allow = ["write", "compatibility"]

[[rule]]
users = ["alice"]
subjects = ["orders-*"]
allow = ["write"]
"""


@pytest.fixture(scope="module")
def secured() -> Iterator[Broker]:
    settings = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 1}
    with Broker(settings, security="SASL_SSL") as broker:
        yield broker


@pytest.fixture(scope="module")
def guarded(secured: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    rules = tmp_path_factory.mktemp("rules") / "rules.toml"
    rules.write_text(RULES)
    with Registry(secured, options=["--auth", "scram", "--rules", str(rules)]) as registry:
        yield registry


def login(broker: Broker, user: str) -> tuple[str, str]:
    config = broker.client_config(user)
    return str(config["sasl.username"]), str(config["sasl.password"])


def test_sr11_a_login_is_needed_and_checked_by_the_cluster(secured: Broker, guarded: Registry) -> None:
    client = Client(guarded.url)
    answer = client.http.get("/subjects")
    assert (answer.status_code, answer.json()["error_code"]) == (401, 40101)
    assert answer.headers["www-authenticate"].startswith("Basic ")
    assert client.error("GET", "/subjects", auth=("admin", "wrong")) == 40101
    assert client.error("GET", "/subjects", auth=("nobody", "")) == 40101
    assert client.error("GET", "/subjects", headers={"authorization": "Basic ???"}) == 40101
    assert client.get("/") == {}
    assert client.get("/subjects", auth=login(secured, "admin")) == []
    client.http.close()


def test_sr11_rules_by_subject(secured: Broker, guarded: Registry) -> None:
    admin, alice = (Client(guarded.url, auth=login(secured, user)) for user in ("admin", "alice"))
    secret = admin.register("payroll-value", '"string"')
    assert alice.register("orders-value", '"int"') == secret + 1
    assert alice.get("/subjects") == ["orders-value"]
    assert admin.get("/subjects") == ["orders-value", "payroll-value"]
    assert alice.error("GET", "/subjects/payroll-value/versions") == 40301
    assert alice.error("GET", f"/schemas/ids/{secret}") == 40403
    assert alice.error("POST", "/subjects/payroll-value/versions", {"schema": '"int"'}) == 40301
    assert alice.error("PUT", "/config/orders-value", {"compatibility": "NONE"}) == 40301
    assert alice.error("PUT", "/config", {"compatibility": "NONE"}) == 40301
    assert admin.call("PUT", "/config/orders-value", {"compatibility": "NONE"})[0] == 200
    assert [each["subject"] for each in alice.get("/schemas")] == ["orders-value"]
    for client in (admin, alice):
        client.http.close()


def test_sr11_every_endpoint_asks_for_rights(secured: Broker, guarded: Registry) -> None:
    admin, alice = (Client(guarded.url, auth=login(secured, user)) for user in ("admin", "alice"))
    stranger = Client(guarded.url)
    admin.register("taxes-value", '"string"')
    anything = {"schema": '"string"', "compatibility": "NONE", "mode": "READONLY"}
    asked = 0
    for path, routes in ROUTES.items():
        for method in routes:
            if "{subject}" not in path:
                continue
            for prefix, subject in (("", "taxes-value"), ("", ":.:taxes-value"), ("/contexts/.tax", "taxes-value")):
                asked += 1
                named = prefix + path.format(subject=subject, version="1")
                body = None if method in ("GET", "DELETE") else anything
                assert alice.error(method, named, body) == 40301, (method, named)
                assert stranger.error(method, named, body) == 40101, (method, named)
    assert asked > 40
    for request in ("PUT /config", "DELETE /config", "PUT /mode", "DELETE /mode", "DELETE /contexts/.tax"):
        method, path = request.split()
        assert alice.error(method, path, anything) == 40301
    for client in (admin, alice, stranger):
        client.http.close()


def test_sr11_rules_hold_for_subjects_that_a_request_reaches_by_others(secured: Broker, guarded: Registry) -> None:
    admin, alice = (Client(guarded.url, auth=login(secured, user)) for user in ("admin", "alice"))
    record = '{"type": "record", "name": "Salary", "fields": [{"name": "amount", "type": "long"}]}'
    admin.register("salaries-value", record)
    references = [{"name": "Salary", "subject": "salaries-value", "version": 1}]
    body = {"schema": '{"type": "array", "items": "Salary"}', "references": references}
    for method, path in (
        ("POST", "/subjects/orders-salaries/versions"),
        ("POST", "/subjects/orders-salaries"),
        ("POST", "/compatibility/subjects/orders-salaries/versions"),
    ):
        assert alice.error(method, path, body) == 42201, "as if the subject did not exist"
    # A client that knows no contexts finds a subject in any of them.
    admin.register(":.hidden:orders-hidden", record)
    assert alice.error("GET", "/subjects/orders-hidden/versions/1") == 40401
    assert alice.error("POST", "/subjects/orders-hidden", {"schema": record}) == 40401
    assert alice.get("/contexts") == ["."]
    assert ".hidden" in admin.get("/contexts")
    # Who may write a schema may not read those that refer to it.
    alice.register("orders-item", '{"type": "enum", "name": "Item", "symbols": ["A"]}')
    secret = admin.register(
        "secret-value",
        '{"type": "array", "items": "Item"}',
        references=[{"name": "Item", "subject": "orders-item", "version": 1}],
    )
    assert admin.get("/subjects/orders-item/versions/1/referencedby") == [secret]
    assert alice.get("/subjects/orders-item/versions/1/referencedby") == []
    for client in (admin, alice):
        client.http.close()


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "ottla", "registry", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_sr11_other_addresses_need_logins(broker: Broker) -> None:
    done = run("-b", broker.bootstrap_servers, "--listen", "0.0.0.0:0")
    assert done.returncode == 2
    assert "--auth none" in done.stderr


def test_sr11_rules_need_logins_and_are_checked(broker: Broker, secured: Broker, tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rule]]\nusers = ["a"]\nsubjects = ["*"]\nallow = ["fly"]\n')
    done = run("-b", broker.bootstrap_servers, "--rules", str(rules), "--listen", "127.0.0.1:0")
    assert (done.returncode, "--auth scram" in done.stderr) == (2, True)


def test_sr11_tls(secured: Broker) -> None:
    folder = Path(f"{secured.data_dir}-security")
    options = ["--tls-cert", str(folder / "broker.pem"), "--topic", "_schemas-tls", "--group", "registry-tls"]
    with Registry(secured, options=options, scheme="https") as registry:
        client = Client(registry.url, verify=ssl.create_default_context(cafile=str(folder / "ca.pem")))
        assert client.register("s", '"string"') == 1
        with pytest.raises(httpx.ConnectError):
            httpx.get(registry.url)
        client.http.close()


def test_sr11_a_console_logs_in_and_hears_what_it_may(secured: Broker, guarded: Registry, tmp_path: Path) -> None:
    """By the settings of the commands. Errors of the registry are the console's, without its password."""
    file = tmp_path / "client.properties"

    def settings(user: str, password: str) -> None:
        more = {"schema.registry.url": guarded.url, "schema.registry.basic.auth.user.info": f"{user}:{password}"}
        properties = {**secured.client_properties(), **more}
        file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))

    settings(*login(secured, "alice"))
    with running_console(secured.bootstrap_servers, "--command-config", str(file)) as console:
        console.post("/api/schemas/orders-key", {"schema": '"int"'})
        assert console.get("/api/schemas?search=orders-key")["matched"] == 1
        assert console.refused("POST", "/api/schemas/payroll-key", 403, {"schema": '"int"'})["code"] == "FORBIDDEN"
    settings("alice", "not-her-password")
    with running_console(secured.bootstrap_servers, "--command-config", str(file)) as console:
        error = console.refused("GET", "/api/schemas", 403)
        assert (error["code"], "not-her-password" in error["message"]) == ("FORBIDDEN", False)
