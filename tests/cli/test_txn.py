"""`ottla txn` on a real broker: what is open, what hangs, and its end (F64)."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.cli.connection import Connection
from ottla.cli.plain_request import call
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.records.record import build_batch
from ottla.testing import Broker
from tests.kit.ottla_command import Ottla


@pytest.fixture
def name() -> str:
    return f"cli-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def transactional(ottla: Ottla, name: str, topic: str) -> Producer:
    """With a transaction open in one partition."""
    producer = Producer({"bootstrap.servers": ottla.bootstrap_servers, "transactional.id": name})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"x", partition=1)
    assert producer.flush(60) == 0
    return producer


def test_list_and_describe(ottla: Ottla, name: str, topic: str, transactional: Producer) -> None:
    listed = {each["transactional_id"]: each for each in json.loads(ottla.ok("txn", "list", "--json"))}
    assert listed[name]["state"] == "Ongoing"
    assert name in ottla.ok("txn", "list", "--state", "ongoing")
    assert name not in ottla.ok("txn", "list", "--state", "Ongoing", "--older-than", "1h")
    (described,) = json.loads(ottla.ok("txn", "describe", name, "--json"))
    assert described["partitions"] == [f"{topic}-1"]
    assert described["timeout_ms"] == 60_000
    assert described["open_ms"] >= 0
    assert f"{topic}-1" in ottla.ok("txn", "describe", name)
    assert json.loads(ottla.ok("txn", "find-hanging", "--topic", topic, "--idle", "0", "--json")) == [], (
        "its coordinator knows it"
    )
    transactional.commit_transaction(60)
    (described,) = json.loads(ottla.ok("txn", "describe", name, "--json"))
    assert (described["state"], described["partitions"], described["open_ms"]) == ("CompleteCommit", [], None)
    assert "-" in ottla.ok("txn", "describe", name)


def test_what_cannot_be_answered(ottla: Ottla, topic: str) -> None:
    for words, said in (
        (("describe", "nobody-at-all"), "transactional id nobody-at-all does not exist"),
        (("list", "--state", "Nonsense"), "states are Empty, Ongoing, "),
        (("list", "--older-than", "soon"), "is not a duration"),
        (("abort", topic, "--start-offset", "0", "-y"), "is not topic:partition"),
        (("abort", f"{topic}:9", "--start-offset", "0", "-y"), "has no partition 9"),
        (("abort", f"{topic}:0", "--start-offset", "5", "-y"), "has no open transaction"),
        (("find-hanging", "--topic", topic + "x"), "does not exist"),
    ):
        done = ottla.run("txn", *words)
        assert done.returncode != 0
        assert said in done.stderr, done.stderr


@pytest.fixture
def hanging() -> Iterator[tuple[Ottla, str]]:
    """A record of a transaction that its coordinator was never told of: so before KIP-890, and with verification off."""
    with Broker({"transaction.partition.verification.enable": False}) as broker:
        ottla = Ottla(broker.bootstrap_servers)
        ottla.ok("topic", "create", "t")
        known = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "lost"})
        known.init_transactions(60)
        del known
        connection = Connection(broker.bootstrap_servers)
        request = InitProducerIdRequest(transactional_id="lost", transaction_timeout_ms=60_000)
        producer = call(connection, "init_producer_id", 1, request, InitProducerIdResponse)
        batch = build_batch(
            [(None, b"hangs", (), int(time.time() * 1000) - 3_600_000)],
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=0,
            transactional=True,
        )
        data = [TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch)])]
        produced = call(
            connection,
            "produce",
            7,
            ProduceRequest(transactional_id="lost", acks=-1, timeout_ms=10_000, topic_data=data),
            ProduceResponse,
        )
        assert produced.responses[0].partition_responses[0].error_code == 0
        plain = Producer({"bootstrap.servers": broker.bootstrap_servers})
        plain.produce("t", b"waits")
        assert plain.flush(60) == 0
        yield ottla, broker.bootstrap_servers


def test_a_hanging_transaction_is_found_and_ended(hanging: tuple[Ottla, str]) -> None:
    ottla, servers = hanging
    assert json.loads(ottla.ok("txn", "find-hanging", "--idle", "2h", "--json")) == []
    (found,) = json.loads(ottla.ok("txn", "find-hanging", "--json"))
    assert (found["topic"], found["partition"], found["start_offset"]) == ("t", 0, 0)
    assert found["idle_ms"] >= 3_600_000
    assert "START-OFFSET" in ottla.ok("txn", "find-hanging")
    (finding,) = [
        each for each in json.loads(ottla.run("doctor", "--json").stdout)["findings"] if each["check"] == "transactions"
    ]
    assert (finding["severity"], finding["mend"]) == ("error", "ottla txn abort t:0 --start-offset 0")
    assert "aborted" in ottla.ok("txn", "abort", "t:0", "--start-offset", "0", "--yes")
    assert json.loads(ottla.ok("txn", "find-hanging", "--json")) == []
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "g", "isolation.level": "read_committed"})
    consumer.assign([TopicPartition("t", 0, 0)])
    message = consumer.poll(60)
    assert message is not None
    assert message.value() == b"waits", "and readers go on behind it"
    consumer.close()
