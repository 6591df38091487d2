"""DeleteTopics: remove topics with all their data.

Versions
    1       throttle time
    3       TOPIC_DELETION_DISABLED
    4       flexible
    5       error messages, THROTTLING_QUOTA_EXCEEDED (KIP-599)
    6       by name or by id (KIP-516); the list `topic_names` becomes `topics`
"""

from __future__ import annotations

from ottla.wire.schema import list_of, message, wire


@message()
class DeleteTopicState:
    name: str | None = wire("string", "6+", nullable="6+", default=None)
    topic_id: bytes = wire("uuid", "6+")


@message(versions="0-6", flexible="4+")
class DeleteTopicsRequest:
    topics: list[DeleteTopicState] = wire(list_of(DeleteTopicState), "6+")
    topic_names: list[str] = wire("[]string", "0-5", ignorable=True)
    timeout_ms: int = wire("int32")


@message()
class DeletableTopicResult:
    name: str | None = wire("string", nullable="6+")
    topic_id: bytes = wire("uuid", "6+", ignorable=True)
    error_code: int = wire("int16")
    error_message: str | None = wire("string", "5+", nullable="5+", default=None, ignorable=True)


@message(versions="0-6", flexible="4+")
class DeleteTopicsResponse:
    throttle_time_ms: int = wire("int32", "1+", ignorable=True)
    responses: list[DeletableTopicResult] = wire(list_of(DeletableTopicResult))
