"""Log levels of a running broker (KIP-412), by Kafka's ConfigCommand and by requests it would not send."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator

import pytest

from ottla.cluster.requests import ConfigOperation, ResourceType
from ottla.errors import ErrorCode
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.kit.cluster import ask_at
from tests.kit.peers import KAFKA_4, ApacheKafka, run_tool, single_jars
from tests.kit.subject import EITHER, Subject, running

pytestmark = [pytest.mark.java, pytest.mark.slow]

SET, DELETE, APPEND, SUBTRACT = ConfigOperation.SET, ConfigOperation.DELETE, ConfigOperation.APPEND, ConfigOperation.SUBTRACT


class LoggingKafka(ApacheKafka):
    """Logs through Log4j, as Kafka's distribution does: the levels of slf4j-simple cannot be changed."""

    def command(self) -> list[str]:
        (self.dir / "log4j2.properties").write_text("rootLogger.level = INFO\n")
        [binding] = single_jars("log4j", ["org.apache.logging.log4j:log4j-slf4j-impl:2.25.4"])
        command = super().command()
        at = command.index("-cp") + 1
        jars = [jar for jar in command[at].split(os.pathsep) if "slf4j-simple" not in jar]
        command[at] = os.pathsep.join([str(binding), *jars])
        return [command[0], f"-Dlog4j2.configurationFile={self.dir / 'log4j2.properties'}", *command[1:]]


@pytest.fixture(scope="module", params=EITHER)
def subject(request: pytest.FixtureRequest) -> Iterator[Subject]:
    if request.param == "ottla":
        with running("ottla") as broker:
            yield broker
    else:
        with LoggingKafka() as kafka:
            yield Subject(request.param, kafka.bootstrap_servers, lambda: kafka.output)


@pytest.fixture
def configs(subject: Subject) -> Callable[..., str]:
    def run(*words: str) -> str:
        entity = ("--bootstrap-server", subject.bootstrap_servers, "--entity-type", "broker-loggers", "--entity-name", "1")
        done = run_tool(KAFKA_4, "ConfigCommand", *entity, *words)
        return done.stdout + done.stderr

    return run


def levels(subject: Subject, *names: str, broker: str = "1") -> dict[str, str | None] | int:
    """By logger, or the error code."""
    resource = DescribeConfigsResource(
        resource_type=ResourceType.BROKER_LOGGER, resource_name=broker, configuration_keys=list(names) or None
    )
    [found] = ask_at(subject.bootstrap_servers, "describe_configs", 4, DescribeConfigsRequest(resources=[resource])).results
    return int(found.error_code) or {each.name: each.value for each in found.configs}


def alter(subject: Subject, *changes: tuple[str, int, str | None], broker: str = "1", validate_only: bool = False) -> int:
    """The error code."""
    asked = [AlterableConfig(name=name, config_operation=operation, value=value) for name, operation, value in changes]
    resource = AlterConfigsResource(resource_type=ResourceType.BROKER_LOGGER, resource_name=broker, configs=asked)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    [found] = ask_at(subject.bootstrap_servers, "incremental_alter_configs", 1, request).responses
    return int(found.error_code)


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


def test_error_codes(subject: Subject) -> None:
    found = levels(subject)
    assert isinstance(found, dict)
    assert found["root"] == "INFO"
    name = next(name for name in found if name != "root")
    invalid, wrong = ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST
    assert [alter(subject, (name, SET, level)) for level in ("LOUD", "", "debug", " DEBUG", "OFF", "ALL")] == [invalid] * 6
    assert [alter(subject, (name, SET, level)) for level in ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")] == [0] * 6
    assert levels(subject, name) == {name: "FATAL"}
    assert alter(subject, (name, SET, None)) == wrong
    assert alter(subject, ("no.such.logger", SET, "INFO")) == invalid
    assert alter(subject, ("no.such.logger", DELETE, None)) == invalid
    assert alter(subject, ("ROOT", SET, "INFO")) == invalid
    assert alter(subject, ("root", DELETE, None)) == wrong
    assert [alter(subject, (name, operation, "INFO")) for operation in (APPEND, SUBTRACT)] == [wrong] * 2
    assert alter(subject, (name, SET, "INFO"), (name, DELETE, None)) == wrong
    assert alter(subject, (name, SET, "INFO"), ("no.such.logger", SET, "INFO")) == invalid
    assert levels(subject, name) == {name: "FATAL"}, "all changes or none"
    assert alter(subject, (name, SET, "INFO"), validate_only=True) == 0
    assert levels(subject, name) == {name: "FATAL"}
    assert alter(subject, (name, DELETE, None)) == 0
    assert levels(subject, name) == {name: "INFO"}, "of the root logger"
    assert levels(subject, "no.such.logger") == {}
    assert [levels(subject, broker=broker) for broker in ("2", "", "x")] == [wrong] * 3
    assert [alter(subject, ("root", SET, "INFO"), broker=broker) for broker in ("2", "", "x")] == [wrong] * 3
