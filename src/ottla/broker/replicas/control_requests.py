"""The controller's orders to this broker: LeaderAndIsr, StopReplica, UpdateMetadata.

Owns the fences: an order of a controller that was replaced (C02), for a former life of this broker (C03), or for an epoch of a
partition that is over, changes nothing. Has partitions take their roles, fetchers follow, coordinators come and go.

1. One order at a time, in the order of their arrival.
2. A partition stops fetching before it gets another role, and begins to fetch after it has one.
3. The answer goes out when the order is carried out.
4. After each registration the controller tells everything. A broker that lived on while its session was over may have replicas of
   before: of topics that are gone, or made again under their name, or that are no longer its to keep. They make way.
5. A controller has one connection to this broker at a time. What comes on an earlier one was given up and told again since. An
   order to delete a topic has nothing else to be known by: it names no topic id, and by now another topic may have the name.
6. A new controller of ours tells everything too, and says so: its predecessor may have died between the last write and the order
   to forget a topic or to let a replica go. The first such picture of a controller counts, not one that comes late.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ottla.broker.metadata.metadata_cache import MetadataCache
from ottla.broker.network.context import CloseConnection
from ottla.broker.replicas.role_changes import Role
from ottla.cluster.image import PartitionImage, TopicImage
from ottla.cluster.orders import FULL_PICTURE
from ottla.errors import ErrorCode, KafkaError
from ottla.ports import StoreError
from ottla.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    LeaderAndIsrTopicState,
)
from ottla.protocol.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
)
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from ottla.types import ZERO_UUID, TopicPartition

if TYPE_CHECKING:
    from ottla.broker.app import Broker

logger = logging.getLogger(__name__)

_NO_BROKER_EPOCH: Final = -1
_EPOCH_DURING_DELETE: Final = -2
_NO_EPOCH: Final = -1
_NEVER_AGAIN: Final = 1 << 31
"""Higher than any leader epoch."""
_STOPPED_MAX: Final = 10_000
_ERRORS_BY_TOPIC_ID_FROM: Final = 5

Errors = dict[TopicPartition, ErrorCode]


class ControllerOrders:
    def __init__(self, broker: Broker, metadata_cache: MetadataCache) -> None:
        self._broker = broker
        self._cache = metadata_cache
        self._lock = asyncio.Lock()
        self.controller_epoch = -1
        """The highest seen."""
        self._registration = -1
        """The broker epoch of the last order."""
        self._connection = -1, 0
        """The epoch of the last order's controller, and the number of the connection it came on."""
        self._first = True
        """Nothing of the whole picture was told yet in this registration."""
        self._is_new_controller = False
        """It has not told everything yet."""
        self._unconfirmed: dict[TopicPartition, bytes] = {}
        """Replicas of an earlier registration that no order of this one has named; with the id of their topic."""
        self._stopped: dict[TopicPartition, tuple[bytes, int]] = {}
        """Of replicas that were let go or deleted, the last ones: topic id and leader epoch. An order from before must not bring
        them back."""

    async def obey(self, version: int, request: object, connection: int = 0) -> object:
        """Carry out an order of whichever kind; the response. Nobody who goes away undoes half of it. `connection`: the number of
        the one it came on; 0: this broker is its own controller."""
        return await asyncio.shield(asyncio.ensure_future(self._obey(version, request, connection)))

    async def _obey(
        self, version: int, request: object, connection: int
    ) -> LeaderAndIsrResponse | StopReplicaResponse | UpdateMetadataResponse:
        try:
            if isinstance(request, LeaderAndIsrRequest):
                return await self._leader_and_isr(request, version, connection)
            if isinstance(request, StopReplicaRequest):
                return await self._stop_replica(request, connection)
            assert isinstance(request, UpdateMetadataRequest)
            return await self._update_metadata(request, connection)
        except KafkaError as error:
            if isinstance(request, LeaderAndIsrRequest):
                return _refused(request, version, error.code)
            if isinstance(request, StopReplicaRequest):
                return StopReplicaResponse(error_code=error.code)
            return UpdateMetadataResponse(error_code=error.code)

    async def _leader_and_isr(self, request: LeaderAndIsrRequest, version: int, connection: int) -> LeaderAndIsrResponse:
        async with self._lock:
            self._check(request.controller_epoch, request.broker_epoch, request.controller_id)
            self._check_connection(request.controller_epoch, connection)
            errors: Errors = {}
            topics = _topics_to_lead(request)
            roles: dict[bool, list[Role]] = {True: [], False: []}
            for topic in topics:
                try:
                    config = await self._cache.topic_config(topic.topic_name, bytes(topic.topic_id))
                except StoreError as error:
                    logger.error("the settings of %s cannot be read: %s", topic.topic_name, error)
                    config = None
                image = TopicImage(topic.topic_name, bytes(topic.topic_id), (), config or {})
                for state in topic.partition_states:
                    key = TopicPartition(topic.topic_name, state.partition_index)
                    self._make_way(key, image.topic_id)
                    errors[key] = ErrorCode.UNKNOWN_SERVER_ERROR if config is None else self._refusal(key, state, image.topic_id)
                    if not errors[key]:
                        roles[state.is_new].append(Role(image, key, _partition(state)))
            for is_new, taken in roles.items():
                await self._take(taken, errors, is_new=is_new)
            self._broker.fetchers.close_idle()
            self._broker.roles_changed()
            return _answer(errors, {topic.topic_name: bytes(topic.topic_id) for topic in topics}, version)

    def _make_way(self, key: TopicPartition, topic_id: bytes) -> None:
        """For an order of this registration. A replica of an earlier one under that name, if it is of another topic, is of one
        that was deleted meanwhile. (Otherwise such an order is a late one: the replica is of the newer topic.)"""
        former_id = self._unconfirmed.pop(key, topic_id)
        partition = self._broker.partitions.find(key)
        if partition is not None and ZERO_UUID not in (topic_id, former_id) and partition.topic_id == former_id != topic_id:
            self._let_go(key)

    def _let_go(self, key: TopicPartition) -> None:
        self._broker.fetchers.stop([key])
        self._broker.partitions.let_go(key)

    def _refusal(self, key: TopicPartition, state: LeaderAndIsrPartitionState, topic_id: bytes) -> ErrorCode:
        partitions = self._broker.partitions
        partition = partitions.find(key)
        if partition is not None:
            if partition.is_offline:
                return ErrorCode.KAFKA_STORAGE_ERROR
            if ZERO_UUID not in (topic_id, partition.topic_id) and partition.topic_id != topic_id:
                return ErrorCode.INCONSISTENT_TOPIC_ID
            known_epoch = partition.leader_epoch
        else:
            stopped_id, stopped_epoch = self._stopped.get(key, (ZERO_UUID, _NO_EPOCH))
            known_epoch = stopped_epoch if stopped_id == topic_id else _NO_EPOCH
        if state.leader_epoch < known_epoch or (partition is not None and state.leader_epoch == known_epoch):
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if self._broker.broker_id not in state.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE

    async def _take(self, roles: Sequence[Role], errors: Errors, *, is_new: bool) -> None:
        if not roles:
            return
        broker = self._broker
        partitions, fetchers = broker.partitions, broker.fetchers
        fetchers.stop([role.topic_partition for role in roles])
        await partitions.prepare_roles(roles, broker.world.workers, may_be_elsewhere=not is_new)
        roles = [replace(role, topic=self._cache.with_present_config(role.topic)) for role in roles]
        for role, partition in zip(roles, partitions.take_roles(roles, may_be_elsewhere=not is_new), strict=True):
            key = role.topic_partition
            if partition is None:
                errors[key] = ErrorCode.KAFKA_STORAGE_ERROR
                continue
            self._stopped.pop(key, None)
            if not partition.is_leader:
                fetchers.follow(partition)

    async def _stop_replica(self, request: StopReplicaRequest, connection: int) -> StopReplicaResponse:
        async with self._lock:
            self._check(request.controller_epoch, request.broker_epoch, request.controller_id)
            self._check_connection(request.controller_epoch, connection)
            errors: Errors = {}
            broker = self._broker
            partitions, fetchers = broker.partitions, broker.fetchers
            for topic in _topics_to_stop(request):
                for state in topic.partition_states:
                    key = TopicPartition(topic.topic_name, state.partition_index)
                    partition = partitions.find(key)
                    epoch, known_epoch = state.leader_epoch, partition.leader_epoch if partition is not None else _NO_EPOCH
                    if partition is not None and partition.is_offline:
                        errors[key] = ErrorCode.KAFKA_STORAGE_ERROR
                        continue
                    if epoch not in (_NO_EPOCH, _EPOCH_DURING_DELETE) and epoch < known_epoch:
                        errors[key] = ErrorCode.FENCED_LEADER_EPOCH
                        continue
                    errors[key] = ErrorCode.NONE
                    fetchers.stop([key])
                    if partition is not None:
                        self._remember(key, partition.topic_id, known_epoch, epoch)
                    if state.delete_partition:
                        partitions.remove(key)
                    elif partition is not None:
                        partitions.let_go(key)
            fetchers.close_idle()
            broker.roles_changed()
            return StopReplicaResponse(
                partition_errors=[
                    StopReplicaPartitionError(topic_name=key.topic, partition_index=key.partition, error_code=code)
                    for key, code in errors.items()
                ]
            )

    def _remember(self, key: TopicPartition, topic_id: bytes, known_epoch: int, epoch: int) -> None:
        if epoch == _EPOCH_DURING_DELETE and topic_id != ZERO_UUID:
            epoch = _NEVER_AGAIN
        self._stopped.pop(key, None)
        self._stopped[key] = topic_id, max(known_epoch, epoch)
        if len(self._stopped) > _STOPPED_MAX:
            del self._stopped[next(iter(self._stopped))]

    async def _update_metadata(self, request: UpdateMetadataRequest, connection: int) -> UpdateMetadataResponse:
        async with self._lock:
            self._check(request.controller_epoch, request.broker_epoch, request.controller_id)
            self._check_connection(request.controller_epoch, connection)
            is_whole = self._is_new_controller and request.type == FULL_PICTURE
            try:
                await self._cache.update(request, whole=self._first or is_whole)
            except StoreError as error:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"settings cannot be read: {error}") from error
            if is_whole:
                self._is_new_controller = False
                self._unconfirmed |= {each.topic_partition: each.topic_id for each in self._broker.partitions}
            if is_whole or self._first:
                # It tells of every topic there is.
                self._let_strangers_go()
            if self._first:
                self._first = False
                self._broker.partitions.set_deleted_aside(self._cache.image)
            return UpdateMetadataResponse()

    def _let_strangers_go(self) -> None:
        """Replicas that the whole picture does not have here. Their logs stay, as after a restart."""
        unconfirmed, self._unconfirmed = self._unconfirmed, {}
        for key, topic_id in unconfirmed.items():
            partition, topic = self._broker.partitions.find(key), self._cache.image.topics.get(key.topic)
            if partition is None or partition.is_offline:
                continue
            told = topic.partitions if topic is not None and topic.topic_id in (topic_id, ZERO_UUID) else ()
            if key.partition >= len(told) or self._broker.broker_id not in told[key.partition].replicas:
                logger.warning("%s is not to be kept here any more: this was decided while nobody heard of this broker", key)
                self._remember(key, topic_id, partition.leader_epoch, _NO_EPOCH)
                self._let_go(key)
        if unconfirmed:
            self._broker.fetchers.close_idle()
            self._broker.roles_changed()

    def _check(self, controller_epoch: int, broker_epoch: int, controller_id: int) -> None:
        if broker_epoch != _NO_BROKER_EPOCH and broker_epoch < self._broker.broker_epoch:
            # A higher one may be known to the controller before this broker knows it.
            raise KafkaError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"an order for broker epoch {broker_epoch}, which is {self._broker.broker_epoch} now",
            )
        if controller_epoch < self.controller_epoch:
            logger.warning("broker %d is not the controller any more: an order of it is refused", controller_id)
            raise KafkaError(
                ErrorCode.STALE_CONTROLLER_EPOCH, f"controller epoch {controller_epoch}, {self.controller_epoch} is known"
            )
        if controller_epoch > self.controller_epoch:
            self.controller_epoch = controller_epoch
            self._is_new_controller = True
        if broker_epoch > self._registration:
            self._registration = broker_epoch
            self._first = True
            self._unconfirmed = {each.topic_partition: each.topic_id for each in self._broker.partitions}

    def _check_connection(self, controller_epoch: int, connection: int) -> None:
        known_epoch, newest = self._connection
        if controller_epoch == known_epoch and connection < newest:
            # Nobody waits for an answer there; should somebody, the order comes again.
            raise CloseConnection("an order on a connection that its controller has given up: it has another one")
        self._connection = controller_epoch, connection


