"""ElectLeaders: have partitions led by their preferred replica, or by any that is alive.

Partitions absent (None) means all.

Versions
    0       preferred election only
    1       kind of election: 0 preferred, 1 unclean (KIP-460); an error for the whole response
    2       flexible
"""

from __future__ import annotations

from ottla.wire.schema import list_of, message, wire


@message()
class TopicPartitions:
    topic: str = wire("string")
    partitions: list[int] = wire("[]int32")


@message(versions="0-2", flexible="2+")
class ElectLeadersRequest:
    election_type: int = wire("int8", "1+")
    topic_partitions: list[TopicPartitions] | None = wire(list_of(TopicPartitions), nullable="0+")
    timeout_ms: int = wire("int32", default=60_000)


@message()
class PartitionResult:
    partition_id: int = wire("int32")
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable="0+", default=None)


@message()
class ReplicaElectionResult:
    topic: str = wire("string")
    partition_result: list[PartitionResult] = wire(list_of(PartitionResult))


@message(versions="0-2", flexible="2+")
class ElectLeadersResponse:
    throttle_time_ms: int = wire("int32")
    error_code: int = wire("int16", "1+", ignorable=True)
    replica_election_results: list[ReplicaElectionResult] = wire(list_of(ReplicaElectionResult))
