"""ListTransactions: the transactional ids that this broker coordinates, optionally filtered (KIP-664).

Unknown states are named in the reply and match nothing. Version 1 adds a filter by the duration of the ongoing transaction
(KIP-994), version 2 one by an RE2 pattern that must match the whole id (KIP-1152).
"""

from __future__ import annotations

from ottla.broker.coordinators.transaction_coordinators import TransactionCoordinators
from ottla.broker.network.context import RequestContext
from ottla.patterns import check_pattern, matching_names
from ottla.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse, TransactionState


def handle(
    transactions: TransactionCoordinators, request: ListTransactionsRequest, context: RequestContext
) -> ListTransactionsResponse:
    from ottla.coordinator.txn.transaction_metadata import STATE_BY_TITLE

    pattern = request.transactional_id_pattern
    if pattern:
        check_pattern(pattern)
    states = {STATE_BY_TITLE[title] for title in request.state_filters if title in STATE_BY_TITLE}
    unknown = [title for title in request.state_filters if title not in STATE_BY_TITLE]
    wall_ms = transactions.shards.now().wall_ms
    found = [
        transaction
        for shard in transactions.shards.all()
        for transaction in shard.select(states, request.producer_id_filters, request.duration_filter, wall_ms)
    ]
    if unknown and not states:
        found = []
    if pattern:
        matching = matching_names(pattern, [transaction.transactional_id for transaction in found])
        found = [transaction for transaction in found if transaction.transactional_id in matching]
    return ListTransactionsResponse(
        unknown_state_filters=unknown,
        transaction_states=[
            TransactionState(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                transaction_state=transaction.state.title,
            )
            for transaction in found
        ],
    )
