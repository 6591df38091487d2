"""`ottla topic` and `ottla config` against a broker (F2, F67)."""

from __future__ import annotations

import json
import re
import socket
import uuid
from pathlib import Path

import pytest

from ottla.testing import Broker
from tests.kit.ottla_command import Ottla


def unique() -> str:
    return f"cli-{uuid.uuid4().hex[:8]}"


def test_create_list_describe_alter_delete(ottla: Ottla) -> None:
    name = unique()
    assert ottla.ok("topic", "create", name, "-p", "2", "-c", "retention.ms=100000") == f"topic {name} created\n"
    assert [row for row in json.loads(ottla.ok("topic", "list", "--json")) if row["topic"] == name] == [
        {"topic": name, "partitions": 2, "replication_factor": 1}
    ]
    assert name in ottla.ok("topic", "list")
    assert ottla.ok("topic", "alter", name, "-p", "4", "--set", "max.message.bytes=2000", "--unset", "retention.ms")
    (document,) = json.loads(ottla.ok("topic", "describe", name, "--json"))
    assert document["config"] == {"max.message.bytes": "2000"}
    assert [row["partition"] for row in document["partitions"]] == [0, 1, 2, 3]
    assert document["partitions"][0]["end_offset"] == 0
    assert re.fullmatch("[A-Za-z0-9_-]{22}", document["topic_id"])
    assert "max.message.bytes=2000" in ottla.ok("topic", "describe", name)
    assert json.loads(ottla.ok("topic", "delete", name, "--json")) == [{"topic": name, "deleted": True}]
    assert name not in ottla.ok("topic", "list")


def test_describe_counts_what_is_kept(ottla: Ottla, topic: str) -> None:
    ottla.ok("produce", topic, "a", "b", "c", "-p", "1")
    (document,) = json.loads(ottla.ok("topic", "describe", topic, "--json"))
    assert document["records"] == 3
    assert (document["partitions"][1]["start_offset"], document["partitions"][1]["end_offset"]) == (0, 3)


def test_several_topics_at_once(ottla: Ottla) -> None:
    names = [unique(), unique()]
    assert json.loads(ottla.ok("topic", "create", *names, "--json")) == [{"topic": name, "created": True} for name in names]
    assert ottla.ok("topic", "delete", *names, "-y").splitlines() == [f"topic {name} deleted" for name in names]


def test_an_existing_topic(ottla: Ottla, topic: str) -> None:
    assert "exists" in ottla.fails("topic", "create", topic)
    assert ottla.ok("topic", "create", topic, "--if-not-exists") == f"topic {topic} already exists\n"
    assert json.loads(ottla.fails("topic", "create", topic, "--json"))["error"]["code"] == "TOPIC_ALREADY_EXISTS"


def test_an_unknown_topic_brings_the_nearest(ottla: Ottla, topic: str) -> None:
    wrong = topic[:-1]
    for words in (["describe", wrong], ["delete", wrong], ["alter", wrong, "-p", "9"]):
        error = ottla.fails("topic", *words)
        assert f"topic {wrong} does not exist" in error
        assert f"did you mean {topic}" in error
    assert ottla.ok("topic", "delete", wrong, "--if-exists") == ""


def test_dry_run_creates_nothing(ottla: Ottla) -> None:
    name = unique()
    assert ottla.ok("topic", "create", name, "--dry-run") == f"topic {name} can be created\n"
    assert name not in ottla.ok("topic", "list")


def test_replica_assignment(ottla: Ottla, topic: str) -> None:
    (document,) = json.loads(ottla.ok("topic", "describe", topic, "--json"))
    broker, name = document["partitions"][0]["leader"], unique()
    ottla.ok("topic", "create", name, "--replica-assignment", f"{broker},{broker}")
    (document,) = json.loads(ottla.ok("topic", "describe", name, "--json"))
    assert [row["replicas"] for row in document["partitions"]] == [[broker], [broker]]
    ottla.ok("topic", "delete", name)


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["create", "bad name"], 1, "bad name"),
        (["create", "x-y-z", "-r", "9"], 1, "eplication factor"),
        (["create", "x-y-z", "-c", "retention.mss=1"], 1, "retention.mss"),
        (["create", "x-y-z", "-c", "retention.ms"], 2, "not key=value"),
        (["create", "x-y-z", "--replica-assignment", "0:a"], 2, "not a replica assignment"),
        (["create", "x-y-z", "-p", "0"], 2, "greater than"),
        (["create", "x-y-z", "-p", "1000000"], 2, "less than"),
        (["create", "x-y-z", "-r", "40000"], 2, "less than"),
        (["alter", "x"], 2, "nothing to change"),
        (["alter", "x", "-p", "1000000"], 2, "less than"),
    ],
)
def test_what_cannot_be(ottla: Ottla, words: list[str], code: int, says: str) -> None:
    assert says in ottla.fails("topic", *words, code=code)


def test_partitions_only_grow(ottla: Ottla, topic: str) -> None:
    assert "cannot have 2" in ottla.fails("topic", "alter", topic, "-p", "2")


def test_topic_settings_are_set_shown_and_unset(ottla: Ottla, topic: str) -> None:
    assert ottla.ok("config", "set", "topic", topic, "retention.ms=12345") == f"topic {topic}: retention.ms=12345\n"
    (entry,) = json.loads(ottla.ok("config", "describe", "topic", topic, "retention.ms", "--json"))
    assert (entry["value"], entry["source"]) == ("12345", "DYNAMIC_TOPIC_CONFIG")
    assert entry["default"] == "604800000"
    assert ["retention.ms", "12345", "topic"] in [
        line.split()[:3] for line in ottla.ok("config", "describe", "topic", topic).splitlines()
    ]
    shown = json.loads(ottla.ok("config", "describe", "topic", topic, "--overrides", "--json"))
    assert "retention.ms" in {entry["name"] for entry in shown}
    ottla.ok("config", "unset", "topic", topic, "retention.ms")
    (entry,) = json.loads(ottla.ok("config", "describe", "topic", topic, "retention.ms", "--json"))
    assert (entry["value"], entry["source"]) == ("604800000", "DEFAULT_CONFIG")


