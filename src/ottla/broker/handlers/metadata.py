"""Metadata: brokers, topics, partitions and their leaders, with addresses for the client's listener.

A topic that does not exist is created if both client and broker allow it (F17), and the reply has its leaders: Apache Kafka lets
the client retry. A request for all topics creates none, nor does one for an internal topic: coordinators create those, with
settings of their own.

In version 0 an empty list means all topics; later null means all and an empty list none. Replies have topic ids from version 10
on, requests from version 12 on. Without an authorizer all operations are authorized.

This broker does not name itself leader of a partition whose data directory is offline here: the client would come, be refused,
and ask again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Iterable
from dataclasses import dataclass
from typing import Final

from ottla.broker.controller.topic_requests import TopicRequests
from ottla.broker.handlers.change_log import log_created
from ottla.broker.handlers.operations import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from ottla.broker.metadata.local_metadata import LocalMetadata
from ottla.broker.network.context import RequestContext
from ottla.broker.replicas.partitions import Partitions
from ottla.cluster.image import INTERNAL_TOPICS, NO_LEADER, ClusterImage, PartitionImage, TopicImage
from ottla.cluster.requests import NewTopic, check_topic_name
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.security.quotas import Charge
from ottla.types import ZERO_UUID, TopicPartition

_BY_ID_FROM: Final = 12
_LISTENER_ERROR_FROM: Final = 6


def handle(
    topic_requests: TopicRequests,
    partitions: Partitions,
    metadata: LocalMetadata,
    request: MetadataRequest,
    context: RequestContext,
) -> MetadataResponse | Awaitable[MetadataResponse]:
    image = metadata.image
    topics = request.topics
    answer = _Answer(partitions, metadata, context.version, context.listener_name)
    if topics is None or (context.version == 0 and not topics):
        return answer.response(request, [answer.topic(topic) for topic in image.topics.values()])
    if context.version < _BY_ID_FROM:
        for asked in topics:
            if asked.name is None:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"version {context.version} needs the name of each topic, not null")
            if asked.topic_id != ZERO_UUID:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"version {context.version} does not support topic ids")
    ids = list(dict.fromkeys(bytes(asked.topic_id) for asked in topics if asked.topic_id != ZERO_UUID))
    if ids:
        return answer.response(request, [answer.by_id(topic_id) for topic_id in ids])
    names = []
    for asked in topics:
        if asked.name is None:
            # As in Apache Kafka, whose broker fails on it.
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "a topic has neither a name nor an id")
        names.append(asked.name)
    names = list(dict.fromkeys(names))
    missing = [name for name in names if name not in image.topics and name not in INTERNAL_TOPICS]
    if missing and request.allow_auto_topic_creation and metadata.settings.bool("auto.create.topics.enable"):
        charge = context.meter.charge_later() if context.meter is not None else None
        return _create_then_answer(topic_requests, answer, request, names, missing, charge, context)
    return answer.response(request, [answer.by_name(name, {}) for name in names])


async def _create_then_answer(
    topic_requests: TopicRequests,
    answer: _Answer,
    request: MetadataRequest,
    names: list[str],
    missing: list[str],
    charge: Charge | None,
    context: RequestContext,
) -> MetadataResponse:
    outcomes = await topic_requests.create([NewTopic(name) for name in missing], charge=charge)
    log_created(context, outcomes)
    errors = {name: outcome.code for name, outcome in zip(missing, outcomes, strict=True) if isinstance(outcome, KafkaError)}
    return answer.response(request, [answer.by_name(name, errors) for name in names])


@dataclass(slots=True)
class _Answer:
    """The current image, in the layout of one version, as a client of one listener sees it."""

    _partitions: Partitions
    _metadata: LocalMetadata
    _version: int
    _listener: str

    def by_id(self, topic_id: bytes) -> MetadataResponseTopic:
        topic = self._metadata.image.topic_by_id(topic_id)
        if topic is None:
            return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
        return self.topic(topic)

    def by_name(self, name: str, errors: dict[str, ErrorCode]) -> MetadataResponseTopic:
        topic = self._metadata.image.topics.get(name)
        if topic is not None:
            return self.topic(topic)
        error = errors.get(name) or missing_topic_error(name)
        return MetadataResponseTopic(error_code=error, name=name, is_internal=name in INTERNAL_TOPICS)

    def topic(self, topic: TopicImage) -> MetadataResponseTopic:
        offline = offline_partitions(topic, self._partitions)
        return MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.internal,
            partitions=[
                self._partition(number, partition, offline=number in offline) for number, partition in enumerate(topic.partitions)
            ],
        )

    def _partition(self, number: int, partition: PartitionImage, *, offline: bool) -> MetadataResponsePartition:
        metadata, listener = self._metadata, self._listener
        replicas, isr = list(partition.replicas), list(partition.isr)
        error = ErrorCode.NONE
        if self._version == 0:
            # Version 0 leaves out brokers that cannot be reached, and says so.
            replicas, isr = (reachable(brokers, metadata.image, listener) for brokers in (replicas, isr))
            if len(replicas) < len(partition.replicas) or len(isr) < len(partition.isr):
                error = ErrorCode.REPLICA_NOT_AVAILABLE
        leader = metadata.image.brokers.get(partition.leader)
        if leader is None or (offline and leader.id == metadata.broker_id):
            error = ErrorCode.LEADER_NOT_AVAILABLE
        elif leader.endpoint(listener) is None:
            known = self._version >= _LISTENER_ERROR_FROM
            error = ErrorCode.LISTENER_NOT_FOUND if known else ErrorCode.LEADER_NOT_AVAILABLE
        led = error not in (ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.LISTENER_NOT_FOUND)
        return MetadataResponsePartition(
            error_code=error,
            partition_index=number,
            leader_id=partition.leader if led else NO_LEADER,
            leader_epoch=partition.leader_epoch,
            replica_nodes=replicas,
            isr_nodes=isr,
            offline_replicas=offline_replicas(metadata, partition, listener, offline=offline),
        )

    def response(self, request: MetadataRequest, topics: list[MetadataResponseTopic]) -> MetadataResponse:
        image = self._metadata.image
        if request.include_topic_authorized_operations:
            for topic in topics:
                if topic.error_code != ErrorCode.UNKNOWN_TOPIC_ID:
                    topic.topic_authorized_operations = TOPIC_OPERATIONS
        response = MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
                for broker in image.brokers.values()
                if (endpoint := broker.endpoint(self._listener)) is not None
            ],
            cluster_id=image.cluster_id,
            controller_id=image.controller_id,
            topics=topics,
        )
        if request.include_cluster_authorized_operations:
            response.cluster_authorized_operations = CLUSTER_OPERATIONS
        return response


def missing_topic_error(name: str) -> ErrorCode:
    """INVALID_TOPIC_EXCEPTION if no topic can have that name, else UNKNOWN_TOPIC_OR_PARTITION."""
    try:
        check_topic_name(name)
    except KafkaError as error:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def reachable(brokers: Iterable[int], image: ClusterImage, listener: str) -> list[int]:
    """The brokers that are alive and have the client's listener."""
    return [
        broker for broker in brokers if (known := image.brokers.get(broker)) is not None and known.endpoint(listener) is not None
    ]


def offline_replicas(metadata: LocalMetadata, partition: PartitionImage, listener: str, *, offline: bool) -> list[int]:
    """The replicas on brokers that are not reachable; with `offline` also the one of this broker."""
    present = reachable(partition.replicas, metadata.image, listener)
    here = metadata.broker_id
    return [broker for broker in partition.replicas if broker not in present or (offline and broker == here)]


def offline_partitions(topic: TopicImage, partitions: Partitions) -> Collection[int]:
    """The partitions of a topic that this broker has in a data directory that is offline."""
    if not partitions.data_dirs.offline_paths():
        return ()
    return {number for number in range(len(topic.partitions)) if partitions.is_lost(TopicPartition(topic.name, number))}


def refuse(request: MetadataRequest, error: KafkaError) -> MetadataResponse:
    """Each topic has the error: before version 13 there is no top-level one."""
    return MetadataResponse(
        error_code=error.code,
        topics=[
            MetadataResponseTopic(error_code=error.code, name=topic.name or "", topic_id=topic.topic_id)
            for topic in request.topics or ()
        ],
    )
