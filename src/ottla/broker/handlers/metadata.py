"""Metadata: brokers, topics, partitions and their leaders, as the client's listener sees them.

A topic that does not exist is created on the way where both sides allow it (F17), and the reply already shows its leaders: Apache
Kafka lets the client come again. A request for all topics creates none, and neither does one for an internal topic: those are
made by the coordinators that keep their state there, with settings of their own.

Which topics: version 0 has no null, its empty list means all; later null means all and an empty list none. Topic ids are answered
from version 10 on and may be asked for from 12 on. Authorized operations: all of them, as without an authorizer.

A partition whose data directory is offline here is not led by this broker, whatever the image says: a client that was told so
would come, and be refused, and ask again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Iterable
from typing import TYPE_CHECKING, Final

from ottla.broker.handlers.operations import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from ottla.broker.network.context import RequestContext
from ottla.cluster.image import INTERNAL_TOPICS, NO_LEADER, ClusterImage, PartitionImage, TopicImage
from ottla.cluster.requests import NewTopic
from ottla.cluster.topic_names import check_topic_name
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.types import ZERO_UUID, TopicPartition

if TYPE_CHECKING:
    from ottla.broker.app import Broker

VERSIONS = (0, 13)

_BY_ID_FROM: Final = 12
_LISTENER_ERROR_FROM: Final = 6


def handle(request: MetadataRequest, context: RequestContext) -> MetadataResponse | Awaitable[MetadataResponse]:
    image = context.broker.image
    topics = request.topics
    if topics is None or (context.version == 0 and not topics):
        return _response(request, context, [_topic(topic, image, context) for topic in image.topics.values()])
    if context.version < _BY_ID_FROM:
        for asked in topics:
            if asked.name is None:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"version {context.version} asks for topics by name, not by null")
            if asked.topic_id != ZERO_UUID:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"version {context.version} cannot ask for topics by id")
    ids = list(dict.fromkeys(bytes(asked.topic_id) for asked in topics if asked.topic_id != ZERO_UUID))
    if ids:
        return _response(request, context, [_by_id(topic_id, image, context) for topic_id in ids])
    names = []
    for asked in topics:
        if asked.name is None:
            # No better word for this one in Apache Kafka, whose broker stumbles over it.
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "a topic was asked for by neither name nor id")
        names.append(asked.name)
    names = list(dict.fromkeys(names))
    missing = [name for name in names if name not in image.topics and name not in INTERNAL_TOPICS]
    if missing and request.allow_auto_topic_creation and context.broker.settings.bool("auto.create.topics.enable"):
        return _create_then_answer(request, context, names, missing)
    return _response(request, context, [_by_name(name, image, context, {}) for name in names])


async def _create_then_answer(
    request: MetadataRequest, context: RequestContext, names: list[str], missing: list[str]
) -> MetadataResponse:
    outcomes = await context.broker.controller.create_topics([NewTopic(name) for name in missing])
    errors = {name: outcome.code for name, outcome in zip(missing, outcomes, strict=True) if isinstance(outcome, KafkaError)}
    image = context.broker.image
    return _response(request, context, [_by_name(name, image, context, errors) for name in names])


def _by_id(topic_id: bytes, image: ClusterImage, context: RequestContext) -> MetadataResponseTopic:
    topic = image.topic_by_id(topic_id)
    if topic is None:
        return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
    return _topic(topic, image, context)


def _by_name(name: str, image: ClusterImage, context: RequestContext, errors: dict[str, ErrorCode]) -> MetadataResponseTopic:
    topic = image.topics.get(name)
    if topic is not None:
        return _topic(topic, image, context)
    error = errors.get(name) or missing_topic_error(name)
    return MetadataResponseTopic(error_code=error, name=name, is_internal=name in INTERNAL_TOPICS)


def missing_topic_error(name: str) -> ErrorCode:
    """Why a topic is not there: it could not be called so, or simply is not."""
    try:
        check_topic_name(name)
    except KafkaError as error:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _topic(topic: TopicImage, image: ClusterImage, context: RequestContext) -> MetadataResponseTopic:
    lost = lost_here(topic, context.broker)
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=[
            _partition(number, partition, image, context, lost=number in lost)
            for number, partition in enumerate(topic.partitions)
        ],
    )


def _partition(
    number: int, partition: PartitionImage, image: ClusterImage, context: RequestContext, *, lost: bool
) -> MetadataResponsePartition:
    replicas, isr = list(partition.replicas), list(partition.isr)
    error = ErrorCode.NONE
    if context.version == 0:
        # Version 0 leaves out what is gone, and says so.
        replicas, isr = (reachable(brokers, image, context.listener_name) for brokers in (replicas, isr))
        if len(replicas) < len(partition.replicas) or len(isr) < len(partition.isr):
            error = ErrorCode.REPLICA_NOT_AVAILABLE
    leader = image.brokers.get(partition.leader)
    if leader is None or (lost and leader.id == context.broker.broker_id):
        error = ErrorCode.LEADER_NOT_AVAILABLE
    elif leader.endpoint(context.listener_name) is None:
        known = context.version >= _LISTENER_ERROR_FROM
        error = ErrorCode.LISTENER_NOT_FOUND if known else ErrorCode.LEADER_NOT_AVAILABLE
    led = error not in (ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.LISTENER_NOT_FOUND)
    return MetadataResponsePartition(
        error_code=error,
        partition_index=number,
        leader_id=partition.leader if led else NO_LEADER,
        leader_epoch=partition.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        offline_replicas=offline_replicas(partition, context, lost=lost),
    )


def reachable(brokers: Iterable[int], image: ClusterImage, listener: str) -> list[int]:
    """Those that run and have the client's listener."""
    return [
        broker for broker in brokers if (known := image.brokers.get(broker)) is not None and known.endpoint(listener) is not None
    ]


def offline_replicas(partition: PartitionImage, context: RequestContext, *, lost: bool) -> list[int]:
    """Those that do not run, lack the client's listener, or (of this broker) lie in a data directory that has failed."""
    present = reachable(partition.replicas, context.broker.image, context.listener_name)
    here = context.broker.broker_id
    return [broker for broker in partition.replicas if broker not in present or (lost and broker == here)]


def lost_here(topic: TopicImage, broker: Broker) -> Collection[int]:
    """The partitions of a topic that this broker has in a data directory that is offline."""
    partitions = broker.partitions
    if not partitions.offline_paths():
        return ()
    return {number for number in range(len(topic.partitions)) if partitions.is_lost(TopicPartition(topic.name, number))}


def _response(request: MetadataRequest, context: RequestContext, topics: list[MetadataResponseTopic]) -> MetadataResponse:
    image = context.broker.image
    if request.include_topic_authorized_operations:
        for topic in topics:
            if topic.error_code != ErrorCode.UNKNOWN_TOPIC_ID:
                topic.topic_authorized_operations = TOPIC_OPERATIONS
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
            for broker in image.brokers.values()
            if (endpoint := broker.endpoint(context.listener_name)) is not None
        ],
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        topics=topics,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response


def refuse(request: MetadataRequest, error: KafkaError) -> MetadataResponse:
    """An error of the whole request stands at each of its topics: before version 13 there is no other place."""
    return MetadataResponse(
        error_code=error.code,
        topics=[
            MetadataResponseTopic(error_code=error.code, name=topic.name or "", topic_id=topic.topic_id)
            for topic in request.topics or ()
        ],
    )
