"""AlterConfigs: replace all settings of a resource; settings that the request does not name return to their defaults."""

from __future__ import annotations

from ottla.broker.controller.config_requests import ConfigRequests
from ottla.broker.network.context import RequestContext
from ottla.cluster.requests import ConfigAlteration, ConfigChange, ConfigOperation
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResourceResponse, AlterConfigsResponse


async def handle(config_requests: ConfigRequests, request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
    asked = [
        ConfigAlteration(
            resource.resource_type,
            resource.resource_name,
            [ConfigChange(ConfigOperation.SET, config.name, config.value) for config in resource.configs],
            replace=True,
        )
        for resource in request.resources
    ]
    outcomes = await config_requests.alter(asked, validate_only=request.validate_only)
    return _response(request, outcomes)


def _response(request: AlterConfigsRequest, outcomes: list[KafkaError | None]) -> AlterConfigsResponse:
    return AlterConfigsResponse(
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


def refuse(request: AlterConfigsRequest, error: KafkaError) -> AlterConfigsResponse:
    return _response(request, [error] * len(request.resources))
