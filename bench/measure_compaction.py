"""Time and CPU of compacting one partition, filled before its `cleanup.policy` is changed to compact.

Both brokers write `cleaner-offset-checkpoint` after a pass. The clock runs from the config change until that file covers
everything below the active segment. The cleaner's backoff is 50 ms during the measurement only: over thousands of partitions
Kafka's cleaner would never be idle.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from bench.measure import Figures, Scale, Server, create, load
from bench.servers import usage

TOPIC = "compacted"
SEGMENT_BYTES = 64 << 20
TIMEOUT_S = 600


def look_often(server: Server) -> None:
    """Have the cleaner look for work every 50 ms."""
    command = [sys.executable, "-m", "ottla", "config", "set", "-b", server.bootstrap_servers]
    subprocess.run([*command, "broker", "default", "log.cleaner.backoff.ms=50"], check=True, stdout=subprocess.DEVNULL)


def compact(server: Server, topic: str, goal: int, timeout_s: float) -> float:
    """Make a topic of one partition a compacted one; the seconds until it is clean up to `goal`."""
    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
    policy = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[policy])
    started = time.perf_counter()
    admin.incremental_alter_configs([resource])[resource].result(30)
    while (clean := _clean_until(server.data_dir, topic)) < goal:
        if time.perf_counter() - started > timeout_s:
            raise RuntimeError(f"clean until {clean}, not {goal}, after {timeout_s} s")
        time.sleep(0.01)
    return time.perf_counter() - started


def _clean_until(data: Path, topic: str) -> int:
    path = data / "cleaner-offset-checkpoint"
    for line in path.read_text().splitlines() if path.exists() else ():
        if line.startswith(f"{topic} 0 "):
            return int(line.split()[2])
    return 0


def compaction(server: Server, scale: Scale) -> Figures:
    """Records of 200 bytes with keys; every key about ten times."""
    look_often(server)
    create(server, TOPIC, 1, segment_bytes=str(SEGMENT_BYTES), min_cleanable_dirty_ratio="0.01")
    load(
        server, "produce", topic=TOPIC, partitions=1, record_bytes=200, batch_records=250, in_flight=5,
        requests=scale.compaction_bytes // 60_000, keyed_batches=scale.compaction_bytes // 60_000 // 10,
    )  # fmt: skip
    segments = sorted((server.data_dir / f"{TOPIC}-0").glob("*.log"))
    dirty_bytes = sum(path.stat().st_size for path in segments[:-1])
    goal = int(segments[-1].stem)
    before = usage(server.pid)
    seconds = compact(server, TOPIC, goal, TIMEOUT_S)
    cpu_s = usage(server.pid).cpu_s - before.cpu_s
    return {"compaction": dirty_bytes / seconds / 1e6, "compaction_cpu": cpu_s / dirty_bytes * 1e9}
