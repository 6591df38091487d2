"""Replica fetchers: loops that fetch from the leaders of followed partitions, and append.

Owns which partitions are fetched from which broker, the fetch sessions, the backoff after errors, and the order of truncating and
fetching. `replication.follower` decides where to truncate and what an error means.

1. `num.replica.fetchers` loops per leader; a partition always belongs to the same one. A loop ends with its last partition.
2. A response counts for a partition only if its role has not changed since the request, and its log still ends where the fetch
   began.
3. Every fetch has the leader epoch of the follower's last record. If the logs diverge there, the response has the diverging epoch
   instead of records, and the follower truncates before it appends (KIP-595, after KIP-101; R05-R07, R10).
4. After a truncation below the recovery point the checkpoints are written before the next fetch: they must not cover new records.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from functools import partial
from typing import Final, NamedTuple

from ottla.broker.metadata.local_metadata import LocalMetadata
from ottla.broker.network.inter_broker import InterBroker, PeerUnavailable
from ottla.broker.replicas import following
from ottla.broker.replicas.checkpoints import Checkpoints
from ottla.broker.replicas.flusher import Flusher
from ottla.broker.replicas.partition import Partition
from ottla.coordinator.shard import positive_hash
from ottla.errors import ErrorCode, KafkaError
from ottla.metrics.rate import OneMinuteRate
from ottla.ports import Clock, FileRange
from ottla.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.replication.follower import FetchErrorAction, action_for, out_of_range, truncation
from ottla.replication.follower_session import FollowerSession, SessionRequest
from ottla.storage.data_dir import DataDir
from ottla.storage.log import UnexpectedOffset
from ottla.types import TopicPartition

logger = logging.getLogger(__name__)

_FETCH_VERSION_MAX: Final = 17
_REPLICA_STATE_FROM: Final = 15
_LIST_OFFSETS_VERSION_MAX: Final = 9
_THROTTLED_S: Final = 0.1
"""How long a throttled replica is not fetched."""
_LATEST: Final = -1
_EARLIEST: Final = -2
_SESSION_ERRORS: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)

Key = tuple[str, bytes, int]
"""Topic, its id, partition number."""


class FetchState(NamedTuple):
    """What one fetch tells the leader of a partition."""

    leader_epoch: int
    offset: int
    last_fetched_epoch: int
    log_start_offset: int


class _Followed:
    __slots__ = ("key", "leader_epoch", "leader_high_watermark", "not_before", "partition")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.key: Key = (partition.topic_partition.topic, partition.topic_id, partition.topic_partition.partition)
        self.leader_epoch = partition.leader_epoch
        self.leader_high_watermark: int | None = None
        self.not_before = 0.0
        """Loop time of the next attempt, after an error."""

    @property
    def current(self) -> bool:
        partition = self.partition
        return not partition.is_leader and partition.leader_epoch == self.leader_epoch and not partition.is_offline


class ReplicaFetchers:
    def __init__(
        self, metadata: LocalMetadata, inter_broker: InterBroker, clock: Clock, flusher: Flusher, checkpoints: Checkpoints
    ) -> None:
        self._metadata = metadata
        self._clock = clock
        self._new_fetcher = partial(_Fetcher, metadata, inter_broker, clock, flusher, checkpoints)
        self._fetchers: dict[tuple[int, int], _Fetcher] = {}
        self._closed = False

    def follow(self, partition: Partition) -> None:
        """Start to fetch from the leader of a partition, if it has one."""
        log = partition.log
        if self._closed or partition.leader < 0:
            return
        # Drop an epoch that this broker started as leader and wrote no record in.
        log.epochs.truncate_end(log.log_end_offset)
        if log.latest_epoch < 0 and log.log_end_offset > log.log_start_offset:
            # Records of formats without leader epochs: only those below the high watermark are known to be on the leader.
            try:
                following.truncate_to(partition, log.high_watermark, self._clock.now_ms())
            except KafkaError:
                return
        number = self._number(partition.topic_partition)
        fetcher = self._fetchers.get((partition.leader, number))
        if fetcher is None:
            fetcher = self._fetchers[partition.leader, number] = self._new_fetcher(partition.leader, number)
        fetcher.add(partition)

    def stop(self, keys: Iterable[TopicPartition]) -> None:
        for key in keys:
            for fetcher in self._fetchers.values():
                fetcher.remove(key)

    def close_idle(self) -> None:
        """End the loops without partitions. Called after a LeaderAndIsr or StopReplica request, which may have added some."""
        for place, fetcher in list(self._fetchers.items()):
            if fetcher.is_idle:
                del self._fetchers[place]
                fetcher.close()

    def lags(self) -> list[tuple[TopicPartition, int]]:
        """How many records each followed partition is behind its leader's high watermark."""
        return [lag for fetcher in self._fetchers.values() for lag in fetcher.lags()]

    def fetch_rate_min(self) -> float:
        """Fetches per second of the slowest fetcher; 0 without any."""
        now_s = self._clock.monotonic()
        return min((fetcher.rate.per_second(now_s) for fetcher in self._fetchers.values()), default=0.0)

    async def close(self) -> None:
        self._closed = True
        fetchers, self._fetchers = list(self._fetchers.values()), {}
        for fetcher in fetchers:
            fetcher.close()
        await asyncio.gather(*(fetcher.task for fetcher in fetchers if fetcher.task is not None), return_exceptions=True)

    def _number(self, key: TopicPartition) -> int:
        return (31 * positive_hash(key.topic) + key.partition) % self._metadata.settings.int("num.replica.fetchers")


