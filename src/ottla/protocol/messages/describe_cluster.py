"""DescribeCluster: cluster id, controller and brokers, without topics (KIP-700).

Versions
    0       flexible from the start
    1       endpoints of brokers or of controllers may be asked for (KIP-919)
    2       fenced brokers, on request (KIP-1073)
"""

from __future__ import annotations

from ottla.wire.schema import list_of, message, wire


@message(versions="0-2", flexible="0+")
class DescribeClusterRequest:
    include_cluster_authorized_operations: bool = wire("bool")
    endpoint_type: int = wire("int8", "1+", default=1)
    include_fenced_brokers: bool = wire("bool", "2+")


@message()
class DescribeClusterBroker:
    broker_id: int = wire("int32")
    host: str = wire("string")
    port: int = wire("int32")
    rack: str | None = wire("string", nullable="0+", default=None)
    is_fenced: bool = wire("bool", "2+")


@message(versions="0-2", flexible="0+")
class DescribeClusterResponse:
    throttle_time_ms: int = wire("int32")
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable="0+", default=None)
    endpoint_type: int = wire("int8", "1+", default=1)
    cluster_id: str = wire("string")
    controller_id: int = wire("int32", default=-1)
    brokers: list[DescribeClusterBroker] = wire(list_of(DescribeClusterBroker))
    cluster_authorized_operations: int = wire("int32", default=-2147483648)
