"""The requests that tests of group and transaction APIs begin with."""

from __future__ import annotations

from typing import Any

from ottla.errors import ErrorCode
from ottla.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

GROUP_SETTINGS = {"group_initial_rebalance_delay_ms": "0", "offsets_topic_num_partitions": "1"}
SUBSCRIPTION = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"

Producer = tuple[int, int]


async def connect_to_groups(stage: Any) -> Any:
    """A connection to the coordinator of all groups."""
    connection = await stage.connect()
    assert (await connection.call("find_coordinator", 3, FindCoordinatorRequest(key="g"))).error_code == 0
    return connection


def join_request(group: str = "g", member_id: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=30_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
    )


async def stable_member(connection: Any, group: str = "g") -> str:
    """The only member of a stable classic group in generation 1."""
    member_id: str = (await connection.call("join_group", 9, join_request(group))).member_id
    joined = await connection.call("join_group", 9, join_request(group, member_id))
    assert (joined.error_code, joined.generation_id) == (0, 1)
    synced = await connection.call("sync_group", 3, sync_request(member_id, group=group, assignment=b"all"))
    assert synced.error_code == 0
    return member_id


def sync_request(member_id: str, *, group: str = "g", generation: int = 1, assignment: bytes | None = None) -> SyncGroupRequest:
    assigned = [] if assignment is None else [SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)]
    return SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=assigned,
    )


async def commit_offset(connection: Any, offset: int, *, group: str = "g", topic: str = "t") -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="note")
    request = OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])])
    response = await connection.call("offset_commit", 8, request)
    assert response.topics[0].partitions[0].error_code == 0


async def connect_to_transactions(stage: Any) -> Any:
    """A connection to the coordinator of all transactional ids."""
    connection = await stage.connect()
    request = FindCoordinatorRequest(key_type=1, coordinator_keys=["tx"])
    assert (await connection.call("find_coordinator", 4, request)).coordinators[0].error_code == 0
    return connection


async def init_producer(connection: Any, transactional_id: str = "tx") -> Producer:
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    while True:  # until the markers of the last transaction are written
        response = await connection.call("init_producer_id", 4, request)
        if response.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
            break
    assert response.error_code == 0
    return response.producer_id, response.producer_epoch


def add_partitions_request(producer: Producer, *partitions: int, topic: str = "t", name: str = "tx") -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
    )


async def begin_transaction(connection: Any, transactional_id: str = "tx") -> Producer:
    """A producer whose transaction has partition t-0."""
    producer = await init_producer(connection, transactional_id)
    response = await connection.call("add_partitions_to_txn", 3, add_partitions_request(producer, 0, name=transactional_id))
    assert response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0
    return producer


async def end_transaction(connection: Any, producer: Producer, *, commit: bool = True, transactional_id: str = "tx") -> None:
    request = EndTxnRequest(
        transactional_id=transactional_id, producer_id=producer[0], producer_epoch=producer[1], committed=commit
    )
    assert (await connection.call("end_txn", 4, request)).error_code == 0
