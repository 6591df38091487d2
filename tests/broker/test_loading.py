"""Opening logs at the start, and making them for new topics: with the topic's own settings, in workers, without a flush each."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.app import Broker
from ottla.cluster.requests import NewTopic
from ottla.cluster.settings import BrokerSettings
from ottla.metrics import Counters
from ottla.ports import Disk
from ottla.records.record import build_batch
from ottla.runtime.loop import real_world, run
from ottla.types import TopicPartition


class WatchedDisk:
    """Says which thread made directories and flushed, and may hold whoever opens a file."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.made_by: set[str] = set()
        self.flushed: list[str] = []
        self.on_open: Callable[[str], None] = lambda path: None

    def make_dirs(self, path: str) -> None:
        self.made_by.add(threading.current_thread().name)
        self._disk.make_dirs(path)

    def flush_dir(self, path: str) -> None:
        self.flushed.append(path)
        self._disk.flush_dir(path)

    def open(self, path: str, *, create: bool = False) -> Any:
        self.on_open(path)
        file = self._disk.open(path, create=create)
        flushed = self.flushed

        class Watched:
            def flush(self) -> None:
                flushed.append(path)
                file.flush()

            def __getattr__(self, name: str) -> Any:
                return getattr(file, name)

        return Watched()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)


def new_broker(path: Path, **given: Any) -> tuple[Broker, WatchedDisk]:
    properties = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(path / "data"), "broker.id": "1"}
    settings = BrokerSettings.parse(properties | {key.replace("_", "."): value for key, value in given.items()})
    world = real_world(Counters(), settings)
    disk = WatchedDisk(world.disk)
    return Broker(settings, dataclasses.replace(world, disk=disk)), disk


def batch(number: int) -> bytearray:
    return bytearray(build_batch([(b"key-%d" % number, b"v" * 400, [], 1_700_000_000_000)]))


async def with_gap(path: Path, policy: str) -> None:
    """A log of which the first segment lacks its last records, as compaction leaves it; the broker has crashed since."""
    broker, _ = new_broker(path)
    await broker.start()
    await broker.controller.topic_requests.create(
        [NewTopic("t", 1, 1, config={"segment.bytes": "2000", "cleanup.policy": policy, "min.cleanable.dirty.ratio": "1.0"})]
    )
    partition = broker.partitions.get(TopicPartition("t", 0))
    for number in range(12):
        partition.append(batch(number), -1, 1_700_000_000_000)
    first_two = sum(part.size for part in partition.log.read(0, 2 * len(batch(0)), 12, True).ranges)
    await broker.stop()
    data = path / "data"
    segment = data / "t-0" / f"{0:020d}.log"
    assert segment.stat().st_size > first_two > 0
    segment.write_bytes(segment.read_bytes()[:first_two])
    for suffix in ("index", "timeindex"):
        segment.with_suffix(f".{suffix}").unlink()
    (data / ".kafka_cleanshutdown").unlink()
    (data / "recovery-point-offset-checkpoint").unlink()


@pytest.mark.parametrize(("policy", "adopted", "end"), [("compact", False, 12), ("delete", False, 2), ("delete", True, 12)])
def test_recovery_knows_which_topics_are_compacted(tmp_path: Path, policy: str, adopted: bool, end: int) -> None:
    async def main() -> None:
        await with_gap(tmp_path, policy)
        if adopted:  # a directory without metadata: nobody can say that it was not compacted
            for file in (tmp_path / "data").glob("ottla-metadata.db*"):
                file.unlink()
        broker, _ = new_broker(tmp_path)
        await broker.start()
        assert broker.partitions.get(TopicPartition("t", 0)).log.log_end_offset == end
        await broker.stop()

    run(main())


def test_a_topic_of_many_partitions_is_made_by_workers_without_flushes(tmp_path: Path) -> None:
    async def main() -> None:
        broker, disk = new_broker(tmp_path)
        await broker.start()
        disk.made_by.clear()
        disk.flushed.clear()
        await broker.controller.topic_requests.create([NewTopic("t", 250, 1)])
        assert len(broker.partitions) == 250
        assert len(list((tmp_path / "data").glob("t-*/partition.metadata"))) == 250
        assert disk.flushed == []
        assert disk.made_by
        assert threading.main_thread().name not in disk.made_by
        partition = broker.partitions.get(TopicPartition("t", 7))
        partition.append(batch(1), -1, 1_700_000_000_000)
        partition.log.flush()
        place = str(tmp_path / "data" / "t-7")
        assert set(disk.flushed) >= {f"{place}/partition.metadata", place, str(tmp_path / "data")}, (
            "with the first records all that leads to them is made durable"
        )
        await broker.stop()

    run(main())


def test_a_start_that_is_broken_off_in_recovery_leaves_nothing_behind(tmp_path: Path) -> None:
    async def main() -> None:
        broker, _ = new_broker(tmp_path)
        await broker.start()
        await broker.controller.topic_requests.create([NewTopic("t", 20, 1)])
        await broker.stop()
        (tmp_path / "data" / ".kafka_cleanshutdown").unlink()
        broker, disk = new_broker(tmp_path, num_recovery_threads_per_data_dir="2")
        reached, go_on = threading.Event(), threading.Event()
        opened: list[str] = []

        def hold(path: str) -> None:
            if path.endswith(".log"):
                opened.append(path)
                reached.set()
                assert go_on.wait(60)

        disk.on_open = hold
        starting = asyncio.ensure_future(broker.start())
        async with asyncio.timeout(60):
            while not reached.is_set():
                await asyncio.sleep(0.001)  # the loop is free: a signal would be heard
        starting.cancel()
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert len({Path(path).parent for path in opened}) < 20, "the rest is not opened any more"
        broker, _ = new_broker(tmp_path)
        await broker.start()
        assert len(broker.partitions) == 20
        await broker.stop()

    run(main())
