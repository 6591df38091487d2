"""One dialogue, two brokers: what Apache Kafka 4.3 answers to a transactional producer, Ottla answers too.

The producer speaks the bare protocol, in both generations, and does much that no library would: repeats, contradicts itself,
comes back from the dead. The transcripts are compared. CONCURRENT_TRANSACTIONS means "ask again" and is asked again: how long the
markers take is each broker's own affair.
"""

from __future__ import annotations

import asyncio
import difflib
from typing import Any

import pytest
from subject import running

from ottla.client.connection import ClientConnection
from ottla.errors import ErrorCode
from ottla.metrics import Counters
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.list_transactions import ListTransactionsRequest
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.records.batch import scan_batches
from ottla.records.record import build_batch
from ottla.runtime.network import RealNetwork

pytestmark = pytest.mark.java

Producer = tuple[int, int]
AGAIN = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)
NOW_MS = 1_700_000_000_000


class Speaker:
    def __init__(self, connection: ClientConnection, said: list[str]) -> None:
        self.connection = connection
        self.said = said
        self.ids: dict[int, str] = {-1: "none"}
        self.name = "t0"
        self.refused_again = 0

    async def call(self, api: str, version: int, request: object, code_of: Any) -> Any:
        for _ in range(200):
            answer = await self.connection.call(api, version, request)
            if code_of(answer) not in AGAIN:
                return answer
            self.refused_again += 1
            await asyncio.sleep(0.02)
        raise AssertionError(f"{api} is refused again and again")

    def tell(self, what: str, code: int, *more: object) -> None:
        self.said.append(" ".join([f"{self.name} {what}: {ErrorCode(code).name}", *(str(each) for each in more)]))

    def id_of(self, producer_id: int) -> str:
        """Numbers differ from broker to broker; which are the same does not."""
        return self.ids.setdefault(producer_id, f"id{len(self.ids)}")

    async def init(self, producer: Producer = (-1, -1), *, version: int = 5, timeout_ms: int = 60_000) -> Producer:
        request = InitProducerIdRequest(
            transactional_id=self.name,
            transaction_timeout_ms=timeout_ms,
            producer_id=producer[0],
            producer_epoch=producer[1],
        )
        answer = await self.call("init_producer_id", version, request, lambda answer: answer.error_code)
        self.tell(f"init {producer[1]} v{version}", answer.error_code, self.id_of(answer.producer_id), answer.producer_epoch)
        return (answer.producer_id, answer.producer_epoch)

    async def add(self, producer: Producer, *partitions: int, version: int = 3, topic: str | None = None) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic or self.name, partitions=list(partitions))],
        )

        def codes(answer: Any) -> list[int]:
            (result,) = answer.results_by_topic_v3_and_below
            return [
                each.partition_error_code for each in sorted(result.results_by_partition, key=lambda each: each.partition_index)
            ]

        answer = await self.call("add_partitions_to_txn", version, request, lambda answer: codes(answer)[0])
        self.tell(
            f"add {topic or self.name} {partitions} v{version}",
            codes(answer)[0],
            *(ErrorCode(code).name for code in codes(answer)[1:]),
        )

    async def produce(self, producer: Producer, sequence: int, count: int = 1, *, partition: int = 0, version: int = 9) -> None:
        batch = build_batch(
            [(b"k", b"v%d" % number, (), NOW_MS) for number in range(count)],
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=sequence,
            transactional=True,
        )
        request = ProduceRequest(
            transactional_id=self.name,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[TopicProduceData(name=self.name, partition_data=[PartitionProduceData(index=partition, records=batch)])],
        )

        def code(answer: Any) -> int:
            found: int = answer.responses[0].partition_responses[0].error_code
            # Of the first generation this stands for CONCURRENT_TRANSACTIONS.
            return ErrorCode.CONCURRENT_TRANSACTIONS if found == ErrorCode.NOT_ENOUGH_REPLICAS else found

        answer = await self.call("produce", version, request, code)
        found = answer.responses[0].partition_responses[0]
        self.tell(f"produce {producer[1]}/{sequence} to {partition} v{version}", found.error_code, found.base_offset)

    async def end(self, producer: Producer, commit: bool, *, version: int = 4) -> Producer:
        request = EndTxnRequest(transactional_id=self.name, producer_id=producer[0], producer_epoch=producer[1], committed=commit)
        answer = await self.call("end_txn", version, request, lambda answer: answer.error_code)
        more = (self.id_of(answer.producer_id), answer.producer_epoch) if version >= 5 else ()
        self.tell(f"{'commit' if commit else 'abort'} {producer[1]} v{version}", answer.error_code, *more)
        return (answer.producer_id, answer.producer_epoch)

    async def add_offsets(self, producer: Producer, *, version: int = 4) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.name, producer_id=producer[0], producer_epoch=producer[1], group_id="g"
        )
        answer = await self.call("add_offsets_to_txn", version, request, lambda answer: answer.error_code)
        self.tell(f"add offsets v{version}", answer.error_code)

    async def commit_offset(self, producer: Producer, offset: int, *, version: int = 4, **fields: Any) -> None:
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id="g",
            producer_id=producer[0],
            producer_epoch=producer[1],
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=fields.pop("topic", self.name),
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=0, committed_offset=offset, committed_metadata=fields.pop("metadata", "")
                        )
                    ],
                )
            ],
            **fields,
        )
        answer = await self.call("txn_offset_commit", version, request, lambda answer: answer.topics[0].partitions[0].error_code)
        self.tell(f"commit offset {offset} v{version}", answer.topics[0].partitions[0].error_code)

    async def committed(self, *, stable: bool = True) -> None:
        asked = OffsetFetchRequestGroup(group_id="g", topics=[OffsetFetchRequestTopics(name=self.name, partition_indexes=[0])])
        # A marker is written some time after the reply to EndTxn.
        for _ in range(100):
            answer = await self.connection.call("offset_fetch", 8, OffsetFetchRequest(groups=[asked], require_stable=stable))
            found = answer.groups[0].topics[0].partitions[0]
            state = await self.state()
            if not stable or state == "Ongoing" or found.error_code != ErrorCode.UNSTABLE_OFFSET_COMMIT:
                break
            await asyncio.sleep(0.02)
        self.tell(f"committed, stable={stable}", found.error_code, found.committed_offset)

    async def state(self) -> str:
        answer = await self.connection.call(
            "describe_transactions", 0, DescribeTransactionsRequest(transactional_ids=[self.name])
        )
        state: str = answer.transaction_states[0].transaction_state
        return state

    async def settled(self) -> None:
        """Until no marker is owed."""
        for _ in range(200):
            if not (await self.state()).startswith("Prepare"):
                return
            await asyncio.sleep(0.02)

    async def describe(self) -> None:
        await self.settled()
        answer = await self.connection.call(
            "describe_transactions", 0, DescribeTransactionsRequest(transactional_ids=[self.name, "nobody", ""])
        )
        for found in answer.transaction_states:
            self.tell(
                f"describe {found.transactional_id!r}",
                found.error_code,
                found.transaction_state,
                self.id_of(found.producer_id) if found.producer_id else 0,
                found.producer_epoch,
                found.transaction_timeout_ms,
                found.transaction_start_time_ms > 0,
                sorted((topic.topic, sorted(topic.partitions)) for topic in found.topics),
            )

    async def read(self, partition: int = 0) -> None:
        await self.settled()
        for isolation in (0, 1):
            asked = ListOffsetsTopic(name=self.name, partitions=[ListOffsetsPartition(partition_index=partition, timestamp=-1)])
            ends = await self.connection.call(
                "list_offsets", 7, ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=[asked])
            )
            request = FetchRequest(
                max_wait_ms=0,
                min_bytes=1,
                max_bytes=1 << 20,
                isolation_level=isolation,
                topics=[
                    FetchTopic(topic=self.name, partitions=[FetchPartition(partition=partition, partition_max_bytes=1 << 20)])
                ],
            )
            answer = await self.connection.call("fetch", 12, request)
            data = answer.responses[0].partitions[0]
            batches, _ = scan_batches(data.records or b"")
            self.tell(
                f"read {partition} isolation {isolation}",
                data.error_code,
                ends.topics[0].partitions[0].offset,
                data.last_stable_offset,
                [(each.base_offset, each.last_offset, each.is_control, each.producer_epoch) for each in batches],
                [(self.id_of(each.producer_id), each.first_offset) for each in data.aborted_transactions or ()],
            )


