from __future__ import annotations

from typing import Any

from ottla.errors import ErrorCode
from ottla.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest


def test_the_state_of_producers_by_partition(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        connection = await stage.connect()
        batch = stage.batch(b"a", b"b", producer_id=7, producer_epoch=3, base_sequence=0)
        assert (await stage.produce(connection, batch)).error_code == 0
        request = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0, 9])])
        response = await connection.call("describe_producers", 0, request)
        found, unknown = response.topics[0].partitions
        [producer] = found.active_producers
        assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (7, 3, 1)
        assert producer.current_txn_start_offset == -1
        assert (unknown.error_code, unknown.active_producers) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])

    play(case)
