"""Which shards a change of leadership ends: one that is loaded is lost with its pending requests."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.coordinators.reply import Reply
from ottla.broker.coordinators.shard_host import ShardHost
from ottla.broker.network.purgatory import Purgatory
from ottla.broker.replicas.partition import Partition
from ottla.cluster.image import PartitionImage
from ottla.coordinator.shard import Decision
from ottla.errors import KafkaError
from ottla.records.validate import Rules
from ottla.storage.config import LogConfig
from ottla.types import TopicPartition
from tests.kit.storage import NOW_MS, MemoryDisk, open_dir

KEY = TopicPartition("__consumer_offsets", 0)


class Stage:
    """Broker 1 with partition 0 of a coordinator's topic."""

    def __init__(self, *, outlasts_epochs: bool) -> None:
        loop = asyncio.get_running_loop()
        data_dir = open_dir(MemoryDisk(), "/d")
        data_dir.load(lambda topic: LogConfig(), NOW_MS)
        log = data_dir.create_log(KEY, bytes(16), LogConfig(), NOW_MS)
        purgatory = Purgatory(loop)
        self.partition = Partition(log, data_dir, 1, Rules(), 1, on_progress=purgatory.wake, on_failure=lambda *_: None)
        clock: Any = SimpleNamespace(now_ms=lambda: int(loop.time() * 1000), monotonic=loop.time)
        coordinator: Any = SimpleNamespace(
            new_shard=lambda _: SimpleNamespace(), on_loaded=lambda *_: iter(()), outlasts_epochs=outlasts_epochs
        )
        topic: Any = SimpleNamespace(name=KEY.topic, partition_count=1, apply=lambda _: True, close=lambda: None)
        partitions: Any = SimpleNamespace(get=lambda _: self.partition, find=lambda _: self.partition)
        self.host: ShardHost[Any] = ShardHost(coordinator, topic, partitions, purgatory, clock)

    def role(self, leader: int, leader_epoch: int) -> None:
        self.partition.take_role(PartitionImage(leader, leader_epoch, (leader,), (leader,), 0))

    def tell(self) -> None:
        self.host.apply(SimpleNamespace(), {0: self.partition.leader_epoch} if self.partition.is_leader else {})  # type: ignore[arg-type]

    def waiting(self) -> asyncio.Future[int]:
        """A request that waits in the shard, as JoinGroup does."""
        hosted, _ = self.host.find("g")
        found = self.host.reply_of(hosted, Reply[int](), Decision())
        assert isinstance(found, asyncio.Future)
        return found


@pytest.mark.parametrize("outlasts_epochs", [True, False])
def test_a_new_leader_epoch_of_the_same_leader_ends_no_shard_of_groups(outlasts_epochs: bool) -> None:
    """G07: a broker that dies raises the leader epochs of all partitions that it followed."""

    async def test() -> None:
        stage = Stage(outlasts_epochs=outlasts_epochs)
        stage.role(1, 0)
        stage.tell()
        before, request = stage.host.find("g"), stage.waiting()
        stage.role(1, 1)
        stage.tell()
        hosted, _ = stage.host.find("g")
        assert (stage.host.find("g") == before) is outlasts_epochs
        assert request.done() is not outlasts_epochs
        assert hosted.leader_epoch == 1

    asyncio.run(test())


def test_another_leader_in_between_ends_it() -> None:
    """Though this broker leads again before its coordinators hear of it: the other leader may have written."""

    async def test() -> None:
        stage = Stage(outlasts_epochs=True)
        stage.role(1, 0)
        stage.tell()
        before, request = stage.host.find("g"), stage.waiting()
        stage.role(2, 1)
        stage.role(1, 2)
        stage.tell()
        assert stage.host.find("g") != before
        with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
            await request

    asyncio.run(test())
