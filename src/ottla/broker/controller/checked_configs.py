"""AlterConfigs on a broker with TLS: a change of its own configs is tried on its listeners before it is written (TL05).

Any such change also makes the broker look whether the files of its stores are new, so that a key store can be replaced under the
same name, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ottla.broker.controller.cluster_configs import ClusterConfigs
from ottla.broker.controller.standalone_configs import StandaloneConfigs
from ottla.broker.metadata.local_metadata import LocalMetadata
from ottla.broker.network.listener_tls import TlsOfListeners
from ottla.cluster.client_entities import ClientConfigs, Entity
from ottla.cluster.config_changes import altered_config
from ottla.cluster.requests import ConfigAlteration, ResourceType
from ottla.errors import ErrorCode, KafkaError
from ottla.tls.context import TlsError


class CheckedConfigs:
    def __init__(self, requests: StandaloneConfigs | ClusterConfigs, metadata: LocalMetadata, tls: TlsOfListeners) -> None:
        self._requests = requests
        self._metadata = metadata
        self._tls = tls

    @property
    def clients(self) -> ClientConfigs:
        return self._requests.clients

    async def alter(self, requested: Sequence[ConfigAlteration], *, validate_only: bool = False) -> list[KafkaError | None]:
        refused = {place: error for place, each in enumerate(requested) if (error := self._refusal(each)) is not None}
        others = [each for place, each in enumerate(requested) if place not in refused]
        results = iter(await self._requests.alter(others, validate_only=validate_only) if others else ())
        answers = [refused[place] if place in refused else next(results) for place in range(len(requested))]
        if not validate_only and any(
            error is None and self._is_own(each) for each, error in zip(requested, answers, strict=True)
        ):
            self._tls.apply(self._metadata.settings)
        return answers

    async def alter_client(
        self, entity: Entity, alter: Callable[[Mapping[str, str]], dict[str, str]], *, validate_only: bool = False
    ) -> None:
        await self._requests.alter_client(entity, alter, validate_only=validate_only)

    def require_controller(self) -> None:
        self._requests.require_controller()

    def _refusal(self, requested: ConfigAlteration) -> KafkaError | None:
        if not self._is_own(requested):
            return None
        metadata = self._metadata
        try:
            config = altered_config(metadata.image, metadata.settings, requested)
        except KafkaError:
            return None  # refused below, for other reasons
        _, default = metadata.image.dynamic_config(metadata.broker_id)
        try:
            self._tls.check(metadata.settings.with_dynamic(config, default))
        except TlsError as error:
            return KafkaError(ErrorCode.INVALID_REQUEST, str(error))
        return None

    def _is_own(self, requested: ConfigAlteration) -> bool:
        return requested.resource_type == ResourceType.BROKER and requested.resource_name == str(self._metadata.broker_id)
