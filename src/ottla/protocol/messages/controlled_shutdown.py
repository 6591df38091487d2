"""ControlledShutdown: a broker that wants to stop asks the controller to move its leaderships away first.

The response lists the partitions it still leads; the broker asks again until there are none, or gives up and stops.

Versions
    0       a request header without client id, the only one of its kind
    2       broker epoch
    3       flexible
"""

from __future__ import annotations

from ottla.wire.schema import list_of, message, wire


@message(versions="0-3", flexible="3+")
class ControlledShutdownRequest:
    broker_id: int = wire("int32")
    broker_epoch: int = wire("int64", "2+", default=-1, ignorable=True)


@message()
class RemainingPartition:
    topic_name: str = wire("string")
    partition_index: int = wire("int32")


@message(versions="0-3", flexible="3+")
class ControlledShutdownResponse:
    error_code: int = wire("int16")
    remaining_partitions: list[RemainingPartition] = wire(list_of(RemainingPartition))
