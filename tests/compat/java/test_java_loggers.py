"""Kafka's ConfigCommand changes log levels while a broker runs, of one logger and of all (KIP-412).

Ottla only: the Apache Kafka of these tests logs through slf4j-simple, whose levels cannot be changed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from tests.kit.peers import KAFKA_4, run_tool
from tests.kit.subject import Subject, running

pytestmark = [pytest.mark.java, pytest.mark.slow]


@pytest.fixture(scope="module")
def subject() -> Iterator[Subject]:
    with running("ottla") as broker:
        yield broker


@pytest.fixture
def configs(subject: Subject) -> Callable[..., str]:
    def run(*words: str) -> str:
        entity = ("--bootstrap-server", subject.bootstrap_servers, "--entity-type", "broker-loggers", "--entity-name", "1")
        done = run_tool(KAFKA_4, "ConfigCommand", *entity, *words)
        return done.stdout + done.stderr

    return run


def test_describe_set_and_unset(configs: Callable[..., str]) -> None:
    def level(name: str) -> str:
        return re.findall(rf"^\s*{re.escape(name)}=(\w+) ", configs("--describe"), re.M)[0]

    described = configs("--describe")
    name = next(found for found in re.findall(r"^\s*([\w.]+)=INFO ", described, re.M) if found != "root")
    assert "Completed updating config for broker-logger 1." in configs("--alter", "--add-config", f"{name}=DEBUG,root=WARN")
    assert (level(name), level("root")) == ("DEBUG", "WARN")
    assert "Completed updating config for broker-logger 1." in configs("--alter", "--delete-config", name)
    assert level(name) == "WARN", "of the root logger"
    assert "Invalid" in configs("--alter", "--add-config", "no.such.logger=INFO")
    assert "Completed" not in configs("--alter", "--delete-config", "root")
    assert "Completed" not in configs("--alter", "--add-config", f"{name}=LOUD")
    assert "Completed" in configs("--alter", "--add-config", "root=INFO")
