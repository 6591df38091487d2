"""AlterConfigs, client quotas and SCRAM credentials on a broker that is alone.

A change is written to the store and holds when it is answered: there is no other broker to notify.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from ottla.broker.controller.controller_state import ControllerState, kafka_error
from ottla.broker.controller.metadata_writer import MetadataWriter, shielded
from ottla.broker.metadata.client_configs import alter_client_config, load_client_configs
from ottla.cluster.client_entities import ClientConfigs, Entity, with_client_config
from ottla.cluster.requests import ConfigAlteration
from ottla.errors import KafkaError
from ottla.ports import MetadataStore, StoreError

if TYPE_CHECKING:
    from ottla.broker.controller.checked_configs import CheckedConfigs
    from ottla.broker.controller.cluster_configs import ClusterConfigs

ConfigRequests: TypeAlias = "StandaloneConfigs | ClusterConfigs | CheckedConfigs"


class StandaloneConfigs:
    def __init__(self, store: MetadataStore, state: ControllerState, writer: MetadataWriter) -> None:
        self.clients: ClientConfigs = {}
        """Configs of users, client ids and IP addresses."""
        self._store = store
        self._state = state
        self._writer = writer
        self.on_clients: Callable[[ClientConfigs], None] = lambda clients: None
        """Called with `clients` when some may have changed."""

    async def load(self) -> None:
        self._set_clients(await load_client_configs(self._store))

    @shielded
    async def alter(self, requested: Sequence[ConfigAlteration], *, validate_only: bool = False) -> list[KafkaError | None]:
        """For each resource, in order: None if its configs are altered, or a KafkaError."""
        state = self._state
        async with state.lock:
            update, results = state.active_term().alter_configs(state.image, state.settings, requested)
            if validate_only or update.empty:
                return results
            try:
                await self._writer.commit(update)
            except StoreError as error:
                failure = kafka_error(error)
                return [result or failure for result in results]
            return results

    def require_controller(self) -> None:
        """A broker alone is the controller."""

    @shielded
    async def alter_client(
        self, entity: Entity, alter: Callable[[Mapping[str, str]], dict[str, str]], *, validate_only: bool = False
    ) -> None:
        """Replace the configs of a user, client id or IP address by what `alter` makes of them. KafkaError if it cannot."""
        async with self._state.lock:
            try:
                config = await alter_client_config(self._store, entity, alter, validate_only=validate_only)
            except StoreError as error:
                raise kafka_error(error) from error
            if not validate_only:
                self._set_clients(with_client_config(self.clients, entity, config))

    def _set_clients(self, clients: ClientConfigs) -> None:
        self.clients = clients
        self.on_clients(clients)
