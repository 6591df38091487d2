from __future__ import annotations

from ottla.cluster.requests import NewTopic
from ottla.errors import ErrorCode
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from tests.kit.admin import MetadataBroker, on_broker
from tests.kit.handlers import every_version


@every_version("create_partitions")
def test_a_topic_grows_and_every_topic_asked_for_is_answered(version: int) -> None:
    """Another young broker answered with an empty reply."""

    async def test(broker: MetadataBroker) -> None:
        await broker.create(NewTopic("a", 2), NewTopic("b", 2), NewTopic("c", 1))
        request = CreatePartitionsRequest(
            topics=[
                CreatePartitionsTopic(name="a", count=5, assignments=None),
                CreatePartitionsTopic(name="b", count=1, assignments=None),
                CreatePartitionsTopic(name="missing", count=5, assignments=None),
                CreatePartitionsTopic(name="c", count=2, assignments=[CreatePartitionsAssignment(broker_ids=[7])]),
            ]
        )
        response = await broker.ask("create_partitions", version, request)
        assert [(result.name, result.error_code) for result in response.results] == [
            ("a", 0),
            ("b", ErrorCode.INVALID_PARTITIONS),
            ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("c", ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ]
        assert all(bool(result.error_message) == bool(result.error_code) for result in response.results)
        assert [len(topic.partitions) for topic in broker.image.topics.values()] == [5, 2, 1]

    on_broker(test)


@every_version("create_partitions")
def test_validate_only_changes_nothing(version: int) -> None:
    async def test(broker: MetadataBroker) -> None:
        await broker.create(NewTopic("a", 2))
        topic = CreatePartitionsTopic(name="a", count=5, assignments=None)
        response = await broker.ask("create_partitions", version, CreatePartitionsRequest(topics=[topic], validate_only=True))
        assert response.results[0].error_code == 0
        assert len(broker.image.topics["a"].partitions) == 2

    on_broker(test)


def test_assignments_of_ones_own() -> None:
    async def test(broker: MetadataBroker) -> None:
        await broker.create(NewTopic("a", 1))
        assignments = [CreatePartitionsAssignment(broker_ids=[1]), CreatePartitionsAssignment(broker_ids=[1])]
        topic = CreatePartitionsTopic(name="a", count=3, assignments=assignments)
        response = await broker.ask("create_partitions", 3, CreatePartitionsRequest(topics=[topic]))
        assert response.results[0].error_code == 0
        assert len(broker.image.topics["a"].partitions) == 3

    on_broker(test)
