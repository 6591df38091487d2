"""ListTransactions: the transactional ids this broker coordinates, all of them or those that pass the filters (KIP-664).

A state nobody knows is named in the reply, and nothing has it. From version 1 on a filter by age of the running transaction
(KIP-994), from 2 on one by a pattern that the whole id matches (KIP-1152), in RE2's syntax as in Kafka.
"""

from __future__ import annotations

from ottla.broker.network.context import RequestContext
from ottla.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse, TransactionState

VERSIONS = (0, 2)


def handle(request: ListTransactionsRequest, context: RequestContext) -> ListTransactionsResponse:
    from ottla.coordinator.group import regex
    from ottla.coordinator.txn.state import STATE_BY_TITLE

    transactions = context.broker.transactions
    pattern = request.transactional_id_pattern
    if pattern:
        regex.check(pattern)
    states = {STATE_BY_TITLE[title] for title in request.state_filters if title in STATE_BY_TITLE}
    unknown = [title for title in request.state_filters if title not in STATE_BY_TITLE]
    wall_ms = transactions.now().wall_ms
    found = [
        transaction
        for shard in transactions.shards()
        for transaction in shard.select(states, request.producer_id_filters, request.duration_filter, wall_ms)
    ]
    if unknown and not states:
        found = []
    if pattern:
        matching = regex.matching(pattern, [transaction.transactional_id for transaction in found])
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
