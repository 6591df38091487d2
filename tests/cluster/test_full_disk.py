"""One of two disks of one broker is full: its replicas are led by others from then on, and nothing acknowledged is lost (L06)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.test_replicas import read
from tests.kit.cluster import BrokerProcess, Cluster, until


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of four megabytes."""
    path = tmp_path / "small"
    path.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "ottla-test", str(path)]).returncode:
        pytest.skip("no file system can be mounted here")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=False)


def test_l06_others_lead_what_lay_on_a_full_disk(cluster: Callable[..., Cluster], small: Path) -> None:
    three = cluster(0, min_insync_replicas="2")
    for number in (1, 2, 3):
        broker = three.brokers[number] = BrokerProcess(three, number, f"broker-{number}")
        directories = f"{small},{broker.data}" if number == 1 else str(broker.data)
        broker.start(wait=False, log_dirs=directories)
    for broker in three.brokers.values():
        broker.wait_ready()
    three.until_agreed()
    three.create_topic_at("t", [[1, 2, 3], [1, 2, 3]])
    on_small = [partition for partition in (0, 1) if (small / f"t-{partition}").exists()]
    assert len(on_small) == 1
    values = [b"%d " % number + bytes(20_000) for number in range(800)]
    # Half of them to each partition: without that all may go to one.
    three.produce("t", values, **{"linger.ms": 5, "sticky.partitioning.linger.ms": 0})
    [full] = on_small
    until(lambda: three.leader("t", full) in (2, 3), "another leader")
    assert three.leader("t", 1 - full) == 1, "the other disk goes on"
    assert 1 in three.live_brokers()
    assert 1 not in three.isr("t", full)
    assert sorted(read(three, "t", 2)) == sorted(values)
