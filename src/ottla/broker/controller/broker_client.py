"""Sends requests to brokers: the controller's control requests, and requests of this broker to the controller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from ottla.broker.metadata.local_metadata import LocalMetadata
from ottla.broker.network.inter_broker import InterBroker
from ottla.cluster.image import BrokerImage
from ottla.cluster.update_metadata_encodings import UpdateMetadataEncodings
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest


class BrokerClient:
    def __init__(
        self, metadata: LocalMetadata, inter_broker: InterBroker, handle: Callable[[int, object], Awaitable[object]]
    ) -> None:
        """`handle` performs a control request (version, request) in this broker."""
        self._metadata = metadata
        self._inter_broker = inter_broker
        self._handle = handle
        self._encodings = UpdateMetadataEncodings()

    async def send(self, broker: BrokerImage, api_name: str, version: int, request: object) -> object:
        """Send a control request and return the response; PeerUnavailable if there is none."""
        if broker.id == self._metadata.broker_id:
            return await self._handle(version, request)
        if isinstance(request, UpdateMetadataRequest):
            request = partial(self._encodings.encoded, request)
        settings = self._metadata.settings
        return await self._inter_broker.call(
            broker.id,
            "control",
            api_name,
            request,
            version_max=version,
            timeout_ms=settings.int("controller.socket.timeout.ms"),
            endpoint=broker.endpoint(settings.listeners().inter_broker),
        )

    async def call(self, broker_id: int, api_name: str, version: int, request: object) -> object:
        """Send a request to a broker and return the response; PeerUnavailable if there is none."""
        return await self._inter_broker.call(broker_id, "requests", api_name, request, version_max=version)
