"""Replicas move between the data directories of a broker (F6): AlterReplicaLogDirs, DescribeLogDirs, restarts in the middle."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.app import Broker, StartupError
from ottla.client.connection import ClientConnection
from ottla.cluster.requests import NewTopic
from ottla.cluster.settings import BrokerSettings
from ottla.errors import ErrorCode
from ottla.metrics import Counters
from ottla.ports import Disk
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records.batch import scan_batches
from ottla.records.record import build_batch, read_records
from ottla.runtime.loop import real_world, run
from ottla.types import TopicPartition

T0 = TopicPartition("t", 0)


class GatedDisk:
    """Files under a path are opened by whoever is let in: so a move can be held in its middle. Renames to some names fail."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.open_gate = threading.Event()
        self.open_gate.set()
        self.gate_at = "-future/00000000000000000000.log"
        self.waiting = threading.Event()
        self.fail_rename: Callable[[str, str], bool] = lambda source, target: False

    def open(self, path: str, *, create: bool = False) -> Any:
        file = self._disk.open(path, create=create)
        return GatedFile(file, self) if path.endswith(self.gate_at) else file

    def rename(self, source: str, target: str) -> None:
        if self.fail_rename(source, target):
            raise OSError(errno.EIO, "Input/output error")
        self._disk.rename(source, target)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)


class GatedFile:
    def __init__(self, file: Any, disk: GatedDisk) -> None:
        self._file = file
        self._disk = disk

    def write(self, position: int, parts: Any) -> None:
        self._disk.waiting.set()
        assert self._disk.open_gate.wait(60)
        self._file.write(position, parts)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class Ground:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.one, self.two = str(path / "one"), str(path / "two")
        self.disk: GatedDisk | None = None
        self.broker: Broker | None = None
        self.client: ClientConnection | None = None

    async def start(self, dirs: str = "one,two", **given: Any) -> Broker:
        log_dirs = ",".join(str(self.path / name) for name in dirs.split(","))
        properties = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": log_dirs, "broker.id": "1"}
        properties |= {key.replace("_", "."): value for key, value in given.items()}
        settings = BrokerSettings.parse(properties)
        world = real_world(Counters(), settings)
        self.disk = GatedDisk(world.disk)
        self.broker = Broker(settings, dataclasses.replace(world, disk=self.disk))
        await self.broker.start()
        self.client = await ClientConnection.open(world.network, "127.0.0.1", self.broker.bound_ports["PLAINTEXT"])
        return self.broker

    async def stop(self) -> None:
        if self.client is not None:
            self.client.close()
        if self.broker is not None:
            await self.broker.stop()

    async def topic(self, name: str = "t", partitions: int = 1, **config: Any) -> None:
        assert self.broker is not None
        settings = {key.replace("_", "."): value for key, value in config.items()}
        [outcome] = await self.broker.controller.topic_requests.create([NewTopic(name, partitions, 1, config=settings)])
        assert not isinstance(outcome, Exception), outcome

    async def produce(self, first: int, count: int = 1, *, size: int = 10, topic: str = "t") -> None:
        assert self.client is not None
        for number in range(first, first + count):
            records = build_batch([(b"k", b"%d" % number + b"." * size, [], 1_700_000_000_000)])
            data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])]
            reply = await self.client.call("produce", 9, ProduceRequest(acks=-1, timeout_ms=5000, topic_data=data))
            answer = reply.responses[0].partition_responses[0]
            assert (answer.error_code, answer.base_offset) == (0, number)

    async def numbers(self, start: int = 0, topic: str = "t") -> list[int]:
        """What is in the partition: the numbers that were produced."""
        assert self.client is not None
        found: list[int] = []
        while True:
            asked = [FetchPartition(partition=0, fetch_offset=start, partition_max_bytes=1 << 20)]
            request = FetchRequest(max_wait_ms=0, topics=[FetchTopic(topic=topic, partitions=asked)])
            data = (await self.client.call("fetch", 11, request)).responses[0].partitions[0]
            assert data.error_code == 0, data.error_code
            batches, _ = scan_batches(data.records or b"")
            records = [record for batch in batches for record in read_records(data.records, batch) if record.offset >= start]
            for record in records:
                number = int((record.value or b"").partition(b".")[0])
                assert number == record.offset
                found.append(number)
            if not records:
                return found
            start = records[-1].offset + 1

    async def alter(self, path: str, topic: str = "t", partition: int = 0, version: int = 2) -> int:
        assert self.client is not None
        topics = [AlterReplicaLogDirTopic(name=topic, partitions=[partition])]
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=topics)])
        reply = await self.client.call("alter_replica_log_dirs", version, request)
        [result] = reply.results
        assert result.topic_name == topic
        [answer] = result.partitions
        assert answer.partition_index == partition
        code: int = answer.error_code
        return code

    async def places(self, topic: str = "t") -> list[tuple[str, int, bool]]:
        """(directory, lag, whether it is the future replica) of partition 0, as DescribeLogDirs has it."""
        assert self.client is not None
        reply = await self.client.call("describe_log_dirs", 4, DescribeLogDirsRequest(topics=None))
        return [
            (result.log_dir.rpartition("/")[2], partition.offset_lag, partition.is_future_key)
            for result in reply.results
            for found in result.topics
            if found.name == topic
            for partition in found.partitions
            if partition.partition_index == 0
        ]

    async def moved(self, name: str) -> None:
        async with asyncio.timeout(60):
            while await self.places() != [(name, 0, False)]:
                await asyncio.sleep(0.005)

    async def forgotten(self) -> None:
        """Nothing on the disk tells any more that there was a move."""
        async with asyncio.timeout(60):
            while list(self.path.glob("*/t-0/replica-swap")):
                await asyncio.sleep(0.005)

    def names(self, name: str) -> list[str]:
        return sorted(path.name for path in (self.path / name).iterdir() if path.name.startswith("t-"))

    async def held_in_the_middle(self, target: str) -> None:
        """A move has begun and does not get on."""
        assert self.disk is not None
        self.disk.open_gate.clear()
        assert await self.alter(target) == 0
        async with asyncio.timeout(60):
            while not self.disk.waiting.is_set():
                await asyncio.sleep(0.001)


