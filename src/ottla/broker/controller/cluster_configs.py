"""AlterConfigs, client quotas and SCRAM credentials in a cluster: written by the broker that is asked, controller or not.

A change and its notification under /config/changes are one write; every broker reads the configs that the notification names
(`metadata.dynamic_configs`). The rules are `cluster.config_changes`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from ottla.broker.controller.controller_state import ControllerState, kafka_error
from ottla.broker.metadata.dynamic_configs import DynamicConfigs
from ottla.broker.metadata.local_metadata import LocalMetadata
from ottla.cluster import znodes
from ottla.cluster.client_entities import ClientConfigs, Entity
from ottla.cluster.config_changes import altered_config, config_path, ends_without_configs, with_config
from ottla.cluster.image import ClusterImage
from ottla.cluster.requests import ConfigAlteration
from ottla.errors import ErrorCode, KafkaError
from ottla.ports import BadVersion, Change, Create, Delete, MetadataStore, Node, NodeExists, NoNode, SetData, StoreError

logger = logging.getLogger(__name__)


class ClusterConfigs:
    def __init__(
        self,
        store: MetadataStore,
        state: ControllerState,
        dynamic: DynamicConfigs,
        metadata: LocalMetadata,
    ) -> None:
        self._store = store
        self._state = state
        self._dynamic = dynamic
        self._metadata = metadata

    @property
    def clients(self) -> ClientConfigs:
        return self._dynamic.clients

    async def alter(self, requested: Sequence[ConfigAlteration], *, validate_only: bool = False) -> list[KafkaError | None]:
        """For each resource, in order: None if its configs are written, or a KafkaError."""
        results: list[KafkaError | None] = []
        image = self._metadata.image
        seen: set[tuple[int, str]] = set()
        for alteration in requested:
            key = alteration.resource_type, alteration.resource_name
            try:
                if key in seen:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "a resource may appear only once in a request")
                seen.add(key)
                await self._alter(image, alteration, validate_only=validate_only)
            except KafkaError as error:
                results.append(error)
            except StoreError as error:
                logger.error("Could not write configs: %s", error)
                results.append(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the configs could not be written"))
            else:
                results.append(None)
        return results

    def require_controller(self) -> None:
        """KafkaError NOT_CONTROLLER on other brokers."""
        self._state.active_term()

    async def alter_client(
        self, entity: Entity, alter: Callable[[Mapping[str, str]], dict[str, str]], *, validate_only: bool = False
    ) -> None:
        """Replace the configs of a user, client id or IP address by what `alter` makes of them. KafkaError if it cannot."""
        try:
            await self._dynamic.alter_client(entity, alter, validate_only=validate_only)
        except StoreError as error:
            raise kafka_error(error) from error

    async def _alter(self, image: ClusterImage, requested: ConfigAlteration, *, validate_only: bool) -> None:
        """Start from the configs in the store: another broker may have changed them a moment ago."""
        path = config_path(requested)
        entity = path.removeprefix("/config/")
        notification = Create(znodes.CONFIG_CHANGE, znodes.encode_config_change(entity), sequential=True)
        while True:
            node = await self._store.get(path)
            present = znodes.decode_config(path, node.data) if node is not None else {}
            config = altered_config(with_config(image, requested, present), self._state.settings, requested)
            if validate_only:
                return
            try:
                await self._store.multi([*_write(requested, path, node, config), notification])
            except (BadVersion, NodeExists, NoNode):
                continue
            # On this broker the configs hold when the reply goes out, whenever the notification comes.
            await self._dynamic.read_entities([entity])
            return


def _write(requested: ConfigAlteration, path: str, node: Node | None, config: Mapping[str, str]) -> list[Change]:
    if ends_without_configs(requested.resource_type) and not config:
        return [Delete(path, node.version)] if node is not None else []
    data = znodes.encode_config(config)
    return [SetData(path, data, node.version) if node is not None else Create(path, data)]
