from __future__ import annotations

from ottla.cluster.requests import NewTopic
from ottla.errors import ErrorCode
from ottla.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    RequestCursor,
    TopicRequest,
)
from tests.kit.admin import MetadataBroker, on_broker


def test_pages_go_through_all_topics_in_order_of_name() -> None:
    async def test(broker: MetadataBroker) -> None:
        await broker.create(NewTopic("b", 3), NewTopic("a", 2), NewTopic("c", 1))
        seen: list[tuple[str, int]] = []
        cursor = None
        pages = 0
        while True:
            request = DescribeTopicPartitionsRequest(response_partition_limit=2, cursor=cursor)
            response = await broker.ask("describe_topic_partitions", 0, request)
            page = [(topic.name, part.partition_index) for topic in response.topics for part in topic.partitions]
            assert len(page) <= 2
            seen += page
            pages += 1
            if response.next_cursor is None:
                break
            cursor = RequestCursor(
                topic_name=response.next_cursor.topic_name, partition_index=response.next_cursor.partition_index
            )
        assert seen == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("c", 0)]
        assert pages == 3

    on_broker(test)


def test_the_brokers_limit_holds_too_and_at_least_one_partition_comes() -> None:
    async def test(broker: MetadataBroker) -> None:
        await broker.create(NewTopic("a", 5))
        for asked, got in ((2000, 3), (0, 1), (-5, 1)):
            response = await broker.ask(
                "describe_topic_partitions", 0, DescribeTopicPartitionsRequest(response_partition_limit=asked)
            )
            assert len(response.topics[0].partitions) == got
            assert response.next_cursor.partition_index == got

    on_broker(test, {"max.request.partition.size.limit": "3"})


def test_what_is_said_of_topics_and_partitions() -> None:
    async def test(broker: MetadataBroker) -> None:
        (a,) = await broker.create(NewTopic("a", 1))
        topics = [TopicRequest(name=name) for name in ("a", "missing", "b d")]
        response = await broker.ask("describe_topic_partitions", 0, DescribeTopicPartitionsRequest(topics=topics))
        assert [(topic.name, topic.error_code) for topic in response.topics] == [
            ("a", 0),
            ("b d", ErrorCode.INVALID_TOPIC_EXCEPTION),
            ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        found = response.topics[0]
        assert (found.topic_id, found.topic_authorized_operations) == (a.topic_id, 0b110111111000)
        part = found.partitions[0]
        assert (part.leader_id, part.leader_epoch, part.replica_nodes, part.isr_nodes) == (1, 0, [1], [1])
        assert (part.eligible_leader_replicas, part.last_known_elr, part.offline_replicas) == ([], [], [])
        assert response.next_cursor is None
        assert set(broker.image.topics) == {"a"}, "nothing is created"

    on_broker(test)


def test_a_cursor_that_cannot_be_is_refused() -> None:
    async def test(broker: MetadataBroker) -> None:
        await broker.create(NewTopic("a", 1))
        for cursor in (RequestCursor(topic_name="z", partition_index=0), RequestCursor(topic_name="a", partition_index=-1)):
            request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="a")], cursor=cursor)
            response = await broker.ask("describe_topic_partitions", 0, request)
            assert [topic.error_code for topic in response.topics] == [ErrorCode.INVALID_REQUEST]

    on_broker(test)


def test_a_cursor_of_a_topic_that_went_or_shrank_goes_on_behind_it() -> None:
    async def test(broker: MetadataBroker) -> None:
        await broker.create(NewTopic("a", 1), NewTopic("c", 1))
        cursor = RequestCursor(topic_name="b", partition_index=5)
        response = await broker.ask("describe_topic_partitions", 0, DescribeTopicPartitionsRequest(cursor=cursor))
        assert [topic.name for topic in response.topics] == ["c"]
        cursor = RequestCursor(topic_name="a", partition_index=5)
        response = await broker.ask("describe_topic_partitions", 0, DescribeTopicPartitionsRequest(cursor=cursor))
        assert [(topic.name, len(topic.partitions)) for topic in response.topics] == [("a", 0), ("c", 1)]

    on_broker(test)
