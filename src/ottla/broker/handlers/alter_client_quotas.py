"""AlterClientQuotas: set or remove quotas of users, client ids and IP addresses (KIP-546)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from ottla.broker.controller.standalone_configs import ConfigRequests
from ottla.broker.handlers.change_log import log_change
from ottla.broker.network.context import RequestContext
from ottla.cluster.client_entities import Entity, entity, with_quotas
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityResponseData,
    EntryData,
    EntryResponseData,
)


async def handle(
    config_requests: ConfigRequests, request: AlterClientQuotasRequest, context: RequestContext
) -> AlterClientQuotasResponse:
    seen: set[Entity] = set()
    outcomes: list[KafkaError | None] = []
    for entry in request.entries:
        try:
            one = entity([(part.entity_type, part.entity_name) for part in entry.entity])
            if one in seen:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "an entity must not appear twice in a request")
            seen.add(one)
            changes = [(op.key, None if op.remove else op.value) for op in entry.ops]
            plan = partial(_planned, one, changes)
            await config_requests.alter_client(one, plan, validate_only=request.validate_only)
        except KafkaError as error:
            outcomes.append(error)
        else:
            outcomes.append(None)
            if not request.validate_only:
                log_change(context, f"altered the quotas of {_words(one)}: {_quota_words(changes)}")
    return _response(request.entries, outcomes)


def _words(one: Entity) -> str:
    return ", ".join(f"{kind} {'(default)' if name is None else name}" for kind, name in one)


def _quota_words(changes: list[tuple[str, float | None]]) -> str:
    return ", ".join(f"delete {name}" if value is None else f"{name}={value:.15g}" for name, value in changes)


def _planned(one: Entity, changes: list[tuple[str, float | None]], config: Mapping[str, str]) -> dict[str, str]:
    return with_quotas(one, config, changes)


def _response(entries: list[EntryData], outcomes: list[KafkaError | None]) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(
        entries=[
            EntryResponseData(
                error_code=outcome.code if outcome else ErrorCode.NONE,
                error_message=outcome.detail if outcome else None,
                entity=[EntityResponseData(entity_type=part.entity_type, entity_name=part.entity_name) for part in entry.entity],
            )
            for entry, outcome in zip(entries, outcomes, strict=True)
        ]
    )


def refuse(request: AlterClientQuotasRequest, error: KafkaError) -> AlterClientQuotasResponse:
    return _response(request.entries, [error] * len(request.entries))
