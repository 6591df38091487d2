"""WriteTxnMarkers: the transaction coordinator tells the leaders of partitions how a transaction ended.

Each writes a control batch, which makes the records visible to readers of committed data, or has them passed over.

Versions
    1       flexible
    2       version of the transaction protocol (KIP-1228)
"""

from __future__ import annotations

from ottla.wire.schema import list_of, message, wire


@message()
class WritableTxnMarkerTopic:
    name: str = wire("string")
    partition_indexes: list[int] = wire("[]int32")


@message()
class WritableTxnMarker:
    producer_id: int = wire("int64")
    producer_epoch: int = wire("int16")
    transaction_result: bool = wire("bool")
    topics: list[WritableTxnMarkerTopic] = wire(list_of(WritableTxnMarkerTopic))
    coordinator_epoch: int = wire("int32")
    transaction_version: int = wire("int8", "2+", ignorable=True)


@message(versions="0-2", flexible="1+")
class WriteTxnMarkersRequest:
    markers: list[WritableTxnMarker] = wire(list_of(WritableTxnMarker))


@message()
class WritableTxnMarkerPartitionResult:
    partition_index: int = wire("int32")
    error_code: int = wire("int16")


@message()
class WritableTxnMarkerTopicResult:
    name: str = wire("string")
    partitions: list[WritableTxnMarkerPartitionResult] = wire(list_of(WritableTxnMarkerPartitionResult))


@message()
class WritableTxnMarkerResult:
    producer_id: int = wire("int64")
    topics: list[WritableTxnMarkerTopicResult] = wire(list_of(WritableTxnMarkerTopicResult))


@message(versions="0-2", flexible="1+")
class WriteTxnMarkersResponse:
    markers: list[WritableTxnMarkerResult] = wire(list_of(WritableTxnMarkerResult))
