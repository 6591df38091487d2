"""`ottla profile`, and commands with a profile."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.testing import Broker
from tests.kit.ottla_command import TIMEOUT_S, Ottla, environment


class Bare(Ottla):
    """The command without bootstrap servers in its environment."""

    @property
    def environment(self) -> dict[str, str]:
        return environment(XDG_CONFIG_HOME=os.environ["XDG_CONFIG_HOME"])


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("OTTLA_PROFILE", "OTTLA_BOOTSTRAP_SERVERS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "ottla" / "config.toml"


@pytest.fixture
def bare(ottla: Ottla, config: Path) -> Bare:
    return Bare(ottla.bootstrap_servers)


def test_profiles_come_and_go(bare: Bare, config: Path) -> None:
    assert "no profiles yet" in bare.run("profile", "list").stderr
    bare.ok("profile", "add", "local", "-b", bare.bootstrap_servers, "--use")
    bare.ok("profile", "add", "prod", "-b", "prod-1:9093", "-X", "sasl.password=pw", "--protected", "--color", "red")
    assert tomllib.loads(config.read_text())["current"] == "local"
    assert config.stat().st_mode & 0o777 == 0o600
    rows = {row["profile"]: row for row in json.loads(bare.ok("profile", "list", "--json"))}
    assert [rows[name]["in_use"] for name in ("local", "prod")] == [True, False]
    assert bare.ok("profile", "list").splitlines()[2].split() == ["prod", "prod-1:9093", "PLAINTEXT", "yes"]
    assert bare.ok("profile", "show", "prod").splitlines() == [
        "profile=prod",
        "bootstrap_servers=prod-1:9093",
        "protected=true",
        "colour=red",
        "sasl.password=(hidden)",
    ]
    assert bare.ok("profile", "prompt") == "local\n"
    bare.ok("profile", "use", "prod")
    assert bare.ok("profile", "prompt") == "prod*\n"
    assert bare.ok("profile", "prompt", "--shell", "bash") == "\001\033[31m\002prod*\001\033[0m\002\n"
    bare.ok("profile", "remove", "prod", "--yes")
    assert bare.ok("profile", "prompt") == ""
    assert "exists already" in bare.fails("profile", "add", "local", "-b", "x:1")
    assert "did you mean local?" in bare.fails("profile", "use", "locl", code=2)
    assert "is not a broker address" in bare.fails("profile", "add", "x", "-b", "x:y", code=2)
    assert "pass either" in bare.fails("profile", "use", code=2)


def test_the_prompt_starts_without_typer(bare: Bare, config: Path) -> None:
    bare.ok("profile", "add", "local", "-b", "x:1", "--use")
    script = "import sys; from ottla.cli import main\ntry: main(['profile', 'prompt'])\nfinally: print('typer' in sys.modules)"
    done = subprocess.run(
        [bare.command()[0], "-P", "-c", script],
        capture_output=True,
        text=True,
        env=bare.environment,
        timeout=TIMEOUT_S,
        check=True,
    )
    assert done.stdout == "local\nFalse\n"


def test_edit_checks_the_file(bare: Bare, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDITOR", "sh -c 'echo [profiles.x] >> $0'")
    monkeypatch.delenv("VISUAL", raising=False)
    assert "bootstrap_servers is missing" in bare.fails("profile", "edit", code=2)
    monkeypatch.setenv("EDITOR", "sh -c 'echo bootstrap_servers=\\\"a:1\\\" >> $0'")
    bare.ok("profile", "edit")
    assert "a:1" in bare.ok("profile", "list")
    monkeypatch.setenv("EDITOR", "no-such-editor")
    assert "cannot run the editor" in bare.fails("profile", "edit", code=2)


def test_precedence(bare: Bare, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flags, environment, --command-config, profile, default. The current profile is not mixed with another cluster."""
    here = bare.bootstrap_servers
    bare.ok("profile", "add", "here", "-b", here)
    bare.ok("profile", "add", "nowhere", "-b", "127.0.0.1:1", "-X", "security.protocol=SSL")
    bare.ok("topic", "list", "--profile", "here")
    assert "127.0.0.1:1" in bare.fails("topic", "list", "--profile", "nowhere")
    monkeypatch.setenv("OTTLA_PROFILE", "here")
    monkeypatch.setattr(Bare, "environment", property(lambda self: dict(os.environ)))
    bare.ok("topic", "list")
    assert "127.0.0.1:1" in bare.fails("topic", "list", "--profile", "nowhere")
    assert "127.0.0.1:1" in bare.fails("topic", "list", "-b", "127.0.0.1:1")
    monkeypatch.setenv("OTTLA_PROFILE", "nowhere")
    bare.ok("topic", "list", "--profile", "here")
    # A profile that is named stays, and TLS with it.
    assert bare.run("topic", "list", "-b", here).returncode == 1
    monkeypatch.delenv("OTTLA_PROFILE")
    bare.ok("profile", "use", "nowhere")
    assert "127.0.0.1:1" in bare.fails("topic", "list")
    bare.ok("topic", "list", "-b", here)
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVERS", here)
    bare.ok("topic", "list")
    monkeypatch.delenv("OTTLA_BOOTSTRAP_SERVERS")
    (tmp_path / "client.properties").write_text(f"bootstrap.servers={here}\n")
    bare.ok("topic", "list", "--command-config", str(tmp_path / "client.properties"))
    # The default address, if it is named, is meant.
    bare.ok("profile", "use", "here")
    bare.ok("topic", "list")
    done = bare.run("topic", "list", "-b", "127.0.0.1:9092")
    assert done.returncode == 0 or "127.0.0.1:9092" in done.stderr


