"""Who gets in, and what they may do."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from ottla.testing import Broker
from tests.console.running import RunningConsole, running_console
from tests.kit.certificates import Authority
from tests.kit.ottla_command import Ottla
from tests.kit.subject import Subject
from tests.kit.wait import until

VIEWER, EDITOR, ADMIN = "viewer-token-0123456789", "editor-token-0123456789", "admin-token-0123456789"


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokens") / "tokens"
    path.write_text(f"# roles\nviewer {VIEWER}\neditor {EDITOR}\nadmin {ADMIN}\n")
    path.chmod(0o600)
    return path


@pytest.fixture(scope="module")
def guarded(subject: Subject, tokens: Path) -> Iterator[RunningConsole]:
    """A console with tokens, and a hidden field."""
    with running_console(subject.bootstrap_servers, "--tokens", str(tokens), "--mask", "value.card", "--no-export") as console:
        yield console


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def test_nothing_is_told_without_a_login(guarded: RunningConsole) -> None:
    session = guarded.get("/api/session")
    assert (session["login_required"], session["role"], session["cluster_id"], session["bootstrap_servers"]) == (
        True,
        None,
        None,
        "",
    )
    for path in ("/api/topics", "/api/overview", "/api/live/overview", "/api/topics/x/records", "/api/audit"):
        assert guarded.refused("GET", path, 401)["code"] == "LOGIN_REQUIRED"
        assert guarded.refused("GET", path, 401, **bearer("wrong-token-0123456789"))["code"] == "LOGIN_REQUIRED"
    # Its pages hold no data.
    assert guarded.request("GET", "/topics").status_code == 200


def test_roles(guarded: RunningConsole, topic: str) -> None:
    produce = f"/api/topics/{topic}/records"
    assert guarded.get("/api/session", **bearer(EDITOR))["can"] == {"write": True, "admin": False}
    assert guarded.get("/api/topics", **bearer(VIEWER))["rows"] is not None
    assert guarded.refused("POST", produce, 403, {"value": "x"}, **bearer(VIEWER))["code"] == "FORBIDDEN"
    guarded.post(produce, {"value": "x"}, **bearer(EDITOR))
    assert guarded.refused("DELETE", f"/api/topics/{topic}", 403, **bearer(EDITOR))["code"] == "FORBIDDEN"
    guarded.call("PATCH", f"/api/topics/{topic}/configs", {"set": {"retention.ms": "5"}}, **bearer(ADMIN))
    assert guarded.refused("GET", "/api/audit", 403, **bearer(EDITOR))["code"] == "FORBIDDEN"
    assert guarded.get("/api/audit", **bearer(ADMIN))["entries"][0]["user"] == "token:admin"
    assert guarded.refused("GET", f"/api/topics/{topic}/export", 403, **bearer(ADMIN))["code"] == "FORBIDDEN"


def test_every_change_needs_a_role(guarded: RunningConsole) -> None:
    """A viewer changes nothing: each operation that is no GET is refused."""
    for path, operations in guarded.description["paths"].items():
        for method, operation in operations.items():
            if method != "get" and operation["operationId"] not in ("log_in", "log_out", "check_filter"):
                filled = path.replace("{", "").replace("}", "")
                assert guarded.refused(method.upper(), filled, 403, **bearer(VIEWER))["code"] == "FORBIDDEN", path


def test_topics_that_are_state_take_an_admin(guarded: RunningConsole, topic: str, ottla: Ottla) -> None:
    """A record of `__ottla_pipelines` stops a pipeline, one of `_schemas` deletes a schema: an editor writes none."""
    box = f"{topic}.dlq"
    ottla.ok("topic", "create", box)
    letter = {"value": "x", "headers": {"ottla.topic": "__ottla_audit", "ottla.partition": "0", "ottla.offset": "0"}}
    guarded.post(f"/api/topics/{box}/records", letter, **bearer(EDITOR))
    log = "/api/topics/__ottla_audit/records"
    # A change waits a second for its entry, and no longer.
    until(lambda: guarded.request("GET", f"{log}/0/0", None, **bearer(ADMIN)).status_code == 200, "the audit has an entry")
    place = {"partition": 0, "offset": 0}
    for name in ("__ottla_audit", "__ottla_pipelines", "_schemas"):
        for path, body in (
            (f"/api/topics/{name}/records", {"value": "x"}),
            (f"/api/topics/{box}/copy", {"to": name, "records": [place]}),
            (f"/api/dead-letters/{box}/replay", {"to": name}),
            (f"/api/dead-letters/{box}/edit", {"to": name, **place}),
        ):
            assert guarded.refused("POST", path, 403, body, **bearer(EDITOR))["code"] == "FORBIDDEN"
    # Nor by a letter that says it came from there.
    assert guarded.refused("POST", f"/api/dead-letters/{box}/edit", 403, place, **bearer(EDITOR))["code"] == "FORBIDDEN"
    assert guarded.post(f"/api/dead-letters/{box}/replay", {}, **bearer(EDITOR))["stuck"] == {"__ottla_audit": 1}
    assert guarded.post(f"/api/dead-letters/{box}/replay", {}, **bearer(ADMIN))["to"] == {"__ottla_audit": 1}
    # The audit is read by admins.
    for path in (log, f"{log}/0/0", f"/api/records?topics={topic},__ottla_audit", "/api/trace?topics=__ottla_audit&search=x",
                 "/api/dead-letters/__ottla_audit"):  # fmt: skip
        assert guarded.refused("GET", path, 403, **bearer(EDITOR))["code"] == "FORBIDDEN", path
    copied = {"to": topic, "records": [place]}
    assert guarded.refused("POST", "/api/topics/__ottla_audit/copy", 403, copied, **bearer(EDITOR))["code"] == "FORBIDDEN"
    assert guarded.get(f"{log}/0/0", **bearer(ADMIN))["value"]["format"] == "json"


def test_a_session_by_cookie(guarded: RunningConsole, topic: str) -> None:
    with httpx.Client(base_url=guarded.url, timeout=60) as browser:
        assert browser.post("/api/login", json={"token": "wrong-token-0123456789"}).status_code == 401
        answer = browser.post("/api/login", json={"token": EDITOR})
        session = answer.json()
        assert (session["role"], session["user"]) == ("editor", "token:editor")
        cookie = answer.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert EDITOR not in cookie
        assert browser.get("/api/topics").status_code == 200
        path, body = f"/api/topics/{topic}/records", {"value": "x"}
        assert browser.post(path, json=body).json()["error"]["code"] == "CROSS_SITE"
        assert browser.post(path, json=body, headers={"X-CSRF-Token": "guess"}).status_code == 403
        assert browser.post(path, json=body, headers={"X-CSRF-Token": session["csrf"]}).status_code == 200
        browser.post("/api/logout", json={})
        assert browser.get("/api/topics").status_code == 401
        stolen = {"cookie": f"ottla_console={cookie.partition('=')[2].partition(';')[0]}"}
        assert httpx.get(f"{guarded.url}/api/topics", headers=stolen).status_code == 401


def test_guessing_is_slow(subject: Subject, tokens: Path) -> None:
    with running_console(subject.bootstrap_servers, "--tokens", str(tokens)) as console:
        for _ in range(5):
            console.refused("POST", "/api/login", 401, {"token": "wrong-token-0123456789"})
        assert console.refused("POST", "/api/login", 429, {"token": ADMIN})["code"] == "TOO_MANY"


def test_a_hidden_field_is_nowhere(guarded: RunningConsole, topic: str) -> None:
    value = {"name": "Ada", "card": "4711-0815"}
    guarded.post(f"/api/topics/{topic}/records", {"key": "k", "value": value, "partition": 0}, **bearer(EDITOR))
    guarded.headers = bearer(ADMIN)
    try:
        path = f"/api/topics/{topic}/records"
        (record,), _ = guarded.records(f"{path}?partitions=0")
        assert json.loads(record["value"]["text"]) == {"name": "Ada", "card": "***"}
        assert record["masked"]
        assert "4711" not in json.dumps(guarded.get(f"{path}/0/0"))
        # Nor can it be guessed.
        assert guarded.records(f"{path}?search=4711")[0] == []
        assert guarded.records(f"{path}?where=value.card.startswith('4')")[0] == []
        assert len(guarded.records(f"{path}?search=Ada")[0]) == 1
        box = f"{topic}.dlq"
        guarded.post("/api/topics", {"topic": box, "partitions": 1})
        letter = {"value": value, "headers": {"ottla.topic": topic, "ottla.partition": "0", "ottla.offset": "0"}}
        guarded.post(f"/api/topics/{box}/records", letter)
        for chosen, count in (("value.card == '4711-0815'", 0), ("value.card == '***'", 1)):
            assert guarded.post(f"/api/dead-letters/{box}/replay", {"where": chosen})["to"] == ({topic: 1} if count else {})
    finally:
        guarded.headers = {}


def test_what_is_hidden_in_a_topic_stays_there(subject: Subject, topic: str, ottla: Ottla) -> None:
    """A key cannot be guessed, and no copy shows what is hidden."""
    open_ = f"open-{topic}"
    box = f"{topic}.dlq"
    for name in (open_, box):
        ottla.ok("topic", "create", name)
    with running_console(subject.bootstrap_servers, "--mask", f"{topic}*:key", "--mask", "*:headers.token") as console:
        for name in (topic, box, open_):
            console.post(f"/api/topics/{name}/records", {"key": "4711", "value": "x", "partition": 0})
        path = f"/api/topics/{topic}/records?all_partitions=1"
        assert [len(console.records(f"{path}{more}")[0]) for more in ("", "&key=4711", "&key=4712")] == [1, 0, 0]
        assert console.request("GET", f"/api/topics/{topic}/export?key=4711&all_partitions=1").text == ""
        assert len(console.records(f"/api/topics/{open_}/records?key=4711")[0]) == 1
        place = {"partition": 0, "offset": 0}
        for path, body in (
            (f"/api/topics/{topic}/copy", {"to": open_, "records": [place]}),
            (f"/api/dead-letters/{box}/replay", {"to": open_}),
            (f"/api/dead-letters/{box}/edit", {"to": open_, "value": "y", **place}),
        ):
            assert console.refused("POST", path, 403, body)["code"] == "FORBIDDEN"
        # Where as much is hidden it may go.
        console.post(f"/api/topics/{topic}/copy", {"to": box, "records": [place]})
        console.post(f"/api/topics/{open_}/copy", {"to": topic, "records": [place]})


def test_read_only(subject: Subject, topic: str) -> None:
    with running_console(subject.bootstrap_servers, "--read-only") as console:
        assert console.get("/api/session")["can"] == {"write": False, "admin": False}
        for path, operations in console.description["paths"].items():
            for method, operation in operations.items():
                if method != "get" and operation["operationId"] not in ("log_in", "log_out", "check_filter"):
                    filled = path.replace("{", "").replace("}", "")
                    assert console.refused(method.upper(), filled, 403)["code"] == "READ_ONLY", path


def test_the_headers_of_every_answer(console: RunningConsole) -> None:
    for path in ("/", "/topics", "/nowhere", "/static/nothing.js", "/api/topics", "/api/nothing", "/healthz"):
        headers = console.request("GET", path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "'unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers


def test_rebinding_and_other_sites(console: RunningConsole) -> None:
    assert console.refused("GET", "/api/topics", 403, host="evil.example")["code"] == "CROSS_SITE"
    assert console.refused("POST", "/api/topics", 403, {"topic": "x"}, origin="http://evil.example")["code"] == "CROSS_SITE"
    assert console.refused("POST", "/api/topics", 403, **{"content-type": "text/plain"})["code"] == "CROSS_SITE"
    assert console.refused("GET", "/api/topics", 403, **{"sec-fetch-site": "cross-site"})["code"] == "CROSS_SITE"


@pytest.mark.parametrize("path", ["../openapi.py", "..%2fopenapi.py", "%2e%2e/openapi.py", "/etc/passwd", "....//openapi.py"])
def test_only_static_files_are_served(console: RunningConsole, path: str) -> None:
    """As bytes on the wire: a client would resolve the dots itself."""
    host, _, port = console.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port))) as wire:
        wire.sendall(f"GET /static/{path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: wire.recv(65536), b""))
    assert b" 404 " in answer.partition(b"\r\n")[0]
    assert b"OpenAPI" not in answer
    assert b"root:" not in answer


def test_a_body_has_a_limit(console: RunningConsole, topic: str) -> None:
    assert console.refused("POST", f"/api/topics/{topic}/records", 413, {"value": "x" * (9 << 20)})["code"] == "TOO_LARGE"
    answer = httpx.post(f"{console.url}/api/topics", content=b"{", headers={"content-type": "application/json"})
    assert answer.json()["error"]["code"] == "BAD_REQUEST"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--listen", "0.0.0.0:0"], "is not on this machine only"),
        (["--listen", "here"], "is not an address"),
        (["--role", "ada=queen"], "there is no role queen"),
        (["--mask", "card"], "names no field"),
        (["--tls-cert", "/no/such.pem"], "cannot be used"),
        (["--tls-key", "/no/such.pem"], "which is missing"),
        (["-b", "host:99999"], "is not a broker address"),
    ],
)
def test_a_console_that_does_not_start(words: list[str], says: str) -> None:
    done = Ottla("127.0.0.1:1").spawn("console", "--listen", "127.0.0.1:0", *words)
    assert done.returncode != 0
    assert says in done.stderr.decode()


def test_https(subject: Subject, tokens: Path, topic: str, tmp_path: Path) -> None:
    """With a certificate that the client trusts: answers, streams, a login by a secure cookie. Plain HTTP gets nothing."""
    authority = Authority()
    issued = authority.issue()
    certificate, key = tmp_path / "console.pem", tmp_path / "console.key"
    certificate.write_text(issued.certificate_pem)
    key.write_text(issued.key_pem())
    words = ("--tokens", str(tokens), "--tls-cert", str(certificate), "--tls-key", str(key))
    with running_console(subject.bootstrap_servers, *words) as console:
        assert console.url.startswith("https://")
        trusting = ssl.create_default_context(cadata=authority.pem)
        with httpx.Client(base_url=console.url, verify=trusting, headers={"origin": console.url}, timeout=60) as browser:
            answer = browser.post("/api/login", json={"token": EDITOR})
            assert "secure" in answer.headers["set-cookie"].lower().split("; ")
            overview = browser.get("/api/overview")
            assert (overview.status_code, overview.json()["bootstrap_servers"]) == (200, subject.bootstrap_servers)
            written = browser.post(
                f"/api/topics/{topic}/records", json={"value": "x"}, headers={"X-CSRF-Token": answer.json()["csrf"]}
            )
            assert written.status_code == 200
            assert "event: end" in browser.get(f"/api/topics/{topic}/records").text
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            httpx.get(console.url, timeout=60)
        with pytest.raises(httpx.TransportError):
            httpx.get(console.url.replace("https:", "http:"), timeout=60)


def test_a_file_of_tokens_is_secret(tokens: Path, tmp_path: Path) -> None:
    short, open_ = tmp_path / "short", tmp_path / "open"
    short.write_text("admin abc")
    open_.write_text(tokens.read_text())
    open_.chmod(0o644)
    for path, says in ((short, "at least 16 characters"), (open_, "can be read by others"), (tmp_path / "none", "cannot read")):
        done = Ottla("127.0.0.1:1").spawn("console", "--listen", "127.0.0.1:0", "--tokens", str(path))
        assert says in done.stderr.decode()


def test_users_of_the_cluster_log_in(tmp_path: Path) -> None:
    """By SCRAM at the cluster, whose ACLs then decide what they may read."""
    with Broker(security="SASL_PLAINTEXT") as broker:
        admin = tmp_path / "admin.properties"
        properties = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "admin",
            "sasl.password": "admin-secret",
        }
        admin.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        words = ("--command-config", str(admin), "--login", "--role", "admin=admin", "--audit-topic", "")
        with running_console(broker.bootstrap_servers, *words) as console:
            assert console.refused("POST", "/api/login", 401, {"user": "alice", "password": "wrong"})
            with httpx.Client(base_url=console.url, timeout=60) as boss, httpx.Client(base_url=console.url, timeout=60) as alice:
                session = boss.post("/api/login", json={"user": "admin", "password": "admin-secret"}).json()
                assert (session["user"], session["role"]) == ("admin", "admin")
                token = {"X-CSRF-Token": session["csrf"]}
                assert boss.post("/api/topics", json={"topic": "secret"}, headers=token).status_code == 201
                assert boss.post("/api/topics/secret/records", json={"value": "x"}, headers=token).status_code == 200
                assert alice.post("/api/login", json={"user": "alice", "password": "alice-secret"}).json()["role"] == "viewer"
                refused = alice.get("/api/topics/secret/records/0/0")
                assert refused.status_code in (403, 404), refused.text
                acl = {"principal": "alice", "type": "topic", "name": "secret", "operation": "read"}
                assert boss.post("/api/acls", json={"acls": [acl]}, headers=token).status_code == 200
                until(lambda: alice.get("/api/topics/secret/records/0/0").status_code == 200, "alice may read")


def test_a_user_sees_what_the_acls_allow(tmp_path: Path) -> None:
    """Lists, live pages, groups, the overview and names in errors: all of it is read as the user who is logged in."""
    with Broker(security="SASL_PLAINTEXT") as broker:
        admin = tmp_path / "admin.properties"
        login = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "admin", "sasl.password": "admin-secret"}
        properties = {"security.protocol": "SASL_PLAINTEXT", **login}
        admin.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        words = ("--command-config", str(admin), "--login", "--role", "admin=admin", "--audit-topic", "")
        with (
            running_console(broker.bootstrap_servers, *words) as console,
            httpx.Client(base_url=console.url, timeout=60) as alice,
            httpx.Client(base_url=console.url, timeout=60) as boss,
        ):
            session = boss.post("/api/login", json={"user": "admin", "password": "admin-secret"}).json()
            boss.headers["X-CSRF-Token"] = session["csrf"]
            for name in ("shown", "hidden", "shown.dlq", "hidden.dlq"):
                assert boss.post("/api/topics", json={"topic": name}).status_code == 201
            for name in ("shown", "hidden"):
                start = {"topics": [name], "to": "earliest", "execute": True}
                assert boss.post(f"/api/groups/g-{name}/offsets", json=start).status_code == 200
            may = [
                {"principal": "alice", "type": kind, "name": name, "operation": "read"}
                for kind, name in (("topic", "shown"), ("group", "g-shown"))
            ]
            assert boss.post("/api/acls", json={"acls": may}).status_code == 200
            alice.post("/api/login", json={"user": "alice", "password": "alice-secret"})
            until(lambda: boss.get("/api/groups").json()["matched"] == 2, "the admin sees both groups")
            assert boss.get("/api/topics?search=h").json()["matched"] >= 4
            until(lambda: alice.get("/api/groups").json()["complete"], "alice's round is over")
            assert [row["topic"] for row in alice.get("/api/topics?internal=1").json()["rows"]] == ["shown"]
            assert [row["group"] for row in alice.get("/api/groups").json()["rows"]] == ["g-shown"]
            assert [row["lag"] for row in alice.get("/api/groups").json()["rows"]] == [0]
            overview = alice.get("/api/overview").json()
            assert (overview["topics"], overview["groups"]) == (1, 1)
            for path in (
                "/api/topics/hidden", "/api/live/topics/hidden", "/api/topics/hidden/consumers", "/api/topics/hidden/configs",
                "/api/topics/hidden/producers", "/api/topics/hidden/histogram", "/api/groups/g-hidden",
                "/api/groups/g-hidden/history", "/api/dead-letters/hidden.dlq",
            ):  # fmt: skip
                answer = alice.get(path)
                assert answer.status_code in (403, 404), f"{path}: {answer.text}"
            assert alice.get("/api/topics/shown").json()["partitions"][0]["high_watermark"] == 0
            for path in ("/api/topics", "/api/groups", "/api/overview", "/api/transactions", "/api/dead-letters", "/api/session"):
                answer = alice.get(path)
                assert answer.status_code == 200, f"{path}: {answer.text}"
                assert "hidden" not in answer.text, path
            for path in ("/api/live/topics", "/api/live/groups", "/api/live/overview"):
                with alice.stream("GET", path) as stream:
                    first = next(line for line in stream.iter_lines() if line.startswith("data:"))
                    assert "hidden" not in first
                    assert path == "/api/live/overview" or "shown" in first
            with alice.stream("GET", "/api/live/topics") as stream:
                lines = stream.iter_lines()
                next(lines)
                token = alice.get("/api/session").json()["csrf"]
                alice.post("/api/logout", json={}, headers={"X-CSRF-Token": token})
                assert any("LOGIN_REQUIRED" in line for line in lines), "what was open ends with the session"
