from __future__ import annotations

from typing import Any

from ottla.errors import ErrorCode
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from tests.kit.coordinated import Producer, add_partitions_request, connect_to_transactions, init_producer
from tests.kit.handlers import every_version


def batched(producer: Producer, *partitions: int, verify_only: bool = False) -> AddPartitionsToTxnRequest:
    topic = AddPartitionsToTxnTopic(name="t", partitions=list(partitions))
    transaction = AddPartitionsToTxnTransaction(
        transactional_id="tx", producer_id=producer[0], producer_epoch=producer[1], verify_only=verify_only, topics=[topic]
    )
    return AddPartitionsToTxnRequest(transactions=[transaction])


@every_version("add_partitions_to_txn")
def test_an_unknown_partition_keeps_the_others_out(play: Any, version: int) -> None:
    async def case(stage: Any) -> None:
        await stage.topic(partitions=2)
        connection = await connect_to_transactions(stage)
        producer = await init_producer(connection)

        async def add(*partitions: int, verify_only: bool = False) -> dict[int, int]:
            if version >= 4:
                request = batched(producer, *partitions, verify_only=verify_only)
                response = await connection.call("add_partitions_to_txn", version, request)
                [topic] = response.results_by_transaction[0].topic_results
            else:
                response = await connection.call("add_partitions_to_txn", version, add_partitions_request(producer, *partitions))
                [topic] = response.results_by_topic_v3_and_below
            return {each.partition_index: each.partition_error_code for each in topic.results_by_partition}

        assert await add(0, 9) == {0: ErrorCode.OPERATION_NOT_ATTEMPTED, 9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert await add(0) == {0: 0}
        if version >= 4:
            found = await add(0, 1, verify_only=True)
            assert found[0] == 0
            assert found[1] != 0, "t-1 is not part of the transaction"

    play(case, transaction_state_log_num_partitions="1")


@every_version("add_partitions_to_txn")
def test_an_old_epoch_is_fenced_in_the_words_of_the_version(play: Any, version: int) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        connection = await connect_to_transactions(stage)
        fenced = await init_producer(connection)
        await init_producer(connection)
        if version >= 4:
            response = await connection.call("add_partitions_to_txn", version, batched(fenced, 0))
            [topic] = response.results_by_transaction[0].topic_results
        else:
            response = await connection.call("add_partitions_to_txn", version, add_partitions_request(fenced, 0))
            [topic] = response.results_by_topic_v3_and_below
        expected = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
        assert topic.results_by_partition[0].partition_error_code == expected

    play(case, transaction_state_log_num_partitions="1")
