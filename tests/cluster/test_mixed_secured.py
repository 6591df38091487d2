"""A broker of Apache Kafka 3.9 and ours in one secured cluster: SASL_SSL between them, the same users, the same ACLs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from ottla.runtime.free_ports import free_port
from tests.kit.apache_kafka import ApacheBroker
from tests.kit.certificates import Authority
from tests.kit.cluster import BrokerProcess, Cluster, until

pytestmark = [pytest.mark.slow, pytest.mark.java]
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"


def settings(folder: Path, address: str, secure_port: int) -> dict[str, str]:
    """The same for both: clients of the tests are anonymous super users, brokers log in over SASL_SSL."""
    return {
        "listeners": f"PLAINTEXT://{address},SECURE://127.0.0.1:{secure_port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL",
        "inter.broker.listener.name": "SECURE",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.secure.plain.sasl.jaas.config": f'{PLAIN} username="broker" password="pw" user_broker="pw";',
        "listener.name.secure.scram-sha-512.sasl.jaas.config": f"{SCRAM};",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS;User:broker",
    }


def binding(operation: AclOperation, topic: str) -> AclBinding:
    literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    return AclBinding(ResourceType.TOPIC, topic, literal, "User:alice", "*", operation, allow)


def test_one_secured_cluster_of_both(cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    authority = Authority()
    authority.pem_file(tmp_path / "ca.pem")
    authority.issue("broker").pem_file(tmp_path / "broker.pem")
    mixed = cluster(0)
    ports = {number: free_port() for number in (1, 2, 3)}
    for number in (1, 2):
        mixed.brokers[number] = broker = BrokerProcess(mixed, number, f"broker-{number}")
        broker.start(wait=False, **settings(tmp_path, broker.address, ports[number]))
    for broker in mixed.brokers.values():
        broker.wait_ready()
    port = free_port()
    theirs = ApacheBroker(mixed, 3, **settings(tmp_path, f"127.0.0.1:{port}", ports[3]))
    theirs.port = port
    try:
        theirs.start()
        play(mixed, theirs, ports, tmp_path)
    except BaseException:
        print(theirs.output()[-6000:])
        raise
    finally:
        theirs.kill()


def play(mixed: Cluster, theirs: ApacheBroker, ports: dict[int, int], folder: Path) -> None:
    ours = AdminClient({"bootstrap.servers": mixed.bootstrap})
    apache = AdminClient({"bootstrap.servers": theirs.address})
    for admin in (ours, apache):
        until(lambda admin=admin: len(admin.list_topics(timeout=10).brokers) == 3, "all know each other")
    mixed.create_topic_at("orders", [[1, 3, 2], [3, 1, 2], [2, 3, 1]])
    until(lambda: all(mixed.isr("orders", each) == {1, 2, 3} for each in range(3)), "they replicate each other's partitions")

    change = UserScramCredentialUpsertion("alice", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), b"secret")
    for changed in ours.alter_user_scram_credentials([change]).values():
        changed.result(60)

    def alice(number: int) -> dict[str, Any]:
        return {
            "bootstrap.servers": f"127.0.0.1:{ports[number]}",
            "security.protocol": "sasl_ssl",
            "sasl.mechanisms": "SCRAM-SHA-512",
            "sasl.username": "alice",
            "sasl.password": "secret",
            "ssl.ca.location": str(folder / "ca.pem"),
            "log_level": 0,
        }

    def produce(partition: int) -> str:
        """To the leader of a partition; the name of the error, empty if it is acknowledged."""
        producer = Producer({**alice(partition % 3 + 1), "acks": "all", "message.timeout.ms": 30_000})
        heard: list[KafkaError | None] = []
        producer.produce("orders", b"x", partition=partition, on_delivery=lambda error, _: heard.append(error))
        assert producer.flush(60) == 0
        return heard[0].name() if heard[0] is not None else ""

    for number in (1, 2, 3):
        admin = AdminClient(alice(number))
        until(lambda admin=admin: admin.list_topics(timeout=10).topics == {}, f"alice logs in at {number}, and sees nothing")
    for created in ours.create_acls([binding(AclOperation.WRITE, "orders")]).values():
        created.result(60)
    for partition in range(3):
        until(lambda partition=partition: produce(partition) == "", f"what ours allowed is allowed by the leader of {partition}")
    every = (ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY)
    anything = AclBindingFilter(*every)  # type: ignore[arg-type]
    assert len(apache.describe_acls(anything).result(60)) == 1
    for removed in apache.delete_acls([anything]).values():
        assert len(removed.result(60)) == 1
    refused = ("TOPIC_AUTHORIZATION_FAILED", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION")
    for partition in range(3):
        until(
            lambda partition=partition: produce(partition) in refused,
            f"what Apache Kafka took away is refused by the leader of {partition}",
        )
    consumer_ends = AdminClient({"bootstrap.servers": mixed.bootstrap})
    from confluent_kafka.admin import OffsetSpec

    asked = {TopicPartition("orders", partition): OffsetSpec.latest() for partition in range(3)}
    ends = [each.result(60).offset for each in consumer_ends.list_offsets(asked).values()]
    assert all(end >= 1 for end in ends)
    with pytest.raises(KafkaException):
        AdminClient({**alice(1), "sasl.password": "wrong"}).list_topics(timeout=3)
