"""The endpoints, a module per noun. Each has its handlers and, beside them, what the OpenAPI description says."""

from __future__ import annotations

from typing import Final

from ottla.console.api import (
    brokers,
    dead_letters,
    groups,
    overview,
    pipelines,
    records,
    schemas,
    security,
    session,
    teaching,
    topic,
    topic_changes,
    topic_use,
    topics,
    trace,
    transactions,
)
from ottla.console.endpoint import Endpoint

ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    *session.ENDPOINTS,
    *overview.ENDPOINTS,
    *topics.ENDPOINTS,
    *topic.ENDPOINTS,
    *topic_use.ENDPOINTS,
    *topic_changes.ENDPOINTS,
    *records.ENDPOINTS,
    *brokers.ENDPOINTS,
    *teaching.ENDPOINTS,
    *groups.ENDPOINTS,
    *transactions.ENDPOINTS,
    *security.ENDPOINTS,
    *pipelines.ENDPOINTS,
    *dead_letters.ENDPOINTS,
    *trace.ENDPOINTS,
    *schemas.ENDPOINTS,
)