async def first_generation(speaker: Speaker) -> None:
    nobody = (123456, 0)
    await speaker.end(nobody, True)
    await speaker.add(nobody, 0)
    producer = await speaker.init()
    await speaker.end(producer, True)
    await speaker.end(producer, False)
    await speaker.add(producer, 0, 9)
    await speaker.add(producer, 0, topic="absent")
    await speaker.produce(producer, 0)
    await speaker.produce(producer, 0, version=11)
    await speaker.add(producer, 0)
    await speaker.describe()
    await speaker.produce(producer, 0, 3)
    await speaker.produce(producer, 0, 3)
    await speaker.produce(producer, 7)
    await speaker.produce(producer, 0, partition=1)
    await speaker.read()
    await speaker.end(producer, True)
    await speaker.settled()
    await speaker.end(producer, True)
    await speaker.end(producer, False)
    await speaker.read()
    await speaker.add(producer, 0, 1)
    await speaker.produce(producer, 3, 2)
    await speaker.produce(producer, 0, 1, partition=1)
    await speaker.end(producer, False)
    await speaker.settled()
    await speaker.end(producer, False)
    await speaker.end(producer, True)
    await speaker.read()
    await speaker.read(1)
    await speaker.describe()


async def fencing(speaker: Speaker) -> None:
    old = await speaker.init(version=2)
    await speaker.add(old, 0)
    await speaker.produce(old, 0)
    new = await speaker.init()
    for version in (0, 1, 2, 3):
        await speaker.add(old, 0, version=version)
    for version in (0, 1, 2, 4, 5):
        await speaker.end(old, True, version=version)
        await speaker.end(old, False, version=version)
    for version in (1, 2):
        await speaker.add_offsets(old, version=version)
    for version in (9, 11, 12):
        await speaker.produce(old, 1, version=version)
    for version in (3, 4, 5):
        await speaker.init(old, version=version)
    await speaker.add((new[0], new[1] + 1), 0)
    await speaker.end((new[0] + 99, 0), True)
    await speaker.add((new[0] + 99, 0), 0)
    bumped = await speaker.init(new)
    await speaker.init(new)
    await speaker.init(new)
    await speaker.init(bumped)
    await speaker.init(new)
    await speaker.init((77777, 3))
    for timeout_ms in (0, -5, 900_000, 900_001):
        await speaker.init(timeout_ms=timeout_ms)
    await speaker.describe()