Case = Callable[[Ground], Awaitable[None]]


@pytest.fixture
def play(tmp_path: Path) -> Callable[[Case], None]:
    def perform(case: Case) -> None:
        async def main() -> None:
            ground = Ground(tmp_path)
            try:
                await asyncio.wait_for(case(ground), 120)
            finally:
                if ground.disk is not None:
                    ground.disk.open_gate.set()
                await ground.stop()

        run(main())

    return perform


def test_f6_a_replica_moves_while_it_is_written_and_read(play: Callable[[Case], None]) -> None:
    async def case(ground: Ground) -> None:
        broker = await ground.start()
        # Its records are years old: without this the first retention check, after 30 s, deletes segments.
        await ground.topic(segment_bytes="20000", file_delete_delay_ms="0", retention_ms="-1")
        await ground.produce(0, 300, size=500)
        assert await ground.places() == [("one", 0, False)]
        await ground.held_in_the_middle(ground.two)
        assert await ground.places() == [("one", 0, False), ("two", 300, True)]
        assert [name for name in ground.names("two") if name.startswith("t-0.") and name.endswith("-future")]
        await ground.produce(300, 50, size=500)
        assert (await ground.places())[1] == ("two", 350, True)
        assert ground.disk is not None
        ground.disk.open_gate.set()
        number = 350
        while await ground.places() != [("two", 0, False)]:
            await ground.produce(number, 5, size=500)
            number += 5
        await ground.produce(number, 5)
        assert await ground.numbers() == list(range(number + 5))
        [partition] = broker.partitions
        assert len(partition.log.segments) > 5
        assert partition.log.dir == f"{ground.two}/t-0"
        async with asyncio.timeout(60):
            while ground.names("one"):
                await asyncio.sleep(0.01)
        await ground.forgotten()
        await ground.stop()
        await ground.start()
        assert await ground.places() == [("two", 0, False)]
        assert await ground.numbers() == list(range(number + 5))
        await ground.produce(number + 5)

    play(case)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_f6_what_cannot_be_moved(play: Callable[[Case], None], version: int) -> None:
    async def case(ground: Ground) -> None:
        broker = await ground.start()
        await ground.topic()
        assert await ground.alter("/nowhere", version=version) == ErrorCode.LOG_DIR_NOT_FOUND
        assert await ground.alter(ground.two, "absent", version=version) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await ground.alter(ground.two, partition=7, version=version) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await ground.alter(ground.two, "x" * 249, version=version) == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert await ground.alter(ground.one, version=version) == 0, "there it lies already"
        assert await ground.places() == [("one", 0, False)]
        two = next(each for each in broker.partitions.data_dirs.online() if each.path == ground.two)
        broker.partitions.data_dirs.fail(two, OSError(errno.EIO, "Input/output error"))
        assert await ground.alter(ground.two, version=version) == ErrorCode.KAFKA_STORAGE_ERROR
        assert await ground.alter(ground.two, "absent", version=version) == ErrorCode.KAFKA_STORAGE_ERROR

    play(case)


