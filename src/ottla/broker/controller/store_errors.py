"""What a client is answered when the metadata store does not take a change."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from ottla.cluster.controller_term import TopicResult
from ottla.errors import ErrorCode, KafkaError
from ottla.ports import BadVersion, NodeExists, StoreError, StoreUnavailable

logger = logging.getLogger(__name__)


def kafka_error(error: StoreError) -> KafkaError:
    logger.error("Metadata change failed: %s", error)
    if isinstance(error, BadVersion):
        return KafkaError(ErrorCode.NOT_CONTROLLER, "another broker is the controller now")
    if isinstance(error, NodeExists):
        return KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, "the topic exists already, or is being deleted")
    if isinstance(error, StoreUnavailable):
        return KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR, "the metadata store did not confirm the change; it may or may not have been made"
        )
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the metadata could not be changed: {error}")


def failed_results(results: Iterable[TopicResult], error: StoreError) -> list[TopicResult]:
    """The results of a request whose changes could not be written; topics that were refused keep their own error."""
    failure = kafka_error(error)
    return [result if isinstance(result, KafkaError) else failure for result in results]
