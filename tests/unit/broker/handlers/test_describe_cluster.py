from __future__ import annotations

from ottla.errors import ErrorCode
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest
from tests.kit.admin import MetadataBroker, on_broker
from tests.kit.handlers import every_version


@every_version("describe_cluster")
def test_brokers_controller_and_operations(version: int) -> None:
    async def test(broker: MetadataBroker) -> None:
        response = await broker.ask("describe_cluster", version, DescribeClusterRequest(), listener="OUTSIDE")
        assert (response.error_code, response.cluster_id, response.controller_id) == (0, broker.image.cluster_id, 1)
        assert [(node.broker_id, node.host, node.port, node.rack) for node in response.brokers] == [(1, "example.org", 443, "r1")]
        assert response.cluster_authorized_operations == -(2**31)
        asked = DescribeClusterRequest(include_cluster_authorized_operations=True)
        assert (await broker.ask("describe_cluster", version, asked)).cluster_authorized_operations == 0b1111110100000

    on_broker(test, {"broker.rack": "r1"})


def test_a_broker_knows_no_controllers_endpoints() -> None:
    async def test(broker: MetadataBroker) -> None:
        for kind, code in ((2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (7, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)):
            response = await broker.ask("describe_cluster", 1, DescribeClusterRequest(endpoint_type=kind))
            assert (response.error_code, response.brokers) == (code, [])

    on_broker(test)
