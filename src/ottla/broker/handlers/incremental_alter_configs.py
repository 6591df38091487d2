"""IncrementalAlterConfigs: single settings are set, deleted, or (lists) added to and taken from; the others stay (KIP-339).

The levels of this broker's loggers (BROKER_LOGGER) are changed here and now; everything else goes through the controller.
"""

from __future__ import annotations

from collections.abc import Awaitable

from ottla.broker.handlers.describe_configs import check_logger_resource
from ottla.broker.log_levels import alter_log_levels
from ottla.broker.network.context import RequestContext
from ottla.cluster.config_changes import check_form
from ottla.cluster.requests import ConfigAlteration, ConfigChange, ResourceType
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
    stored = [alteration for alteration in asked if alteration.resource_type != ResourceType.BROKER_LOGGER]
    outcomes = iter(await context.broker.controller.alter_configs(stored, validate_only=request.validate_only))
    loggers = len(asked) - len(stored)
    return _response(
        request,
        [
            _alter_loggers(alteration, request, context, alone=loggers == 1)
            if alteration.resource_type == ResourceType.BROKER_LOGGER
            else next(outcomes)
            for alteration in asked
        ],
    )


def _alter_loggers(
    asked: ConfigAlteration, request: IncrementalAlterConfigsRequest, context: RequestContext, *, alone: bool
) -> KafkaError | None:
    try:
        if not alone:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the loggers of this broker may stand in the request only once")
        check_logger_resource(asked.resource_name, context)
        check_form(asked)
        alter_log_levels(asked.changes, validate_only=request.validate_only)
    except KafkaError as error:
        return error
    return None


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
