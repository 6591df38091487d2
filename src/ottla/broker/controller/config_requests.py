"""AlterConfigs, client quotas and SCRAM credentials, as handlers request them.

`StandaloneConfigs` and `ClusterConfigs` perform them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from ottla.cluster.client_entities import ClientConfigs, Entity
from ottla.cluster.requests import ConfigAlteration
from ottla.errors import KafkaError


class ConfigRequests(Protocol):
    @property
    def clients(self) -> ClientConfigs:
        """Configs of users, client ids and IP addresses."""
        ...

    async def alter(self, requested: Sequence[ConfigAlteration], *, validate_only: bool = False) -> list[KafkaError | None]: ...

    async def alter_client(
        self, entity: Entity, alter: Callable[[Mapping[str, str]], dict[str, str]], *, validate_only: bool = False
    ) -> None: ...
