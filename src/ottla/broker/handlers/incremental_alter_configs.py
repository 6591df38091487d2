"""IncrementalAlterConfigs: single settings are set, deleted, or (lists) added to and taken from; the others stay (KIP-339)."""

from __future__ import annotations

from collections.abc import Awaitable

from ottla.broker.context import RequestContext
from ottla.cluster.requests import ConfigAlteration, ConfigChange
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

VERSIONS = (0, 1)


def handle(request: IncrementalAlterConfigsRequest, context: RequestContext) -> Awaitable[IncrementalAlterConfigsResponse]:
    return _handle(request, context)


async def _handle(request: IncrementalAlterConfigsRequest, context: RequestContext) -> IncrementalAlterConfigsResponse:
    asked = [
        ConfigAlteration(
            resource.resource_type,
            resource.resource_name,
            [ConfigChange(config.config_operation, config.name, config.value) for config in resource.configs],
        )
        for resource in request.resources
    ]
    outcomes = await context.broker.controller.alter_configs(asked, validate_only=request.validate_only)
    return _response(request, outcomes)


def _response(request: IncrementalAlterConfigsRequest, outcomes: list[KafkaError | None]) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=outcome.code if outcome else ErrorCode.NONE,
                error_message=outcome.detail if outcome else None,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource, outcome in zip(request.resources, outcomes, strict=True)
        ]
    )


def refuse(request: IncrementalAlterConfigsRequest, error: KafkaError) -> IncrementalAlterConfigsResponse:
    return _response(request, [error] * len(request.resources))
