"""The state that the parts of a controller share: its term, its image, and the lock that orders its changes.

1. A broker is the active controller while it has a term. The term ends at any moment, without the lock: whoever awaits checks it
   again.
2. The image changes under the lock only, one change at a time.
"""

from __future__ import annotations

import asyncio

from ottla.cluster.controller_term import ControllerTerm
from ottla.cluster.image import ClusterImage, TopicImage
from ottla.cluster.settings import BrokerSettings, TopicSettings
from ottla.errors import ErrorCode, KafkaError
from ottla.ports import Change


class ControllerState:
    def __init__(self, broker_id: int, settings: BrokerSettings) -> None:
        self.broker_id = broker_id
        self.settings = settings
        """Includes the dynamic settings of this broker."""
        self.term: ControllerTerm | None = None
        self.image = ClusterImage("")
        """The cluster as this controller last wrote it; empty while another broker is the controller."""
        self.lock = asyncio.Lock()

    @property
    def is_active(self) -> bool:
        return self.term is not None

    def active_term(self) -> ControllerTerm:
        """The present term; KafkaError NOT_CONTROLLER without one."""
        if self.term is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "this broker is not the controller")
        return self.term

    def active_image(self) -> ClusterImage:
        """The controller's image; KafkaError NOT_CONTROLLER on other brokers."""
        self.active_term()
        return self.image

    def fence(self) -> list[Change]:
        """Stands first in every write of the controller: the write fails after another broker became the controller (C02)."""
        return [self.active_term().fence]

    def unclean_allowed(self, topic: TopicImage) -> bool:
        return TopicSettings.resolve(self.settings, topic.config).bool("unclean.leader.election.enable")
