"""One of `log.dirs`: identity, lock, what is loaded, failing (F5, F6, L06, L11)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.storage.config import LogConfig
from ottla.storage.data_dir import DataDir, DataDirRefused, least_used
from ottla.types import ZERO_UUID, TopicPartition
from tests.kit.storage import (
    NOW_MS,
    TOPIC_ID,
    TP,
    MemoryDisk,
    PowerLoss,
    all_offsets,
    append,
    batch,
    new_log,
    open_dir,
    reopen,
    seeded_random,
)


def settings(topic: str) -> LogConfig:
    return LogConfig(segment_bytes=500)


def test_identity_is_written_once_and_found_again() -> None:
    disk = MemoryDisk()
    open_dir(disk).close()
    lines = disk.content("/data/meta.properties").decode().splitlines()
    assert {"version=0", "broker.id=1", "cluster.id=cluster"} <= set(lines)
    found = DataDir.open(disk, "/data", None, None, seeded_random())
    assert (found.broker_id, found.cluster_id) == (1, "cluster")


def test_identity_comes_later_where_it_is_not_known_yet() -> None:
    disk = MemoryDisk()
    data_dir = DataDir.open(disk, "/data", None, None, seeded_random())
    assert not disk.exists("/data/meta.properties")
    data_dir.broker_id, data_dir.cluster_id = 5, "x"
    data_dir.write_identity()
    data_dir.close()
    assert DataDir.open(disk, "/data", 5, "x", seeded_random()).cluster_id == "x"


@pytest.mark.parametrize(
    ("broker_id", "cluster_id", "words"), [(2, "cluster", "belongs to broker 1"), (1, "other", "belongs to cluster")]
)
def test_the_directory_of_another_broker_or_cluster_is_refused_and_left_unlocked(
    broker_id: int, cluster_id: str, words: str
) -> None:
    disk = MemoryDisk()
    open_dir(disk).close()
    with pytest.raises(DataDirRefused, match=words):
        DataDir.open(disk, "/data", broker_id, cluster_id, seeded_random())
    open_dir(disk).close()


def test_meta_properties_of_kraft_are_understood() -> None:
    disk = MemoryDisk()
    disk.put("/data/meta.properties", b"#\n#Sun Nov 15\ncluster.id=abc\nversion=1\nnode.id=3\ndirectory.id=xyz\n")
    found = DataDir.open(disk, "/data", None, None, seeded_random())
    assert (found.broker_id, found.cluster_id) == (3, "abc")
    disk.put("/data/meta.properties", b"version=2\n")
    found.close()
    with pytest.raises(DataDirRefused, match="version"):
        DataDir.open(disk, "/data", None, None, seeded_random())


def test_a_directory_in_use_is_not_opened_twice() -> None:
    disk = MemoryDisk()
    first = open_dir(disk)
    with pytest.raises(BlockingIOError):
        open_dir(disk)
    first.close()
    open_dir(disk).close()


def test_f5_one_directory_per_partition_with_its_topic_id() -> None:
    disk = MemoryDisk()
    data_dir, _ = new_log(disk)
    data_dir.create_log(TopicPartition("my-topic.with-dashes", 12), TOPIC_ID, LogConfig(), NOW_MS)
    data_dir.close()
    names = [name for name in disk.list("/data") if disk.is_dir(f"/data/{name}")]
    assert names == ["my-topic.with-dashes-12", "orders-0"]
    data_dir = open_dir(disk)
    logs = {log.topic_partition: log for log in data_dir.load(settings, NOW_MS)}
    assert set(logs) == {TP, TopicPartition("my-topic.with-dashes", 12)}
    assert all(log.topic_id == TOPIC_ID for log in logs.values())


def test_what_is_no_partition_is_left_alone_and_deleted_ones_go() -> None:
    disk = MemoryDisk()
    data_dir, log = new_log(disk)
    append(log, 1)
    data_dir.close()
    gone = "/data/old-0.0123456789abcdef0123456789abcdef-delete"
    kept = ["/data/__cluster_metadata-0", "/data/moving-0.0123-future", "/data/lost-0.0123-stray", "/data/lost+found"]
    for path in [gone, *kept]:
        disk.make_dirs(path)
        disk.put(f"{path}/{0:020d}.log", b"x")
    data_dir = open_dir(disk)
    assert [log.topic_partition for log in data_dir.load(settings, NOW_MS)] == [TP]
    assert not disk.exists(gone)
    assert all(disk.content(f"{path}/{0:020d}.log") == b"x" for path in kept)


@pytest.mark.parametrize("name", ["to-delete", "orders-0-delete", "orders-0.mine-delete"])
def test_what_somebody_called_so_is_not_deleted(name: str) -> None:
    """Found by reading: every directory below a data directory was removed whose name ended like that of a deleted log."""
    disk = MemoryDisk()
    disk.make_dirs("/data")
    disk.make_dirs(f"/data/{name}")
    disk.put(f"/data/{name}/thesis.tex", b"years of work")
    open_dir(disk).load(settings, NOW_MS)
    assert disk.exists(f"/data/{name}/thesis.tex")


def test_creating_what_is_there_returns_it_unless_it_is_another_topic_s() -> None:
    data_dir, log = new_log(MemoryDisk())
    assert data_dir.create_log(TP, TOPIC_ID, LogConfig(), NOW_MS) is log
    with pytest.raises(KafkaError) as caught:
        data_dir.create_log(TP, bytes(15) + b"x", LogConfig(), NOW_MS)
    assert caught.value.code == ErrorCode.INCONSISTENT_TOPIC_ID


def test_a_log_without_topic_id_gets_one() -> None:
    disk = MemoryDisk()
    data_dir, _ = new_log(disk)
    data_dir.close()
    del disk.names[f"/data/{TP}/partition.metadata"]
    data_dir, log = reopen(disk)
    assert log.topic_id == ZERO_UUID
    data_dir.assign_topic_id(log, TOPIC_ID)
    data_dir.close()
    assert reopen(disk)[1].topic_id == TOPIC_ID


def test_deleting_a_log_renames_its_directory_and_frees_the_name() -> None:
    disk = MemoryDisk()
    data_dir, log = new_log(disk)
    append(log, 1)
    path = data_dir.delete_log(TP)
    name = path.removeprefix("/data/")
    assert name.startswith("orders-0.")
    assert name.endswith("-delete")
    assert len(name) == len("orders-0.") + 32 + len("-delete")
    assert disk.is_dir(path)
    log = data_dir.create_log(TP, TOPIC_ID, LogConfig(), NOW_MS)
    assert log.log_end_offset == 0
    long_name = TopicPartition("x" * 249, 0)
    data_dir.create_log(long_name, TOPIC_ID, LogConfig(), NOW_MS)
    assert len(data_dir.delete_log(long_name).removeprefix("/data/")) == 255


def test_clean_shutdown_file_is_kafka_s_json() -> None:
    disk = MemoryDisk()
    data_dir, log = new_log(disk)
    append(log, 1)
    log.high_watermark = 1
    data_dir.close(broker_epoch=25)
    assert json.loads(disk.content("/data/.kafka_cleanshutdown")) == {"version": 0, "brokerEpoch": 25}
    assert disk.content("/data/recovery-point-offset-checkpoint") == b"0\n1\norders 0 1\n"
    assert disk.content("/data/replication-offset-checkpoint") == b"0\n1\norders 0 1\n"
    assert disk.content("/data/log-start-offset-checkpoint") == b"0\n0\n"


def test_f6_a_failed_directory_takes_no_other_with_it() -> None:
    disk = MemoryDisk()
    dirs = [open_dir(disk, path) for path in ("/data-a", "/data-b")]
    for data_dir in dirs:
        data_dir.load(settings, NOW_MS)
    logs = []
    for partition in range(6):
        data_dir = least_used(dirs)
        logs.append(data_dir.create_log(TopicPartition("t", partition), TOPIC_ID, LogConfig(), NOW_MS))
    assert [len(data_dir.logs) for data_dir in dirs] == [3, 3]
    disk.broken = lambda kind, path: path.startswith("/data-a/")
    with pytest.raises(OSError) as caught:
        append(dirs[0].logs[TopicPartition("t", 0)], 1)
    dirs[0].mark_offline(caught.value)
    assert not dirs[0].online
    assert append(dirs[1].logs[TopicPartition("t", 1)], 1) == 0
    assert least_used(dirs) is dirs[1]
    with pytest.raises(KafkaError) as refused:
        dirs[0].create_log(TopicPartition("t", 9), TOPIC_ID, LogConfig(), NOW_MS)
    assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    for data_dir in dirs:
        data_dir.close()
    assert not disk.exists("/data-a/.kafka_cleanshutdown")
    assert disk.exists("/data-b/.kafka_cleanshutdown")
    dirs[1].mark_offline(OSError())
    with pytest.raises(KafkaError, match="all log directories are offline"):
        least_used(dirs)


@pytest.mark.parametrize("loses_power", [True, False])
def test_l11_killed_at_each_step_of_a_clean_stop_loses_nothing_that_was_flushed(loses_power: bool) -> None:
    finished = 0
    for step in range(200):
        disk = MemoryDisk()
        data_dir, log = new_log(disk, settings("t"))
        for number in range(9):
            append(log, number, leader_epoch=number // 3)
        log.flush()
        data_dir.write_checkpoints()
        for number in range(9, 14):
            append(log, number, leader_epoch=number // 3)
        disk.fail(step, PowerLoss())
        try:
            data_dir.close()
            finished += 1
        except PowerLoss:
            pass
        if loses_power:
            disk.lose_power()
        else:
            disk.die()
        data_dir, log = reopen(disk, settings("t"))
        assert log.log_end_offset >= (9 if loses_power else 14)
        assert all_offsets(log) == list(range(log.log_end_offset))
        assert log.epochs.entries() == [(epoch, 3 * epoch) for epoch in range(5) if 3 * epoch < log.log_end_offset]
        if finished:
            assert data_dir.was_clean
            break
    assert finished == 1


@pytest.mark.parametrize("logs", [1, 40])
def test_a_clean_stop_flushes_all_logs_in_as_many_rounds_as_one(logs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds: list[int] = []
    disk = MemoryDisk()
    at_once = disk.at_once

    def counted(calls: Sequence[Callable[[], object]]) -> None:
        rounds.append(len(calls))
        at_once(calls)

    monkeypatch.setattr(disk, "at_once", counted)
    data_dir = open_dir(disk)
    data_dir.load(settings, NOW_MS)
    for number in range(logs):
        append(data_dir.create_log(TopicPartition("orders", number), TOPIC_ID, settings("orders"), NOW_MS), 1)
    alone = len([step for step in disk.steps if step.startswith("flush")])
    data_dir.close()
    assert rounds == [logs, logs, logs + 1], "epochs; logs and indexes; their directories, and the one they are in"
    flushed = [step for step in disk.steps if step.startswith("flush")][alone:]
    assert len(flushed) == 6 * logs + 1 + 8, "each file and directory once, and the checkpoints"


def test_writes_that_fail_while_stopping_leave_no_mark_of_a_clean_stop() -> None:
    disk = MemoryDisk()
    data_dir, log = new_log(disk)
    append(log, 1)
    disk.broken = lambda kind, path: kind == "flush" and path.endswith(".log")
    with pytest.raises(OSError):
        data_dir.close()
    disk.broken = lambda kind, path: False
    assert not disk.exists("/data/.kafka_cleanshutdown")
    assert not reopen(disk)[0].was_clean


@pytest.mark.parametrize("restarts_between", [False, True])
def test_c08_checkpoints_of_a_deleted_log_do_not_speak_for_a_new_one_of_its_name(restarts_between: bool) -> None:
    disk = MemoryDisk()
    data_dir, log = new_log(disk, settings("t"))
    for _ in range(20):
        append(log, 1)
    log.high_watermark = 20
    log.advance_log_start(19)
    log.flush()
    data_dir.write_checkpoints()
    disk.remove_tree(data_dir.delete_log(TP))
    if restarts_between:
        data_dir.close(clean=False)
        data_dir = open_dir(disk)
        assert data_dir.load(settings, NOW_MS) == []
    log = data_dir.create_log(TP, TOPIC_ID, settings("t"), NOW_MS)
    for _ in range(3):
        append(log, 1)
    disk.die()
    _, log = reopen(disk, settings("t"))
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (0, 3, 0)
    assert all_offsets(log) == [0, 1, 2]


def test_a_recovery_point_beyond_what_is_left_is_taken_back_before_others_fill_the_place() -> None:
    disk = MemoryDisk()
    data_dir, log = new_log(disk, settings("t"))
    for _ in range(20):
        append(log, 1)
    log.flush()
    data_dir.write_checkpoints()
    bases = list(log.local.bases)
    for base in bases[1:]:
        del disk.names[f"/data/{TP}/{base:020d}.log"]
    disk.die()
    _, log = reopen(disk, settings("t"))
    assert log.log_end_offset == bases[1]
    for _ in range(20):
        append(log, 1)
    disk.die()
    _, log = reopen(disk, settings("t"))
    assert log.recovery_point <= bases[1]


def test_recovery_keeps_gaps_that_compaction_made_and_ends_at_those_a_crash_made() -> None:
    for stamps, ends in (((0, 2, 5), 30), ((0, 1, 2), 3)):
        disk = MemoryDisk()
        _, log = new_log(disk, LogConfig())
        for base in stamps:
            log.append_as_follower(bytes(batch(1, base_offset=base, leader_epoch=0)), NOW_MS)
        log.roll(NOW_MS)
        # the next segment begins behind the end of the first
        data = bytes(batch(1, base_offset=29, leader_epoch=0))
        disk.put(f"/data/{TP}/{29:020d}.log", data)
        del disk.names[f"/data/{TP}/{stamps[-1] + 1:020d}.log"]
        disk.die()
        _, log = reopen(disk, LogConfig())
        assert log.log_end_offset == ends


def test_a_new_log_is_as_one_found_in_an_empty_directory() -> None:
    made, found = MemoryDisk(), MemoryDisk()
    logs = []
    for disk in (made, found):
        data_dir = open_dir(disk)
        data_dir.load(settings, NOW_MS)
        if disk is found:
            disk.make_dirs("/data/orders-0")
        log = data_dir.create_log(TP, TOPIC_ID, settings("orders"), NOW_MS)
        logs.append((log.topic_id, log.log_end_offset, log.recovery_point, log.epochs.entries(), list(log.local.bases)))
        append(log, 1, leader_epoch=4)
        data_dir.close()
    assert logs[0] == logs[1]
    assert {name: inode.data for name, inode in made.names.items()} == {name: inode.data for name, inode in found.names.items()}
