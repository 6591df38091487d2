"""The controller as the rest of the broker sees it: the parts that answer requests.

`StandaloneController` and `ClusterController` each hold one of each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from ottla.cluster.client_entities import ClientConfigs, Entity
from ottla.cluster.requests import ConfigAlteration
from ottla.errors import KafkaError

if TYPE_CHECKING:
    from ottla.broker.controller.broker_requests import BrokerRequests
    from ottla.broker.controller.controller_state import ControllerState
    from ottla.broker.controller.partition_requests import PartitionRequests
    from ottla.broker.controller.producer_ids import ProducerIds
    from ottla.broker.controller.topic_requests import TopicRequests


class ConfigRequests(Protocol):
    @property
    def clients(self) -> ClientConfigs:
        """Configs of users, client ids and IP addresses."""
        ...

    async def alter(self, requested: Sequence[ConfigAlteration], *, validate_only: bool = False) -> list[KafkaError | None]: ...

    async def alter_client(
        self, entity: Entity, alter: Callable[[Mapping[str, str]], dict[str, str]], *, validate_only: bool = False
    ) -> None: ...


class Controller(Protocol):
    @property
    def state(self) -> ControllerState: ...

    @property
    def topic_requests(self) -> TopicRequests: ...

    @property
    def partition_requests(self) -> PartitionRequests: ...

    @property
    def config_requests(self) -> ConfigRequests: ...

    @property
    def producer_ids(self) -> ProducerIds: ...

    @property
    def broker_requests(self) -> BrokerRequests | None:
        """None on a broker that is alone."""
        ...
