"""EndTxn: commit or abort a transaction (F64, T07).

The reply is sent when the decision is committed to the coordinator's log; the markers follow. From version 5 on (transaction
version 2) the reply has the producer id and epoch of the next transaction (KIP-890).
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from ottla.broker.coordinators.reply import Reply
from ottla.broker.coordinators.transaction_coordinators import TransactionCoordinators
from ottla.broker.network.context import RequestContext
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse

_FENCED_FROM: Final = 2
"""The version that knows PRODUCER_FENCED."""
_VERSION_2_FROM: Final = 5


def handle(
    transactions: TransactionCoordinators, request: EndTxnRequest, context: RequestContext
) -> EndTxnResponse | Awaitable[EndTxnResponse]:
    reply: Reply[EndTxnResponse] = Reply()
    client_version = 2 if context.version >= _VERSION_2_FROM else 0
    try:
        return transactions.ask(
            request.transactional_id,
            reply,
            lambda shard, ids, wall_ms: shard.end_txn(request, client_version, ids, reply, wall_ms),
        )
    except KafkaError as error:
        if error.code == ErrorCode.PRODUCER_FENCED and context.version < _FENCED_FROM:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, error.detail) from error
        raise
