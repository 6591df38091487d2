"""Starting, stopping, housekeeping, and disks that fail (F6, F11, F14, L06)."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import os
import shutil
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.app import Broker, StartupError
from ottla.client.connection import ClientConnection
from ottla.cluster.requests import NewTopic
from ottla.cluster.settings import BrokerSettings
from ottla.errors import ErrorCode, KafkaError
from ottla.metrics import Counters
from ottla.ports import Buffer, Disk, File  # type: ignore[attr-defined]
from ottla.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from ottla.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records.record import build_batch
from ottla.runtime.loop import ThreadWorkers, real_world, run
from ottla.storage import retention
from ottla.storage.checkpoint import write_offsets
from ottla.storage.reservation import BEGIN_BYTES
from tests.kit.wait import until_async


class FailingFile:
    """A file whose writes and flushes fail while `broken(path)`."""

    def __init__(self, file: File, broken: Callable[[str], bool]) -> None:
        self._file = file
        self._broken = broken
        self.path = file.path

    def write(self, position: int, parts: Sequence[Buffer]) -> None:
        if self._broken(self.path):
            raise OSError(errno.ENOSPC, "No space left on device")
        self._file.write(position, parts)

    def flush(self) -> None:
        if self._broken(self.path):
            raise OSError(errno.EIO, "Input/output error")
        self._file.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class FailingDisk:
    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.broken_under: str | None = None
        self.before_open: Callable[[str], None] = lambda path: None

    def open(self, path: str, *, create: bool = False) -> Any:
        self.before_open(path)
        broken = lambda path: self.broken_under is not None and path.startswith(self.broken_under)  # noqa: E731
        if create and broken(path):
            raise OSError(errno.EIO, "Input/output error")
        return FailingFile(self._disk.open(path, create=create), broken)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)


class Ground:
    """Directories and brokers on them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.disk: FailingDisk | None = None
        self._brokers: list[Broker] = []
        self._clients: list[ClientConnection] = []

    def play(self, case: Callable[[], Awaitable[None]]) -> None:
        """Run to the end, and stop what the case did not stop."""

        async def main() -> None:
            try:
                await asyncio.wait_for(case(), 120)
            finally:
                for client in self._clients:
                    client.close()
                for broker in self._brokers:
                    await broker.stop()

        run(main())

    def broker(self, dirs: str = "data", **given: Any) -> Broker:
        log_dirs = ",".join(str(self.path / name) for name in dirs.split(","))
        properties = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": log_dirs, "log.initial.task.delay.ms": "0"}
        properties |= {key.replace("_", "."): value for key, value in given.items()}
        settings = BrokerSettings.parse(properties)
        world = real_world(Counters(), settings)
        self.disk = FailingDisk(world.disk)
        broker = Broker(settings, dataclasses.replace(world, disk=self.disk))
        self._brokers.append(broker)
        return broker

    async def client(self, broker: Broker) -> ClientConnection:
        client = await ClientConnection.open(broker.world.network, "127.0.0.1", broker.bound_ports["PLAINTEXT"])
        self._clients.append(client)
        return client


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


