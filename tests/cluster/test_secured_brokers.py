"""Brokers that log in at each other: control requests, replication, and a broker with the wrong password."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.runtime.free_ports import free_port
from tests.kit.cluster import BrokerProcess, Cluster, until

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def secured(cluster: Cluster, number: int, password: str = "secret") -> dict[str, Any]:
    """Clients without security, brokers with PLAIN."""
    broker = cluster.brokers[number]
    return {
        "listeners": f"PLAINTEXT://{broker.address},BROKERS://127.0.0.1:{free_port()}",
        "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,BROKERS:SASL_PLAINTEXT",
        "inter_broker_listener_name": "BROKERS",
        "sasl_enabled_mechanisms": "PLAIN",
        "sasl_mechanism_inter_broker_protocol": "PLAIN",
        "listener_name_brokers_plain_sasl_jaas_config": f'{PLAIN} username="broker" password="{password}" user_broker="secret";',
    }


def start(cluster: Cluster, number: int, password: str = "secret") -> None:
    cluster.brokers[number] = broker = BrokerProcess(cluster, number, f"broker-{number}")
    broker.start(wait=False, **secured(cluster, number, password))


@pytest.mark.parametrize("lifetime_ms", [0, 500])
def test_brokers_log_in_at_each_other(cluster: Callable[..., Cluster], lifetime_ms: int) -> None:
    """Also if each login is valid for half a second only."""
    found = cluster(0, connections_max_reauth_ms=str(lifetime_ms))
    for number in (1, 2):
        start(found, number)
    for broker in found.brokers.values():
        broker.wait_ready()
    found.until_agreed()
    found.create_topic("orders", partitions=4, replicas=2)
    for part in range(4):
        found.produce("orders", [b"%d" % number for number in range(part * 100, part * 100 + 100)])
    until(lambda: all(found.isr("orders", partition) == {1, 2} for partition in range(4)), "all replicas are in sync")
    assert sum(offset + 1 for offset in _ends(found).values()) == 400


def _ends(cluster: Cluster) -> dict[int, int]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "none"})
    try:
        return {each: consumer.get_watermark_offsets(TopicPartition("orders", each), 30)[1] - 1 for each in range(4)}
    finally:
        consumer.close()


def test_a_broker_with_the_wrong_password_says_so(cluster: Callable[..., Cluster]) -> None:
    found = cluster(0)
    start(found, 1)
    found.brokers[1].wait_ready()
    start(found, 2, "hush")
    found.brokers[2].wait_ready()
    found.create_topic_at("orders", [[1, 2]])
    until(lambda: "refuses the login of this broker with PLAIN" in found.brokers[2].output(), found.brokers[2].output)
    assert "hush" not in found.brokers[2].output()
