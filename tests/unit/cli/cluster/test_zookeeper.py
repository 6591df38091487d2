"""Where `ottla cluster up` finds a ZooKeeper, and what it says where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.cli.cluster import zookeeper
from ottla.cli.failure import Failure


def touch(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_debians_package_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path / "java/zookeeper.jar", tmp_path / "java/slf4j-api.jar", tmp_path / "java/netty-all.jar")
    touch(tmp_path / "cache/zookeeper-3.8.4/zookeeper-3.8.4.jar", tmp_path / "java/unrelated.jar")
    monkeypatch.setattr(zookeeper, "DEBIAN_JARS", tmp_path / "java")
    monkeypatch.setenv("OTTLA_CACHE", str(tmp_path / "cache"))
    assert [jar.name for jar in zookeeper.find()] == ["zookeeper.jar", "slf4j-api.jar", "netty-all.jar"]


def test_the_jars_of_kafka_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "cache/kafka-3.9.2"
    touch(
        folder / "zookeeper-3.8.4.jar", folder / "slf4j-simple-1.7.36.jar", folder / "kafka_2.13-3.9.2.jar", folder / "netty.jar"
    )
    touch(tmp_path / "cache/kafka-4.3.0/kafka_2.13-4.3.0.jar")
    monkeypatch.setattr(zookeeper, "DEBIAN_JARS", tmp_path / "none")
    monkeypatch.setenv("OTTLA_CACHE", str(tmp_path / "cache"))
    assert [jar.name for jar in zookeeper.find()] == ["netty.jar", "zookeeper-3.8.4.jar"]


def test_without_anything_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zookeeper, "DEBIAN_JARS", tmp_path / "none")
    monkeypatch.setenv("OTTLA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Failure, match="nor Maven") as caught:
        zookeeper.find()
    assert "apt-get install zookeeper" in (caught.value.hint or "")
    with pytest.raises(Failure, match="needs Java"):
        zookeeper.server_command([], tmp_path / "zk", 2181)


def test_maven_that_fails_is_quoted_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    maven = tmp_path / "bin/mvn"
    touch(maven)
    maven.write_text("#!/bin/sh\necho '[ERROR] no such host'\nexit 1\n")
    maven.chmod(0o755)
    monkeypatch.setattr(zookeeper, "DEBIAN_JARS", tmp_path / "none")
    monkeypatch.setenv("OTTLA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin:/usr/bin")
    with pytest.raises(Failure, match="no such host"):
        zookeeper.find()
    assert "downloading ZooKeeper" in capsys.readouterr().err
    assert list((tmp_path / "cache").iterdir()) == []
