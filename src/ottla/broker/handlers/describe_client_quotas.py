"""DescribeClientQuotas: the quotas of users, client ids and IP addresses (KIP-546)."""

from __future__ import annotations

from ottla.broker.controller.standalone_configs import ConfigRequests
from ottla.broker.network.context import RequestContext
from ottla.cluster.client_entities import Component, quotas
from ottla.errors import KafkaError
from ottla.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)


def handle(
    config_requests: ConfigRequests, request: DescribeClientQuotasRequest, context: RequestContext
) -> DescribeClientQuotasResponse:
    components = [Component(each.entity_type, each.match_type, each.match) for each in request.components]
    found = quotas(config_requests.clients, components, strict=request.strict)
    return DescribeClientQuotasResponse(
        entries=[
            EntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                values=[ValueData(key=key, value=value) for key, value in values.items()],
            )
            for entity, values in found
        ]
    )


def refuse(request: DescribeClientQuotasRequest, error: KafkaError) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=error.code, error_message=error.detail, entries=None)
