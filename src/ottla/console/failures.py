"""Exceptions as people hear of them: the failure, its document, its HTTP status."""

from __future__ import annotations

from typing import Any, Final

from ottla.cli.failure import EXIT_USAGE, Failure, explain
from ottla.cli.schema.place import registry_failure
from ottla.client.brokers import BrokerFailed
from ottla.client.schema_registry import RegistryFailed
from ottla.errors import KafkaError

STATUS_OF_CODE: Final = {
    "BAD_REQUEST": 400,
    "_INVALID_ARG": 400,
    "LOGIN_REQUIRED": 401,
    "FORBIDDEN": 403,
    "READ_ONLY": 403,
    "CROSS_SITE": 403,
    "NOT_FOUND": 404,
    "RESOURCE_NOT_FOUND": 404,
    "NO_OFFSETS": 404,
    "UNKNOWN_TOPIC_OR_PARTITION": 404,
    "_UNKNOWN_PARTITION": 404,
    "GROUP_ID_NOT_FOUND": 404,
    "TRANSACTIONAL_ID_NOT_FOUND": 404,
    "NO_REGISTRY": 404,
    "OFFSET_OUT_OF_RANGE": 404,
    "TOPIC_ALREADY_EXISTS": 409,
    "NON_EMPTY_GROUP": 409,
    "ALREADY_REPLAYED": 409,
    "ALREADY_RUNS": 409,
    "NOT_RUNNING": 409,
    "NOT_HERE": 409,
    "OTHER_STORAGE": 409,
    "PRODUCER_FENCED": 409,
    "GROUP_SUBSCRIBED_TO_TOPIC": 409,
    "INCOMPATIBLE": 409,
    "TOO_LARGE": 413,
    "TOO_MANY": 429,
    "BROKER_AWAY": 503,
    "REGISTRY_AWAY": 503,
    "_TRANSPORT": 503,
    "_ALL_BROKERS_DOWN": 503,
    "_TIMED_OUT": 503,
}


def status_of(failure: Failure) -> int:
    code = failure.code or ""
    if code in STATUS_OF_CODE:
        return STATUS_OF_CODE[code]
    if code.endswith("AUTHORIZATION_FAILED"):
        return 403
    return 400 if failure.exit_code == EXIT_USAGE or code.startswith("INVALID_") else 502


def error_document(failure: Failure) -> dict[str, Any]:
    code = failure.code or ("BAD_REQUEST" if failure.exit_code == EXIT_USAGE else None)
    if code in ("_TRANSPORT", "_ALL_BROKERS_DOWN"):
        code = "BROKER_AWAY"
    more = {"hint": failure.hint, "code": code}
    return {"error": {"message": failure.message, **{name: text for name, text in more.items() if text}}}


def registry_refusal(error: RegistryFailed) -> Failure:
    """The registry's codes begin with an HTTP status: 40401 is a subject that is not there."""
    failure = registry_failure(error)
    status = int(str(error.code)[:3])
    code = {400: "BAD_REQUEST", 401: "FORBIDDEN", 403: "FORBIDDEN", 404: "NOT_FOUND", 409: "INCOMPATIBLE", 422: "BAD_REQUEST"}
    return Failure(failure.message, failure.hint, code=code.get(status, "REGISTRY_AWAY" if not status else "REGISTRY_FAILED"))


def as_failure(error: Exception) -> Failure | None:
    """What a user hears of an exception; None if it is a bug."""
    if isinstance(error, Failure):
        return error
    if isinstance(error, BrokerFailed):
        return Failure(f"no broker answers: {error}", code="BROKER_AWAY")
    if isinstance(error, KafkaError):
        return Failure(str(error), code=error.code.name)
    if isinstance(error, RegistryFailed):
        return registry_refusal(error)
    if isinstance(error, ConnectionError):
        return Failure(str(error), code="BROKER_AWAY")
    from confluent_kafka import KafkaException

    return explain(error.args[0]) if isinstance(error, KafkaException) else None
