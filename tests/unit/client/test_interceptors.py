"""The chain of interceptors: order, and that a mistake in one costs no record (F73)."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, TopicPartition

from ottla.client.interceptors import Chain, Interceptor, ProducerRecord, RecordMetadata, header_pairs, metadata_of

METADATA = RecordMetadata("t", 0, 1, 2)


class Noting(Interceptor):
    """Adds its name to everything it sees."""

    def __init__(self, name: str, seen: list[str]) -> None:
        self.name = name
        self.seen = seen

    def before_send(self, record: ProducerRecord) -> ProducerRecord:
        self.seen.append(f"send {self.name}")
        assert isinstance(record.value, bytes)
        return record._replace(value=record.value + self.name.encode())

    def on_acknowledgement(self, metadata: RecordMetadata, error: KafkaError | None) -> None:
        self.seen.append(f"ack {self.name} {error}")

    def before_handover(self, messages: list[Message]) -> list[Message]:
        self.seen.append(f"handover {self.name}")
        for message in messages:
            message.set_value((message.value() or b"") + self.name.encode())
        return messages

    def on_commit(self, offsets: list[TopicPartition], error: KafkaError | None) -> None:
        self.seen.append(f"commit {self.name} {len(offsets)}")

    def close(self) -> None:
        self.seen.append(f"close {self.name}")


class Failing(Interceptor):
    """Changes what it gets as far as it can, then raises."""

    def before_send(self, record: ProducerRecord) -> ProducerRecord:
        record = record._replace(value=b"spoilt")
        raise ValueError("no")

    def on_acknowledgement(self, metadata: RecordMetadata, error: KafkaError | None) -> None:
        raise ValueError("no")

    def before_handover(self, messages: list[Message]) -> list[Message]:
        for message in messages:
            message.set_value(b"spoilt")
            message.set_key(b"spoilt")
            message.set_headers([("spoilt", b"")])
        messages.clear()
        raise ValueError("no")

    def on_commit(self, offsets: list[TopicPartition], error: KafkaError | None) -> None:
        raise ValueError("no")

    def close(self) -> None:
        raise ValueError("no")


def message(value: bytes | None = b"v", **more: Any) -> Message:
    return Message(topic="t", partition=0, offset=7, key=b"k", value=value, **more)


def test_the_order_of_the_list_is_the_order_of_all_calls() -> None:
    seen: list[str] = []
    chain = Chain([Noting("a", seen), Noting("b", seen)])
    assert chain.before_send(ProducerRecord("t", b"v")).value == b"vab"
    chain.on_acknowledgement(METADATA, None)
    (handed,) = chain.before_handover([message()])
    assert handed.value() == b"vab"
    chain.on_commit([TopicPartition("t", 0, 1)], None)
    chain.close()
    kinds = ["send {}", "ack {} None", "handover {}", "commit {} 1", "close {}"]
    assert seen == [kind.format(name) for kind in kinds for name in "ab"]


def test_one_that_raises_is_logged_and_the_record_goes_on_as_it_was_before_it(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[str] = []
    chain = Chain([Noting("a", seen), Failing(), Noting("b", seen)])
    with caplog.at_level(logging.ERROR):
        record = chain.before_send(ProducerRecord("t", b"v"))
        (handed,) = chain.before_handover([message(headers=[("h", b"1"), ("n", None)])])
        chain.on_acknowledgement(METADATA, None)
        chain.on_commit([], None)
        chain.close()
    assert record == ProducerRecord("t", b"vab")
    assert (handed.key(), handed.value(), handed.headers()) == (b"k", b"vab", [("h", b"1"), ("n", None)])
    assert [line.split()[0] + line.split()[1] for line in seen if " b" in line] == [
        "sendb",
        "handoverb",
        "ackb",
        "commitb",
        "closeb",
    ]
    logged = [entry.getMessage() for entry in caplog.records]
    assert len(logged) == 5
    assert logged[0].startswith("Interceptor Failing failed in before_send")
    assert all(entry.exc_info for entry in caplog.records)


def test_tombstones_and_messages_without_headers_survive_a_failure() -> None:
    chain = Chain([Failing()])
    (handed,) = chain.before_handover([message(None)])
    assert (handed.key(), handed.value(), handed.headers()) == (b"k", None, None)
    record = ProducerRecord("t", None, b"k")
    assert chain.before_send(record) is record


@pytest.mark.parametrize("answer", [None, b"bytes", ("t", b"v")])
def test_an_answer_that_is_no_record_counts_as_a_failure(answer: object, caplog: pytest.LogCaptureFixture) -> None:
    class Forgetful(Interceptor):
        def before_send(self, record: ProducerRecord) -> ProducerRecord:
            return answer  # type: ignore[return-value]

        def before_handover(self, messages: list[Message]) -> list[Message]:
            return None  # type: ignore[return-value]

    chain = Chain([Forgetful()])
    assert chain.before_send(ProducerRecord("t", b"v")) == ProducerRecord("t", b"v")
    assert len(chain.before_handover([message()])) == 1
    assert "instead of a ProducerRecord" in str(caplog.records[0].exc_info[1])  # type: ignore[index]


def test_one_that_always_raises_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    chain = Chain([Failing()])
    for _ in range(1000):
        chain.before_send(ProducerRecord("t", b"v"))
    assert [entry.args[2] for entry in caplog.records] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]  # type: ignore[index]


def test_ctrl_c_is_not_a_failure_of_an_interceptor() -> None:
    class Interrupted(Interceptor):
        def before_send(self, record: ProducerRecord) -> ProducerRecord:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Chain([Interrupted()]).before_send(ProducerRecord("t"))


def test_each_is_closed_once() -> None:
    seen: list[str] = []
    chain = Chain([Noting("a", seen)])
    chain.close()
    chain.close()
    assert seen == ["close a"]


def test_what_nobody_overrides_is_not_called() -> None:
    class Reader(Interceptor):
        def before_handover(self, messages: list[Message]) -> list[Message]:
            return messages[:1]

    chain = Chain([Reader(), Interceptor()])
    assert (chain.sees_records_out, chain.sees_records_in, chain.sees_commits) == (False, True, False)
    assert len(chain.before_handover([message(), message()])) == 1


def test_an_interceptor_needs_no_base_class() -> None:
    class Plain:
        def before_send(self, record: ProducerRecord) -> ProducerRecord:
            return record.with_header("a", None)

    chain = Chain([Plain()])  # type: ignore[list-item]
    assert chain.before_send(ProducerRecord("t")).headers == (("a", None),)
    chain.on_commit([], None)


@pytest.mark.parametrize(
    ("given", "pairs"),
    [
        (None, ()),
        ([], ()),
        ({}, ()),
        ({"a": b"1", "b": None}, (("a", b"1"), ("b", None))),
        ([("a", "1"), ("a", None)], (("a", "1"), ("a", None))),
    ],
)
def test_headers_in_every_form(given: Any, pairs: object) -> None:
    assert header_pairs(given) == pairs


def test_the_last_header_of_a_name_counts() -> None:
    record = ProducerRecord("t").with_header("a", b"1").with_header("a", b"2")
    assert (record.header("a"), record.header("b")) == (b"2", None)


def test_metadata_of_records_that_came_nowhere() -> None:
    record = ProducerRecord("t", b"v", partition=3)
    assert metadata_of(None, record) == RecordMetadata("t", 3, -1, -1)
    assert metadata_of(Message(topic="t", partition=1, offset=-1001), record) == RecordMetadata("t", 1, -1, -1)
    assert metadata_of(Message(topic="u", partition=0, offset=0, timestamp=(1, 5)), record) == RecordMetadata("u", 0, 0, 5)


def test_the_package_does_not_load_confluent_kafka_until_it_is_used() -> None:
    """The broker imports ottla.client at start."""
    program = """
import sys
import ottla.client, ottla.client.interceptors, ottla.client.latency
assert not [name for name in sys.modules if name.startswith("confluent_kafka")]
from ottla.client import EndToEndLatency, Interceptor
assert not [name for name in sys.modules if name.startswith("confluent_kafka")]
from ottla.client import Producer
assert "confluent_kafka" in sys.modules
try:
    ottla.client.Nothing
except AttributeError as error:
    assert "Nothing" in str(error)
else:
    raise AssertionError
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