def _topics_to_lead(request: LeaderAndIsrRequest) -> list[LeaderAndIsrTopicState]:
    if not request.ungrouped_partition_states:
        return request.topic_states
    topics: dict[str, LeaderAndIsrTopicState] = {}
    for state in request.ungrouped_partition_states:
        topic = topics.setdefault(
            state.topic_name, LeaderAndIsrTopicState(topic_name=state.topic_name, topic_id=ZERO_UUID, partition_states=[])
        )
        topic.partition_states.append(state)
    return list(topics.values())


def _topics_to_stop(request: StopReplicaRequest) -> list[StopReplicaTopicState]:
    """As version 3 says it, whatever the version."""
    topics = [
        StopReplicaTopicState(
            topic_name=topic.name,
            partition_states=[
                StopReplicaPartitionState(partition_index=number, delete_partition=request.delete_partitions)
                for number in topic.partition_indexes
            ],
        )
        for topic in request.topics
    ]
    for partition in request.ungrouped_partitions:
        state = StopReplicaPartitionState(partition_index=partition.partition_index, delete_partition=request.delete_partitions)
        topics.append(StopReplicaTopicState(topic_name=partition.topic_name, partition_states=[state]))
    return topics + list(request.topic_states)


def _partition(state: LeaderAndIsrPartitionState) -> PartitionImage:
    return PartitionImage(
        state.leader,
        state.leader_epoch,
        tuple(state.isr),
        tuple(state.replicas),
        state.partition_epoch,
        tuple(state.adding_replicas),
        tuple(state.removing_replicas),
    )


def _refused(request: LeaderAndIsrRequest, version: int, code: ErrorCode) -> LeaderAndIsrResponse:
    """The order as a whole; each of its partitions says so too."""
    topics = _topics_to_lead(request)
    errors = {
        TopicPartition(topic.topic_name, state.partition_index): code for topic in topics for state in topic.partition_states
    }
    response = _answer(errors, {topic.topic_name: bytes(topic.topic_id) for topic in topics}, version)
    response.error_code = code
    return response


def _answer(errors: Errors, topic_ids: dict[str, bytes], version: int) -> LeaderAndIsrResponse:
    response = LeaderAndIsrResponse()
    by_topic: dict[bytes, LeaderAndIsrTopicError] = {}
    for key, code in errors.items():
        error = LeaderAndIsrPartitionError(topic_name=key.topic, partition_index=key.partition, error_code=code)
        if version < _ERRORS_BY_TOPIC_ID_FROM:
            response.partition_errors.append(error)
            continue
        topic_id = topic_ids[key.topic]
        if topic_id not in by_topic:
            by_topic[topic_id] = LeaderAndIsrTopicError(topic_id=topic_id, partition_errors=[])
        by_topic[topic_id].partition_errors.append(error)
    response.topics = list(by_topic.values())
    return response
