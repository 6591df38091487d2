"""DescribeUserScramCredentials: the SCRAM mechanisms and iterations of users, never a salt or key (KIP-554)."""

from __future__ import annotations

from collections import Counter

from ottla.broker.controller.standalone_configs import ConfigRequests
from ottla.broker.network.context import RequestContext
from ottla.cluster.client_entities import USER, credentials_in
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


def handle(
    config_requests: ConfigRequests, request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> DescribeUserScramCredentialsResponse:
    known: dict[str, list[tuple[int, int]]] = {}
    for entity, config in config_requests.clients.items():
        if len(entity) == 1 and entity[0][0] == USER and entity[0][1] is not None:
            credentials = credentials_in(config)
            if credentials:
                known[entity[0][1]] = credentials
    if not request.users:
        return DescribeUserScramCredentialsResponse(results=[_result(user, found) for user, found in sorted(known.items())])
    results = []
    for user, count in Counter(each.name for each in request.users).items():
        if count > 1 and user:
            results.append(_refusal(user, ErrorCode.DUPLICATE_RESOURCE, f"user {user} appears more than once in the request"))
        elif user not in known:
            results.append(_refusal(user, ErrorCode.RESOURCE_NOT_FOUND, f"user {user} has no SCRAM credential"))
        else:
            results.append(_result(user, known[user]))
    return DescribeUserScramCredentialsResponse(results=results)


def _result(user: str, credentials: list[tuple[int, int]]) -> DescribeUserScramCredentialsResult:
    infos = [CredentialInfo(mechanism=mechanism, iterations=iterations) for mechanism, iterations in credentials]
    return DescribeUserScramCredentialsResult(user=user, credential_infos=infos)


def _refusal(user: str, code: ErrorCode, message: str) -> DescribeUserScramCredentialsResult:
    return DescribeUserScramCredentialsResult(user=user, error_code=code, error_message=message)


def refuse(request: DescribeUserScramCredentialsRequest, error: KafkaError) -> DescribeUserScramCredentialsResponse:
    """As in Kafka, the error is that of the reply and of each user."""
    return DescribeUserScramCredentialsResponse(
        error_code=error.code,
        error_message=error.detail,
        results=[_refusal(each.name, error.code, error.detail or "") for each in request.users or ()],
    )
