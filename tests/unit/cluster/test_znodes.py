"""Paths and JSON as Kafka 2 and 3 write them (spec: the table of znodes)."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ottla.cluster import znodes
from ottla.cluster.image import BrokerImage, Endpoint, PartitionImage
from ottla.cluster.topic_changes import first_state
from ottla.cluster.znodes import new_uuid, uuid_bytes, uuid_text
from ottla.ports import StoreError


def test_the_json_is_byte_for_byte_kafkas() -> None:
    assert znodes.encode_controller(1, 5) == b'{"version":2,"brokerid":1,"timestamp":"5","kraftControllerEpoch":-1}'
    assert znodes.encode_cluster_id("x" * 22) == b'{"version":"1","id":"' + b"x" * 22 + b'"}'
    assert znodes.encode_config({"retention.ms": "1000"}) == b'{"version":1,"config":{"retention.ms":"1000"}}'
    assert (
        znodes.encode_partition_state(PartitionImage(1, 5, (1, 2), (1, 2, 3)), 7)
        == b'{"version":1,"leader":1,"leader_epoch":5,"controller_epoch":7,"isr":[1,2]}'
    )
    assert (
        znodes.encode_topic(bytes(range(16)), [first_state((1, 2, 3)), first_state((2, 3, 1))])
        == b'{"version":3,"partitions":{"0":[1,2,3],"1":[2,3,1]},"adding_replicas":{},"removing_replicas":{},'
        b'"topic_id":"AAECAwQFBgcICQoLDA0ODw"}'
    )
    assert znodes.encode_producer_id_block(1, 0, 999) == b'{"version":1,"broker":1,"block_start":"0","block_end":"999"}'
    broker = BrokerImage(1, -1, "r1", (Endpoint("PLAINTEXT", "h", 9092),))
    assert (
        znodes.encode_broker(broker, 5)
        == b'{"version":5,"host":"h","port":9092,"jmx_port":-1,"timestamp":"5","endpoints":["PLAINTEXT://h:9092"],'
        b'"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"rack":"r1",'
        b'"features":{"transaction.version":{"min_version":0,"max_version":2}}}'
    )


def test_what_is_written_is_read() -> None:
    endpoints = (Endpoint("A", "::1", 1), Endpoint("B", "h", 2, "SSL"))
    broker = BrokerImage(4, 77, None, endpoints)
    for one in (broker, replace(broker, transaction_version=0)):
        assert znodes.decode_broker(4, znodes.encode_broker(one, 0), 77) == one
    node = znodes.decode_topic("t", znodes.encode_topic(bytes(range(16)), [first_state((1,)), first_state((2,))]))
    assert (node.topic_id, node.replicas) == (bytes(range(16)), {0: (1,), 1: (2,)})
    state = PartitionImage(1, 5, (1, 2), (1, 2, 3), 9)
    assert znodes.decode_partition_state("/p", znodes.encode_partition_state(state, 7), (1, 2, 3), 9) == state
    assert znodes.decode_controller(znodes.encode_controller(3, 0)) == 3
    assert znodes.decode_producer_id_block(znodes.encode_producer_id_block(1, 0, 999)) == 999
    assert znodes.decode_producer_id_block(b"") == -1


def test_older_and_newer_nodes_are_understood() -> None:
    kafka_3 = b'{"features":{},"listener_security_protocol_map":{"P":"PLAINTEXT"},"endpoints":["P://h:1"],"version":5}'
    assert znodes.decode_broker(4, kafka_3, 7).transaction_version == 0
    assert znodes.decode_controller(b'{"version":1,"brokerid":2,"timestamp":"1"}') == 2
    assert znodes.decode_topic("t", b'{"version":1,"partitions":{"0":[1]}}').topic_id is None
    data = b'{"version":1,"leader":1,"leader_epoch":0,"controller_epoch":1,"isr":[1],"leader_recovery_state":1,"new":[]}'
    assert znodes.decode_partition_state("/p", data, (1,), 0).leader == 1


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"partitions":[]}',
        b'{"partitions":{"x":[1]}}',
        b'{"partitions":{"0":["1"]}}',
        b'{"partitions":{"0":"12"}}',
        b'{"partitions":{"0":[2147483648]}}',
    ],
)
def test_a_node_that_makes_no_sense_is_named(data: bytes) -> None:
    with pytest.raises(StoreError, match="/brokers/topics/t"):
        znodes.decode_topic("t", data)


@pytest.mark.parametrize(
    "fields",
    [
        '"leader":1,"leader_epoch":0,"isr":["a"]',
        '"leader":1,"leader_epoch":0,"isr":1',
        '"leader":1,"leader_epoch":99999999999,"isr":[1]',
        '"leader":99999999999,"leader_epoch":0,"isr":[1]',
    ],
)
def test_a_state_that_no_broker_could_be_told_is_named(fields: str) -> None:
    with pytest.raises(StoreError, match="/p cannot be parsed"):
        znodes.decode_partition_state("/p", f'{{"version":1,{fields}}}'.encode(), (1,), 0)


@pytest.mark.parametrize("data", [b"", b"x", b"[]", b"{}", b'{"brokerid":null}', b'{"brokerid":"x"}'])
def test_a_controllers_or_clusters_node_that_makes_no_sense_is_named(data: bytes) -> None:
    with pytest.raises(StoreError, match="/controller "):
        znodes.decode_controller(data)
    with pytest.raises(StoreError, match="/cluster/id "):
        znodes.decode_cluster_id(data)
    with pytest.raises(StoreError, match="/controller_epoch cannot be parsed"):
        znodes.decode_controller_epoch(data)


def test_base_paths_name_parents_before_children() -> None:
    seen = {""}
    for path in znodes.BASE_PATHS:
        assert path.rpartition("/")[0] in seen, path
        seen.add(path)


def test_ids_as_text() -> None:
    class Counting:
        def __init__(self) -> None:
            self.next = 0

        def bytes(self, count: int) -> bytes:
            self.next += 1
            # The first answer would begin with a dash in base64.
            return bytes([0xFB if self.next == 1 else self.next]) * count

        def below(self, limit: int) -> int:
            return 0

    uuid = new_uuid(Counting())
    assert uuid[6] >> 4 == 4, "version 4"
    assert uuid[8] >> 6 == 2, "the variant of RFC 4122"
    assert not uuid_text(uuid).startswith("-")
    assert uuid_bytes(uuid_text(uuid)) == uuid
    assert len(uuid_text(uuid)) == 22
    with pytest.raises(ValueError, match="22 characters"):
        uuid_bytes("short")
    assert json.loads(znodes.encode_topic(uuid, [first_state((1,))]))["topic_id"] == uuid_text(uuid)
