"""Deployment settings and the search for a Java, without Spark (F77)."""

from __future__ import annotations

import errno
import subprocess
from pathlib import Path

import pytest

from ottla.pipelines import PipelineError, java, project

TOML = """
[pipeline]
name = "shop"
bootstrap_servers = "kafka:9092"
storage = "state"
trigger = "500 ms"
transaction_timeout = "2 minutes"
metrics = "127.0.0.1:9404"

[kafka]
"security.protocol" = "SASL_SSL"

[spark]
master = "spark://host:7077"

[spark.conf]
"spark.executor.memory" = "2g"
"spark.sql.shuffle.partitions" = 8
"""


def given(tmp_path: Path, text: str | None) -> Path:
    if text is not None:
        (tmp_path / "orders.toml").write_text(text)
    return tmp_path / "orders.py"


def test_a_toml_beside_the_pipeline_and_flags_over_it(tmp_path: Path) -> None:
    found = project.read(given(tmp_path, TOML))
    assert (found.name, found.bootstrap_servers, found.master) == ("shop", "kafka:9092", "spark://host:7077")
    assert (found.trigger_ms, found.transaction_timeout_ms, found.metrics) == (500, 120_000, "127.0.0.1:9404")
    assert found.storage == str(tmp_path / "state")
    assert found.conf == {"spark.executor.memory": "2g", "spark.sql.shuffle.partitions": "8"}
    assert found.kafka_options() == {"kafka.bootstrap.servers": "kafka:9092", "kafka.security.protocol": "SASL_SSL"}
    assert found.checkpoint("revenue") == f"{tmp_path}/state/revenue"
    assert found.group_id("revenue") == "shop.revenue"

    other = project.override(
        found, bootstrap_servers="b:1", storage="s3a://bucket/x", trigger="2s", master=None, conf={"spark.executor.memory": "4g"}
    )
    assert (other.bootstrap_servers, other.storage, other.trigger_ms) == ("b:1", "s3a://bucket/x", 2_000)
    assert other.master == "spark://host:7077"
    assert other.conf["spark.executor.memory"] == "4g"


def test_without_a_toml_everything_has_a_default(tmp_path: Path) -> None:
    found = project.read(given(tmp_path, None))
    assert (found.name, found.master, found.trigger_ms) == ("orders", "local[*]", 1_000)
    assert found.storage == str(tmp_path / ".ottla" / "orders")


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("[pipeline]\nname = \n", 2, "Invalid value"),
        ("[pipeline]\n\nbootstrap = 'x'\n", 3, "'bootstrap' is unknown in [pipeline]"),
        ("[pipelin]\nname = 'x'\n", 1, "'pipelin' is unknown"),
        ("[pipeline]\ntrigger = 'soon'\n", 2, "'soon' is not a duration"),
        ("[pipeline]\ntrigger = 5\n", 2, "= 5 is not a string"),
        ("[pipeline]\nname = 'a b'\n", 2, "letters, digits"),
        ("[pipeline]\nmetrics = 'here'\n", 2, "'here' is not an address"),
        ("[spark.conf]\nspark.executor.memory = '1g'\n", 2, "quote names with dots"),
    ],
)
def test_a_mistake_in_the_toml_has_its_line(tmp_path: Path, text: str, line: int, words: str) -> None:
    with pytest.raises(PipelineError) as caught:
        project.read(given(tmp_path, text))
    assert words in caught.value.message
    assert caught.value.place is not None
    assert caught.value.place.line == line


def test_what_would_break_exactly_once_is_refused(tmp_path: Path) -> None:
    """F79: a speculative copy of a task would write the same records a second time."""
    with pytest.raises(PipelineError, match=r"spark\.speculation=true: two copies"):
        project.override(project.read(given(tmp_path, None)), conf={"spark.speculation": "true"})


@pytest.mark.parametrize(
    ("text", "ms"), [("500 ms", 500), ("1 second", 1_000), ("10 minutes", 600_000), ("2h", 7_200_000), ("30s", 30_000)]
)
def test_durations(text: str, ms: int) -> None:
    assert project.duration_ms(text) == ms


def fake_java(folder: Path, version: str) -> Path:
    executable = folder / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f'#!/bin/sh\necho \'openjdk version "{version}" 2025\' >&2\nfor w; do echo "$w"; done\n')
    executable.chmod(0o755)
    return folder


@pytest.mark.parametrize(("version", "number"), [("17.0.15", 17), ("21", 21), ("1.8.0_402", 8)])
def test_the_version_of_a_java(tmp_path: Path, version: str, number: int) -> None:
    assert java.version_of(str(fake_java(tmp_path / "j", version) / "bin" / "java")) == number


