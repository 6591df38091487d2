"""AlterConfigs on a broker with TLS: a change of its own configs is tried on its listeners before it is written (TL05).

Passwords of its key stores are encrypted first, with `password.encoder.secret` as in Kafka. Any such change also makes the broker
look whether the files of its stores are new, so that a key store can be replaced under the same name, as in Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ottla.broker.controller.cluster_configs import ClusterConfigs
from ottla.broker.controller.standalone_configs import StandaloneConfigs
from ottla.broker.metadata.local_metadata import LocalMetadata
from ottla.broker.network.listener_tls import TlsOfListeners
from ottla.cluster.client_entities import ClientConfigs, Entity
from ottla.cluster.config_changes import altered_config
from ottla.cluster.requests import ConfigAlteration, ConfigChange, ConfigOperation, ResourceType
from ottla.cluster.settings.broker import setting_of
from ottla.errors import ErrorCode, KafkaError
from ottla.ports import Random
from ottla.security.password_encoder import SALT_BYTES, BadEncoding, PasswordEncoder
from ottla.tls.context import TlsError

logger = logging.getLogger(__name__)


class CheckedConfigs:
    def __init__(
        self, requests: StandaloneConfigs | ClusterConfigs, metadata: LocalMetadata, tls: TlsOfListeners, random: Random
    ) -> None:
        self._requests = requests
        self._metadata = metadata
        self._tls = tls
        self._random = random

    @property
    def clients(self) -> ClientConfigs:
        return self._requests.clients

    async def alter(self, requested: Sequence[ConfigAlteration], *, validate_only: bool = False) -> list[KafkaError | None]:
        requested = [self._with_encrypted(each) for each in requested]
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

    def _with_encrypted(self, requested: ConfigAlteration) -> ConfigAlteration:
        """Passwords of this broker's stores as they may be stored. Without a secret they stay as they are, and are refused."""
        encoder = self._metadata.settings.password_encoder()
        if encoder is None or not self._is_own(requested):
            return requested
        return replace(requested, changes=[self._encrypted(change, encoder) for change in requested.changes])

    def _encrypted(self, change: ConfigChange, encoder: PasswordEncoder) -> ConfigChange:
        setting = setting_of(change.name)
        if setting is None or not setting.sensitive or change.value is None or change.operation != ConfigOperation.SET:
            return change
        salt, vector = self._random.bytes(SALT_BYTES), self._random.bytes(encoder.vector_bytes)
        try:
            return replace(change, value=encoder.encode(change.value.strip(), salt, vector), is_encrypted=True)
        except BadEncoding as error:
            logger.error("Cannot encrypt %s: %s", change.name, error)
            return change

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
