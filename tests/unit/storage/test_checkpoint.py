"""Small files that are whole or not there (L11)."""

from __future__ import annotations

import pytest

from ottla.storage import checkpoint
from ottla.storage.checkpoint import CorruptCheckpoint
from ottla.types import TopicPartition
from tests.kit.storage import MemoryDisk, PowerLoss

PATH = "/data/recovery-point-offset-checkpoint"
OLD = {TopicPartition("a", 0): 1}
NEW = {TopicPartition("a", 0): 2, TopicPartition("b", 7): 9}


@pytest.mark.parametrize("loses_power", [True, False])
def test_l11_killed_at_each_step_leaves_the_old_or_the_new(loses_power: bool) -> None:
    outcomes = []
    for step in range(20):
        disk = MemoryDisk()
        checkpoint.write_offsets(disk, PATH, OLD)
        disk.fail(step, PowerLoss())
        try:
            checkpoint.write_offsets(disk, PATH, NEW)
            finished = True
        except PowerLoss:
            finished = False
        if loses_power:
            disk.lose_power()
        else:
            disk.die()
        found = checkpoint.read_offsets(disk, PATH)
        assert found in (OLD, NEW)
        if finished:
            assert found == NEW
            break
        outcomes.append(found)
        # and the next broker can write it, whatever stands about
        checkpoint.write_offsets(disk, PATH, NEW)
        assert checkpoint.read_offsets(disk, PATH) == NEW
    else:
        raise AssertionError("never finished")
    assert OLD in outcomes
    assert len(outcomes) >= 5


def test_offset_checkpoint_is_kafka_s_text() -> None:
    disk = MemoryDisk()
    checkpoint.write_offsets(disk, PATH, NEW)
    assert disk.content(PATH) == b"0\n2\na 0 2\nb 7 9\n"
    assert checkpoint.read_offsets(disk, PATH) == NEW
    assert checkpoint.read_offsets(disk, "/data/none") == {}


@pytest.mark.parametrize(
    "text",
    [
        b"1\n0\n",
        b"x\n0\n",
        b"0\n-1\n",
        b"0\nx\n",
        b"0\n1\n",
        b"0\n1\na 0\n",
        b"0\n1\na 0 1 2\n",
        b"0\n1\na x 1\n",
        b"0\n2\na 0 1\n",
        b"\x80",
    ],
)
def test_damaged_checkpoints_are_recognised(text: bytes) -> None:
    disk = MemoryDisk()
    disk.put(PATH, text)
    with pytest.raises(CorruptCheckpoint):
        checkpoint.read_offsets(disk, PATH)


def test_partition_metadata_is_kafka_s_text() -> None:
    disk = MemoryDisk()
    topic_id = bytes(range(16))
    checkpoint.write_partition_metadata(disk, "/data/t-0/partition.metadata", topic_id)
    assert disk.content("/data/t-0/partition.metadata") == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert checkpoint.read_partition_metadata(disk, "/data/t-0/partition.metadata") == topic_id
    assert checkpoint.read_partition_metadata(disk, "/data/t-1/partition.metadata") is None
    for text in (b"", b"version: 1\ntopic_id: AAECAwQFBgcICQoLDA0ODw", b"version: 0\n", b"version: 0\ntopic_id: short\n"):
        disk.put("/data/t-0/partition.metadata", text)
        with pytest.raises(CorruptCheckpoint):
            checkpoint.read_partition_metadata(disk, "/data/t-0/partition.metadata")
