"""The exporter reads Apache Kafka as it reads Ottla: groups of both protocols, log ends, sizes, transactions, rebalances."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.client.brokers import Brokers
from ottla.exporter.cluster_reader import ClusterReader
from ottla.exporter.service import Exporter
from ottla.metrics import Counters
from ottla.runtime.network import RealNetwork
from tests.kit.exposition import Samples
from tests.kit.subject import EITHER, Subject, running
from tests.kit.wait import until

TOPIC = "orders"


@pytest.fixture(scope="module", params=EITHER)
def broker(request: pytest.FixtureRequest) -> Iterator[Subject]:
    with running(request.param, brokers=1, group_consumer_assignment_interval_ms=0) as subject:
        admin = AdminClient({"bootstrap.servers": subject.bootstrap_servers})
        admin.create_topics([NewTopic(TOPIC, 3, 1)])[TOPIC].result(60)
        until(lambda: TOPIC in admin.list_topics(timeout=60).topics, "the topic is known")
        producer = Producer({"bootstrap.servers": subject.bootstrap_servers})
        for number in range(90):
            producer.produce(TOPIC, b"x" * 100, partition=number % 3)
        assert producer.flush(60) == 0
        yield subject


def page(subject: Subject) -> Samples:
    async def read() -> bytes:
        brokers = Brokers(RealNetwork(Counters()), [(subject.host, subject.port)])
        exporter = Exporter(ClusterReader(brokers, time.time))
        try:
            await exporter.round()
            return exporter.text()
        finally:
            brokers.close()

    return Samples(asyncio.run(read()).decode())


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group(broker: Subject, protocol: str) -> None:
    group = f"reads-{protocol}"
    config: dict[str, Any] = {"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "group.protocol": protocol}
    consumer = Consumer({**config, "client.id": "reader", "enable.auto.commit": False, "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    until(lambda: (consumer.poll(0.1), len(consumer.assignment()) == 3)[1], "assigned")
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, 10), TopicPartition(TOPIC, 1, 30)], asynchronous=False)
    try:
        samples = page(broker)
    finally:
        consumer.close()
    assert samples.of("ottla_exporter_up") == 1
    for partition, lag, lead in ((0, 20, 10), (1, 0, 30), (2, -1, None)):
        labels = {"consumergroup": group, "topic": TOPIC, "partition": partition}
        assert samples.of("kafka_consumergroup_lag", **labels) == lag
        assert samples.of("kafka_consumergroup_lead", **labels) == lead
    assert samples.of("kafka_consumergroup_members", consumergroup=group) == 1
    assert samples.of("kafka_consumergroup_state", consumergroup=group, state="Stable") == 1
    assert samples.of("kafka_consumergroup_rebalances_total", consumergroup=group) == 0
    assert samples.of("kminion_kafka_consumer_group_topic_assigned_partitions", group_id=group, topic_name=TOPIC) == 3
    (member,) = samples.with_labels("kafka_consumergroup_group_lag", group=group, partition=0)
    assert member["client_id"] == "reader"


def test_the_cluster_and_its_topics(broker: Subject) -> None:
    samples = page(broker)
    assert samples.of("kafka_brokers") == 1
    assert samples.of("kafka_broker_info", id=1, address=broker.bootstrap_servers) == 1
    assert samples.of("kafka_topic_partition_current_offset", topic=TOPIC, partition=2) == 30
    assert (samples.of("kminion_kafka_topic_log_dir_size_total_bytes", topic_name=TOPIC) or 0) > 9000
    about = {"topic_name": TOPIC, "partition_count": 3, "replication_factor": 1, "cleanup_policy": "delete"}
    assert samples.of("kminion_kafka_topic_info", **about) == 1


def test_an_open_transaction(broker: Subject) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "t"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(TOPIC, b"x", partition=2)
    assert producer.flush(60) == 0
    samples = page(broker)
    producer.abort_transaction(60)
    assert samples.of("ottla_transactions", state="Ongoing") == 1
    assert samples.of("ottla_transactions_hanging") == 0
    assert samples.of("ottla_transactions_over_timeout") == 0
