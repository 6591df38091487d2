from __future__ import annotations

from typing import Any

from ottla.errors import ErrorCode
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.kit.coordinated import GROUP_SETTINGS, connect_to_groups, connect_to_transactions, end_transaction, init_producer
from tests.kit.handlers import every_version


@every_version("txn_offset_commit")
def test_offsets_count_when_the_transaction_is_committed(play: Any, version: int) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        groups, connection = await connect_to_groups(stage), await connect_to_transactions(stage)
        producer_id, epoch = await init_producer(connection)
        if version < 5:
            adding = AddOffsetsToTxnRequest(transactional_id="tx", producer_id=producer_id, producer_epoch=epoch, group_id="g")
            assert (await connection.call("add_offsets_to_txn", 3, adding)).error_code == 0
        partitions = [TxnOffsetCommitRequestPartition(partition_index=number, committed_offset=42) for number in (0, 9)]
        request = TxnOffsetCommitRequest(
            transactional_id="tx",
            group_id="g",
            producer_id=producer_id,
            producer_epoch=epoch,
            topics=[TxnOffsetCommitRequestTopic(name="t", partitions=partitions)],
        )
        response = await groups.call("txn_offset_commit", version, request)
        assert {each.partition_index: each.error_code for each in response.topics[0].partitions} == {
            0: 0,
            9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }

        async def committed() -> int:
            topic = OffsetFetchRequestTopics(name="t", partition_indexes=[0])
            asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=[topic])])
            offset: int = (await groups.call("offset_fetch", 8, asked)).groups[0].topics[0].partitions[0].committed_offset
            return offset

        assert await committed() == -1, "pending"
        await end_transaction(connection, (producer_id, epoch))
        while await committed() != 42:
            pass

    play(case, **GROUP_SETTINGS)
