"""The shards of one internal topic that this broker coordinates: one for each partition it leads (F37, G07, T06).

Owns which shards are here and what becomes of them when the leadership moves. `ShardLoader` replays a partition into a new shard,
`ShardWriter` performs what a shard decides, `ShardTimers` holds the timers. Decides nothing about groups or transactions.

1. A key (a group id, a transactional id) belongs to the shard of its partition (`InternalTopic`). The leader of the partition
   coordinates it. Other brokers answer NOT_COORDINATOR; while the log is replayed, the leader answers
   COORDINATOR_LOAD_IN_PROGRESS.
2. A shard belongs to one leader epoch. It is unloaded when the epoch ends, and its pending requests fail with NOT_COORDINATOR.
3. If records cannot be appended, the shard is unloaded and loaded again, unless the decision is `pure`: the shard's soft state
   may no longer match the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from ottla.broker.coordinators.shard_commits import ShardCommits
from ottla.broker.coordinators.shard_loader import ShardLoader
from ottla.broker.coordinators.shard_timers import ShardTimers
from ottla.broker.coordinators.shard_writer import ShardWriter
from ottla.coordinator.shard import Decision, Now, Shard, TimerKey, positive_hash
from ottla.errors import ErrorCode, KafkaError
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from ottla.broker.coordinators.internal_topic import InternalTopic
    from ottla.broker.coordinators.reply import Reply
    from ottla.broker.network.purgatory import Purgatory
    from ottla.broker.replicas.partitions import Partitions
    from ottla.cluster.image import ClusterImage
    from ottla.ports import Clock

logger = logging.getLogger(__name__)

_LOADS_KEPT = 100

T = TypeVar("T")
S = TypeVar("S", bound=Shard)


class HostedShard(Generic[S]):
    """One shard, for as long as this broker leads its partition."""

    def __init__(
        self, topic_partition: TopicPartition, leader_epoch: int, perform: Callable[[HostedShard[S], Decision], None]
    ) -> None:
        self.topic_partition = topic_partition
        self.leader_epoch = leader_epoch
        self.shard: S | None = None
        """None while it is being loaded, and once it is unloaded."""
        self.unloaded = False
        self.since = 0.0
        """When it began to load, by the monotonic clock."""
        self.timers: dict[TimerKey, int] = {}
        """The timers that are set, each with the number of its entry in the heap of `ShardTimers`."""
        self.waiting: dict[Reply[Any], None] = {}
        """Replies of requests that wait in the shard or for a commit."""
        self._perform = perform

    def perform(self, decision: Decision) -> None:
        """Perform what the shard decided without a request."""
        self._perform(self, decision)


class Coordinator(Protocol[S]):
    """What a kind of coordinator adds to its `ShardHost`."""

    def new_shard(self, partition: int) -> S: ...

    def on_loaded(self, hosted: HostedShard[S], shard: S, now: Now) -> Iterator[Decision]:
        """A shard has been loaded and coordinates from now on. What it decides first, one after the other."""
        ...

    def perform_effect(self, hosted: HostedShard[S], effect: Any) -> None:
        """Perform one of `Decision.effects`. The records of the decision are committed."""
        ...

    @property
    def codec(self) -> int:
        """The compression of the records it appends."""
        ...

    @property
    def outlasts_epochs(self) -> bool:
        """Whether a shard stays loaded if this broker goes on to lead its partition in a new leader epoch."""
        ...

    @property
    def load_buffer_bytes(self) -> int: ...

    @property
    def commit_timeout_ms(self) -> int: ...


class ShardHost(Generic[S]):
    def __init__(
        self,
        coordinator: Coordinator[S],
        topic: InternalTopic,
        partitions: Partitions,
        purgatory: Purgatory,
        clock: Clock,
    ) -> None:
        self.topic = topic
        self._partitions = partitions
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._coordinator = coordinator
        self._hosted: dict[int, HostedShard[S]] = {}
        self._load_times_s: deque[float] = deque(maxlen=_LOADS_KEPT)
        self._timers = ShardTimers(self._loop, clock, self._timer_due)
        self._commits = ShardCommits(coordinator, partitions, purgatory)
        self._writer = ShardWriter(coordinator, partitions, clock, self._timers, self._commits, self._reload)
        self._loader = ShardLoader(coordinator, partitions, self._loaded, self._unload)

    def close(self) -> None:
        """Stop everything. Pending requests get no reply: the server closes their connections."""
        self._timers.close()
        self._loader.close()
        self.topic.close()
        for hosted in list(self._hosted.values()):
            self._unload(hosted)

    # Finding

    def find(self, key: str) -> tuple[HostedShard[S], S]:
        """The shard that coordinates a key. KafkaError if it is not on this broker, or still being loaded."""
        count = self.topic.partition_count
        hosted = self._hosted.get(positive_hash(key) % count) if count else None
        if hosted is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, f"this broker is not the coordinator of {key}")
        shard = hosted.shard
        if shard is None:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"the coordinator of {key} is loading")
        return hosted, shard

    def get(self, partition: int) -> HostedShard[S] | None:
        return self._hosted.get(partition)

    def loaded(self) -> list[tuple[HostedShard[S], S]]:
        """The shards that are loaded now."""
        return [(hosted, hosted.shard) for hosted in self._hosted.values() if hosted.shard is not None]

    @property
    def any(self) -> bool:
        """Whether this broker coordinates a partition of the topic."""
        return bool(self._hosted)

    def loading(self) -> list[TopicPartition]:
        """The partitions whose shards are being loaded."""
        return [hosted.topic_partition for hosted in self._hosted.values() if hosted.shard is None]

    def load_times_s(self) -> tuple[float, float]:
        """(longest, average) of the last loads."""
        times = self._load_times_s
        return (max(times), sum(times) / len(times)) if times else (0.0, 0.0)

    def all(self) -> Iterator[S]:
        """All shards of this broker. KafkaError if one is still being loaded."""
        for hosted in self._hosted.values():
            if hosted.shard is None:
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{hosted.topic_partition} is loading")
            yield hosted.shard

    # Asking a shard

    def now(self) -> Now:
        return now_of(self._clock)

    def reply_of(self, hosted: HostedShard[S], reply: Reply[T], decision: Decision) -> T | asyncio.Future[T]:
        """Perform what a shard decided for a request; its response, or a future of it."""
        self._writer.perform(hosted, decision)
        if reply.done:
            return reply.result()
        return reply.wait_in(hosted.waiting, self._loop)

    def when_committed(self, hosted: HostedShard[S], read: Callable[[], T]) -> T | asyncio.Future[T]:
        """`read()` once all that is in the log now is committed: a failover cannot undo what a reader has seen."""
        return self._commits.read(hosted, read)

    # Following the leadership of the partitions

    def apply(self, image: ClusterImage, led: Mapping[int, int] | None = None) -> None:
        """Load and unload shards as the leadership of their partitions moves.

        `led`: the partitions that this broker leads, with their leader epochs. None (a broker alone): the image tells.
        """
        changed = self.topic.apply(image)
        if led is None:
            if not changed:
                return
            led = self.topic.led_here()
        ended = [hosted for number, hosted in self._hosted.items() if not self._is_led(hosted, led.get(number))]
        if ended:
            numbers = [hosted.topic_partition.partition for hosted in ended]
            logger.info("Unloading partitions %s of %s: they have another leader or leader epoch", numbers, self.topic.name)
        for hosted in ended:
            self._unload(hosted, KafkaError(ErrorCode.NOT_COORDINATOR, "the coordinator moved to another broker"))
        for number, leader_epoch in led.items():
            if number not in self._hosted:
                self._load(HostedShard(TopicPartition(self.topic.name, number), leader_epoch, self._writer.perform))

    def _is_led(self, hosted: HostedShard[S], leader_epoch: int | None) -> bool:
        """Whether this broker, which leads in that epoch (None: it does not), has led since the shard was loaded."""
        if leader_epoch == hosted.leader_epoch:
            return True
        if leader_epoch is None or leader_epoch < hosted.leader_epoch or not self._coordinator.outlasts_epochs:
            return False
        partition = self._partitions.find(hosted.topic_partition)
        if partition is None or partition.leading_since_epoch > hosted.leader_epoch:
            return False
        hosted.leader_epoch = leader_epoch
        return True

    def _load(self, hosted: HostedShard[S]) -> None:
        try:
            self._partitions.get(hosted.topic_partition)
        except KafkaError as error:
            logger.error("Cannot load %s: %s", hosted.topic_partition, error)
            return
        self._hosted[hosted.topic_partition.partition] = hosted
        hosted.since = self._clock.monotonic()
        self._loader.load(hosted)

    def _loaded(self, hosted: HostedShard[S], shard: S) -> None:
        hosted.shard = shard
        self._load_times_s.append(self._clock.monotonic() - hosted.since)
        for decision in self._coordinator.on_loaded(hosted, shard, self.now()):
            self._writer.perform(hosted, decision)
            if hosted.shard is not shard:
                return  # its records could not be appended: it is loaded again

    def _unload(self, hosted: HostedShard[S], error: KafkaError | None = None) -> None:
        if not hosted.unloaded:
            del self._hosted[hosted.topic_partition.partition]
        self._loader.cancel(hosted)
        hosted.unloaded = True
        hosted.shard = None
        hosted.timers.clear()
        waiting, hosted.waiting = list(hosted.waiting), {}
        if error is not None:
            for reply in waiting:
                reply.fail(error)

    def _reload(self, hosted: HostedShard[S], error: KafkaError) -> None:
        """Records could not be appended."""
        self._unload(hosted, error)
        self._load(HostedShard(hosted.topic_partition, hosted.leader_epoch, self._writer.perform))

    def _timer_due(self, hosted: HostedShard[S], key: TimerKey) -> None:
        if hosted.shard is not None:
            self._writer.perform(hosted, hosted.shard.on_timer(key, self.now()))


def now_of(clock: Clock) -> Now:
    return Now(int(clock.monotonic() * 1000), clock.now_ms())
