"""Brokers and ZooKeeper on hosts of their own, cut off from each other and joined again while producers write.

What is cut vanishes without a word, as in a real network: nobody's connection is closed. The checker wants what it wants of all
chaos (`test_chaos.check`): nothing acknowledged lost, nothing twice, no transaction torn, equal replicas.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records.record import build_batch
from tests.cluster.test_chaos import PARTITIONS, Transactions, check
from tests.cluster.test_replicas import Load, read
from tests.kit.cluster import Cluster, on_hosts, until
from tests.kit.network import Network

BROKERS = [1, 2, 3]
NOT_ACKNOWLEDGED = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
)


@pytest.fixture
def split(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    settings = {
        "min.insync.replicas": "2",
        "replica.lag.time.max.ms": "4000",
        "auto.leader.rebalance.enable": "false",
        "zookeeper.session.timeout.ms": "6000",
    }
    with on_hosts(tmp_path, **settings) as three:
        for topic in ("plain", "txn"):
            three.create_topic(topic, PARTITIONS)
        yield three
        if getattr(request.node, "failed_call", False):
            for broker in three.brokers.values():
                print(f"--- broker {broker.number}\n{broker.output()[-4000:]}")


def network_of(three: Cluster) -> Network:
    assert three.network is not None
    return three.network


def all_in_sync(three: Cluster) -> bool:
    return all(three.isr(topic, partition) == set(BROKERS) for topic in ("plain", "txn") for partition in range(PARTITIONS))


def write_at(three: Cluster, number: int, partition: int) -> int:
    """The answer of this broker to a write with acks=all, whoever leads."""
    batch = build_batch([(None, b"zombie", (), 0)])
    data = TopicProduceData(name="plain", partition_data=[PartitionProduceData(index=partition, records=batch)])
    answer = three.brokers[number].ask("produce", 9, ProduceRequest(acks=-1, timeout_ms=3000, topic_data=[data]))
    return int(answer.responses[0].partition_responses[0].error_code)


def leader_at(three: Cluster, number: int, partition: int) -> int:
    """Who leads as this broker knows it."""
    told = three.brokers[number].ask("metadata", 9, MetadataRequest(topics=[MetadataRequestTopic(name="plain")]))
    return next(int(each.leader_id) for each in told.topics[0].partitions if each.partition_index == partition)


def led_by(three: Cluster, number: int) -> int:
    return next(partition for partition in range(PARTITIONS) if three.leader("plain", partition) == number)


def test_r15_a_controller_that_zookeeper_does_not_hear_leads_nothing_any_more(split: Cluster) -> None:
    """All others reach it, and it goes on believing in itself: what it is sent is not acknowledged, and leaves no trace."""
    three, network = split, network_of(split)
    with Load(three, "plain", **{"message.timeout.ms": 0}) as load, Transactions(three, "txn", seed=1) as transactions:
        load.more()
        former = three.controller()
        partition = led_by(three, former)
        network.cut(former, "zookeeper")
        until(lambda: three.leader("plain", partition) not in (-1, former), "another leader")
        # Until they hear of it they follow the former one, and what they fetch from it is there to stay.
        for other in (each for each in BROKERS if each != former):
            until(lambda other=other: leader_at(three, other, partition) != former, f"broker {other} knows it")
        assert three.controller() != former
        assert former not in three.live_brokers()
        assert write_at(three, former, partition) in NOT_ACKNOWLEDGED
        load.more()
        network.heal()
        until(lambda: all_in_sync(three), "all in sync")
        transactions.go_on()
        load.more()
    check(three, load, transactions)
    assert b"zombie" not in read(three, "plain", PARTITIONS)


# Who is cut off, and from whom: (network, this broker, the other brokers).
CUTS: dict[str, Callable[[Network, int, list[str | int]], None]] = {
    "from the others, not from ZooKeeper": lambda network, one, others: network.cut(one, others),
    "is not heard by the others": lambda network, one, others: network.cut(one, others, both=False),
    "does not hear the others": lambda network, one, others: network.cut(others, one, both=False),
    "from ZooKeeper, not from the others": lambda network, one, others: network.cut(one, "zookeeper"),
    "is not heard by ZooKeeper": lambda network, one, others: network.cut(one, "zookeeper", both=False),
    "does not hear ZooKeeper": lambda network, one, others: network.cut("zookeeper", one, both=False),
    "from all": lambda network, one, others: network.isolate(one),
}
OTHERS_TAKE_OVER = ("from ZooKeeper, not from the others", "is not heard by ZooKeeper", "does not hear ZooKeeper", "from all")


@pytest.mark.slow
@pytest.mark.parametrize("role", ["the controller", "a leader"])
@pytest.mark.parametrize("cut", CUTS)
def test_one_is_cut_off_and_joined_again(split: Cluster, cut: str, role: str) -> None:
    three, network = split, network_of(split)
    with Load(three, "plain", **{"message.timeout.ms": 0}) as load, Transactions(three, "txn", seed=1) as transactions:
        for seconds in (1, 12, 35):
            # Shorter than a session, longer than one, longer than the requests between brokers wait.
            load.more()
            until(lambda: len(three.live_brokers()) == 3 and all_in_sync(three), "all in sync")
            controller = three.controller()
            one = controller if role == "the controller" else next(each for each in BROKERS if each != controller)
            others: list[str | int] = [each for each in BROKERS if each != one]
            CUTS[cut](network, one, others)
            time.sleep(seconds)  # not a wait for anything: how long it is cut is the point
            if seconds > 10 and cut in OTHERS_TAKE_OVER:
                until(lambda one=one: all(three.leader("plain", each) not in (-1, one) for each in range(PARTITIONS)), "leaders")
                load.more()
            network.heal()
        until(lambda: all_in_sync(three), "all in sync")
        transactions.go_on()
        load.more()
    check(three, load, transactions)
    for broker in three.brokers.values():
        told = broker.ask("metadata", 9, MetadataRequest(topics=[]))
        assert (told.controller_id, {each.node_id for each in told.brokers}) == (three.controller(), set(BROKERS))
        assert "Traceback" not in broker.output()
