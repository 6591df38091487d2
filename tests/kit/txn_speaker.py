"""A minimal transactional producer: it speaks the bare protocol and records the responses.

The records of two brokers can be compared. CONCURRENT_TRANSACTIONS is retried and not recorded: brokers differ in how long they
take to write markers. Producer ids are recorded by order of appearance.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from functools import partial
from typing import Any

from ottla.client.connection import ClientConnection
from ottla.errors import ErrorCode
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.records.batch import scan_batches
from ottla.records.record import build_batch
from tests.kit.router import Router
from tests.kit.wait import until_async

Producer = tuple[int, int]
AGAIN = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)
PATIENCE_S = 60.0


class Speaker:
    """`name` is the transactional id, and by default the name of the topic and the group."""

    def __init__(self, connection: ClientConnection | Router, name: str, said: list[str] | None = None) -> None:
        self.connection = connection
        self.name = self.topic = name
        self.group = "g"
        self.said: list[str] = [] if said is None else said
        self.ids: dict[int, str] = {-1: "none"}
        self.alike: dict[ErrorCode, ErrorCode] = {}
        """Words that mean the same to who listens."""

    async def call(self, api: str, version: int, request: object, code_of: Any) -> Any:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            answer = await self.connection.call(api, version, request)
            if code_of(answer) not in AGAIN:
                return answer
            await asyncio.sleep(0.02)
        raise AssertionError(f"{api} is refused again and again")

    def tell(self, what: str, code: int, *more: object) -> None:
        heard = self.alike.get(ErrorCode(code), ErrorCode(code))
        self.said.append(" ".join([f"{self.name} {what}: {heard.name}", *(str(each) for each in more)]))

    def id_of(self, producer_id: int) -> str:
        """The name of a producer id: brokers choose different numbers."""
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
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic or self.topic, partitions=list(partitions))],
        )

        def codes(answer: Any) -> list[int]:
            (result,) = answer.results_by_topic_v3_and_below
            return [
                each.partition_error_code for each in sorted(result.results_by_partition, key=lambda each: each.partition_index)
            ]

        answer = await self.call("add_partitions_to_txn", version, request, lambda answer: codes(answer)[0])
        self.tell(
            f"add {topic or self.topic} {partitions} v{version}",
            codes(answer)[0],
            *(ErrorCode(code).name for code in codes(answer)[1:]),
        )

    async def produce(
        self,
        producer: Producer,
        sequence: int,
        count: int = 1,
        *,
        partition: int = 0,
        version: int = 9,
        transactional: bool = True,
    ) -> ErrorCode:
        now_ms = int(time.time() * 1000)  # or retention deletes it
        batch = build_batch(
            [(b"k", b"v%d" % number, (), now_ms) for number in range(count)],
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=sequence,
            transactional=transactional,
        )
        request = ProduceRequest(
            transactional_id=self.name,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[TopicProduceData(name=self.topic, partition_data=[PartitionProduceData(index=partition, records=batch)])],
        )

        def code(answer: Any) -> int:
            found: int = answer.responses[0].partition_responses[0].error_code
            # Before KIP-890 this is sent instead of CONCURRENT_TRANSACTIONS.
            return ErrorCode.CONCURRENT_TRANSACTIONS if found == ErrorCode.NOT_ENOUGH_REPLICAS else found

        answer = await self.call("produce", version, request, code)
        found = answer.responses[0].partition_responses[0]
        how = "" if transactional else " plainly"
        self.tell(f"produce {producer[1]}/{sequence} to {partition} v{version}{how}", found.error_code, found.base_offset)
        return ErrorCode(found.error_code)

    async def end(self, producer: Producer, commit: bool, *, version: int = 4) -> Producer:
        request = EndTxnRequest(transactional_id=self.name, producer_id=producer[0], producer_epoch=producer[1], committed=commit)
        answer = await self.call("end_txn", version, request, lambda answer: answer.error_code)
        more = (self.id_of(answer.producer_id), answer.producer_epoch) if version >= 5 else ()
        self.tell(f"{'commit' if commit else 'abort'} {producer[1]} v{version}", answer.error_code, *more)
        return (answer.producer_id, answer.producer_epoch)

    async def add_offsets(self, producer: Producer, *, version: int = 4) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.name, producer_id=producer[0], producer_epoch=producer[1], group_id=self.group
        )
        answer = await self.call("add_offsets_to_txn", version, request, lambda answer: answer.error_code)
        self.tell(f"add offsets v{version}", answer.error_code)

    async def commit_offset(self, producer: Producer, offset: int, *, version: int = 4, **fields: Any) -> None:
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=self.group,
            producer_id=producer[0],
            producer_epoch=producer[1],
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=fields.pop("topic", self.topic),
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
        self.tell(f"commit offset {producer[1]}/{offset} v{version}", answer.topics[0].partitions[0].error_code)

    async def committed(self, *, stable: bool = True) -> None:
        topic = OffsetFetchRequestTopics(name=self.topic, partition_indexes=[0])
        asked = OffsetFetchRequestGroup(group_id=self.group, topics=[topic])
        await self.settled()
        answer = await self.connection.call("offset_fetch", 8, OffsetFetchRequest(groups=[asked], require_stable=stable))
        found = answer.groups[0].topics[0].partitions[0]
        self.tell(f"committed, stable={stable}", found.error_code, found.committed_offset)

    async def state(self) -> str:
        answer = await self.connection.call(
            "describe_transactions", 0, DescribeTransactionsRequest(transactional_ids=[self.name])
        )
        state: str = answer.transaction_states[0].transaction_state
        return state

    async def settled(self) -> None:
        """Wait until all markers are written."""

        async def complete() -> bool:
            return not (await self.state()).startswith("Prepare")

        await until_async(complete, "all markers are written", every_s=0.02)

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
                0 if found.error_code else self.id_of(found.producer_id),
                found.producer_epoch,
                found.transaction_timeout_ms,
                found.transaction_start_time_ms > 0,
                sorted((topic.topic, sorted(topic.partitions)) for topic in found.topics),
            )

    async def read(self, partition: int = 0) -> None:
        await self.settled()
        for isolation in (0, 1):
            asked = ListOffsetsTopic(name=self.topic, partitions=[ListOffsetsPartition(partition_index=partition, timestamp=-1)])
            ends = await self.connection.call(
                "list_offsets", 7, ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=[asked])
            )
            request = FetchRequest(
                max_wait_ms=0,
                min_bytes=1,
                max_bytes=1 << 20,
                isolation_level=isolation,
                topics=[
                    FetchTopic(topic=self.topic, partitions=[FetchPartition(partition=partition, partition_max_bytes=1 << 20)])
                ],
            )
            answer = await self.connection.call("fetch", 12, request)
            data = answer.responses[0].partitions[0]
            batches, _ = scan_batches(data.records or b"")
            # Kafka may list aborted transactions beyond the returned records.
            end = max((each.last_offset for each in batches), default=-1)
            self.tell(
                f"read {partition} isolation {isolation}",
                data.error_code,
                ends.topics[0].partitions[0].offset,
                data.last_stable_offset,
                [(each.base_offset, each.last_offset, each.is_control, each.producer_epoch) for each in batches],
                [
                    (self.id_of(each.producer_id), each.first_offset)
                    for each in data.aborted_transactions or ()
                    if each.first_offset <= end
                ],
            )

    async def producers(self, partition: int = 0) -> None:
        """Record the active producers of the partition."""
        await self.settled()
        asked = TopicRequest(name=self.topic, partition_indexes=[partition])
        answer = await self.connection.call("describe_producers", 0, DescribeProducersRequest(topics=[asked]))
        found = answer.topics[0].partitions[0]
        # By age: ids that were not heard of before get their names here.
        producers = sorted(found.active_producers, key=lambda each: each.producer_id)
        self.tell(
            f"producers of {partition}",
            found.error_code,
            sorted(
                (self.id_of(each.producer_id), each.producer_epoch, each.last_sequence, each.current_txn_start_offset)
                for each in producers
            ),
        )


async def ready(connection: ClientConnection | Router, topic: str, ids: Collection[str], group: str, partitions: int = 2) -> None:
    """Create a topic, and wait until it can be written to and the coordinators answer."""
    until = partial(until_async, what=f"{topic} and its coordinators are ready", every_s=0.1)

    async def is_known() -> bool:
        # Kafka's controller answers before its broker knows the topic.
        asked = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(partitions)]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=asked)])
        answer = await connection.call("list_offsets", 7, request)
        return not any(partition.error_code for partition in answer.topics[0].partitions)

    async def is_found(kind: int, key: str) -> bool:
        answer = await connection.call("find_coordinator", 4, FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]))
        return not answer.coordinators[0].error_code

    async def is_loaded(transactional_id: str) -> bool:
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        answer = await connection.call("describe_transactions", 0, request)
        code: int = answer.transaction_states[0].error_code
        return code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND

    async def has_offsets() -> bool:
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
        answer = await connection.call("offset_fetch", 8, request)
        return not answer.groups[0].error_code

    created = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=-1)
    await connection.call("create_topics", 5, CreateTopicsRequest(topics=[created], timeout_ms=20_000))
    await until(is_known)
    await until(lambda: is_found(0, group))
    await until(has_offsets)
    for transactional_id in ids:
        await until(lambda: is_found(1, transactional_id))  # noqa: B023
        await until(lambda: is_loaded(transactional_id))  # noqa: B023