class _Fetcher:
    def __init__(
        self,
        metadata: LocalMetadata,
        inter_broker: InterBroker,
        clock: Clock,
        flusher: Flusher,
        checkpoints: Checkpoints,
        leader: int,
        number: int,
    ) -> None:
        self._metadata = metadata
        self._inter_broker = inter_broker
        self._clock = clock
        self._flusher = flusher
        self._checkpoints = checkpoints
        self._leader = leader
        self._purpose = f"fetcher-{number}"
        self._followed: dict[TopicPartition, _Followed] = {}
        self._session: FollowerSession[Key, FetchState] = FollowerSession()
        self.rate = OneMinuteRate(clock.monotonic())
        """Of fetch requests."""
        self._news = asyncio.Event()
        self._unsound: set[DataDir] = set()
        """Directories whose checkpoints are beyond a truncation."""
        self.task: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def is_idle(self) -> bool:
        return not self._followed

    def lags(self) -> list[tuple[TopicPartition, int]]:
        return [
            (each.partition.topic_partition, max(0, each.leader_high_watermark - each.partition.log.log_end_offset))
            for each in self._followed.values()
            if each.leader_high_watermark is not None
        ]

    def add(self, partition: Partition) -> None:
        self._followed[partition.topic_partition] = _Followed(partition)
        self._news.set()
        if self.task is None:
            self.task = asyncio.get_running_loop().create_task(self._run())

    def remove(self, key: TopicPartition) -> None:
        self._followed.pop(key, None)

    def close(self) -> None:
        self._closed = True
        if self.task is not None:
            self.task.cancel()
        self._inter_broker.forget_purpose(self._leader, self._purpose)

    async def _run(self) -> None:
        while not self._closed:
            try:
                await self._round()
            except Exception:
                logger.exception("Fetching from leader %d failed, retrying", self._leader)
                self._session.failed()
                await self._pause()

    async def _round(self) -> None:
        loop = asyncio.get_running_loop()
        self._news.clear()
        now = loop.time()
        for followed in self._followed.values():
            if followed.partition.follower_throttled and following.exceeds_follower_quota(
                followed.partition, followed.leader_high_watermark
            ):
                followed.not_before = max(followed.not_before, now + _THROTTLED_S)
        due = {followed.key: followed for followed in self._followed.values() if followed.not_before <= now and followed.current}
        if not due:
            waiting = [followed.not_before - now for followed in self._followed.values() if followed.current]
            try:
                # Not wait_for, which may swallow a cancellation that comes together with the news (Python 3.11).
                async with asyncio.timeout(max(min(waiting), 0.001) if waiting else None):
                    await self._news.wait()
            except TimeoutError:
                pass
            return
        owing = [followed.partition for followed in due.values() if followed.partition.owes_flush]
        if owing:
            # The next fetch acknowledges what is in the log: flush first (flush.messages).
            await asyncio.gather(*(self._flusher.flush(partition) for partition in owing))
            return
        states = {key: _fetch_state(followed.partition) for key, followed in due.items()}
        asked = self._session.request(states)
        settings = self._metadata.settings
        self.rate.add(self._clock.monotonic())
        try:
            response: FetchResponse = await self._inter_broker.call(
                self._leader,
                self._purpose,
                "fetch",
                lambda version: self._request(asked, version),
                version_max=_FETCH_VERSION_MAX,
                timeout_ms=settings.int("replica.socket.timeout.ms"),
            )
        except PeerUnavailable as error:
            logger.info("Could not fetch from leader %d, retrying: %s", self._leader, error)
            self._session.failed()
            await self._pause()
            return
        if response.error_code:
            self._session.failed()
            if response.error_code not in _SESSION_ERRORS:
                logger.warning("Leader %d refused a fetch, retrying: %s", self._leader, ErrorCode(response.error_code).name)
                await self._pause()
            return
        self._session.replied(response.session_id)
        lost = self._take(response, due, states)
        for followed in lost:
            await self._find_range(followed)
        for data_dir in self._unsound:
            await self._checkpoints.write_all(data_dir)
        self._unsound.clear()

    async def _pause(self) -> None:
        await asyncio.sleep(self._metadata.settings.int("replica.fetch.backoff.ms") / 1000)

    def _request(self, asked: SessionRequest[Key, FetchState], version: int) -> FetchRequest:
        metadata, settings = self._metadata, self._metadata.settings
        partition_bytes = settings.int("replica.fetch.max.bytes")
        request = FetchRequest(
            max_wait_ms=settings.int("replica.fetch.wait.max.ms"),
            min_bytes=settings.int("replica.fetch.min.bytes"),
            max_bytes=settings.int("replica.fetch.response.max.bytes"),
            session_id=asked.session_id,
            session_epoch=asked.epoch,
        )
        if version >= _REPLICA_STATE_FROM:
            request.replica_state = ReplicaState(replica_id=metadata.broker_id, replica_epoch=metadata.broker_epoch)
        else:
            request.replica_id = metadata.broker_id
        topics: dict[tuple[str, bytes], FetchTopic] = {}
        for (name, topic_id, number), state in asked.wanted.items():
            topic = topics.get((name, topic_id))
            if topic is None:
                topic = topics[name, topic_id] = FetchTopic(topic=name, topic_id=topic_id, partitions=[])
            topic.partitions.append(
                FetchPartition(
                    partition=number,
                    current_leader_epoch=state.leader_epoch,
                    fetch_offset=state.offset,
                    last_fetched_epoch=state.last_fetched_epoch,
                    log_start_offset=state.log_start_offset,
                    partition_max_bytes=partition_bytes,
                )
            )
        request.topics = list(topics.values())
        forgotten: dict[tuple[str, bytes], ForgottenTopic] = {}
        for name, topic_id, number in asked.forgotten:
            forgotten.setdefault((name, topic_id), ForgottenTopic(topic=name, topic_id=topic_id)).partitions.append(number)
        request.forgotten_topics_data = list(forgotten.values())
        return request

    def _take(self, response: FetchResponse, due: dict[Key, _Followed], states: dict[Key, FetchState]) -> list[_Followed]:
        """Append or truncate. Returns the partitions whose fetch offset the leader does not have."""
        by_id = {(key[1], key[2]): key for key in due}
        by_name = {(key[0], key[2]): key for key in due}
        lost: list[_Followed] = []
        for topic in response.responses:
            for data in topic.partitions:
                key = by_id.get((bytes(topic.topic_id), data.partition_index)) or by_name.get((topic.topic, data.partition_index))
                followed = due.get(key) if key is not None else None
                if key is None or followed is None:
                    continue
                if not followed.current or self._followed.get(followed.partition.topic_partition) is not followed:
                    # The role has changed. The leader takes the response for delivered: only a new session repeats it.
                    self._session.failed()
                    continue
                if data.error_code:
                    self._failed(followed, data.error_code, lost)
                    continue
                try:
                    self._take_partition(followed, states[key], data)
                except (KafkaError, UnexpectedOffset) as error:
                    logger.warning("Could not append to follower %s, retrying: %s", followed.partition.topic_partition, error)
                    self._session.failed()
                    self._later(followed)
        return lost

    def _take_partition(self, followed: _Followed, state: FetchState, data: PartitionData) -> None:
        partition = followed.partition
        log = partition.log
        if log.log_end_offset != state.offset:
            self._session.failed()
            return  # truncated meanwhile
        now_ms = self._clock.now_ms()
        if data.diverging_epoch is not None:
            cut = truncation(log, data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
            logger.info(
                "Truncating %s from offset %d to %d: it diverges from the log of leader %d",
                partition.topic_partition,
                log.log_end_offset,
                cut.offset,
                self._leader,
            )
            self._truncate(followed, cut.offset)
            # The high watermark of this response cannot be used, as the logs may still diverge: a new session repeats it.
            self._session.failed()
            return
        followed.leader_high_watermark = data.high_watermark
        records = data.records if data.records is not None else b""
        assert not isinstance(records, (FileRange, list))
        recovery_point = log.recovery_point
        following.append_as_follower(partition, records, data.high_watermark, data.log_start_offset, now_ms)
        if log.recovery_point < recovery_point:
            self._unsound.add(partition.data_dir)

    def _truncate(self, followed: _Followed, offset: int) -> None:
        partition = followed.partition
        if following.truncate_to(partition, offset, self._clock.now_ms()):
            self._unsound.add(partition.data_dir)

    def _failed(self, followed: _Followed, code: int, lost: list[_Followed]) -> None:
        action = action_for(code)
        if action is FetchErrorAction.OUT_OF_RANGE:
            lost.append(followed)
            return
        if action is FetchErrorAction.FENCED:
            logger.info(
                "Stopped fetching %s: leader epoch %d is over; it goes on when the controller names the next leader",
                followed.partition.topic_partition,
                followed.leader_epoch,
            )
            self._followed.pop(followed.partition.topic_partition, None)
            return
        self._later(followed)

    def _later(self, followed: _Followed) -> None:
        pause = self._metadata.settings.int("replica.fetch.backoff.ms") / 1000
        followed.not_before = asyncio.get_running_loop().time() + pause

    async def _find_range(self, followed: _Followed) -> None:
        """After OFFSET_OUT_OF_RANGE: ask the leader for its start and end offset, and truncate or start over there."""
        partition = followed.partition
        try:
            end = await self._offset(followed, _LATEST)
            start = await self._offset(followed, _EARLIEST)
        except (PeerUnavailable, KafkaError) as error:
            logger.info(
                "Could not get the start and end offset of %s from its leader, retrying: %s", partition.topic_partition, error
            )
            self._later(followed)
            return
        if not followed.current:
            return
        log = partition.log
        decision = out_of_range(log.log_end_offset, start, end)
        logger.warning(
            "Fetch offset %d of %s is out of range: the leader's log is from %d to %d",
            log.log_end_offset,
            partition.topic_partition,
            start,
            end,
        )
        try:
            if decision.truncate_to is not None:
                self._truncate(followed, decision.truncate_to)
            elif decision.truncate_fully_and_start_at is not None:
                following.truncate_fully_and_start_at(partition, decision.truncate_fully_and_start_at, self._clock.now_ms())
                self._unsound.add(partition.data_dir)
            else:
                self._later(followed)
        except KafkaError as error:
            logger.error("Could not truncate %s, retrying: %s", partition.topic_partition, error)
            self._later(followed)

    async def _offset(self, followed: _Followed, timestamp: int) -> int:
        name, number = followed.partition.topic_partition
        asked = ListOffsetsPartition(partition_index=number, current_leader_epoch=followed.leader_epoch, timestamp=timestamp)
        response: ListOffsetsResponse = await self._inter_broker.call(
            self._leader,
            self._purpose,
            "list_offsets",
            ListOffsetsRequest(replica_id=self._metadata.broker_id, topics=[ListOffsetsTopic(name=name, partitions=[asked])]),
            version_max=_LIST_OFFSETS_VERSION_MAX,
        )
        answer = response.topics[0].partitions[0]
        if answer.error_code:
            raise KafkaError(ErrorCode(answer.error_code))
        return answer.offset


def _fetch_state(partition: Partition) -> FetchState:
    log = partition.log
    return FetchState(partition.leader_epoch, log.log_end_offset, log.latest_epoch, log.log_start_offset)
