from __future__ import annotations

from typing import Any

from ottla.errors import ErrorCode
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest
from tests.kit.coordinated import begin_transaction, connect_to_transactions


def test_state_producer_and_partitions(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        connection = await connect_to_transactions(stage)
        producer = await begin_transaction(connection)
        response = await connection.call(
            "describe_transactions", 0, DescribeTransactionsRequest(transactional_ids=["tx", "none"])
        )
        found, unknown = response.transaction_states
        assert (found.error_code, found.transaction_state, found.transaction_timeout_ms) == (0, "Ongoing", 60_000)
        assert (found.producer_id, found.producer_epoch) == producer
        assert [(topic.topic, topic.partitions) for topic in found.topics] == [("t", [0])]
        assert (unknown.transactional_id, unknown.error_code) == ("none", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)

    play(case, transaction_state_log_num_partitions="1")
