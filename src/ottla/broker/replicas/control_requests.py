"""The controller's requests to this broker: LeaderAndIsr, StopReplica, UpdateMetadata.

Owns the fencing: a request of a previous controller (C02), for a previous registration of this broker (C03), or for an old leader
epoch changes nothing. Changes the roles of partitions, starts and stops fetchers, and tells the coordinators.

1. One request at a time, in the order of arrival.
2. A partition stops fetching before its role changes, and starts to fetch afterwards.
3. The response is sent when the request is carried out.
4. After each registration the controller sends its full state. A broker that kept running while its session had expired may have
   stale replicas: of topics that were deleted, or created again under the name, or that were reassigned. They are stopped.
5. A controller has one connection to this broker at a time. A request on an earlier connection was given up and sent again since.
   Nothing else tells a late StopReplica that deletes: it has no topic id, and another topic may have the name by now.
6. A new Ottla controller sends its full state too, marked as such: its predecessor may have died between the last write and the
   request to delete a topic or stop a replica. The first full state of a controller counts, not a late one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from ottla.broker.metadata.local_metadata import LocalMetadata
from ottla.broker.metadata.metadata_cache import MetadataCache, grouped
from ottla.broker.network.context import CloseConnection
from ottla.broker.replicas.partitions import Partitions
from ottla.broker.replicas.replica_fetcher import ReplicaFetchers
from ottla.broker.replicas.role_changes import Role
from ottla.cluster.control_requests import FULL_UPDATE
from ottla.cluster.image import PartitionImage, TopicImage
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

logger = logging.getLogger(__name__)

_NO_BROKER_EPOCH: Final = -1
_EPOCH_DURING_DELETE: Final = -2
_NO_EPOCH: Final = -1
_NEVER_AGAIN: Final = 1 << 31
"""Higher than any leader epoch."""
_STOPPED_MAX: Final = 10_000
_ERRORS_BY_TOPIC_ID_FROM: Final = 5

Errors = dict[TopicPartition, ErrorCode]


class ControlRequests:
    def __init__(
        self,
        metadata: LocalMetadata,
        metadata_cache: MetadataCache,
        partitions: Partitions,
        fetchers: ReplicaFetchers,
        on_roles_changed: Callable[[], None],
    ) -> None:
        self._metadata = metadata
        self._cache = metadata_cache
        self._partitions = partitions
        self._fetchers = fetchers
        self._on_roles_changed = on_roles_changed
        self._lock = asyncio.Lock()
        self.controller_epoch = -1
        """The highest seen."""
        self._registration = -1
        """The broker epoch of the last request."""
        self._connection = -1, 0
        """The controller epoch of the last request, and the number of its connection."""
        self._awaits_full_state = True
        """No UpdateMetadata has come yet in this registration."""
        self._is_new_controller = False
        """It has not sent its full state yet."""
        self._unconfirmed: dict[TopicPartition, bytes] = {}
        """Replicas of a previous registration that no request of this one has named, with their topic ids."""
        self._stopped: dict[TopicPartition, tuple[bytes, int]] = {}
        """Topic id and leader epoch of the replicas that were stopped or deleted last: a late LeaderAndIsr must not bring them
        back."""

    async def handle(self, version: int, request: object, connection: int = 0) -> object:
        """Carry out a request and return its response. A cancelled caller does not interrupt it.

        `connection`: the number of the connection it came on; 0 if this broker is the controller.
        """
        return await asyncio.shield(asyncio.ensure_future(self._handle(version, request, connection)))

    async def _handle(
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
            topics = grouped(request, LeaderAndIsrTopicState)
            roles: dict[bool, list[Role]] = {True: [], False: []}
            for topic in topics:
                try:
                    config = await self._cache.topic_config(topic.topic_name, bytes(topic.topic_id))
                except StoreError as error:
                    logger.error("Could not read the settings of topic %s: %s", topic.topic_name, error)
                    config = None
                image = TopicImage(topic.topic_name, bytes(topic.topic_id), (), config or {})
                for state in topic.partition_states:
                    key = TopicPartition(topic.topic_name, state.partition_index)
                    self._stop_replica_of_deleted_topic(key, image.topic_id)
                    errors[key] = ErrorCode.UNKNOWN_SERVER_ERROR if config is None else self._refusal(key, state, image.topic_id)
                    if not errors[key]:
                        roles[state.is_new].append(Role(image, key, _partition(state)))
            for is_new, taken in roles.items():
                await self._take(taken, errors, is_new=is_new)
            self._fetchers.close_idle()
            self._on_roles_changed()
            return _answer(errors, {topic.topic_name: bytes(topic.topic_id) for topic in topics}, version)

    def _stop_replica_of_deleted_topic(self, key: TopicPartition, topic_id: bytes) -> None:
        """A replica of a previous registration that has another topic id belongs to a topic deleted meanwhile. (Any other replica
        with another topic id is of a newer topic, and the request is late.)"""
        previous_id = self._unconfirmed.pop(key, topic_id)
        partition = self._partitions.find(key)
        if partition is not None and ZERO_UUID not in (topic_id, previous_id) and partition.topic_id == previous_id != topic_id:
            self._stop(key)

    def _stop(self, key: TopicPartition) -> None:
        self._fetchers.stop([key])
        self._partitions.stop_replica(key)

    def _refusal(self, key: TopicPartition, state: LeaderAndIsrPartitionState, topic_id: bytes) -> ErrorCode:
        partitions = self._partitions
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
        if self._metadata.broker_id not in state.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE

    async def _take(self, roles: Sequence[Role], errors: Errors, *, is_new: bool) -> None:
        if not roles:
            return
        partitions, fetchers = self._partitions, self._fetchers
        fetchers.stop([role.topic_partition for role in roles])
        await partitions.prepare_roles(roles, may_be_elsewhere=not is_new)
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
            partitions, fetchers = self._partitions, self._fetchers
            for topic in _stop_replica_topics(request):
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
                        partitions.stop_replica(key)
            fetchers.close_idle()
            self._on_roles_changed()
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
            is_full = self._is_new_controller and request.type == FULL_UPDATE
            try:
                await self._cache.update(request, whole=self._awaits_full_state or is_full)
            except StoreError as error:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"could not read topic settings: {error}") from error
            if is_full:
                self._is_new_controller = False
                self._unconfirmed |= {each.topic_partition: each.topic_id for each in self._partitions}
            if is_full or self._awaits_full_state:
                self._stop_stale_replicas()
            if self._awaits_full_state:
                self._awaits_full_state = False
                self._partitions.retire_deleted_logs(self._cache.image)
            return UpdateMetadataResponse()

    def _stop_stale_replicas(self) -> None:
        """Stop replicas that the full state does not have on this broker. Their logs stay, as after a restart."""
        unconfirmed, self._unconfirmed = self._unconfirmed, {}
        for key, topic_id in unconfirmed.items():
            partition, topic = self._partitions.find(key), self._cache.image.topics.get(key.topic)
            if partition is None or partition.is_offline:
                continue
            known = topic.partitions if topic is not None and topic.topic_id in (topic_id, ZERO_UUID) else ()
            if key.partition >= len(known) or self._metadata.broker_id not in known[key.partition].replicas:
                logger.warning("Stopping stale replica %s: it was unassigned while this broker was disconnected", key)
                self._remember(key, topic_id, partition.leader_epoch, _NO_EPOCH)
                self._stop(key)
        if unconfirmed:
            self._fetchers.close_idle()
            self._on_roles_changed()

    def _check(self, controller_epoch: int, broker_epoch: int, controller_id: int) -> None:
        if broker_epoch != _NO_BROKER_EPOCH and broker_epoch < self._metadata.broker_epoch:
            # A higher one is no error: the controller may learn of a registration before this broker does.
            raise KafkaError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"the request is for broker epoch {broker_epoch}, the current one is {self._metadata.broker_epoch}",
            )
        if controller_epoch < self.controller_epoch:
            logger.warning(
                "Refused a request of controller %d with stale controller epoch %d, the current one is %d",
                controller_id,
                controller_epoch,
                self.controller_epoch,
            )
            raise KafkaError(
                ErrorCode.STALE_CONTROLLER_EPOCH,
                f"controller epoch {controller_epoch} is stale, the current one is {self.controller_epoch}",
            )
        if controller_epoch > self.controller_epoch:
            self.controller_epoch = controller_epoch
            self._is_new_controller = True
        if broker_epoch > self._registration:
            self._registration = broker_epoch
            self._awaits_full_state = True
            self._unconfirmed = {each.topic_partition: each.topic_id for each in self._partitions}

    def _check_connection(self, controller_epoch: int, connection: int) -> None:
        known_epoch, newest = self._connection
        if controller_epoch == known_epoch and connection < newest:
            # Nobody waits for a response there; the request was sent again.
            raise CloseConnection("the controller has a newer connection to this broker")
        self._connection = controller_epoch, connection


def _stop_replica_topics(request: StopReplicaRequest) -> list[StopReplicaTopicState]:
    """In the layout of version 3, whatever the version."""
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
    """Refuse the whole request: the response and each of its partitions have the error."""
    topics = grouped(request, LeaderAndIsrTopicState)
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
        by_topic.setdefault(topic_id, LeaderAndIsrTopicError(topic_id=topic_id)).partition_errors.append(error)
    response.topics = list(by_topic.values())
    return response