def test_a_java_is_found_or_the_message_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good, old = fake_java(tmp_path / "good", "21.0.1"), fake_java(tmp_path / "old", "1.8.0_1")
    empty = {"PATH": str(tmp_path), "HOME": str(tmp_path)}
    monkeypatch.setattr(java, "_packaged", lambda: None)
    assert java.java_home({**empty, "JAVA_HOME": str(good)}) == str(good)
    assert java.java_home({**empty, "PATH": str(good / "bin")}) is None
    assert java.java_home({**empty, "JAVA_HOME": str(old), "PATH": str(good / "bin")}) == str(good)
    with pytest.raises(PipelineError, match="no java found") as caught:
        java.java_home(empty)
    assert "ottla[java]" in (caught.value.hint or "")
    with pytest.raises(PipelineError, match="is Java 8"):
        java.java_home({**empty, "JAVA_HOME": str(old)})


@pytest.mark.parametrize(
    ("program", "problem"),
    [("exec sleep 60", "gave no answer in 0.2 s"), ("kill -KILL $$", "was killed by signal 9"), (None, "could not be started")],
)
def test_a_java_that_a_loaded_machine_cannot_ask_is_not_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str | None, problem: str
) -> None:
    home = fake_java(tmp_path / "slow", "17")
    if program is not None:
        (home / "bin" / "java").write_text(f"#!/bin/sh\n{program}\n")
    else:

        def run(*_: object, **__: object) -> None:
            raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

        monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(java, "_ANSWER_TIMEOUT_S", 0.2)
    monkeypatch.setattr(java, "_packaged", lambda: None)
    environment = {"PATH": str(tmp_path), "JAVA_HOME": str(home)}
    with pytest.raises(PipelineError, match=problem) as caught:
        java.java_home(environment)
    assert caught.value.hint == "the machine is overloaded, or this Java is broken: try again"
    (home / "release").write_text('IMPLEMENTOR="Debian"\nJAVA_VERSION="17.0.15"\n')
    assert java.java_home(environment) == str(home)


def test_the_packaged_java_gets_a_wrapper_that_drops_what_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packaged = fake_java(tmp_path / "packaged", "21.0.4") / "bin" / "java"
    monkeypatch.setattr(java, "_packaged", lambda: packaged)
    home = java.java_home({"PATH": str(tmp_path), "HOME": str(tmp_path)})
    assert home is not None
    words = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-cp", "a b"]
    done = subprocess.run([f"{home}/bin/java", *words], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.splitlines() == ["-Xmx1g", "-cp", "a b"]


def test_a_toml_that_is_no_text_has_its_line(tmp_path: Path) -> None:
    (tmp_path / "shop.toml").write_bytes(b"[pipeline]\nname = '\xff'\n")
    with pytest.raises(PipelineError, match=r"shop\.toml:2: the settings are not UTF-8"):
        project.read(tmp_path / "shop.py")


ENVIRONMENTS = """
[pipeline]
bootstrap_servers = "dev:9092"
restart = "on-failure"
restart_backoff = "2 seconds"

[kafka]
"sasl.password" = "${OTTLA_TEST_SECRET}"
"client.id" = "dev"

[alerts]
webhook = "https://example.org/${file:HOOK}"

[env.prod.pipeline]
bootstrap_servers = "prod:9092"

[env.prod.kafka]
"client.id" = "prod $${kept}"
"""


def test_an_environment_changes_settings_and_secrets_come_from_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_TEST_SECRET", "geheim")
    (tmp_path / "secret").write_text("hook\n")
    file = tmp_path / "orders.py"
    file.with_suffix(".toml").write_text(ENVIRONMENTS.replace("HOOK", f"{tmp_path}/secret"))
    dev, prod = project.read(file), project.read(file, env="prod")
    assert (dev.bootstrap_servers, prod.bootstrap_servers) == ("dev:9092", "prod:9092")
    assert (prod.restart, prod.restart_backoff_ms) == ("on-failure", 2000)
    assert dev.kafka == {"sasl.password": "geheim", "client.id": "dev"}
    assert prod.kafka == {"sasl.password": "geheim", "client.id": "prod ${kept}"}
    assert prod.alert_webhook == "https://example.org/hook"
    file.with_suffix(".test.toml").write_text('[pipeline]\nbootstrap_servers = "test:9092"\n')
    assert project.read(file, env="test").bootstrap_servers == "test:9092"
    with pytest.raises(PipelineError, match="has no section") as caught:
        project.read(file, env="staging")
    assert caught.value.hint == "declared: prod, test"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('name = "${OTTLA_TEST_NONE}"', "name: ${OTTLA_TEST_NONE}: the environment has no variable OTTLA_TEST_NONE"),
        ('name = "${file:/no/such}"', "name: ${file:/no/such}: No such file or directory"),
        ('name = "${a b}"', "name: ${a b} is neither ${NAME} nor ${file:/path}"),
        ('trigger = "${OTTLA_TEST_SECRET}"', "trigger: '${OTTLA_TEST_SECRET}' does not fit"),
    ],
)
def test_a_reference_without_a_value_is_named_and_a_secret_never(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, said: str
) -> None:
    monkeypatch.setenv("OTTLA_TEST_SECRET", "geheim")
    file = tmp_path / "orders.py"
    file.with_suffix(".toml").write_text(f"[pipeline]\n{line}\n")
    with pytest.raises(PipelineError) as caught:
        project.read(file)
    assert caught.value.message == said
    assert caught.value.place is not None
    assert caught.value.place.line == 2
