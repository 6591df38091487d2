"""Sends requests to brokers: the controller's control requests, and requests of this broker to the controller."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from functools import partial
from typing import Any, Final

from ottla.broker.controller.election import Election
from ottla.broker.metadata.local_metadata import LocalMetadata
from ottla.broker.network.inter_broker import InterBroker, PeerUnavailable
from ottla.cluster.controller_term import TopicResult
from ottla.cluster.image import BrokerImage
from ottla.cluster.requests import NewTopic
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.headers import EncodedRequest
from ottla.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from ottla.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest
from ottla.wire.codec import encode

CallBroker = Callable[[int, str, int, object], Awaitable[Any]]
"""Sends (broker id, api name, highest version, request) and returns the response; PeerUnavailable if there is none."""
_TIMEOUT_MS: Final = 30_000


_BROKER_EPOCH_FROM: Final = 5
_KRAFT_FROM: Final = 8
"""The version that has `is_kraft_controller` and `type`."""
_CONTENTS_KEPT: Final = 2
"""New brokers are sent everything, the others what changed."""


class ControllerClient:
    """Asks the controller, on another broker, for what only the controller can do: create topics, allocate producer ids."""

    def __init__(self, call: CallBroker, metadata: LocalMetadata, election: Election) -> None:
        self._call = call
        self._metadata = metadata
        self._election = election

    async def create_topics(self, requested: Sequence[NewTopic]) -> list[TopicResult]:
        """For each topic, in order: as this broker knows it, or a KafkaError."""
        try:
            request = CreateTopicsRequest(topics=[_topic(new) for new in requested], timeout_ms=_TIMEOUT_MS)
            response: CreateTopicsResponse = await self._ask("create_topics", 7, request)
        except PeerUnavailable as error:
            lost = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"the controller is not available: {error}")
            return [lost for _ in requested]
        answers = {answer.name: answer for answer in response.topics}
        topics = self._metadata.image.topics
        return [topics.get(new.name) or _error(answers.get(new.name)) for new in requested]

    async def allocate_producer_ids(self) -> range:
        request = AllocateProducerIdsRequest(broker_id=self._metadata.broker_id, broker_epoch=self._metadata.broker_epoch)
        try:
            response = await self._ask("allocate_producer_ids", 0, request)
        except PeerUnavailable as error:
            raise KafkaError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"no producer ids, the controller is not available: {error}"
            ) from error
        if response.error_code != ErrorCode.NONE:
            raise KafkaError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                f"no producer ids, the controller answers {ErrorCode(response.error_code).name}",
            )
        return range(response.producer_id_start, response.producer_id_start + response.producer_id_len)

    async def _ask(self, api_name: str, version: int, request: object) -> Any:
        if self._election.controller_id < 0:
            raise PeerUnavailable("the cluster has no controller at the moment")
        return await self._call(self._election.controller_id, api_name, version, request)


def _topic(new: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        name=new.name,
        num_partitions=new.partition_count,
        replication_factor=new.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=number, broker_ids=list(brokers)) for number, brokers in new.assignments
        ],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in new.config.items()],
    )


def _error(answer: CreatableTopicResult | None) -> KafkaError:
    if answer is None:
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the controller did not answer for this topic")
    code = ErrorCode(answer.error_code)
    if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
        # The controller knows of the topic before this broker does: every client retries this error.
        return KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "the topic is created; this broker will know of it in a moment")
    return KafkaError(code, answer.error_message or "")


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


class UpdateMetadataEncodings:
    """Encodes each UpdateMetadata once for all brokers: their requests differ only in the broker epoch."""

    def __init__(self) -> None:
        self._recent: deque[tuple[UpdateMetadataRequest, int, bytes]] = deque(maxlen=_CONTENTS_KEPT)

    def encoded(self, request: UpdateMetadataRequest, version: int) -> EncodedRequest:
        body = self._body(request, version)
        if version < _BROKER_EPOCH_FROM:
            return EncodedRequest(body)
        # The broker epoch follows the controller id, `is_kraft_controller` (from version 8 on) and the controller epoch.
        at = 9 if version >= _KRAFT_FROM else 8
        return EncodedRequest(body[:at] + request.broker_epoch.to_bytes(8, "big", signed=True) + body[at + 8 :])

    def _body(self, request: UpdateMetadataRequest, version: int) -> bytes:
        """Encoded with the broker epoch of any broker."""
        for known, known_version, body in self._recent:
            # `control_requests_between` gives all brokers the same lists.
            if (
                known.topic_states is request.topic_states
                and known.live_brokers is request.live_brokers
                and known_version == version
                and (known.controller_id, known.controller_epoch) == (request.controller_id, request.controller_epoch)
            ):
                return body
        sent = request
        if version < _KRAFT_FROM and request.type:
            sent = copy(request)
            sent.type = 0
        body = encode(sent, version)
        self._recent.append((request, version, body))
        return body
