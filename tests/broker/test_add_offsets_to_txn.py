from __future__ import annotations

from typing import Any

from ottla.errors import ErrorCode
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest
from tests.kit.coordinated import GROUP_SETTINGS, connect_to_transactions, init_producer
from tests.kit.handlers import every_version


@every_version("add_offsets_to_txn")
def test_the_offsets_partition_of_the_group_becomes_part_of_the_transaction(play: Any, version: int) -> None:
    async def case(stage: Any) -> None:
        connection = await connect_to_transactions(stage)
        fenced = await init_producer(connection)
        producer = await init_producer(connection)

        async def add(producer_id: int, epoch: int) -> int:
            request = AddOffsetsToTxnRequest(transactional_id="tx", producer_id=producer_id, producer_epoch=epoch, group_id="g")
            code: int = (await connection.call("add_offsets_to_txn", version, request)).error_code
            return code

        assert await add(*producer) == 0, "also creates the topic of offsets"
        described = await connection.call("describe_transactions", 0, DescribeTransactionsRequest(transactional_ids=["tx"]))
        [topic] = described.transaction_states[0].topics
        assert (topic.topic, topic.partitions) == ("__consumer_offsets", [0])
        expected = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
        assert await add(*fenced) == expected

    play(case, **GROUP_SETTINGS)
