"""`ottla log dump` on what a broker wrote, while it runs and after."""

from __future__ import annotations

import json
from pathlib import Path

from ottla.testing import Broker
from tests.kit.ottla_command import Ottla


def test_what_a_broker_wrote_verifies(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "data", log_segment_bytes=1 << 20, log_index_interval_bytes=1000) as broker:
        ottla = Ottla(broker.bootstrap_servers)
        ottla.ok("topic", "create", "orders", "-c", "segment.bytes=1048576")
        ottla.ok("produce", "orders", "-K", ":", "-H", "h=1", stdin="".join(f"k{i}:{'v' * 100}{i}\n" for i in range(30)))
        ottla.ok("perf", "produce", "orders", "-n", "20000", "--size", "200", "-X", "batch.size=20000")
        running = ottla.ok("log", "dump", str(tmp_path / "data"), "--verify", "-q")
        assert running.endswith("no damage\n")
    lines = [
        json.loads(line) for line in ottla.ok("log", "dump", str(tmp_path / "data"), "--verify", "-r", "--json").splitlines()
    ]
    assert lines[-1]["records"] == 20030
    assert lines[-1]["damage"] == 0
    records = [line for line in lines if line["type"] == "record"]
    assert [record["offset"] for record in records] == list(range(20030))
    assert records[7]["key"] == "k7"
    assert records[7]["headers"] == [{"name": "h", "value": "1"}]
    assert sum(line["type"] == "file" and line["file"].endswith(".log") for line in lines) > 2
    assert any(line["type"] == "offset_index_entry" for line in lines)
    assert any(line["type"] == "time_index_entry" for line in lines)
    segment = next((tmp_path / "data" / "orders-0").glob("*.log"))
    data = bytearray(segment.read_bytes())
    data[100] ^= 1
    segment.write_bytes(data)
    damaged = ottla.run("log", "dump", str(tmp_path / "data"), "--verify", "-q")
    assert damaged.returncode == 1
    assert "CRC mismatch" in damaged.stdout
