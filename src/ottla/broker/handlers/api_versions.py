"""ApiVersions: the APIs and versions this broker serves, from the table of handlers.

`dispatch` answers a version that is not served with `unsupported_version`, in the layout of version 0. The only feature is
`transaction.version` 2: clients raise their epoch with every transaction and add partitions by writing to them (KIP-890). While
the cluster has brokers that do not support it, such as Apache Kafka 3.9, the feature is not finalized, under a later epoch.
The session keeps the name and version of the client's software.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ottla.broker.coordinators.transaction_coordinators import TRANSACTION_VERSION
from ottla.broker.metadata.local_metadata import LocalMetadata
from ottla.broker.network.context import RequestContext
from ottla.broker.network.handler import Handler
from ottla.cluster import znodes
from ottla.errors import ErrorCode
from ottla.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

_FEATURES_EPOCH = 0
_EPOCH_WITHOUT = 1
"""A later epoch, so that clients discard the features they heard of before."""
_FROM_ZERO_SINCE = 4
"""Older clients fail at a feature whose lowest level is 0, so they are not told its range, as in Kafka."""
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""A valid client software name or version (KIP-511)."""


def handle(
    served: Mapping[int, Handler], metadata: LocalMetadata, request: ApiVersionsRequest, context: RequestContext
) -> ApiVersionsResponse:
    if context.version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    context.session.software_name = request.client_software_name
    context.session.software_version = request.client_software_version
    level = min((broker.transaction_version for broker in metadata.image.brokers.values()), default=TRANSACTION_VERSION)
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=key, min_version=handler.min_version, max_version=handler.max_version)
            for key, handler in sorted(served.items())
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


def unsupported_version(handler: Handler) -> ApiVersionsResponse:
    """The response to a version that is not served: the error, and the supported range (KIP-511)."""
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[ApiVersion(api_key=handler.api.key, min_version=handler.min_version, max_version=handler.max_version)],
    )
