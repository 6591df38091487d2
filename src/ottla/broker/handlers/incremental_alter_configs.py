"""IncrementalAlterConfigs: set or delete single settings, append to or subtract from lists; the others stay (KIP-339).

The log levels of this broker (BROKER_LOGGER) are changed in this process; everything else goes through the controller.
"""

from __future__ import annotations

from ottla.broker.controller.standalone_configs import ConfigRequests
from ottla.broker.handlers.alter_configs import results
from ottla.broker.handlers.change_log import log_configs
from ottla.broker.handlers.describe_configs import check_logger_resource
from ottla.broker.log_levels import alter_log_levels
from ottla.broker.metadata.local_metadata import LocalMetadata
from ottla.broker.network.context import RequestContext
from ottla.cluster.config_changes import check_form
from ottla.cluster.requests import ConfigAlteration, ConfigChange, ResourceType
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


async def handle(
    config_requests: ConfigRequests, metadata: LocalMetadata, request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    asked = [
        ConfigAlteration(
            resource.resource_type,
            resource.resource_name,
            [ConfigChange(config.config_operation, config.name, config.value) for config in resource.configs],
        )
        for resource in request.resources
    ]
    stored = [alteration for alteration in asked if alteration.resource_type != ResourceType.BROKER_LOGGER]
    outcomes = iter(await config_requests.alter(stored, validate_only=request.validate_only))
    loggers = len(asked) - len(stored)
    altered = [
        _alter_loggers(alteration, request, metadata.broker_id, alone=loggers == 1)
        if alteration.resource_type == ResourceType.BROKER_LOGGER
        else next(outcomes)
        for alteration in asked
    ]
    if not request.validate_only:
        log_configs(context, asked, altered)
    return IncrementalAlterConfigsResponse(responses=results(AlterConfigsResourceResponse, request.resources, altered))


def _alter_loggers(
    asked: ConfigAlteration, request: IncrementalAlterConfigsRequest, broker_id: int, *, alone: bool
) -> KafkaError | None:
    try:
        if not alone:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the loggers of this broker must not appear twice in a request")
        check_logger_resource(asked.resource_name, broker_id)
        check_form(asked)
        alter_log_levels(asked.changes, validate_only=request.validate_only)
    except KafkaError as error:
        return error
    return None


def refuse(request: IncrementalAlterConfigsRequest, error: KafkaError) -> IncrementalAlterConfigsResponse:
    outcomes = [error] * len(request.resources)
    return IncrementalAlterConfigsResponse(responses=results(AlterConfigsResourceResponse, request.resources, outcomes))
