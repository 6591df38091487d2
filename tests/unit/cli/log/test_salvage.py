"""`ottla log dump --salvage`: what is intact behind damage is saved, and nothing else changes (L02)."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from ottla.cli.failure import Failure
from ottla.cli.log.salvage import Salvaged, salvage
from ottla.cli.log.segments import read_path
from ottla.records.batch import scan_batches
from ottla.records.record import build_batch


def batch(offset: int, size: int = 40) -> bytes:
    return build_batch([(b"k", b"v" * size, [], 1000), (None, b"w" * size, [], 1001)], base_offset=offset)


BATCHES = [batch(offset) for offset in range(0, 20, 2)]


def damaged(data: bytes, position: int, *bytes_: int) -> bytes:
    broken = bytearray(data)
    broken[position : position + len(bytes_)] = bytes(bytes_)
    return bytes(broken)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "orders-0"
    path.mkdir()
    return path


def segment(directory: Path, base_offset: int, data: bytes, suffix: str = ".log") -> Path:
    path = directory / f"{base_offset:020d}{suffix}"
    path.write_bytes(data)
    return path


AT = len(BATCHES[0]) * 3


@pytest.mark.parametrize(
    ("at", "what"),
    [
        pytest.param(100, (7, 7), id="payload"),
        pytest.param(8, (0, 0, 0, 3), id="short length"),
        pytest.param(8, (0x7F, 0xFF), id="long length"),
        pytest.param(8, (0xFF,), id="negative length"),
        pytest.param(16, (1,), id="magic"),
        pytest.param(0, (1,), id="base offset"),
        pytest.param(7, (9,), id="base offset in the segment"),
    ],
)
def test_the_batches_behind_a_bad_one_are_saved(directory: Path, tmp_path: Path, at: int, what: tuple[int, ...]) -> None:
    log = segment(directory, 0, damaged(b"".join(BATCHES), AT + at, *what))
    saved = salvage([log], tmp_path)
    assert saved == Salvaged(str(tmp_path / f"{8:020d}.log"), 8, 19, batches=6, records=12)
    assert Path(saved.path).read_bytes() == b"".join(BATCHES[4:])
    assert [item for item in read_path(Path(saved.path), records=True, verify=True) if item.kind == "damage"] == []


def test_batches_between_and_behind_several_bad_places_are_saved(directory: Path, tmp_path: Path) -> None:
    rubbish = random.Random(7).randbytes(5000)
    zeros = bytes(9 << 20)  # more than one window
    log = segment(directory, 0, b"".join([*BATCHES[:2], rubbish, *BATCHES[3:5], zeros, *BATCHES[6:]]))
    saved = salvage([log], tmp_path)
    assert saved is not None
    assert Path(saved.path).read_bytes() == b"".join(BATCHES[3:5] + BATCHES[6:])


def test_of_what_recovery_cut_off_everything_intact_is_saved(directory: Path, tmp_path: Path) -> None:
    segment(directory, 0, b"".join(BATCHES[:2]))
    segment(directory, 4, damaged(b"".join(BATCHES[2:6]), 100, 0, 0), ".log.cut")
    segment(directory, 4, b"".join(BATCHES[3:6]), ".log.cut2")
    segment(directory, 12, b"".join(BATCHES[6:]), ".log.cut")
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    saved = salvage([directory], tmp_path / f"{0:020d}.log")
    assert saved is not None
    assert (saved.first_offset, saved.last_offset) == (6, 19)
    infos, _ = scan_batches(Path(saved.path).read_bytes())
    assert [info.base_offset for info in infos] == list(range(6, 20, 2))
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before


def test_an_undamaged_partition_has_nothing_to_salvage(directory: Path, tmp_path: Path) -> None:
    segment(directory, 0, b"".join(BATCHES) + bytes(1000))
    assert salvage([directory], tmp_path) is None
    assert list(tmp_path.glob("*.log")) == []


def test_the_base_offset_of_the_file_is_its_name(directory: Path, tmp_path: Path) -> None:
    segment(directory, 4, b"".join(BATCHES[2:]), ".log.cut")
    for name in ("saved.log", f"{5:020d}.log"):
        with pytest.raises(Failure) as refused:
            salvage([directory], tmp_path / name)
        assert f"name the file {4:020d}.log" in str(refused.value.hint)
    assert salvage([directory], tmp_path) is not None
    with pytest.raises(Failure, match="exists"):
        salvage([directory], tmp_path)


def test_partitions_are_salvaged_one_at_a_time(directory: Path, tmp_path: Path) -> None:
    other = tmp_path / "orders-1"
    other.mkdir()
    segment(directory, 0, BATCHES[0], ".log.cut")
    segment(other, 0, BATCHES[0], ".log.cut")
    with pytest.raises(Failure, match="several partitions"):
        salvage([directory, other], tmp_path)
    with pytest.raises(Failure, match="no segments"):
        salvage([tmp_path], tmp_path)


def test_dump_shows_the_batches_behind_bytes_that_are_no_batch(directory: Path) -> None:
    log = segment(directory, 0, damaged(b"".join(BATCHES), AT + 16, 9))
    items = list(read_path(log, records=False, verify=False))
    assert [item.fields["base_offset"] for item in items if item.kind == "batch"] == [0, 2, 4, *range(8, 20, 2)]
    (damage,) = [item for item in items if item.kind == "damage"]
    assert damage.fields["position"] == AT
    assert f"{len(BATCHES[0])} bytes up to position {AT + len(BATCHES[0])} are not a batch" in damage.fields["problem"]
