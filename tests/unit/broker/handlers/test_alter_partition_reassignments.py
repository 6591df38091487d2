from __future__ import annotations

from ottla.cluster.requests import NewTopic
from ottla.errors import ErrorCode
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.kit.admin import MetadataBroker, on_broker
from tests.kit.handlers import every_version


def request(*asked: tuple[str, int, list[int] | None]) -> AlterPartitionReassignmentsRequest:
    return AlterPartitionReassignmentsRequest(
        topics=[
            ReassignableTopic(name=name, partitions=[ReassignablePartition(partition_index=number, replicas=replicas)])
            for name, number, replicas in asked
        ]
    )


@every_version("alter_partition_reassignments")
def test_each_partition_has_its_own_result(version: int) -> None:
    async def test(broker: MetadataBroker) -> None:
        await broker.create(NewTopic("t", 2, 1))
        asked = request(("t", 0, [1]), ("t", 1, [2]), ("none", 0, [1]))
        response = await broker.ask("alter_partition_reassignments", version, asked)
        found = [(topic.name, topic.partitions[0].error_code) for topic in response.responses]
        assert found == [
            ("t", ErrorCode.NONE),
            ("t", ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]

    on_broker(test)


@every_version("alter_partition_reassignments")
def test_a_cancellation_without_a_reassignment_is_refused(version: int) -> None:
    async def test(broker: MetadataBroker) -> None:
        await broker.create(NewTopic("t", 1, 1))
        response = await broker.ask("alter_partition_reassignments", version, request(("t", 0, None)))
        assert response.responses[0].partitions[0].error_code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS

    on_broker(test)


def test_a_partition_twice_in_a_request_refuses_the_request() -> None:
    async def test(broker: MetadataBroker) -> None:
        await broker.create(NewTopic("t", 1, 1))
        response = await broker.ask("alter_partition_reassignments", 1, request(("t", 0, [1]), ("t", 0, [1])))
        assert (response.error_code, response.responses) == (ErrorCode.INVALID_REQUEST, [])

    on_broker(test)
