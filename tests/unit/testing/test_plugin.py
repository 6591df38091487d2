"""The pytest plugin, run by pytest on a project of its own."""

from __future__ import annotations

import re

import pytest

from ottla.testing.plugin import topic_name

pytest_plugins = ["pytester"]

PROJECT = """
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

names = []

@pytest.fixture(scope="session")
def ottla_broker_settings():
    return {"auto.create.topics.enable": "false"}

@pytest.mark.parametrize("case", ["a/b", "ü"])
def test_topic(ottla_broker, ottla_topic, case):
    topics = AdminClient({"bootstrap.servers": ottla_broker.bootstrap_servers}).list_topics(timeout=30).topics
    assert ottla_topic in topics
    assert not set(names) & set(topics), "topics of earlier tests are gone"
    names.append(ottla_topic)
    producer = Producer({"bootstrap.servers": ottla_broker.bootstrap_servers})
    producer.produce(ottla_topic, b"x")
    assert producer.flush(30) == 0

def test_settings(ottla_broker):
    assert ottla_broker.settings == {"auto.create.topics.enable": "false"}

def test_killed(ottla_broker, ottla_topic):
    ottla_broker.kill()

def test_after_it(ottla_broker, ottla_topic):
    assert ottla_broker.running

def test_deletes_its_topic(ottla_broker, ottla_topic):
    ottla_broker.delete_topic(ottla_topic)
"""


def test_fixtures(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(PROJECT)
    result = pytester.runpytest_subprocess("-q")
    result.assert_outcomes(passed=6)


def test_plugin_is_light(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "import sys\ndef test_it():\n    assert 'confluent_kafka' not in sys.modules and 'ottla.broker' not in sys.modules"
    )
    pytester.runpytest_subprocess("-q").assert_outcomes(passed=1)


@pytest.mark.parametrize("test", ["test_x[a/b ü]", "x" * 400, "///", ""])
def test_topic_names_are_legal_and_new(test: str) -> None:
    first, second = topic_name(test), topic_name(test)
    assert first != second
    assert re.fullmatch(r"[A-Za-z0-9._-]{1,249}", first)