def test_f6_directories_are_named_absolutely_wherever_the_broker_was_started(
    play: Callable[[Case], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def case(ground: Ground) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "file").write_text("no directory")
        ground.path = Path()
        broker = await ground.start("one,two,file")
        assert broker.settings.log_dirs() == ("one", "two", "file")
        assert ground.client is not None
        reply = await ground.client.call("describe_log_dirs", 4, DescribeLogDirsRequest(topics=None))
        named = {result.log_dir: result.error_code for result in reply.results}
        assert named == {ground.one: 0, ground.two: 0, str(tmp_path / "file"): ErrorCode.KAFKA_STORAGE_ERROR}
        await ground.topic()
        assert await ground.alter(str(tmp_path / "file")) == ErrorCode.KAFKA_STORAGE_ERROR
        assert await ground.alter(ground.two) == 0
        await ground.moved("two")

    play(case)


def test_f6_a_wish_for_a_partition_that_is_not_there_yet(play: Callable[[Case], None]) -> None:
    async def case(ground: Ground) -> None:
        broker = await ground.start()
        for index in (0, 1, 2):
            assert await ground.alter(ground.two, "t", index) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await ground.topic(partitions=4)
        place = {each.topic_partition.partition: each.data_dir.path for each in broker.partitions}
        assert [place[index] for index in (0, 1, 2)] == [ground.two] * 3
        assert place[3] == ground.one

    play(case)


def test_f6_a_move_back_ends_the_move(play: Callable[[Case], None]) -> None:
    async def case(ground: Ground) -> None:
        await ground.start()
        await ground.topic(file_delete_delay_ms="0")
        await ground.produce(0, 20)
        await ground.held_in_the_middle(ground.two)
        assert ground.disk is not None
        asyncio.get_running_loop().call_later(0.05, ground.disk.open_gate.set)
        assert await ground.alter(ground.one) == 0
        assert await ground.places() == [("one", 0, False)]
        async with asyncio.timeout(60):
            while ground.names("two"):
                await asyncio.sleep(0.01)
        assert await ground.numbers() == list(range(20))
        assert await ground.alter(ground.two) == 0
        await ground.moved("two")
        assert await ground.alter(ground.one) == 0
        await ground.moved("one")
        assert await ground.numbers() == list(range(20))

    play(case)


def test_f6_a_move_whose_turn_has_not_come_ends_at_once(play: Callable[[Case], None]) -> None:
    """Found by reading: whoever called it back waited until other moves were over."""

    async def case(ground: Ground) -> None:
        broker = await ground.start()
        await ground.topic(file_delete_delay_ms="0")
        await ground.produce(0, 20)
        async with broker.moves._slots, broker.moves._slots:
            assert await ground.alter(ground.two) == 0
            assert await ground.places() == [("one", 0, False), ("two", 20, True)]
            async with asyncio.timeout(20):
                assert await ground.alter(ground.one) == 0
            assert await ground.places() == [("one", 0, False)]
            assert await ground.alter(ground.two) == 0
        await ground.moved("two")
        assert await ground.numbers() == list(range(20))

    play(case)


def test_f6_a_topic_deleted_in_the_middle_takes_its_copy_along(play: Callable[[Case], None]) -> None:
    async def case(ground: Ground) -> None:
        broker = await ground.start()
        await ground.topic(file_delete_delay_ms="0")
        await ground.produce(0, 20)
        await ground.held_in_the_middle(ground.two)
        await broker.controller.topic_requests.delete(["t"])
        await ground.topic(file_delete_delay_ms="0")
        assert ground.disk is not None
        ground.disk.open_gate.set()
        async with asyncio.timeout(60):
            while ground.names("one") + ground.names("two") != ["t-0"]:
                await asyncio.sleep(0.01)
        assert await ground.numbers() == []
        await ground.produce(0, 3)

    play(case)


def test_f6_deleted_records_stay_deleted_on_the_other_side(play: Callable[[Case], None]) -> None:
    async def case(ground: Ground) -> None:
        await ground.start()
        await ground.topic()
        assert ground.client is not None
        records = build_batch([(b"k", b"%d." % number, [], 1_700_000_000_000) for number in range(10)])
        data = [TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=records)])]
        await ground.client.call("produce", 9, ProduceRequest(acks=-1, timeout_ms=5000, topic_data=data))
        topics = [DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=4)])]
        await ground.client.call("delete_records", 2, DeleteRecordsRequest(topics=topics, timeout_ms=5000))
        assert await ground.alter(ground.two) == 0
        await ground.moved("two")
        assert await ground.numbers(4) == [4, 5, 6, 7, 8, 9]
        await ground.forgotten()
        broker = ground.broker
        assert broker is not None
        [partition] = broker.partitions
        assert (partition.log.log_start_offset, partition.log.log_end_offset) == (4, 10)
        assert "t 0 4" in (ground.path / "two" / "log-start-offset-checkpoint").read_text()
        await ground.produce(10)
        await ground.stop()
        (ground.path / "two" / ".kafka_cleanshutdown").unlink()
        broker = await ground.start()
        [partition] = broker.partitions
        assert (partition.log.log_start_offset, partition.log.log_end_offset) == (4, 11)

    play(case)


