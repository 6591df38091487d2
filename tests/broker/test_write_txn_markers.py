from __future__ import annotations

from typing import Any

from ottla.errors import ErrorCode
from ottla.protocol.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from ottla.types import TopicPartition
from tests.kit.coordinated import begin_transaction, connect_to_transactions
from tests.kit.handlers import every_version


@every_version("write_txn_markers")
def test_a_marker_ends_the_transaction_and_an_unknown_partition_is_refused(play: Any, version: int) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        connection = await connect_to_transactions(stage)
        producer_id, epoch = await begin_transaction(connection)
        batch = stage.batch(b"x", producer_id=producer_id, producer_epoch=epoch, base_sequence=0, transactional=True)
        request = stage.produce_request(batch)
        request.transactional_id = "tx"
        produced = await connection.call("produce", 9, request)
        assert produced.responses[0].partition_responses[0].error_code == 0
        partition = stage.broker.partitions.get(TopicPartition("t", 0))
        assert partition.log.last_stable_offset == 0
        marker = WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=epoch,
            transaction_result=True,
            topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0, 9])],
            coordinator_epoch=1,
        )
        response = await connection.call("write_txn_markers", version, WriteTxnMarkersRequest(markers=[marker]))
        [result] = response.markers
        assert result.producer_id == producer_id
        assert {each.partition_index: each.error_code for each in result.topics[0].partitions} == {
            0: 0,
            9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert partition.log.last_stable_offset == partition.log.log_end_offset == 2

    play(case, transaction_state_log_num_partitions="1")