async def second_generation(speaker: Speaker) -> None:
    producer = await speaker.init()
    await speaker.end(producer, True, version=5)
    producer = await speaker.end(producer, False, version=5)
    await speaker.end(producer, False, version=5)
    producer = (producer[0], producer[1] + 1)
    await speaker.produce(producer, 0, version=12)
    await speaker.describe()
    following = await speaker.end(producer, True, version=5)
    await speaker.settled()
    await speaker.end(producer, True, version=5)
    await speaker.end(producer, False, version=5)
    await speaker.end(following, True, version=5)
    await speaker.produce(producer, 1, version=12)
    await speaker.produce(following, 5, version=12)
    await speaker.produce(following, 0, version=12)
    await speaker.produce(producer, 1, version=12)
    await speaker.end(producer, True, version=5)
    await speaker.end(producer, False, version=5)
    third = await speaker.end(following, False, version=5)
    await speaker.settled()
    await speaker.end(following, False, version=5)
    await speaker.end(following, True, version=5)
    await speaker.read()
    # An empty one that is aborted, and the next of the other generation.
    fourth = await speaker.end(third, False, version=5)
    await speaker.settled()
    await speaker.add(fourth, 0)
    await speaker.produce(fourth, 0)
    await speaker.end(fourth, True)
    await speaker.settled()
    await speaker.end(fourth, True)
    await speaker.end(fourth, True, version=5)
    await speaker.end(fourth, False, version=5)
    await speaker.describe()
    await speaker.read()


