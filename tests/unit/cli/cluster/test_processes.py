"""What `ottla cluster up` says of its processes, without ZooKeeper."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

from ottla.cli.cluster.processes import LocalCluster, Member
from tests.kit.wait import until


def test_a_broker_that_was_started_again_by_hand_is_a_broker(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, lambda text: None)
    assert not cluster.has_brokers
    with socket.create_server(("127.0.0.1", 0)) as by_hand:
        cluster.addresses[1] = f"127.0.0.1:{by_hand.getsockname()[1]}"
        assert cluster.has_brokers
    assert not cluster.has_brokers


def test_the_end_of_zookeeper_is_told_with_the_command_that_starts_it_again(tmp_path: Path) -> None:
    said: list[str] = []
    cluster = LocalCluster(tmp_path, said.append)
    command = [sys.executable, "-c", "raise SystemExit('out of memory')"]
    cluster.zookeeper = Member("ZooKeeper", command, tmp_path / "zookeeper.log")
    until(lambda: not cluster.has_zookeeper, "it ends")
    cluster.report_ended()
    cluster.report_ended()
    ended, again = said
    assert ended.startswith("ZooKeeper exited with code 1; the end of its log")
    assert "out of memory" in ended
    assert again.endswith(f"Start ZooKeeper again with `{sys.executable} -c 'raise SystemExit('\"'\"'out of memory'\"'\"')'`")
