from __future__ import annotations

from typing import Any

from ottla.protocol.messages.list_transactions import ListTransactionsRequest
from tests.kit.coordinated import begin_transaction, connect_to_transactions, init_producer
from tests.kit.handlers import every_version


@every_version("list_transactions")
def test_filters_of_the_version(play: Any, version: int) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        connection = await connect_to_transactions(stage)
        producer_id, _ = await begin_transaction(connection, "tx-open")
        await init_producer(connection, "tx-empty")

        async def listed(**filters: Any) -> dict[str, str]:
            response = await connection.call("list_transactions", version, ListTransactionsRequest(**filters))
            assert response.error_code == 0
            return {each.transactional_id: each.transaction_state for each in response.transaction_states}

        assert await listed() == {"tx-open": "Ongoing", "tx-empty": "Empty"}
        assert await listed(state_filters=["Ongoing"]) == {"tx-open": "Ongoing"}
        assert await listed(producer_id_filters=[producer_id]) == {"tx-open": "Ongoing"}
        unknown = await connection.call("list_transactions", version, ListTransactionsRequest(state_filters=["Lost"]))
        assert (unknown.unknown_state_filters, unknown.transaction_states) == (["Lost"], [])
        if version >= 1:
            assert "tx-open" not in await listed(duration_filter=3_600_000)
            assert "tx-open" in await listed(duration_filter=-1)
        if version >= 2:
            assert await listed(transactional_id_pattern="tx-e.*") == {"tx-empty": "Empty"}

    play(case, transaction_state_log_num_partitions="1")
