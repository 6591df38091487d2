"""DescribeTransactions: state, producer, start time and partitions of transactional ids (KIP-664)."""

from __future__ import annotations

from ottla.broker.coordinators.transaction_coordinators import TransactionCoordinators
from ottla.broker.network.context import RequestContext
from ottla.errors import KafkaError
from ottla.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)


def handle(
    transactions: TransactionCoordinators, request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[_describe(transactions, transactional_id) for transactional_id in request.transactional_ids]
    )


def _describe(transactions: TransactionCoordinators, transactional_id: str) -> TransactionState:
    try:
        _, shard = transactions.shards.find(transactional_id)
    except KafkaError as error:
        return TransactionState(transactional_id=transactional_id, error_code=error.code)
    return shard.describe(transactional_id)


def refuse(request: DescribeTransactionsRequest, error: KafkaError) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[
            TransactionState(transactional_id=transactional_id, error_code=error.code)
            for transactional_id in request.transactional_ids
        ]
    )
