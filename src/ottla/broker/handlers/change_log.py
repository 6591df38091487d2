"""Log lines that tell who changed what: principal and address."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from ottla.broker.network.context import RequestContext
from ottla.cluster.image import TopicImage

logger = logging.getLogger(__name__)


def log_change(context: RequestContext, what: str) -> None:
    session = context.session
    logger.info("%s from %s %s", session.principal, session.client_host, what)


def log_created(context: RequestContext, outcomes: Iterable[object]) -> None:
    """Topics among the outcomes of a creation."""
    for outcome in outcomes:
        if isinstance(outcome, TopicImage):
            log_change(context, f"created topic {outcome.name} with {len(outcome.partitions)} partitions")
