"""Fetch: read record batches, as a consumer or as a follower.

A response waits up to `max_wait_ms` for `min_bytes`. In a session (KIP-227) a request names only the partitions that changed, and
a response only those with something new. A follower sends its replica id; its fetch offset tells the leader how far it has
replicated.

Versions
    1       throttle time
    3       limit for the whole response; the order of partitions matters from here on
    4       isolation level, last stable offset, aborted transactions
    5       log start offset, of the follower in the request and of the leader in the response
    7       fetch sessions, forgotten topics
    9       the leader epoch that the reader knows (KIP-320)
    10      zstd may be used
    11      rack of the reader, preferred replica in the response (KIP-392)
    12      flexible; last fetched epoch and diverging epoch instead of a separate look-up
    13      topics by id (KIP-516)
    14      an offset may have moved to tiered storage
    15      replica id moves into the tagged replica state, with the broker's epoch (KIP-903)
    16      the response may say where new leaders listen (KIP-951)
    17, 18  directory id of the replica (KIP-853); its high watermark (KIP-1166)
"""

from __future__ import annotations

from ottla.ports import Part
from ottla.wire.schema import list_of, message, wire


@message()
class ReplicaState:
    replica_id: int = wire("int32", "15+", default=-1)
    replica_epoch: int = wire("int64", "15+", default=-1)


@message()
class FetchPartition:
    partition: int = wire("int32")
    current_leader_epoch: int = wire("int32", "9+", default=-1, ignorable=True)
    fetch_offset: int = wire("int64")
    last_fetched_epoch: int = wire("int32", "12+", default=-1)
    log_start_offset: int = wire("int64", "5+", default=-1, ignorable=True)
    partition_max_bytes: int = wire("int32")
    replica_directory_id: bytes = wire("uuid", "17+", tag=0, ignorable=True)
    high_watermark: int = wire("int64", "18+", tag=1, default=0x7FFFFFFFFFFFFFFF, ignorable=True)


@message()
class FetchTopic:
    topic: str = wire("string", "0-12", ignorable=True)
    topic_id: bytes = wire("uuid", "13+", ignorable=True)
    partitions: list[FetchPartition] = wire(list_of(FetchPartition))


@message()
class ForgottenTopic:
    topic: str = wire("string", "7-12", ignorable=True)
    topic_id: bytes = wire("uuid", "13+", ignorable=True)
    partitions: list[int] = wire("[]int32", "7+")


@message(versions="0-18", flexible="12+")
class FetchRequest:
    cluster_id: str | None = wire("string", "12+", nullable="12+", tag=0, default=None, ignorable=True)
    replica_id: int = wire("int32", "0-14", default=-1)
    replica_state: ReplicaState | None = wire(ReplicaState, "15+", tag=1)
    max_wait_ms: int = wire("int32")
    min_bytes: int = wire("int32")
    max_bytes: int = wire("int32", "3+", default=0x7FFFFFFF, ignorable=True)
    isolation_level: int = wire("int8", "4+", ignorable=True)
    session_id: int = wire("int32", "7+", ignorable=True)
    session_epoch: int = wire("int32", "7+", default=-1, ignorable=True)
    topics: list[FetchTopic] = wire(list_of(FetchTopic))
    forgotten_topics_data: list[ForgottenTopic] = wire(list_of(ForgottenTopic), "7+")
    rack_id: str = wire("string", "11+", ignorable=True)


@message()
class EpochEndOffset:
    epoch: int = wire("int32", "12+", default=-1)
    end_offset: int = wire("int64", "12+", default=-1)


@message()
class LeaderIdAndEpoch:
    leader_id: int = wire("int32", "12+", default=-1)
    leader_epoch: int = wire("int32", "12+", default=-1)


@message()
class SnapshotId:
    end_offset: int = wire("int64", default=-1)
    epoch: int = wire("int32", default=-1)


@message()
class AbortedTransaction:
    producer_id: int = wire("int64", "4+")
    first_offset: int = wire("int64", "4+")


@message()
class PartitionData:
    partition_index: int = wire("int32")
    error_code: int = wire("int16")
    high_watermark: int = wire("int64")
    last_stable_offset: int = wire("int64", "4+", default=-1, ignorable=True)
    log_start_offset: int = wire("int64", "5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset | None = wire(EpochEndOffset, "12+", tag=0)
    current_leader: LeaderIdAndEpoch | None = wire(LeaderIdAndEpoch, "12+", tag=1)
    snapshot_id: SnapshotId | None = wire(SnapshotId, "12+", tag=2)
    aborted_transactions: list[AbortedTransaction] | None = wire(list_of(AbortedTransaction), "4+", nullable="4+", ignorable=True)
    preferred_read_replica: int = wire("int32", "11+", default=-1)
    records: Part | list[Part] | None = wire("records", nullable="0+")


@message()
class FetchableTopicResponse:
    topic: str = wire("string", "0-12", ignorable=True)
    topic_id: bytes = wire("uuid", "13+", ignorable=True)
    partitions: list[PartitionData] = wire(list_of(PartitionData))


@message()
class NodeEndpoint:
    node_id: int = wire("int32", "16+")
    host: str = wire("string", "16+")
    port: int = wire("int32", "16+")
    rack: str | None = wire("string", "16+", nullable="16+", default=None)


@message(versions="0-18", flexible="12+")
class FetchResponse:
    throttle_time_ms: int = wire("int32", "1+", ignorable=True)
    error_code: int = wire("int16", "7+", ignorable=True)
    session_id: int = wire("int32", "7+")
    responses: list[FetchableTopicResponse] = wire(list_of(FetchableTopicResponse))
    node_endpoints: list[NodeEndpoint] = wire(list_of(NodeEndpoint), "16+", tag=0)