def test_broker_settings(ottla: Ottla, topic: str) -> None:
    (document,) = json.loads(ottla.ok("topic", "describe", topic, "--json"))
    broker = str(document["partitions"][0]["leader"])
    assert "log.dirs" in ottla.ok("config", "describe", "broker", broker)
    ottla.ok("config", "set", "broker", broker, "log.retention.ms=99999999")
    (entry,) = json.loads(ottla.ok("config", "describe", "broker", broker, "log.retention.ms", "--json"))
    assert (entry["value"], entry["source"]) == ("99999999", "DYNAMIC_BROKER_CONFIG")
    ottla.ok("config", "unset", "broker", broker, "log.retention.ms")
    ottla.ok("config", "set", "broker", "default", "log.retention.ms=88888888")
    (entry,) = json.loads(ottla.ok("config", "describe", "broker", broker, "log.retention.ms", "--json"))
    assert (entry["value"], entry["source"]) == ("88888888", "DYNAMIC_DEFAULT_BROKER_CONFIG")
    ottla.ok("config", "unset", "broker", "default", "log.retention.ms")


def test_group_settings(ottla: Ottla) -> None:
    ottla.ok("config", "set", "group", "billing", "consumer.session.timeout.ms=50000")
    (shown,) = json.loads(ottla.ok("config", "describe", "group", "billing", "--overrides", "--json"))
    assert (shown["name"], shown["value"], shown["source"], shown["default"]) == (
        "consumer.session.timeout.ms", "50000", "GROUP_CONFIG", "45000",
    )  # fmt: skip
    refused = ottla.fails("config", "set", "group", "billing", "consumer.session.timeout.ms=1")
    assert "below group.consumer.min.session.timeout.ms=45000" in refused
    ottla.ok("config", "unset", "group", "billing", "consumer.session.timeout.ms")
    assert json.loads(ottla.ok("config", "describe", "group", "billing", "--overrides", "--json")) == []


def test_a_setting_that_nobody_knows_cannot_be_unset(ottla: Ottla, topic: str) -> None:
    refused = ottla.fails("config", "unset", "topic", topic, "retention.msx")
    assert f"topic {topic} has no setting retention.msx" in refused
    assert "did you mean retention.ms" in refused
    assert "has no setting" in ottla.fails("config", "unset", "broker", "default", "log.retention.msx")


def test_wrong_settings_are_told(ottla: Ottla, topic: str) -> None:
    assert "did you mean retention.ms" in ottla.fails("config", "set", "topic", topic, "retenton.ms=5")
    assert "retention.ms" in ottla.fails("config", "set", "topic", topic, "retention.ms=soon")
    assert "did you mean retention.ms" in ottla.fails("config", "describe", "topic", topic, "retentoin.ms")
    assert "broker 4711 does not exist" in ottla.fails("config", "describe", "broker", "4711")
    assert "use topic, broker or group" in ottla.fails("config", "describe", "user", "x", code=2)
    assert "a setting has no name" in ottla.fails("config", "unset", "topic", topic, "", code=2)
    assert (
        json.loads(ottla.fails("config", "set", "topic", topic, "retention.ms=soon", "--json"))["error"]["code"]
        == "INVALID_CONFIG"
    )


def test_failures_of_a_process_leave_no_traceback(ottla: Ottla) -> None:
    done = ottla.spawn("topic", "describe", "no-such-topic")
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.startswith(b"error: topic no-such-topic does not exist\n")


def test_nobody_there(ottla: Ottla) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        for words in (["topic", "list"], ["produce", "x", "y"], ["consume", "x"], ["perf", "produce", "x"]):
            error = ottla.fails(*words, "-b", address)
            assert f"no broker answers at {address}" in error
            assert "ottla serve" in error


def test_somebody_else_there(ottla: Ottla) -> None:
    """A port that accepts and says nothing is not a broker; the command says so within seconds."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        assert "does not answer like a Kafka broker" in ottla.fails("topic", "list", "-b", address)


def test_command_config(ottla: Ottla, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=127.0.0.1:1\n")
    ottla.ok("topic", "list", "-b", ottla.bootstrap_servers, "--command-config", str(file))
    file.write_text("no.such.property=1\n")
    assert "no.such.property" in ottla.fails("topic", "list", "--command-config", str(file), code=2)
    assert "cannot read" in ottla.fails("topic", "list", "--command-config", str(tmp_path / "nope"), code=2)


@pytest.mark.parametrize("words", [["topic", "describe"], ["consume"], ["produce"]])
def test_nobody_is_told_to_create_an_internal_topic(words: list[str]) -> None:
    with Broker() as broker:
        ottla = Ottla(broker.bootstrap_servers)
        told = ottla.fails(*words, "__transaction_state")
        assert "brokers create it for the first transactional producer; never create it by hand" in told
        assert "topic create" not in told
        assert "--create" not in told
        ottla.ok("topic", "create", "mine")
        for name in ("__consumer_offsets", "__transaction_state"):
            for makes in (["topic", "create", name], ["produce", name, "value", "--create"], ["topic", "clone", "mine", name]):
                assert f"{name} is an internal topic" in ottla.fails(*makes, code=2)