async def offsets(speaker: Speaker) -> None:
    producer = await speaker.init()
    await speaker.committed()
    for version in (0, 3, 4):
        await speaker.commit_offset(producer, 5, version=version)
    await speaker.add_offsets(producer)
    for version in range(5):
        await speaker.commit_offset(producer, 10 + version, version=version)
    await speaker.committed()
    await speaker.committed(stable=False)
    await speaker.commit_offset(producer, 6, generation_id=5, member_id="m")
    await speaker.commit_offset(producer, 6, topic="absent")
    await speaker.commit_offset(producer, 6, metadata="x" * 5000)
    await speaker.commit_offset((producer[0], producer[1] + 1), 6)
    await speaker.end(producer, True)
    await speaker.committed()
    await speaker.add_offsets(producer)
    await speaker.commit_offset(producer, 99)
    await speaker.end(producer, False)
    await speaker.committed()
    await speaker.commit_offset(producer, 100, version=5)
    following = await speaker.end(producer, True, version=5)
    await speaker.committed()
    await speaker.commit_offset(producer, 101, version=5)
    await speaker.commit_offset(following, 102, version=5)
    await speaker.committed()
    await speaker.init()
    await speaker.committed()
    await speaker.commit_offset(following, 103, version=5)
    await speaker.describe()


async def listing(speaker: Speaker) -> None:
    for filters, version in (
        ({}, 0),
        ({"state_filters": ["Ongoing"]}, 0),
        ({"state_filters": ["Nonsense", "Empty"]}, 0),
        ({"state_filters": ["Nonsense"]}, 0),
        ({"duration_filter": 3_600_000}, 1),
        ({"transactional_id_pattern": "first.*"}, 2),
        ({"transactional_id_pattern": "irst"}, 2),
        ({"transactional_id_pattern": "("}, 2),
        ({"producer_id_filters": [999999]}, 0),
    ):
        answer = await speaker.connection.call("list_transactions", version, ListTransactionsRequest(**filters))  # type: ignore[arg-type]
        found = sorted((each.transactional_id, each.transaction_state) for each in answer.transaction_states)
        speaker.tell(f"list {filters}", answer.error_code, answer.unknown_state_filters, found)


DIALOGUES = (first_generation, fencing, second_generation, offsets, listing)


async def converse(host: str, port: int) -> dict[str, list[str]]:
    connection = await ClientConnection.open(RealNetwork(Counters()), host, port)
    transcripts: dict[str, list[str]] = {}
    try:
        for dialogue in DIALOGUES:
            said: list[str] = []
            topic = CreatableTopic(name=dialogue.__name__, num_partitions=2, replication_factor=1)
            speaker = Speaker(connection, said)
            speaker.name = dialogue.__name__
            await connection.call("create_topics", 5, CreateTopicsRequest(topics=[topic], timeout_ms=20_000))
            for _ in range(300):
                # Kafka's controller answers before its broker has heard of the topic.
                ends = ListOffsetsTopic(
                    name=speaker.name, partitions=[ListOffsetsPartition(partition_index=index, timestamp=-1) for index in (0, 1)]
                )
                heard = await connection.call("list_offsets", 7, ListOffsetsRequest(replica_id=-1, topics=[ends]))
                if not any(partition.error_code for partition in heard.topics[0].partitions):
                    break
                await asyncio.sleep(0.1)
            for kind, key in ((1, speaker.name), (0, "g")):
                for _ in range(300):
                    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
                    found = await connection.call("find_coordinator", 4, request)
                    if not found.coordinators[0].error_code:
                        break
                    await asyncio.sleep(0.1)
            for _ in range(300):
                # A coordinator that has just been found may still be loading.
                answer = await connection.call(
                    "describe_transactions", 0, DescribeTransactionsRequest(transactional_ids=[speaker.name])
                )
                if answer.transaction_states[0].error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                    break
                await asyncio.sleep(0.1)
            await dialogue(speaker)
            transcripts[dialogue.__name__] = said
    finally:
        connection.close()
    return transcripts


@pytest.fixture(scope="module")
def transcripts() -> dict[str, dict[str, list[str]]]:
    found = {}
    for name in ("ottla", "kafka-4.3.0"):
        with running(name) as subject:
            found[name] = asyncio.run(converse(subject.host, subject.port))
    return found


@pytest.mark.parametrize("dialogue", [each.__name__ for each in DIALOGUES])
def test_the_same_answers(transcripts: dict[str, dict[str, list[str]]], dialogue: str) -> None:
    ours, theirs = transcripts["ottla"][dialogue], transcripts["kafka-4.3.0"][dialogue]
    assert len(ours) > 5
    assert ours == theirs, "\n".join(difflib.unified_diff(theirs, ours, "kafka", "ottla", lineterm=""))
