from __future__ import annotations

from typing import Any

from ottla.errors import ErrorCode
from ottla.protocol.messages.end_txn import EndTxnRequest
from tests.kit.coordinated import begin_transaction, connect_to_transactions, init_producer
from tests.kit.handlers import every_version


@every_version("end_txn")
def test_a_transaction_is_committed_once_and_a_fenced_producer_ends_none(play: Any, version: int) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        connection = await connect_to_transactions(stage)
        fenced = await init_producer(connection)
        producer_id, epoch = await begin_transaction(connection)

        async def end(producer_id: int, epoch: int) -> Any:
            request = EndTxnRequest(transactional_id="tx", producer_id=producer_id, producer_epoch=epoch, committed=True)
            return await connection.call("end_txn", version, request)

        expected = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
        assert (await end(*fenced)).error_code == expected
        ended = await end(producer_id, epoch)
        assert ended.error_code == 0
        if version >= 5:
            assert (ended.producer_id, ended.producer_epoch) == (producer_id, epoch + 1), "KIP-890"

    play(case, transaction_state_log_num_partitions="1")
