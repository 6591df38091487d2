"""`ottla log dump`: files of a log, whole and damaged (F8, L02)."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import typer

from ottla.cli.log.command import dump, render
from ottla.cli.log.segments import Item, read_path
from ottla.records.record import build_batch

BASE = f"{0:020d}"


def batch(offset: int, count: int = 2, timestamp: int = 1000, **more: Any) -> bytes:
    records = [(b"k%d" % index, b"v" * 20, [("h", b"x")], timestamp + index) for index in range(count)]
    return build_batch(records, base_offset=offset, **more)


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """Three batches at 0, 2, 4 with one entry in each index, as a broker leaves them."""
    directory = tmp_path / "orders-0"
    directory.mkdir()
    batches = [
        batch(0),
        batch(2, timestamp=2000, codec=1),
        batch(4, timestamp=1500, producer_id=9, producer_epoch=1, base_sequence=0),
    ]
    (directory / f"{BASE}.log").write_bytes(b"".join(batches))
    (directory / f"{BASE}.index").write_bytes(struct.pack(">ii", 3, len(batches[0])))
    (directory / f"{BASE}.timeindex").write_bytes(struct.pack(">qi", 2001, 3))
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    (directory / "partition.metadata").write_text("version: 0\ntopic_id: P3rWu60KTDaBqLqOPNH8pg")
    return directory


def items(path: Path, kind: str | None = None, *, records: bool = False, verify: bool = True) -> list[Item]:
    return [item for item in read_path(path, records=records, verify=verify) if kind in (None, item.kind)]


def test_batches_and_records_are_read(partition: Path) -> None:
    assert [item.fields["base_offset"] for item in items(partition, "batch")] == [0, 2, 4]
    assert [item.fields["codec"] for item in items(partition, "batch")] == ["none", "gzip", "none"]
    found = items(partition, "record", records=True)
    assert [item.fields["offset"] for item in found] == list(range(6))
    assert found[3].fields == {
        "offset": 3,
        "timestamp": 2001,
        "key": "k1",
        "value": "v" * 20,
        "headers": [{"name": "h", "value": "x"}],
    }


def test_an_undamaged_partition_verifies(partition: Path) -> None:
    assert items(partition, "damage") == []
    assert items(partition, "offset_index_entry")[0].fields["offset"] == 3
    assert [item.fields["entries"] for item in items(partition, "checkpoint")] == [
        {"epoch 0": 0},
        {"topic_id": "P3rWu60KTDaBqLqOPNH8pg"},
    ]


def test_a_data_dir_is_walked(partition: Path) -> None:
    (partition.parent / "recovery-point-offset-checkpoint").write_text("0\n1\norders 0 6\n")
    (partition.parent / "meta.properties").write_text("#\nversion=0\nbroker.id=0\ncluster.id=x\n")
    (partition.parent / "orders-1.aaaa-delete").mkdir()
    assert len(items(partition.parent, "batch")) == 3
    assert {"orders-0": 6} in [item.fields["entries"] for item in items(partition.parent, "checkpoint")]


def test_a_flipped_bit_is_found_only_when_verifying(partition: Path) -> None:
    log = partition / f"{BASE}.log"
    data = bytearray(log.read_bytes())
    data[70] ^= 1
    log.write_bytes(data)
    assert items(partition, "damage", verify=False) == []
    (damage,) = items(partition, "damage")
    assert damage.fields == {"position": 0, "offset": 0, "problem": "CRC mismatch"}


def test_a_torn_tail_is_damage_and_zeros_are_not(partition: Path) -> None:
    log = partition / f"{BASE}.log"
    whole = log.read_bytes()
    log.write_bytes(whole + bytes(100))
    assert items(partition, "damage") == []
    log.write_bytes(whole + batch(6)[:40])
    (damage,) = items(partition, "damage", verify=False)
    assert damage.fields["position"] == len(whole)
    assert "last 40 bytes" in damage.fields["problem"]


def test_offsets_that_go_back_are_damage(partition: Path) -> None:
    log = partition / f"{BASE}.log"
    log.write_bytes(log.read_bytes() + batch(3))
    assert [item.fields["problem"] for item in items(log, "damage")] == ["base offset 3 is not above 5"]


@pytest.mark.parametrize(
    ("suffix", "data", "problem"),
    [
        ("index", struct.pack(">ii", 3, 5), "no batch starts at position 5"),
        ("index", struct.pack(">ii", 2, 0), "no batch from position 0 has last offset 2"),
        ("index", b"abc", "no multiple of 8"),
        ("timeindex", struct.pack(">qi", 1999, 3), "the largest timestamp up to offset 3 is 2001"),
        ("timeindex", struct.pack(">qi", 2001, 99), "offset 99 is beyond the end of the log"),
        ("timeindex", struct.pack(">qiqi", 5, 1, 4, 2), "timestamps in a time index decrease to 4"),
    ],
)
def test_an_index_that_disagrees_with_a_scan_is_damage(partition: Path, suffix: str, data: bytes, problem: str) -> None:
    (partition / f"{BASE}.{suffix}").write_bytes(data)
    (damage,) = items(partition, "damage")
    assert problem in damage.fields["problem"]


def test_spare_room_of_a_running_kafka_is_no_entry(partition: Path) -> None:
    (partition / f"{BASE}.timeindex").write_bytes(bytes(1200))
    (partition / f"{BASE}.index").write_bytes(bytes(800))
    assert items(partition, "damage") == []
    assert items(partition, "time_index_entry") == []


def test_bad_checkpoint_is_damage(partition: Path) -> None:
    (partition / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n")
    assert "should have '2' entries" in items(partition, "damage")[0].fields["problem"]


def test_markers_are_named(tmp_path: Path) -> None:
    log = tmp_path / f"{BASE}.log"
    marker = build_batch(
        [(struct.pack(">hh", 0, 1), bytes(6), [], 5)], producer_id=1, producer_epoch=0, transactional=True, control=True
    )
    log.write_bytes(marker)
    (record,) = items(log, "record", records=True)
    assert record.fields["marker"] == "commit"
    assert "commit" in render(record)
    assert "transactional  control" in render(items(log, "batch")[0])


def test_dump_ends_in_1_on_damage_and_speaks_json(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dump([partition], verify=True, json_output=True)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[-1] == {"type": "summary", "verified": True, "files": 5, "batches": 3, "records": 6, "damage": 0}
    (partition / f"{BASE}.index").write_bytes(b"x")
    with pytest.raises(typer.Exit) as caught:
        dump([partition], verify=True, quiet=True)
    assert caught.value.exit_code == 1
    out = capsys.readouterr().out
    assert out.startswith("DAMAGE ")
    assert out.splitlines()[-1] == "5 files, 3 batches, 6 records, 1 damaged places"


@pytest.mark.parametrize("name", ["nope", "notes.txt"])
def test_what_is_no_log_is_told(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(typer.Exit) as caught:
        dump([tmp_path / name])
    assert caught.value.exit_code == 1
    assert name in capsys.readouterr().err
