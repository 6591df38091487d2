"""A disk that is really full (L06): small file systems in memory, as one of two data directories and as the only one.

What a faulty disk does (EIO, a failed fsync) is shown by the simulator; here the kernel says ENOSPC when it wants to: in the
middle of a write, of a checkpoint, of a roll.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.testing import Broker, BrokerFailed
from tests.kit.raw import RawConnection, batch, produce_frame, read_produced

KAFKA_STORAGE_ERROR = 56
TOPIC = "full"
MEGABYTE = 1 << 20


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Callable[[str, int], Path]]:
    """`volume(name, bytes)`: a file system of that size. Called again with the same name it changes the size."""
    if os.geteuid() != 0:
        pytest.fail("this test mounts small file systems and must run as root: sudo make faults")
    mounted: list[Path] = []

    def mount(name: str, size: int) -> Path:
        path = tmp_path / name
        path.mkdir(exist_ok=True)
        options = f"remount,size={size}" if path in mounted else f"size={size}"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "ottla-test", str(path)], check=True)
        if path not in mounted:
            mounted.append(path)
        return path

    yield mount
    for path in mounted:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


class Writer:
    """Numbered records of one partition, one at a time; knows what was acknowledged."""

    def __init__(self, partition: int, size: int) -> None:
        self.partition = partition
        self.acknowledged: list[bytes] = []
        self._size = size

    def write(self, connection: RawConnection) -> int:
        value = b"%d:%d:" % (self.partition, len(self.acknowledged)) + bytes(self._size)
        reply = read_produced(connection.call(produce_frame(TOPIC, self.partition, batch([value]))))
        if reply.error == 0:
            assert reply.base_offset == len(self.acknowledged)
            self.acknowledged.append(value)
        return reply.error

    def check(self, connection: RawConnection) -> None:
        found = connection.read_all(TOPIC, self.partition)
        assert found == list(enumerate(self.acknowledged)), f"partition {self.partition} is not what was acknowledged"


def partitions_in(path: Path) -> list[int]:
    return sorted(int(each.name.rpartition("-")[2]) for each in path.glob(f"{TOPIC}-*") if each.name[-1].isdigit())


@pytest.mark.parametrize("record_bytes", [100, 70_000])
def test_l06_one_of_two_disks_is_full(volume: Callable[[str, int], Path], tmp_path: Path, record_bytes: int) -> None:
    small, large = volume("small", 2 * MEGABYTE), tmp_path / "large"
    settings = {"log.dirs": f"{large},{small}", "log.segment.bytes": 500_000, "log.flush.scheduler.interval.ms": 50}
    with Broker({**settings, "log.flush.offset.checkpoint.interval.ms": 100}) as broker:  # type: ignore[dict-item]
        broker.create_topic(TOPIC, 4)
        assert len(partitions_in(small)) == len(partitions_in(large)) == 2
        writers = {number: Writer(number, record_bytes) for number in range(4)}
        first, second = (writers[number] for number in partitions_in(small))
        others = [writers[number] for number in partitions_in(large)]
        with RawConnection(broker.bootstrap_servers) as connection:
            for _ in range(3):
                for writer in writers.values():
                    assert writer.write(connection) == 0
            for _ in range(100_000):
                error = first.write(connection)
                if error:
                    break
                if len(first.acknowledged) % 10 == 0:
                    for writer in others:
                        assert writer.write(connection) == 0
            assert error == KAFKA_STORAGE_ERROR
            assert first.write(connection) == KAFKA_STORAGE_ERROR, "once failed it stays offline"
            assert second.write(connection) == KAFKA_STORAGE_ERROR
            for writer in others:
                for _ in range(20):
                    assert writer.write(connection) == 0
                writer.check(connection)
        assert len(re.findall(rf"ERROR .*Data directory {small} is offline", broker.log)) == 1, broker.log
        assert "Traceback" not in broker.log

        broker.restart()  # still full: it starts, and the other directory serves
        with RawConnection(broker.bootstrap_servers) as connection:
            for writer in others:
                assert writer.write(connection) == 0
                writer.check(connection)

        volume("small", 8 * MEGABYTE)
        broker.restart()
        with RawConnection(broker.bootstrap_servers) as connection:
            for writer in writers.values():
                writer.check(connection)
                assert writer.write(connection) == 0
                writer.check(connection)
        assert "Traceback" not in broker.log


def test_l06_the_only_disk_is_full(volume: Callable[[str, int], Path]) -> None:
    small = volume("small", 2 * MEGABYTE)
    broker = Broker({"log.segment.bytes": 500_000}, data_dir=small)
    writer = Writer(0, 20_000)
    with broker:
        broker.create_topic(TOPIC)
        with RawConnection(broker.bootstrap_servers) as connection:
            for _ in range(1000):
                if error := writer.write(connection):
                    break
            assert error == KAFKA_STORAGE_ERROR
        assert broker.process is not None
        code = broker.process.wait(60)
        assert code != 0
        why = [line for line in broker.log.splitlines() if "all data directories are offline" in line]
        assert len(why) == 1, broker.log
        assert f"the last one failed: {small}: [Errno 28] No space left on device" in why[0]
        assert "Traceback" not in broker.log

        volume("small", 8 * MEGABYTE)
        broker.restart()
        with RawConnection(broker.bootstrap_servers) as connection:
            writer.check(connection)
            assert writer.write(connection) == 0


def test_l06_a_full_disk_at_the_first_start(volume: Callable[[str, int], Path]) -> None:
    small = volume("small", 64 << 10)
    with (small / "filler").open("wb") as filler:
        try:
            filler.write(bytes(MEGABYTE))
        except OSError:
            pass
    began = time.monotonic()
    with pytest.raises(BrokerFailed) as failure:
        Broker(data_dir=small).start()
    assert time.monotonic() - began < 60
    assert "Traceback" not in str(failure.value)
    assert re.search(r"No space left on device|disk is full", str(failure.value)), str(failure.value)


def test_a_directory_that_cannot_be_used_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(BrokerFailed) as failure:
        Broker(data_dir=tmp_path / "file" / "data").start()
    told = [line for line in str(failure.value).splitlines() if "cannot be used" in line]
    assert told == [f"ottla serve: the data directory {tmp_path}/file/data cannot be used: Not a directory"]
