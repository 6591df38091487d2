"""`ottla log repair`: a stopped replica gets its damaged batches from another one.

The stopped replica is a copy of the data directory of a running broker, under another broker id."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.records.batch import scan_batches
from ottla.testing import Broker
from tests.kit.ottla_command import Ottla

RECORDS = 400


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(data_dir=tmp_path_factory.mktemp("leader") / "data") as running:
        ottla = Ottla(running.bootstrap_servers)
        ottla.ok("topic", "create", "orders", "-c", "segment.bytes=20000")
        for start in range(0, RECORDS, 50):
            ottla.ok("produce", "orders", stdin="".join(f"{number}-{'v' * 200}\n" for number in range(start, start + 50)))
        yield running


@pytest.fixture
def replica(broker: Broker, tmp_path: Path) -> Path:
    """The directory of the partition on the stopped broker."""
    data = tmp_path / "data"
    shutil.copytree(str(broker.data_dir), data)
    properties = data / "meta.properties"
    properties.write_text(properties.read_text().replace("broker.id=1001", "broker.id=2"))
    return data / "orders-0"


def segments(replica: Path) -> list[Path]:
    return sorted(replica.glob("*.log"))


def damage(path: Path, *places: int) -> bytes:
    """Flip a bit of some batches. Returns the file as it was."""
    whole = path.read_bytes()
    batches, _ = scan_batches(whole)
    broken = bytearray(whole)
    for place in places:
        broken[batches[place].end - 1] ^= 1
    path.write_bytes(broken)
    return whole


def test_commands_that_read_records_stop_before_a_damaged_batch(broker: Broker) -> None:
    ottla = Ottla(broker.bootstrap_servers)
    ottla.ok("topic", "create", "flipped", "-p", "1")
    ottla.ok("topic", "create", "taken", "-p", "1")
    for value in ("first", "second", "third"):
        ottla.ok("produce", "flipped", value)
    damage(segments(Path(str(broker.data_dir)) / "flipped-0")[0], 1)
    for words in (("consume", "flipped"), ("consume", "flipped", "--group", "readers")):
        read = ottla.run(*words)
        assert (read.returncode, read.stdout) == (1, "first\n")
        assert "flipped-0: MessageSet at offset 1" in read.stderr
        assert "ottla log repair" in read.stderr
    ottla.fails("topic", "copy", "flipped", "taken")
    assert ottla.ok("consume", "taken") == ""


def test_damaged_batches_are_replaced_by_those_of_the_leader(broker: Broker, replica: Path) -> None:
    ottla = Ottla(broker.bootstrap_servers)
    paths = segments(replica)
    assert len(paths) > 3
    whole = {path: damage(path, 0) for path in (paths[0], paths[2])}
    broken = {path: path.read_bytes() for path in whole}
    told = json.loads(ottla.ok("log", "repair", str(replica), "--json"))
    assert [Path(each["path"]) for each in told["repaired"]] == list(whole)
    assert [each["source"] for each in told["repaired"]] == [1001, 1001]
    for path, content in whole.items():
        assert path.read_bytes() == content
        assert Path(f"{path}.cut").read_bytes() == broken[path]
        assert not path.with_suffix(".index").exists(), "the start rebuilds it"
    assert ottla.ok("log", "repair", str(replica)) == f"{replica}: no damage\n"
    properties = replica.parent / "meta.properties"
    properties.write_text(properties.read_text().replace("broker.id=2", "broker.id=1001"))
    with Broker(data_dir=replica.parent) as again:
        values = Ottla(again.bootstrap_servers).ok("consume", "orders", "--from", "beginning", "-n", str(RECORDS)).splitlines()
    assert [int(value.partition("-")[0]) for value in values] == list(range(RECORDS))


def test_what_cannot_be_repaired_stays_as_it_is(broker: Broker, replica: Path) -> None:
    ottla = Ottla(broker.bootstrap_servers)
    (segment, *_) = segments(replica)
    damage(segment, 0)
    broken = segment.read_bytes()
    assert "has no other replica" in ottla.fails("log", "repair", str(replica), "--from", "2")
    theirs = segments(Path(str(broker.data_dir)) / "orders-0")[0]
    whole = damage(theirs, 0)
    try:
        assert "broker 1001 cannot repair orders-0: its batch at offset 0 is damaged too" in ottla.fails(
            "log", "repair", str(replica)
        )
    finally:
        theirs.write_bytes(whole)
    assert segment.read_bytes() == broken
    assert {path.suffix for path in replica.iterdir()} & {".cut", ".deleted"} == set()


def test_a_damaged_end_is_left_to_the_start(broker: Broker, replica: Path) -> None:
    last = segments(replica)[-1]
    last.write_bytes(last.read_bytes()[:-1])
    done = Ottla(broker.bootstrap_servers).run("log", "repair", str(replica))
    assert done.returncode == 0
    assert "the start cuts them off" in done.stderr
    assert "no damage that another replica can repair" in done.stdout


def test_the_directory_of_a_running_broker_is_refused(broker: Broker, tmp_path: Path) -> None:
    ottla = Ottla(broker.bootstrap_servers)
    refused = ottla.fails("log", "repair", str(Path(str(broker.data_dir)) / "orders-0"))
    assert f"a broker uses {broker.data_dir}" in refused
    assert "is not the directory of a partition" in ottla.fails("log", "repair", str(tmp_path), code=2)