@pytest.mark.parametrize("clean", [True, False])
def test_f6_a_restart_in_the_middle_continues_the_move(play: Callable[[Case], None], clean: bool) -> None:
    async def case(ground: Ground) -> None:
        await ground.start()
        await ground.topic(segment_bytes="100000")
        await ground.produce(0, 50, size=5000)
        await ground.held_in_the_middle(ground.two)
        assert ground.disk is not None
        asyncio.get_running_loop().call_later(0.05, ground.disk.open_gate.set)
        await ground.stop()
        if not clean:
            for name in ("one", "two"):
                (ground.path / name / ".kafka_cleanshutdown").unlink()
        [future] = ground.names("two")
        assert future.endswith("-future")
        if not clean:
            (ground.path / "two" / future / "partition.metadata").write_bytes(b"")  # not flushed yet when the power failed
        broker = await ground.start()
        await ground.moved("two")
        await ground.forgotten()
        assert "topic_id: " in (ground.path / "two" / "t-0" / "partition.metadata").read_text()
        assert len(list(broker.partitions)) == 1
        assert await ground.numbers() == list(range(50))
        await ground.produce(50)

    play(case)


def test_f6_l06_the_target_fails_at_the_exchange_of_names(play: Callable[[Case], None]) -> None:
    async def case(ground: Ground) -> None:
        broker = await ground.start()
        await ground.topic()
        await ground.produce(0, 10)
        assert ground.disk is not None
        ground.disk.fail_rename = lambda source, target: source.endswith("-future")
        assert await ground.alter(ground.two) == 0
        async with asyncio.timeout(60):
            while not broker.partitions.data_dirs.offline_paths():
                await asyncio.sleep(0.005)
        [partition] = broker.partitions
        assert partition.is_offline, "nobody knows which of the two the disk shows at the next start: nothing may be appended"
        await ground.stop()
        await ground.start()
        await ground.moved("two")
        assert await ground.numbers() == list(range(10))

    play(case)


def test_f6_a_copy_that_was_not_renamed_away_is_not_mistaken_for_the_log(play: Callable[[Case], None]) -> None:
    async def case(ground: Ground) -> None:
        broker = await ground.start()
        await ground.topic()
        await ground.produce(0, 10)
        assert ground.disk is not None
        ground.disk.fail_rename = lambda source, target: target.endswith("-delete")
        assert await ground.alter(ground.two) == 0
        async with asyncio.timeout(60):
            while not broker.partitions.data_dirs.offline_paths():
                await asyncio.sleep(0.005)
        await ground.produce(10, 5)
        assert await ground.numbers() == list(range(15))
        await ground.stop()
        assert (ground.names("one"), ground.names("two")) == (["t-0"], ["t-0"])
        await ground.start()
        assert await ground.places() == [("two", 0, False)]
        assert await ground.numbers() == list(range(15))
        await ground.forgotten()

    play(case)


