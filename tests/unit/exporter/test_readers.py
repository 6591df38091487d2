"""Reading a cluster through brokers that answer as told: old versions, brokers that do not answer, hanging transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from ottla.client.brokers import Ask, BrokerFailed, Brokers, Unsupported
from ottla.exporter.cluster_reader import ClusterReader
from ottla.exporter.filters import NameFilter
from ottla.exporter.service import Exporter
from ottla.protocol.messages import (
    describe_configs,
    describe_log_dirs,
    describe_producers,
    describe_transactions,
    list_groups,
    list_offsets,
    list_transactions,
    metadata,
    offset_fetch,
)

NOW_S = 10_000.0
Answer = Callable[[Any], Any]


class Scripted(Brokers):
    """A cluster whose brokers answer by API name; those in `silent` do not answer."""

    def __init__(self, answers: dict[str, Answer], silent: Iterable[int] = (), offset_fetch_version: int = 9) -> None:
        self.answers = answers
        self.silent = set(silent)
        self.asked: list[tuple[int, str]] = []
        self._offset_fetch_version = offset_fetch_version

    def learn(self, addresses: Any) -> None:
        self.known = dict(addresses)

    async def supports(self, broker_id: int, api_name: str, version: int) -> bool:
        return version <= self._offset_fetch_version

    async def call(self, broker_id: int, api_name: str, request: Any, *, versions: Any = None) -> Any:
        self.asked.append((broker_id, api_name))
        if broker_id in self.silent:
            raise BrokerFailed(f"broker {broker_id} at host:{broker_id}: no answer in time")
        if api_name not in self.answers:
            raise Unsupported(api_name)
        return self.answers[api_name](request)

    async def call_any(self, api_name: str, request: Any, *, versions: Any = None) -> Any:
        return await self.call(-1, api_name, request)


def brokers(*ids: int) -> list[metadata.MetadataResponseBroker]:
    return [metadata.MetadataResponseBroker(node_id=each, host="host", port=each) for each in ids]


def topic(name: str, *leaders: int) -> metadata.MetadataResponseTopic:
    partitions = [
        metadata.MetadataResponsePartition(partition_index=index, leader_id=leader, replica_nodes=[leader, 9], isr_nodes=[leader])
        for index, leader in enumerate(leaders)
    ]
    return metadata.MetadataResponseTopic(name=name, partitions=partitions)


def offsets(end: int, stable: int | None = None) -> Answer:
    """The answer to ListOffsets, for every partition alike; the log start is 0."""

    def answer(request: Any) -> Any:
        def at(asked: Any) -> int:
            if asked.timestamp == -2:
                return 0
            return end if request.isolation_level == 0 or stable is None else stable

        return list_offsets.ListOffsetsResponse(
            topics=[
                list_offsets.ListOffsetsTopicResponse(
                    name=each.name,
                    partitions=[
                        list_offsets.ListOffsetsPartitionResponse(partition_index=part.partition_index, offset=at(part))
                        for part in each.partitions
                    ],
                )
                for each in request.topics
            ]
        )

    return answer


def cluster(**more: Answer) -> dict[str, Answer]:
    """Two brokers; partition 0 of t is led by 1, partition 1 by 2, partition 2 by nobody."""
    found = metadata.MetadataResponse(brokers=brokers(1, 2), cluster_id="c", controller_id=1, topics=[topic("t", 1, 2, -1)])
    return {"metadata": lambda _: found, "list_offsets": offsets(100), **more}


def read(scripted: Scripted, **options: Any) -> Any:
    return asyncio.run(ClusterReader(scripted, lambda: NOW_S, **options).read())


def test_one_request_for_each_kind_of_offset_goes_to_each_leader() -> None:
    scripted = Scripted(cluster())
    reading = read(scripted)
    assert [scripted.asked.count((broker_id, "list_offsets")) for broker_id in (1, 2)] == [3, 3]
    partitions = reading.topics["t"].partitions
    assert [(each.log_start, each.log_end) for each in partitions.values()] == [(0, 100), (0, 100), (None, None)]
    assert not reading.problems


def test_a_broker_that_is_silent_is_one_problem_and_the_rest_is_read() -> None:
    reading = read(Scripted(cluster(), silent=[2]))
    assert reading.problems == ["broker 2 at host:2: no answer in time"]
    assert [each.log_end for each in reading.topics["t"].partitions.values()] == [100, None, None]


def test_without_metadata_the_round_fails() -> None:
    with pytest.raises(BrokerFailed):
        read(Scripted({}, silent=[-1]))


def test_filtered_topics_are_not_asked_for() -> None:
    reading = read(Scripted(cluster()), topics=NameFilter.of(None, "^t$"))
    assert not reading.topics


def listed(*names: str) -> Answer:
    groups = [
        list_groups.ListedGroup(group_id=name, protocol_type="consumer", group_state="Empty", group_type="classic")
        for name in names
    ]
    return lambda _: list_groups.ListGroupsResponse(groups=groups)


def test_committed_offsets_of_many_groups_come_in_one_request() -> None:
    def fetched(request: Any) -> Any:
        part = offset_fetch.OffsetFetchResponsePartitions(partition_index=0, committed_offset=7)
        topics = [offset_fetch.OffsetFetchResponseTopics(name="t", partitions=[part])]
        return offset_fetch.OffsetFetchResponse(
            groups=[offset_fetch.OffsetFetchResponseGroup(group_id=each.group_id, topics=topics) for each in request.groups]
        )

    scripted = Scripted(cluster(list_groups=listed("a", "b"), offset_fetch=fetched), silent=[2])
    reading = read(scripted, groups=NameFilter.of("a|b", None))
    assert {group.name: group.committed for group in reading.groups} == {"a": {("t", 0): 7}, "b": {("t", 0): 7}}
    assert scripted.asked.count((1, "offset_fetch")) == 1
    assert all(group.members == [] for group in reading.groups), "an empty group is not described"


def test_leaders_say_which_records_are_deleted_soon() -> None:
    """Asked for partitions in which a group has lag, at an hour and at ten minutes before retention; -1: all are older."""

    def fetched(request: Any) -> Any:
        part = offset_fetch.OffsetFetchResponsePartitions(partition_index=0, committed_offset=7)
        topics = [offset_fetch.OffsetFetchResponseTopics(name="t", partitions=[part])]
        return offset_fetch.OffsetFetchResponse(
            groups=[offset_fetch.OffsetFetchResponseGroup(group_id=each.group_id, topics=topics) for each in request.groups]
        )

    def configs(_: Any) -> Any:
        settings = {"cleanup.policy": "delete", "retention.ms": "7200000", "retention.bytes": "-1"}
        named = [
            describe_configs.DescribeConfigsResourceResult(name=name, value=value, read_only=False, is_sensitive=False)
            for name, value in settings.items()
        ]
        return describe_configs.DescribeConfigsResponse(
            results=[describe_configs.DescribeConfigsResult(resource_type=2, resource_name="t", configs=named)]
        )

    asked = []

    def at_time(request: Any) -> Any:
        answer = offsets(100)(request)
        for each in request.topics:
            for part in each.partitions:
                if part.timestamp >= 0:
                    asked.append((each.name, part.partition_index, part.timestamp))
                    answer.topics[0].partitions[0].offset = {6_400_000: 40, 3_400_000: -1}[part.timestamp]
        return answer

    answers = cluster(list_groups=listed("a"), offset_fetch=fetched, describe_configs=configs)
    partitions = read(Scripted({**answers, "list_offsets": at_time}, silent=[2])).topics["t"].partitions
    assert asked == [("t", 0, 6_400_000), ("t", 0, 3_400_000)]
    assert [each.older for each in partitions.values()] == [{3600.0: 40, 6600.0: 100}, {}, {}]


def test_an_older_broker_is_asked_for_each_group() -> None:
    def fetched(request: Any) -> Any:
        assert request.group_id
        part = offset_fetch.OffsetFetchResponsePartition(partition_index=0, committed_offset=len(request.group_id))
        return offset_fetch.OffsetFetchResponse(topics=[offset_fetch.OffsetFetchResponseTopic(name="t", partitions=[part])])

    scripted = Scripted(cluster(list_groups=listed("a", "bb"), offset_fetch=fetched), silent=[2], offset_fetch_version=7)
    assert [group.committed for group in read(scripted).groups] == [{("t", 0): 1}, {("t", 0): 2}]


def test_a_topic_has_no_size_while_a_broker_does_not_tell() -> None:
    def told(_: Any) -> Any:
        part = describe_log_dirs.DescribeLogDirsPartition(partition_index=0, partition_size=50, offset_lag=0, is_future_key=False)
        topics = [describe_log_dirs.DescribeLogDirsTopic(name="t", partitions=[part])]
        return describe_log_dirs.DescribeLogDirsResponse(
            results=[describe_log_dirs.DescribeLogDirsResult(log_dir="/d", topics=topics)]
        )

    assert read(Scripted(cluster(describe_log_dirs=told))).topics["t"].replica_bytes == 100
    partly = read(Scripted(cluster(describe_log_dirs=told), silent=[2]))
    assert partly.topics["t"].replica_bytes is None
    assert [broker.log_bytes for broker in partly.brokers] == [50, None]


def transactions(known: bool, last_s: float) -> dict[str, Answer]:
    """Producer 5 has an open transaction in both partitions; with `known`, a coordinator has it in partition 0."""
    state = list_transactions.TransactionState(transactional_id="x", producer_id=5, transaction_state="Ongoing")
    described = describe_transactions.TransactionState(
        transactional_id="x",
        transaction_state="Ongoing",
        transaction_timeout_ms=60_000,
        transaction_start_time_ms=int((NOW_S - 90) * 1000),
        producer_id=5,
        topics=[describe_transactions.TopicData(topic="t", partitions=[0])],
    )
    producer = describe_producers.ProducerState(
        producer_id=5, producer_epoch=0, coordinator_epoch=0, current_txn_start_offset=60, last_timestamp=int(last_s * 1000)
    )

    def producers(request: Any) -> Any:
        return describe_producers.DescribeProducersResponse(
            topics=[
                describe_producers.TopicResponse(
                    name=each.name,
                    partitions=[
                        describe_producers.PartitionResponse(partition_index=index, active_producers=[producer])
                        for index in each.partition_indexes
                    ],
                )
                for each in request.topics
            ]
        )

    states = [state] if known else []
    return {
        "list_offsets": offsets(100, stable=60),
        "list_transactions": lambda _: list_transactions.ListTransactionsResponse(transaction_states=states),
        "describe_transactions": lambda _: describe_transactions.DescribeTransactionsResponse(transaction_states=[described]),
        "describe_producers": producers,
    }


def test_a_transaction_that_no_coordinator_has_in_the_partition_hangs() -> None:
    found = read(Scripted(cluster(**transactions(known=True, last_s=NOW_S - 1000)))).transactions
    assert found.hanging == {("t", 1): 1}
    found = read(Scripted(cluster(**transactions(known=False, last_s=NOW_S - 1000)))).transactions
    assert found.hanging == {("t", 0): 1, ("t", 1): 1}


def test_one_that_was_written_to_lately_does_not_hang() -> None:
    assert not read(Scripted(cluster(**transactions(known=False, last_s=NOW_S - 10)))).transactions.hanging


def test_the_age_of_an_open_transaction() -> None:
    found = read(Scripted(cluster(**transactions(known=True, last_s=NOW_S)))).transactions
    assert {(each.state, each.open_s, each.timeout_s) for each in found.by_id} == {("Ongoing", 90.0, 60.0)}


def test_nothing_hangs_as_long_as_not_every_coordinator_answers() -> None:
    found = read(Scripted(cluster(**transactions(known=False, last_s=NOW_S - 1000)), silent=[2])).transactions
    assert not found.hanging


def test_where_no_transaction_is_open_no_leader_is_asked_for_producers() -> None:
    scripted = Scripted(cluster(**{**transactions(known=False, last_s=0), "list_offsets": offsets(100, stable=100)}))
    read(scripted)
    assert not [asked for asked in scripted.asked if asked[1] == "describe_producers"]


def test_old_data_are_dropped() -> None:
    now = [0.0]
    scripted = Scripted(cluster())
    exporter = Exporter(ClusterReader(scripted, lambda: NOW_S), interval_s=60, clock=lambda: now[0])
    asyncio.run(exporter.round())
    scripted.silent = {-1}
    now[0] = 590
    asyncio.run(exporter.round())
    assert b"kafka_brokers 2" in exporter.text()
    assert b"ottla_exporter_data_age_seconds 590" in exporter.text()
    now[0] = 610
    assert b"kafka_brokers" not in exporter.text()
    assert b"ottla_exporter_up 0" in exporter.text()


def test_an_answer_that_nobody_expected_fails_the_round_only(caplog: pytest.LogCaptureFixture) -> None:
    def broken(_: Any) -> Any:
        raise ValueError("unheard of")

    scripted = Scripted(cluster(list_groups=broken))
    exporter = Exporter(ClusterReader(scripted, lambda: NOW_S))
    asyncio.run(exporter.round())
    assert b"ottla_exporter_up 0" in exporter.text()
    assert "ValueError: unheard of" in caplog.text
    scripted.answers = cluster()
    asyncio.run(exporter.round())
    assert b"ottla_exporter_up 1" in exporter.text()


def test_all_requests_are_sent_before_one_is_answered() -> None:
    class Slow(Scripted):
        async def call(self, broker_id: int, api_name: str, request: Any, *, versions: Any = None) -> Any:
            self.asked.append((broker_id, api_name))
            await asyncio.sleep(0)
            return len(self.asked)

    asks = [Ask(number, "metadata", None) for number in range(5)]
    assert [answer for _, answer in asyncio.run(Slow({}).ask_all(asks, []))] == [5] * 5
