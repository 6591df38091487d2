"""Data directories as brokers of several versions describe them."""

from __future__ import annotations

from ottla.cli.log_dirs.view import _directory
from ottla.errors import ErrorCode
from ottla.protocol.messages.describe_log_dirs import DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic


def test_a_directory_with_a_replica_on_its_way() -> None:
    replicas = [
        DescribeLogDirsPartition(partition_index=1, partition_size=70, offset_lag=5, is_future_key=True),
        DescribeLogDirsPartition(partition_index=0, partition_size=30, offset_lag=0, is_future_key=False),
    ]
    found = _directory(
        DescribeLogDirsResult(
            error_code=0,
            log_dir="/a",
            topics=[DescribeLogDirsTopic(name="t", partitions=replicas)],
            total_bytes=1000,
            usable_bytes=0,
        )
    )
    assert (found.state, found.size_bytes, found.total_bytes, found.usable_bytes) == ("online", 100, 1000, 0)
    assert [(each.partition, each.is_future, each.offset_lag) for each in found.replicas] == [(0, False, 0), (1, True, 5)]


def test_directories_that_are_offline_cordoned_or_of_an_older_broker() -> None:
    offline = _directory(DescribeLogDirsResult(error_code=int(ErrorCode.KAFKA_STORAGE_ERROR), log_dir="/b", topics=[]))
    assert (offline.state, offline.error) == ("offline", "KAFKA_STORAGE_ERROR")
    assert (offline.total_bytes, offline.usable_bytes) == (None, None)
    assert _directory(DescribeLogDirsResult(error_code=0, log_dir="/c", topics=[], is_cordoned=True)).state == "cordoned"
