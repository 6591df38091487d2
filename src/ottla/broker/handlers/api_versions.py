"""ApiVersions: what this broker serves, straight from the table of handlers.

A version that is not served never comes here: `dispatch` answers it with `unsupported_version` in the layout of version 0.
No feature is finalised, so clients stay with the first transaction protocol.
"""

from __future__ import annotations

import re

from ottla.broker.context import RequestContext
from ottla.broker.handlers import HANDLERS
from ottla.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

VERSIONS = (0, 4)

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""What KIP-511 allows as name and version of a client's software."""


def handle(request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
    if context.version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=key, min_version=handler.min_version, max_version=handler.max_version)
            for key, handler in sorted(HANDLERS.items())
        ]
    )


def unsupported_version() -> ApiVersionsResponse:
    """The answer to a version from the future: the error, and the range to choose from (KIP-511)."""
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[ApiVersion(api_key=18, min_version=VERSIONS[0], max_version=VERSIONS[1])],
    )
