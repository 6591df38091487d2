"""AlterUserScramCredentials: set or remove SCRAM credentials of users (KIP-554).

If one change of a user is refused, all changes of that user are. In a cluster only the controller answers, as in Kafka.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial

from ottla.broker.controller.standalone_configs import ConfigRequests
from ottla.broker.handlers.change_log import log_change
from ottla.broker.network.context import RequestContext
from ottla.cluster.client_entities import MECHANISMS, USER, Credential, check_credential, with_credential
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)


async def handle(
    config_requests: ConfigRequests, request: AlterUserScramCredentialsRequest, context: RequestContext
) -> AlterUserScramCredentialsResponse:
    config_requests.require_controller()
    asked = _asked(request)
    counts = Counter((each.user, each.mechanism) for each in asked)
    results: list[AlterUserScramCredentialsResult] = []
    for user in dict.fromkeys(each.user for each in asked):
        of_user = [each for each in asked if each.user == user]
        try:
            for each in of_user:
                check_credential(each)
                if counts[each.user, each.mechanism] > 1:
                    raise KafkaError(ErrorCode.DUPLICATE_RESOURCE, "a credential must not appear twice in a request")
            await config_requests.alter_client(((USER, user),), partial(_altered, of_user))
        except KafkaError as error:
            results.append(AlterUserScramCredentialsResult(user=user, error_code=error.code, error_message=error.detail))
        else:
            results.append(AlterUserScramCredentialsResult(user=user))
            for each in of_user:
                verb = "deleted" if each.salted_password is None else "set"
                log_change(context, f"{verb} the {MECHANISMS[each.mechanism]} credential of user {user}")
    return AlterUserScramCredentialsResponse(results=results)


def _altered(asked: list[Credential], config: Mapping[str, str]) -> dict[str, str]:
    altered = dict(config)
    for each in asked:
        altered = with_credential(altered, each)
    return altered


def _asked(request: AlterUserScramCredentialsRequest) -> list[Credential]:
    gone = [Credential(each.name, each.mechanism) for each in request.deletions]
    return gone + [
        Credential(each.name, each.mechanism, each.iterations, bytes(each.salt), bytes(each.salted_password))
        for each in request.upsertions
    ]


def refuse(request: AlterUserScramCredentialsRequest, error: KafkaError) -> AlterUserScramCredentialsResponse:
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(user=user, error_code=error.code, error_message=error.detail)
            for user in dict.fromkeys(each.user for each in _asked(request))
        ]
    )