def request(partition: int = 0, acks: int = -1, count: int = 1, size: int = 100) -> ProduceRequest:
    batch = build_batch([(b"k", b"v" * size, [], time.time_ns() // 1_000_000)] * count)
    data = [PartitionProduceData(index=partition, records=batch)]
    return ProduceRequest(acks=acks, timeout_ms=5000, topic_data=[TopicProduceData(name="t", partition_data=data)])


async def produce(client: ClientConnection, partition: int = 0, **options: Any) -> int:
    answer = (await client.call("produce", 9, request(partition, **options))).responses[0].partition_responses[0]
    code: int = answer.error_code
    return code


async def end_of(client: ClientConnection, partition: int = 0) -> tuple[int, int]:
    asked = [FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 20)]
    response = await client.call("fetch", 11, FetchRequest(max_wait_ms=0, topics=[FetchTopic(topic="t", partitions=asked)]))
    data = response.responses[0].partitions[0]
    return data.error_code, data.high_watermark


async def make_topic(broker: Broker, partitions: int = 1, **config: Any) -> None:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    await broker.controller.topic_requests.create([NewTopic("t", partitions, 1, config=settings)])


async def leave_one_record(ground: Ground, dirs: str = "data", **config: Any) -> None:
    """A broker that has stopped; behind it a topic with one record."""
    broker = ground.broker(dirs)
    await broker.start()
    await make_topic(broker, **config)
    client = await ground.client(broker)
    assert await produce(client) == 0
    client.close()
    await broker.stop()


def test_what_was_written_is_there_after_a_restart_and_the_epoch_has_moved_on(ground: Ground) -> None:
    async def main() -> None:
        cluster_id = ""
        for turn in range(3):
            broker = ground.broker()
            await broker.start()
            assert cluster_id in ("", broker.cluster_id)
            cluster_id = broker.cluster_id
            if turn == 0:
                await make_topic(broker)
            client = await ground.client(broker)
            assert await end_of(client) == (0, 10 * turn)
            assert await produce(client, count=10) == 0
            epoch = broker.image.topics["t"].partitions[0].leader_epoch
            [partition] = broker.partitions
            assert partition.log.latest_epoch == epoch == turn
            client.close()
            await broker.stop()
            assert (ground.path / "data" / ".kafka_cleanshutdown").exists()

    ground.play(main)


def test_a_deleted_topic_is_gone_at_once_and_its_files_after_the_delay(ground: Ground) -> None:
    async def main() -> None:
        broker = ground.broker()
        await broker.start()
        await make_topic(broker, file_delete_delay_ms="50")
        await broker.controller.topic_requests.delete(["t"])
        names = [path.name for path in (ground.path / "data").iterdir() if path.is_dir()]
        assert len(names) == 1
        assert names[0].endswith("-delete")
        await until_async(lambda: not [path for path in (ground.path / "data").iterdir() if path.is_dir()])
        await make_topic(broker)
        client = await ground.client(broker)
        assert await end_of(client) == (0, 0)
        client.close()
        await broker.stop()

    ground.play(main)


def test_a_clock_that_is_set_removes_no_files_before_their_delay(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        broker = ground.broker()
        await broker.start()
        await make_topic(broker, file_delete_delay_ms="3000000")
        await broker.controller.topic_requests.delete(["t"])
        monkeypatch.setattr(time, "time", lambda: time.time_ns() / 1e9 + 3_600)
        await broker.housekeeping.remove_files()
        assert list((ground.path / "data").glob("t-0.*-delete"))
        await broker.stop()

    ground.play(main)


def test_files_that_belong_to_no_topic_are_set_aside_and_kept(ground: Ground) -> None:
    async def main() -> None:
        await leave_one_record(ground, file_delete_delay_ms="0")
        data = ground.path / "data"
        shutil.copytree(data / "t-0", data / "stranger-0")
        for _ in range(2):
            broker = ground.broker()
            await broker.start()
            assert list(broker.image.topics) == ["t"]
            await broker.stop()
        [kept] = data.glob("stranger-0.*-stray")
        written = "00000000000000000000.log"
        assert (kept / written).read_bytes() == (data / "t-0" / written).read_bytes() != b""

    ground.play(main)


def test_files_of_another_topic_of_the_name_are_set_aside_and_kept(ground: Ground) -> None:
    """As Kafka 4.3 does: somebody may have put them there from a backup."""

    async def main() -> None:
        await leave_one_record(ground, file_delete_delay_ms="0")
        data = ground.path / "data"
        before = (data / "t-0" / "00000000000000000000.log").read_bytes()
        (data / "t-0" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAABQ")
        broker = ground.broker()
        await broker.start()
        await broker.housekeeping.remove_files()
        assert [partition.log.log_end_offset for partition in broker.partitions] == [0]
        await broker.stop()
        [kept] = data.glob("t-0.*-stray")
        assert (kept / "00000000000000000000.log").read_bytes() == before != b""

    ground.play(main)


def test_a_disk_that_is_not_mounted_is_missed(ground: Ground) -> None:
    """Kafka 4.3 does not start on a directory without meta.properties. A new directory is fine where nothing is missing."""

    async def main() -> None:
        broker = ground.broker("a,b")
        await broker.start()
        await make_topic(broker, partitions=2)
        await broker.stop()
        shutil.move(ground.path / "b", ground.path / "b mounted")
        for _ in range(2):
            with pytest.raises(StartupError, match=r"/b has no meta.properties, and partition t-\d is in none of"):
                await ground.broker("a,b").start()
        shutil.copytree(ground.path / "b mounted", ground.path / "b", dirs_exist_ok=True)
        broker = ground.broker("a,b,c")
        await broker.start()
        await broker.stop()
        assert (ground.path / "c" / "meta.properties").exists()
        shutil.rmtree(ground.path / "b")
        (ground.path / "b").mkdir()
        (ground.path / "b" / "meta.properties").write_text("version=0\n")
        broker = ground.broker("a,b,c")
        await broker.start()
        assert len(broker.partitions) == 2
        await broker.stop()

    ground.play(main)


def test_without_any_meta_properties_a_broker_is_who_its_topics_say(ground: Ground) -> None:
    async def main() -> None:
        await leave_one_record(ground, "a,b")
        for name in ("a", "b"):
            (ground.path / name / "meta.properties").unlink()
        with pytest.raises(StartupError, match=r"broker\.id=5, but the data directories belong to broker 1001"):
            await ground.broker("a,b", broker_id="5").start()
        broker = ground.broker("a,b")
        await broker.start()
        assert broker.broker_id == 1001
        assert [partition.log.log_end_offset for partition in broker.partitions] == [1]
        await broker.stop()

    ground.play(main)


@pytest.mark.parametrize("clean", [True, False])
def test_what_is_lost_at_a_start_is_told(ground: Ground, clean: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        broker = ground.broker()
        await broker.start()
        await make_topic(broker, segment_bytes="1000")
        client = await ground.client(broker)
        for _ in range(5):
            assert await produce(client, size=700) == 0
        client.close()
        await broker.stop()
        data = ground.path / "data"
        last = data / "t-0" / f"{4:020d}.log"
        os.truncate(last, 500)
        if not clean:
            (data / ".kafka_cleanshutdown").unlink()
        broker = ground.broker()
        await broker.start()
        await broker.stop()
        told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert told == [
            f"Recovery of {last}: truncated 500 bytes from an invalid batch at offset 4 on, which held no intact batch",
            f"t-0 lost offsets 4 to 4 (1 in all): the log in {data}/t-0 ends at offset 4, the checkpointed high watermark was 5, "
            f"the recovery point 5. Files are missing or corrupt; see `Damaged logs` in docs/operations.md",
        ]

    ground.play(main)


def test_damage_that_a_reader_meets_is_told_once(ground: Ground, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        broker = ground.broker()
        await broker.start()
        await make_topic(broker)
        client = await ground.client(broker)
        for _ in range(3):
            assert await produce(client, size=700) == 0
        [partition] = broker.partitions
        (ground.path / "data" / "t-0" / f"{0:020d}.log").write_bytes(bytes(partition.log.active.size))
        for _ in range(3):
            with pytest.raises(KafkaError, match="CORRUPT_MESSAGE"):
                partition.read(1, 10, 3, True)

    ground.play(main)
    told = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(told) == 1
    assert told[0].startswith("Corrupt log of t-0, consumers cannot read past offset")


def test_f11_retention_moves_the_start_and_frees_the_disk(ground: Ground) -> None:
    async def main() -> None:
        broker = ground.broker(log_retention_check_interval_ms="20")
        await broker.start()
        await make_topic(broker, segment_bytes="1000", retention_bytes="2000", file_delete_delay_ms="30")
        client = await ground.client(broker)
        for _ in range(20):
            assert await produce(client, size=400) == 0
        [partition] = broker.partitions
        await until_async(lambda: partition.log.log_start_offset > 0)
        await until_async(lambda: not list((ground.path / "data" / "t-0").glob("*.deleted")))
        assert sum(path.stat().st_size for path in (ground.path / "data" / "t-0").glob("*.log")) <= 3000
        assert await produce(client) == 0
        client.close()
        await broker.stop()

    ground.play(main)


def test_f11_a_log_that_fails_in_retention_does_not_keep_it_from_others(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        broker = ground.broker(log_retention_check_interval_ms="20")
        await broker.start()
        await make_topic(broker, partitions=2, segment_bytes="1000", retention_bytes="2000")
        client = await ground.client(broker)
        beyond_size = retention.beyond_size

        def fails_if_empty(size_bytes: int, retention_bytes: int) -> retention.Rule:
            if not size_bytes:
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "no record batch")
            return beyond_size(size_bytes, retention_bytes)

        monkeypatch.setattr(retention, "beyond_size", fails_if_empty)
        _, second = broker.partitions
        for _ in range(20):
            assert await produce(client, partition=1, size=400) == 0
        await until_async(lambda: second.log.log_start_offset > 0)

    ground.play(main)
    assert "Retention of t-0 failed; other partitions are not affected" in caplog.text


def test_a_log_that_is_not_written_to_keeps_no_room_for_more(ground: Ground) -> None:
    async def main() -> None:
        broker = ground.broker(log_retention_check_interval_ms="20")
        await broker.start()
        await make_topic(broker)
        client = await ground.client(broker)
        for _ in range(3):
            assert await produce(client, size=500_000) == 0
        [partition] = broker.partitions
        await until_async(lambda: partition.log.active.reservation.next_at == BEGIN_BYTES < partition.log.active.size)
        assert await produce(client) == 0
        client.close()
        await broker.stop()

    ground.play(main)


def test_f14_flush_ms_and_the_checkpoints(ground: Ground) -> None:
    async def main() -> None:
        broker = ground.broker(
            log_flush_scheduler_interval_ms="10",
            log_flush_offset_checkpoint_interval_ms="20",
            replica_high_watermark_checkpoint_interval_ms="20",
        )
        await broker.start()
        await make_topic(broker, flush_ms="10")
        client = await ground.client(broker)
        assert await produce(client, count=7) == 0
        [partition] = broker.partitions
        await until_async(lambda: partition.log.recovery_point == 7)

        def written(name: str) -> bool:
            path = ground.path / "data" / name
            return path.exists() and "t 0 7" in path.read_text()

        await until_async(lambda: written("recovery-point-offset-checkpoint"))
        await until_async(lambda: written("replication-offset-checkpoint"))
        client.close()
        await broker.stop()

    ground.play(main)


@pytest.mark.parametrize("dirs", ["data", "other,data"])
def test_no_checkpoint_speaks_of_a_log_deleted_while_another_was_written(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, dirs: str
) -> None:
    """Found by reading: what is believed of the former log after a crash, its start and how much of it was flushed, was written
    down after the next one of its name had been made."""
    held, let = asyncio.Event(), asyncio.Event()
    original = ThreadWorkers.run

    async def run_held(workers: ThreadWorkers, work: Callable[[], Any]) -> Any:
        if isinstance(work, partial) and work.func is write_offsets:
            held.set()
            await let.wait()
        return await original(workers, work)

    async def main() -> None:
        never = {f"{name}_checkpoint_interval_ms": "1000000" for name in ("log_flush_offset", "log_flush_start_offset")}
        broker = ground.broker(dirs, log_initial_task_delay_ms="1000000", **never)
        await broker.start()
        await make_topic(broker, partitions=len(dirs.split(",")))
        client = await ground.client(broker)
        for partition in broker.partitions:
            assert await produce(client, partition.topic_partition.partition, count=2) == 0
            assert await produce(client, partition.topic_partition.partition, count=2) == 0
            await broker.flusher.flush(partition)
            assert partition.delete_records(3) == partition.log.recovery_point - 1 == 3
        monkeypatch.setattr(ThreadWorkers, "run", run_held)
        for round_of_them in (broker.checkpoints.write_log_starts, broker.checkpoints.write_recovery_points):
            held.clear()
            let.clear()
            for partition in broker.partitions:
                if partition.log.log_end_offset == 0:
                    assert await produce(client, partition.topic_partition.partition, count=4) == 0
                    await broker.flusher.flush(partition)
                    assert partition.delete_records(3) == 3
            writing = asyncio.ensure_future(round_of_them())
            await held.wait()
            await broker.controller.topic_requests.delete(["t"])
            await make_topic(broker, partitions=len(dirs.split(",")))
            let.set()
            await writing
            for path in ground.path.glob("*/*-offset-checkpoint"):
                offsets = [int(line.split()[2]) for line in path.read_text().splitlines()[2:]]
                assert not any(offsets), f"{path.name}: {path.read_text()!r}"

    ground.play(main)


def test_what_a_worker_writes_is_waited_for_before_the_last_word_is_written(ground: Ground) -> None:
    """Found by reading: a checkpoint begun before the stop could be the last to get its name, and deleted records came back."""
    held, let = threading.Event(), threading.Event()

    async def main() -> None:
        broker = ground.broker(log_flush_start_offset_checkpoint_interval_ms="10")
        assert ground.disk is not None
        await broker.start()
        await make_topic(broker)
        client = await ground.client(broker)
        assert await produce(client, count=4) == 0
        [partition] = broker.partitions

        def before_open(path: str) -> None:
            if "log-start-offset" in path and threading.current_thread() is not threading.main_thread():
                held.set()
                assert let.wait(60)

        ground.disk.before_open = before_open
        assert partition.delete_records(2) == 2
        await until_async(held.is_set)
        assert partition.delete_records(3) == 3
        client.close()
        asyncio.get_running_loop().call_later(0.3, let.set)
        await broker.stop()
        await asyncio.sleep(0.6)
        assert (ground.path / "data" / "log-start-offset-checkpoint").read_text() == "0\n1\nt 0 3\n"

    ground.play(main)


def test_l06_f6_a_failed_directory_takes_its_own_partitions_only(ground: Ground) -> None:
    async def main() -> None:
        broker = ground.broker("one,two")
        await broker.start()
        await make_topic(broker, 4)
        client = await ground.client(broker)
        place = {partition.topic_partition.partition: partition.data_dir.path for partition in broker.partitions}
        assert sorted(path.rpartition("/")[2] for path in place.values()) == ["one", "one", "two", "two"]
        assert [await produce(client, number) for number in range(4)] == [0] * 4
        lost = [number for number, path in place.items() if path.endswith("two")]
        kept = [number for number in range(4) if number not in lost]
        assert ground.disk is not None
        ground.disk.broken_under = str(ground.path / "two")
        assert await produce(client, lost[0]) == ErrorCode.KAFKA_STORAGE_ERROR
        ground.disk.broken_under = None
        assert await produce(client, lost[1]) == ErrorCode.KAFKA_STORAGE_ERROR, "once failed, a directory stays offline"
        assert (await end_of(client, lost[0]))[0] == ErrorCode.KAFKA_STORAGE_ERROR
        assert [await produce(client, number) for number in kept] == [0, 0]
        assert [await end_of(client, number) for number in kept] == [(0, 2), (0, 2)]
        results = (await client.call("describe_log_dirs", 4, DescribeLogDirsRequest(topics=None))).results
        codes = {result.log_dir.rpartition("/")[2]: result.error_code for result in results}
        assert codes == {"one": 0, "two": ErrorCode.KAFKA_STORAGE_ERROR}
        here = broker.broker_id
        shown = (await client.call("metadata", 12, MetadataRequest(topics=[MetadataRequestTopic(name="t")]))).topics[0].partitions
        seen = {each.partition_index: (each.error_code, each.leader_id, each.offline_replicas, each.isr_nodes) for each in shown}
        assert seen == {
            number: (ErrorCode.NONE, here, [], [here]) if number in kept else (ErrorCode.LEADER_NOT_AVAILABLE, -1, [here], [here])
            for number in range(4)
        }
        described = await client.call(
            "describe_topic_partitions", 0, DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")])
        )
        assert {each.partition_index: (each.leader_id, each.offline_replicas) for each in described.topics[0].partitions} == {
            number: (here, []) if number in kept else (-1, [here]) for number in range(4)
        }
        await broker.controller.topic_requests.create([NewTopic("new", 2, 1)])
        assert {partition.data_dir.path for partition in broker.partitions.online()} == {str(ground.path / "one")}
        assert broker.failure is None
        client.close()
        await broker.stop()
        assert not (ground.path / "two" / ".kafka_cleanshutdown").exists()
        again = ground.broker("one,two")
        await again.start()
        client = await ground.client(again)
        assert [await end_of(client, number) for number in lost] == [(0, 1), (0, 1)], "what was acknowledged is there"
        client.close()
        await again.stop()

    ground.play(main)


def test_l06_without_any_directory_left_the_broker_stops_and_says_why(ground: Ground) -> None:
    async def main() -> None:
        broker = ground.broker()
        await broker.start()
        await make_topic(broker)
        client = await ground.client(broker)
        assert ground.disk is not None
        ground.disk.broken_under = str(ground.path / "data")
        assert await produce(client) == ErrorCode.KAFKA_STORAGE_ERROR
        async with asyncio.timeout(60):
            await broker.stop_asked()
        assert broker.failure is not None
        assert "No space left on device" in broker.failure
        client.close()
        await broker.stop()
        assert not (ground.path / "data" / ".kafka_cleanshutdown").exists()

    ground.play(main)


def test_a_failed_flush_is_final(ground: Ground) -> None:
    async def main() -> None:
        broker = ground.broker("one,two", log_flush_scheduler_interval_ms="10")
        await broker.start()
        await make_topic(broker, 2, flush_ms="10")
        client = await ground.client(broker)
        partition = next(each for each in broker.partitions if each.data_dir.path.endswith("two"))
        number = partition.topic_partition.partition
        assert await produce(client, number) == 0
        assert ground.disk is not None
        await until_async(lambda: partition.log.recovery_point == 1)
        [segment] = (ground.path / "two" / f"t-{number}").glob("*.log")
        assert await produce(client, number) == 0
        ground.disk.broken_under = str(segment)
        await until_async(lambda: partition.is_offline)
        ground.disk.broken_under = None
        assert await produce(client, number) == ErrorCode.KAFKA_STORAGE_ERROR
        client.close()
        await broker.stop()

    ground.play(main)


def test_a_data_directory_in_use_is_refused_in_one_sentence(ground: Ground) -> None:
    async def main() -> None:
        first = ground.broker()
        await first.start()
        with pytest.raises(StartupError, match="data is in use by another process"):
            await ground.broker().start()
        assert await end_of(await ground.client(first)) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
        await first.stop()
        second = ground.broker()
        await second.start()
        await second.stop()

    ground.play(main)


def test_a_directory_under_two_names_is_not_said_to_be_another_process_s(ground: Ground) -> None:
    async def main() -> None:
        (ground.path / "a").mkdir()
        (ground.path / "b").symlink_to(ground.path / "a")
        with pytest.raises(StartupError, match=r"log\.dirs names a directory twice: .*/b is .*/a"):
            await ground.broker("a,b").start()
        await ground.broker("a").start()

    ground.play(main)


def test_a_directory_that_would_be_a_partition_of_another_is_refused(ground: Ground) -> None:
    """It was: `disk-1` became a topic, and who deleted that deleted all partitions in it."""

    async def main() -> None:
        with pytest.raises(StartupError, match=r"log\.dirs: .*/a/disk-1 lies in .*/a, where its name is that of a partition"):
            await ground.broker("a,a/disk-1").start()
        await ground.broker("a,a/disk").start()

    ground.play(main)


def test_a_port_in_use_is_refused_in_one_sentence_and_leaves_nothing_locked(ground: Ground) -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(
                StartupError, match=f"cannot listen on PLAINTEXT://127.0.0.1:{port}: another program uses that port"
            ):
                await ground.broker(listeners=f"PLAINTEXT://127.0.0.1:{port}").start()
        broker = ground.broker()
        await broker.start()
        await broker.stop()

    ground.play(main)


def test_a_directory_that_cannot_be_made(ground: Ground) -> None:
    async def main() -> None:
        (ground.path / "file").write_text("not a directory")
        with pytest.raises(StartupError, match="file/data cannot be used: Not a directory"):
            await ground.broker("file/data").start()
        broker = ground.broker("good,file/data")
        await broker.start()
        assert broker.partitions.data_dirs.offline_paths() == [str(ground.path / "file/data")]
        await broker.stop()

    ground.play(main)


def test_another_brokers_directory_is_refused(ground: Ground) -> None:
    async def main() -> None:
        broker = ground.broker(broker_id="5")
        await broker.start()
        await broker.stop()
        with pytest.raises(StartupError, match="belongs to broker 5, this is broker 6"):
            await ground.broker(broker_id="6").start()

    ground.play(main)


def test_a_flipped_payload_in_a_closed_segment_is_told(ground: Ground, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        broker = ground.broker()
        await broker.start()
        await make_topic(broker, segment_bytes="1000")
        client = await ground.client(broker)
        for _ in range(5):
            assert await produce(client, size=700) == 0
        client.close()
        segment = ground.path / "data" / "t-0" / f"{2:020d}.log"
        data = bytearray(segment.read_bytes())
        data[200] ^= 1
        segment.write_bytes(data)
        assert broker.counters.get("segments_scrubbed") == 0, "off by default"
        broker.scrubber.configure(1 << 30)
        await until_async(lambda: broker.counters.get("segments_scrubbed") == 4, "all closed segments are checked")
        assert broker.counters.get("segment_damages_found") == 1
        (told,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
        assert told.startswith(
            f"Segment {segment} of t-0 is damaged: offsets 2 to 2, positions 0 to {len(data) - 1}, are no valid"
        )
        assert f"`ottla log repair {segment.parent}`" in told
        await broker.stop()

    ground.play(main)
