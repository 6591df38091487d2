from __future__ import annotations

from ottla.cluster.requests import NewTopic
from ottla.errors import ErrorCode
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tests.kit.admin import MetadataBroker, on_broker
from tests.kit.handlers import every_version


@every_version("elect_leaders")
def test_each_partition_has_its_own_result(version: int) -> None:
    async def test(broker: MetadataBroker) -> None:
        await broker.create(NewTopic("t", 1, 1))
        asked = [TopicPartitions(topic="t", partitions=[0, 9]), TopicPartitions(topic="none", partitions=[0])]
        response = await broker.ask("elect_leaders", version, ElectLeadersRequest(topic_partitions=asked))
        found = {
            (result.topic, each.partition_id): each.error_code
            for result in response.replica_election_results
            for each in result.partition_result
        }
        assert found == {
            ("t", 0): ErrorCode.ELECTION_NOT_NEEDED,
            ("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("none", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }

    on_broker(test)


@every_version("elect_leaders")
def test_all_partitions_means_those_that_need_an_election(version: int) -> None:
    async def test(broker: MetadataBroker) -> None:
        await broker.create(NewTopic("t", 2, 1))
        response = await broker.ask("elect_leaders", version, ElectLeadersRequest(topic_partitions=None))
        assert response.replica_election_results == []

    on_broker(test)


def test_an_unknown_election_type_is_refused() -> None:
    async def test(broker: MetadataBroker) -> None:
        asked = [TopicPartitions(topic="t", partitions=[0])]
        response = await broker.ask("elect_leaders", 2, ElectLeadersRequest(election_type=7, topic_partitions=asked))
        assert response.error_code == ErrorCode.INVALID_REQUEST
        assert response.replica_election_results[0].partition_result[0].error_code == ErrorCode.INVALID_REQUEST

    on_broker(test)
