"""Failures that seeds of the world `broker` found, step by step."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import pytest

from ottla.broker.app import Broker
from ottla.cluster.requests import NewPartitions, NewTopic
from ottla.cluster.settings import BrokerSettings
from ottla.records.record import build_batch
from ottla.sim.kernel.disk import Fault, SimDisk
from ottla.sim.kernel.loop import new_loop
from ottla.sim.kernel.machine import Machine
from ottla.sim.kernel.metadata_tree import MetadataTree
from ottla.sim.kernel.network import SimNetwork
from ottla.sim.kernel.process import Process
from ottla.sim.models.log_files import stored_batches
from ottla.types import TopicPartition
from tests.kit.present import present


class Host:
    """One machine; `start` begins the next life of its broker."""

    def __init__(self, log_dirs: Any = "/d0", **settings: Any) -> None:
        rng = random.Random(1)
        self.disk = SimDisk(rng)
        self.tree = MetadataTree()
        self.machine = Machine(rng, self.disk, SimNetwork(rng), worker_delay_s_max=0.01)
        self.settings = BrokerSettings.parse(
            {"broker.id": "1", "log.dirs": log_dirs, "listeners": "PLAINTEXT://127.0.0.1:9092", **settings}
        )
        self.rng = rng

    async def start(self) -> Any:
        self.process = Process("broker")
        store = self.tree.session(self.process, self.rng, delay_s_max=0.01)
        self.broker = Broker(self.settings, self.machine.world(self.process), store=store)
        await self.broker.start()
        return self.broker

    async def kill(self) -> None:
        self.process.die()
        self.disk.kill(self.process)


def play(main: Any) -> None:
    loop = new_loop()
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()
    assert loop.unhandled == []


@pytest.mark.parametrize("wait_s", [0.0, 0.002, 0.005, 0.008, 0.011, 0.014, 0.02])
def test_a_client_that_goes_away_does_not_stop_a_change_half_way(wait_s: Any) -> None:
    """Seed 7188: the store had the new partition, the image did not."""

    async def main() -> None:
        host = Host()
        broker = await host.start()
        await broker.controller.topic_requests.create([NewTopic("t", 1, 1)])
        change = asyncio.ensure_future(broker.controller.topic_requests.create_partitions([NewPartitions("t", 2)]))
        await asyncio.sleep(wait_s)
        change.cancel()
        await asyncio.sleep(1)
        stored = json.loads(present(host.tree.get("/brokers/topics/t")).data)["partitions"]
        assert len(broker.image.topics["t"].partitions) == len(stored)
        assert len(broker.partitions) == len(stored)
        await broker.stop()

    play(main)


def test_a_partition_begun_in_a_failing_directory_is_found_where_it_was_made() -> None:
    """Seed 213: an empty log in a directory where its creation had failed hid the log in the other."""

    async def main() -> None:
        host = Host("/d0,/d1,/d2")
        broker = await host.start()
        for directory in ("/d0", "/d1"):
            host.disk.faults.append(Fault("write", f"{directory}/t-"))
        await broker.controller.topic_requests.create([NewTopic("t", 1, 1)])
        log = broker.partitions.get(TopicPartition("t", 0)).log
        assert log.dir == "/d2/t-0"
        await host.kill()
        host.disk.faults.clear()
        broker = await host.start()
        assert broker.partitions.get(TopicPartition("t", 0)).log.dir == "/d2/t-0"
        await broker.stop()

    play(main)


def test_a_topic_deleted_during_a_round_of_checkpoints_leaves_its_directory_online() -> None:
    """Seed 238: writing the epochs of a deleted log counted as a failing disk."""

    async def main() -> None:
        host = Host("/d0,/d1", **{"log.flush.offset.checkpoint.interval.ms": "10", "log.initial.task.delay.ms": "1"})
        broker = await host.start()
        for number in range(60):
            name = f"t{number}"
            await broker.controller.topic_requests.create([NewTopic(name, 4, 1)])
            await asyncio.sleep(host.rng.random() * 0.02)
            await broker.controller.topic_requests.delete([name])
        assert broker.partitions.data_dirs.offline_paths() == []
        await broker.stop()

    play(main)


def test_a_copy_of_a_compacted_log_with_a_hole_in_it_begins_anew() -> None:
    """Seed 237: a crash took a segment in the middle of a copy; the move went on and took over without its records."""

    async def main() -> None:
        host = Host("/d0,/d1", **{"log.cleaner.enable": "false"})
        broker = await host.start()
        config = {"cleanup.policy": "compact", "segment.bytes": "200"}
        await broker.controller.topic_requests.create([NewTopic("t", 1, 1, config=config)])
        key = TopicPartition("t", 0)
        partition = broker.partitions.get(key)
        for number in range(6):
            batch = build_batch([(b"key %d" % number, bytes(100), (), 1_700_000_000_000)])
            partition.append(batch, 1, 1_700_000_000_000)
        source = partition.log.dir
        target = next(found for found in broker.partitions.data_dirs.online() if found.path != source.rpartition("/")[0])
        copying = asyncio.ensure_future(broker.moves.move(partition, target))
        while not (copying.done() and target.futures and target.futures[key].log_end_offset >= 4):
            await asyncio.sleep(0.001)
        copy = target.futures[key].dir
        assert len(target.futures[key].segments) > 2
        await host.kill()  # while most is copied, and before the copy takes over
        host.disk.inode(f"{copy}/{0:020d}.log").data.clear()
        broker = await host.start()
        await asyncio.sleep(30)
        moved = broker.partitions.get(key).log
        assert moved.dir == f"{target.path}/t-0"
        assert [batch.base_offset for batch in stored_batches(host.disk, moved.dir)] == [0, 1, 2, 3, 4, 5]
        await broker.stop()

    play(main)
