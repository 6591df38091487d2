"""AlterConfigs: replace all settings of a resource; settings that the request does not name return to their defaults."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ottla.broker.controller.standalone_configs import ConfigRequests
from ottla.broker.handlers.change_log import log_configs
from ottla.broker.network.context import RequestContext
from ottla.cluster.requests import ConfigAlteration, ConfigChange, ConfigOperation
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResourceResponse, AlterConfigsResponse

T = TypeVar("T")


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
    if not request.validate_only:
        log_configs(context, asked, outcomes)
    return AlterConfigsResponse(responses=results(AlterConfigsResourceResponse, request.resources, outcomes))


def results(result_class: Callable[..., T], resources: Sequence[Any], outcomes: Sequence[KafkaError | None]) -> list[T]:
    """One result per resource. IncrementalAlterConfigs has a message class of its own for it."""
    return [
        result_class(
            error_code=outcome.code if outcome else ErrorCode.NONE,
            error_message=outcome.detail if outcome else None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource, outcome in zip(resources, outcomes, strict=True)
    ]


def refuse(request: AlterConfigsRequest, error: KafkaError) -> AlterConfigsResponse:
    outcomes = [error] * len(request.resources)
    return AlterConfigsResponse(responses=results(AlterConfigsResourceResponse, request.resources, outcomes))