@pytest.fixture
def protected(bare: Bare) -> Bare:
    bare.ok("profile", "add", "prod", "-b", bare.bootstrap_servers, "--protected", "--colour", "red", "--use")
    return bare


def test_a_protected_profile_takes_changes_only_with_yes(protected: Bare, topic: str) -> None:
    for words in (
        ("topic", "create", f"{topic}-new"),
        ("topic", "alter", topic, "--set", "retention.ms=1000"),
        ("topic", "delete", topic),
        ("config", "set", "topic", topic, "retention.ms=1000"),
        ("produce", topic, "value"),
        ("consume", topic, "-g", topic),
        ("group", "reset-offsets", topic, "-t", topic, "--to-earliest", "--execute"),
        ("quota", "set", "--user", topic, "producer_byte_rate=1"),
        ("user", "remove", topic),
        ("acl", "add", "-u", "alice", "--topic", topic, "-o", "Read"),
        ("txn", "abort", f"{topic}:0", "--start-offset", "0"),
        ("perf", "produce", topic, "-n", "1"),
    ):
        assert "profile prod is protected" in protected.fails(*words, code=2), words
    protected.ok("topic", "describe", topic)
    protected.ok("topic", "create", f"{topic}-new", "--dry-run")
    protected.ok("group", "reset-offsets", topic, "-t", topic, "--to-earliest")
    protected.ok("consume", topic)
    protected.ok("produce", topic, "value", "--yes")
    assert protected.ok("consume", topic) == "value\n"
    protected.ok("topic", "delete", topic, "-y")


def at_terminal(words: list[str], answer: str, env: dict[str, str]) -> tuple[int, str]:
    """Run at a terminal, answer the first question."""
    parent, child = pty.openpty()
    with subprocess.Popen(words, stdin=child, stdout=child, stderr=child, env=env, start_new_session=True) as process:
        os.close(child)
        said = b""
        try:
            while chunk := os.read(parent, 1000):
                said += chunk
                if b"[y/N]" in said and answer:
                    os.write(parent, answer.encode())
                    answer = ""
        except OSError:
            pass  # the other end is closed
        finally:
            os.close(parent)
        return process.wait(TIMEOUT_S), said.decode()


def test_a_protected_profile_asks_once_at_a_terminal(protected: Bare, topic: str) -> None:
    words = protected.command("topic", "delete", topic)
    code, said = at_terminal(words, "n\n", protected.environment)
    assert code == 1
    assert f"({protected.bootstrap_servers}) is protected. Run `ottla topic delete {topic}`?" in said
    code, said = at_terminal(words, "y\n", protected.environment)
    assert code == 0
    assert said.count("[y/N]") == 1
    assert f"topic {topic} deleted" in said


@pytest.fixture(scope="module")
def secured() -> Iterator[Broker]:
    with Broker(security="SASL_SSL") as broker:
        yield broker


@pytest.mark.parametrize("source", ["command", "environment", "file"])
def test_a_login_by_profile(secured: Broker, config: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str) -> None:
    """librdkafka, and requests that it does not send."""
    bare = Bare(secured.bootstrap_servers)
    properties = secured.client_properties("admin", "PLAIN")
    login = properties.pop("sasl.jaas.config")
    password = login.split('password="')[1].split('"')[0]
    words = ["profile", "add", "secured", "-b", bare.bootstrap_servers, "--properties", str(tmp_path / "client.properties")]
    if source == "file":
        properties["sasl.jaas.config"] = login
    elif source == "environment":
        monkeypatch.setenv("PLANTED_PASSWORD", password)
        words += ["-X", f"sasl.jaas.config={login.replace(password, '${PLANTED_PASSWORD}')}"]
    else:
        words += ["-X", "sasl.username=admin", "--password-command", f"echo {password}"]
    (tmp_path / "client.properties").write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    bare.ok(*words)
    assert password not in bare.ok("profile", "show", "secured") or source == "command"
    bare.ok("topic", "create", f"by-{source}", "--profile", "secured")
    assert json.loads(bare.ok("cluster", "status", "--json", "--profile", "secured"))["brokers"]
