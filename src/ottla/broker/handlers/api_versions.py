"""ApiVersions: what this broker serves, straight from the table of handlers.

A version that is not served never comes here: `dispatch` answers it with `unsupported_version` in the layout of version 0.
The one feature there is has been finalised for good: `transaction.version` 2, so that clients that can raise their epoch with
every transaction and add partitions by writing to them (KIP-890). In a cluster with brokers that cannot do that, as Apache Kafka
3.9, clients are told of no such thing, under a later epoch.
"""

from __future__ import annotations

import re

from ottla.broker.coordinators.transactions import TRANSACTION_VERSION
from ottla.broker.handlers import HANDLERS
from ottla.broker.network.context import RequestContext
from ottla.cluster import znodes
from ottla.errors import ErrorCode
from ottla.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

VERSIONS = (0, 4)

_FEATURES_EPOCH = 0
_EPOCH_WITHOUT = 1
"""Clients believe the latest epoch they hear of."""
_FROM_ZERO_SINCE = 4
"""Clients before it fail at a feature whose lowest level is 0: they do not hear of its range, as in Kafka."""
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""What KIP-511 allows as name and version of a client's software."""


def handle(request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
    if context.version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    level = min((broker.transaction_version for broker in context.broker.image.brokers.values()), default=TRANSACTION_VERSION)
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=key, min_version=handler.min_version, max_version=handler.max_version)
            for key, handler in sorted(HANDLERS.items())
            if context.broker.is_in_cluster or not handler.between_brokers
        ],
        supported_features=[SupportedFeatureKey(name=znodes.TRANSACTION_VERSION, min_version=0, max_version=TRANSACTION_VERSION)]
        if context.version >= _FROM_ZERO_SINCE
        else [],
        finalized_features_epoch=_FEATURES_EPOCH if level >= TRANSACTION_VERSION else _EPOCH_WITHOUT,
        finalized_features=[
            FinalizedFeatureKey(
                name=znodes.TRANSACTION_VERSION, max_version_level=TRANSACTION_VERSION, min_version_level=TRANSACTION_VERSION
            )
        ]
        if level >= TRANSACTION_VERSION
        else [],
    )


def unsupported_version() -> ApiVersionsResponse:
    """The answer to a version from the future: the error, and the range to choose from (KIP-511)."""
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[ApiVersion(api_key=18, min_version=VERSIONS[0], max_version=VERSIONS[1])],
    )