def test_f6_a_partition_in_two_directories_stops_the_start_with_one_sentence(play: Callable[[Case], None]) -> None:
    async def case(ground: Ground) -> None:
        await ground.start("one")
        await ground.topic()
        await ground.produce(0, 3)
        await ground.stop()
        (ground.path / "two").mkdir()
        (ground.path / "two" / "t-0").mkdir()
        for file in (ground.path / "one" / "t-0").iterdir():
            (ground.path / "two" / "t-0" / file.name).write_bytes(file.read_bytes())
        with pytest.raises(StartupError, match=r"t-0 exists in .*one/t-0 and in .*two/t-0, and both hold records; remove"):
            await ground.start()
        ground.client = ground.broker = None

    play(case)


def test_f6_a_replica_whose_directory_is_offline_at_the_start_is_not_made_again(play: Callable[[Case], None]) -> None:
    async def case(ground: Ground) -> None:
        await ground.start()
        await ground.topic(partitions=2)
        await ground.produce(0, 3)
        await ground.stop()
        (ground.path / "one").rename(ground.path / "away")
        (ground.path / "one").write_text("a broken disk")
        # The metadata lay in the first directory: whoever has a copy can go on without it.
        (ground.path / "two" / "ottla-metadata.db").write_bytes((ground.path / "away" / "ottla-metadata.db").read_bytes())
        broker = await ground.start("two,one")
        assert [each.topic_partition.partition for each in broker.partitions] == [1]
        assert T0 in broker.partitions.logs.missing
        assert await ground.alter(ground.two) == ErrorCode.KAFKA_STORAGE_ERROR
        await ground.topic("new", 2)
        assert len(list(broker.partitions)) == 3
        await ground.stop()
        assert ground.names("two") == ["t-1"]
        (ground.path / "one").unlink()
        (ground.path / "away").rename(ground.path / "one")
        await ground.start("two,one")
        assert await ground.numbers() == [0, 1, 2]

    play(case)


def test_f6_the_first_directory_fails_and_the_metadata_lie_elsewhere(play: Callable[[Case], None], caplog: Any) -> None:
    async def case(ground: Ground) -> None:
        meta = {"metadata_log_dir": str(ground.path / "meta")}
        await ground.start(**meta)
        await ground.topic(partitions=2)
        await ground.produce(0, 3)
        await ground.stop()
        assert [path.parent.name for path in ground.path.glob("*/ottla-metadata.db")] == ["meta"]
        (ground.path / "one").rename(ground.path / "away")
        (ground.path / "one").write_text("a broken disk")
        broker = await ground.start(**meta)
        assert T0 in broker.partitions.logs.missing
        assert [each.topic_partition.partition for each in broker.partitions] == [1]
        told = [record.getMessage() for record in caplog.records if "cannot be used" in record.getMessage()]
        assert told == [f"the data directory {ground.one} cannot be used: Not a directory; its partitions are offline"]
        await ground.stop()
        (ground.path / "one").unlink()
        (ground.path / "away").rename(ground.path / "one")
        await ground.start(**meta)
        assert await ground.numbers() == [0, 1, 2]

    play(case)


def test_f6_the_directory_of_the_metadata_fails_and_the_start_says_so(play: Callable[[Case], None]) -> None:
    async def case(ground: Ground) -> None:
        await ground.start()
        await ground.topic(partitions=2)
        await ground.stop()
        (ground.path / "one").rename(ground.path / "away")
        (ground.path / "one").write_text("a broken disk")
        with pytest.raises(StartupError, match=r"metadata .* is in the first of log.dirs, .*/one, which cannot be used"):
            await ground.start()
        with pytest.raises(StartupError, match=r"metadata of this broker must be in .*/one, which cannot be used"):
            await ground.start("two,one")
        ground.client = ground.broker = None
        assert not (ground.path / "two" / "ottla-metadata.db").exists(), "an empty one would say that there are no topics"

    play(case)


def test_f6_directories_in_another_order_are_the_same_broker(play: Callable[[Case], None]) -> None:
    async def case(ground: Ground) -> None:
        await ground.start()
        await ground.topic(retention_ms="12345")
        await ground.produce(0, 3)
        await ground.stop()
        broker = await ground.start("two,one")
        assert broker.image.topics["t"].config["retention.ms"] == "12345"
        assert await ground.numbers() == [0, 1, 2]
        await ground.stop()
        with pytest.raises(StartupError, match=r"meta has no ottla-metadata.db, but .*/one has one; move it"):
            await ground.start(metadata_log_dir=str(ground.path / "meta"))
        ground.client = ground.broker = None

    play(case)
