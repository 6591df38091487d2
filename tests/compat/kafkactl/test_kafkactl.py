"""kafkactl 5, a command line of others: topics, records, groups, configurations."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.kit.peers import MissingCounterpart

pytestmark = pytest.mark.slow


class Kafkactl:
    def __init__(self, bootstrap: str, home: Path) -> None:
        program = shutil.which("kafkactl")
        if program is None:
            raise MissingCounterpart(
                "kafkactl is missing: install release 5 of https://github.com/deviceinsight/kafkactl into the PATH"
            )
        config = home / "config.yml"
        config.write_text(json.dumps({"contexts": {"default": {"brokers": bootstrap.split(",")}}}))
        self._command = [program, "-C", str(config)]

    def run(self, *words: str, input: str | None = None) -> str:
        done = subprocess.run([*self._command, *words], input=input, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def document(self, *words: str) -> Any:
        return json.loads(self.run(*words, "-o", "json"))


@pytest.fixture
def kafkactl(bootstrap: str, tmp_path: Path) -> Kafkactl:
    return Kafkactl(bootstrap, tmp_path)


def test_topics(kafkactl: Kafkactl, topic: str) -> None:
    made = f"{topic}-made"
    kafkactl.run("create", "topic", made, "--partitions", "3", "--config", "retention.ms=3600000")
    kafkactl.run("alter", "topic", made, "--partitions", "4", "--config", "segment.ms=600000")
    found = kafkactl.document("describe", "topic", made)
    assert [each["ID"] for each in found["Partitions"]] == [0, 1, 2, 3]
    settings = {each["Name"]: each["Value"] for each in found["Configs"]}
    assert {"retention.ms": "3600000", "segment.ms": "600000"}.items() <= settings.items()
    kafkactl.run("clone", "topic", made, f"{made}-again")
    assert {made, f"{made}-again"} <= set(kafkactl.run("get", "topics", "-o", "compact").split())
    kafkactl.run("delete", "topic", made)
    assert made not in kafkactl.run("get", "topics", "-o", "compact").split()


def test_records(kafkactl: Kafkactl, topic: str) -> None:
    for number in range(5):
        kafkactl.run("produce", topic, "--key", f"key-{number}", "--value", f"value-{number}", "--header", "origin:test")
    kafkactl.run("produce", topic, "--separator", "=", input="a=1\nb=2\n")
    lines = kafkactl.run("consume", topic, "--from-beginning", "--exit", "--print-keys", "--print-headers").splitlines()
    assert lines == [*(f"origin:test#key-{number}#value-{number}" for number in range(5)), "#a#1", "#b#2"]
    assert kafkactl.run("consume", topic, "--tail", "2", "--exit").split() == ["1", "2"]
    kafkactl.run("delete", "records", topic, "--offset", "0=6")
    assert kafkactl.run("consume", topic, "--from-beginning", "--exit").split() == ["2"]


def test_groups(kafkactl: Kafkactl, topic: str) -> None:
    kafkactl.run("produce", topic, input="1\n2\n3\n")
    assert kafkactl.run("consume", topic, "--group", topic, "--from-beginning", "--max-messages", "3").split() == ["1", "2", "3"]
    assert topic in kafkactl.run("get", "consumer-groups", "-o", "compact").split()
    kafkactl.run("reset", "consumer-group-offset", topic, "--topic", topic, "--offset", "1", "--execute")
    kafkactl.run("clone", "consumer-group", topic, f"{topic}-again")
    for group in (topic, f"{topic}-again"):
        found = kafkactl.document("describe", "consumer-group", group)
        (partition,) = found["Topics"][0]["Partitions"]
        assert (partition["consumerOffset"], partition["Lag"]) == (1, 2)
    kafkactl.run("delete", "consumer-group", f"{topic}-again")
    assert f"{topic}-again" not in kafkactl.run("get", "consumer-groups", "-o", "compact").split()


def test_brokers(kafkactl: Kafkactl, bootstrap: str) -> None:
    brokers = kafkactl.document("get", "brokers")
    assert {each["Address"] for each in brokers} == set(bootstrap.split(","))
    broker = str(brokers[0]["ID"])
    kafkactl.run("alter", "broker", broker, "--config", "log.cleaner.backoff.ms=20000")
    settings = {each["Name"]: each["Value"] for each in kafkactl.document("describe", "broker", broker)["Configs"]}
    assert settings["log.cleaner.backoff.ms"] == "20000"
