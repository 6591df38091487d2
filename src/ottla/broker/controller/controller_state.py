"""The state that the parts of a controller share: its term, its image, and the lock that orders its changes.

1. A broker is the active controller while it has a term. The term ends at any moment, without the lock: whoever awaits checks it
   again.
2. The image changes under the lock only, one change at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Literal

from ottla.cluster.controller_term import ControllerTerm, TopicResult
from ottla.cluster.image import ClusterImage, TopicImage
from ottla.cluster.settings import BrokerSettings, TopicSettings
from ottla.errors import ErrorCode, KafkaError
from ottla.ports import BadVersion, Change, NodeExists, StoreError, StoreUnavailable

logger = logging.getLogger(__name__)


class ChangeLock(asyncio.Lock):
    """Orders the changes of the image."""

    def __init__(self) -> None:
        super().__init__()
        self.on_wait: Callable[[float], None] | None = None
        """With metrics: told for how many seconds a change waited for those before it."""

    async def acquire(self) -> Literal[True]:
        if self.on_wait is None:
            return await super().acquire()
        began = asyncio.get_running_loop().time()
        taken = await super().acquire()
        self.on_wait(asyncio.get_running_loop().time() - began)
        return taken


class ControllerState:
    def __init__(self, broker_id: int, settings: BrokerSettings) -> None:
        self.broker_id = broker_id
        self.settings = settings
        """Includes the dynamic settings of this broker."""
        self.term: ControllerTerm | None = None
        self.image = ClusterImage("")
        """The cluster as this controller last wrote it; empty while another broker is the controller, and while a term begins."""
        self.deleting: set[str] = set()
        """Topics that are gone from the image and whose nodes are not removed yet."""
        self.image_term: ControllerTerm | None = None
        """The term that wrote the image."""
        self.lock = ChangeLock()
        self.on_change: Callable[[ClusterImage, ClusterImage, float], None] | None = None
        """With metrics: told the image before and after a change, and the loop's time when it began."""
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def waiting(self) -> int:
        """How many pieces of work have begun or wait to begin, apart from requests."""
        return len(self._tasks)

    @property
    def is_active(self) -> bool:
        return self.term is not None

    def active_term(self) -> ControllerTerm:
        """The present term; KafkaError NOT_CONTROLLER without one."""
        if self.term is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "this broker is not the controller")
        return self.term

    def active_image(self) -> ClusterImage:
        """The controller's image; KafkaError NOT_CONTROLLER on other brokers, and until this term has loaded the tree."""
        if self.active_term() is not self.image_term:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "this broker is the controller, but has not loaded the metadata yet")
        return self.image

    def fence(self) -> list[Change]:
        """Stands first in every write of the controller: the write fails after another broker became the controller (C02)."""
        return [self.active_term().fence]

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Start work that nobody waits for; what fails is logged."""
        task = asyncio.get_running_loop().create_task(_logged(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def cancel_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()

    def unclean_allowed(self, topic: TopicImage) -> bool:
        return TopicSettings.resolve(self.settings, topic.config).bool("unclean.leader.election.enable")


async def _logged(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except (StoreError, KafkaError) as error:
        logger.warning("Controller could not process a change: %s", error)
    except Exception:
        logger.exception("Controller failed to process a change")


def kafka_error(error: StoreError) -> KafkaError:
    """What a client is answered when the metadata store does not take a change."""
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
