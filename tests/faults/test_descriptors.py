"""A broker at its limit of open files: it stops accepting connections, and keeps what logs and checkpoints need."""

from __future__ import annotations

import resource
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from ottla.testing import Broker
from tests.kit.ottla_command import TIMEOUT_S, Ottla, environment
from tests.kit.raw import RawConnection, batch, produce_frame, read_produced
from tests.kit.wait import until

LIMIT = 300
CHECKPOINTS = {"log.flush.offset.checkpoint.interval.ms": 50, "log.flush.scheduler.interval.ms": 50}


@contextmanager
def limited_broker(limit: int = LIMIT, **settings: int) -> Iterator[Broker]:
    """A broker whose limit is lowered while it runs, as `prlimit` does."""
    with Broker({**CHECKPOINTS, **settings}) as broker:
        assert broker.process is not None
        resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE, (limit, limit))
        yield broker


def descriptors(broker: Broker) -> int:
    assert broker.process is not None
    return len(list(Path(f"/proc/{broker.process.pid}/fd").iterdir()))


def connect(stack: ExitStack, broker: Broker, count: int) -> list[socket.socket]:
    host, _, port = broker.bootstrap_servers.partition(":")
    return [stack.enter_context(socket.create_connection((host, int(port)))) for _ in range(count)]


def test_connections_leave_descriptors_to_the_logs() -> None:
    with limited_broker() as broker, ExitStack() as stack:
        broker.create_topic("orders")
        with RawConnection(broker.bootstrap_servers) as connection:
            idle = connect(stack, broker, LIMIT + 100)
            until(lambda: "Accepting no connections: " in broker.log, lambda: broker.log)
            checkpoint = Path(str(broker.data_dir)) / "replication-offset-checkpoint"
            for number in range(5):
                before = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
                assert read_produced(connection.call(produce_frame("orders", 0, batch([b"%d" % number])))).error == 0
                until(lambda: checkpoint.exists() and checkpoint.stat().st_mtime_ns > before, "a checkpoint")  # noqa: B023
            assert descriptors(broker) < LIMIT - LIMIT // 8
            assert len([line for line in broker.log.splitlines() if "Accepting no" in line]) <= 10
            for each in idle[:200]:
                each.close()
        until(lambda: _can_connect(broker), "connections are accepted again")
        assert broker.running
        assert "offline" not in broker.log
        assert "Traceback" not in broker.log


def _can_connect(broker: Broker) -> bool:
    with RawConnection(broker.bootstrap_servers) as connection:
        return connection.read_all("orders", 0) == [(number, b"%d" % number) for number in range(5)]


def test_a_topic_with_too_many_partitions_takes_no_directory_offline() -> None:
    with limited_broker() as broker:
        broker.create_topic("small")
        broker.create_topic("large", LIMIT * 2)
        with RawConnection(broker.bootstrap_servers) as connection:
            assert read_produced(connection.call(produce_frame("small", 0, batch([b"x"])))).error == 0
            assert read_produced(connection.call(produce_frame("large", 0, batch([b"x"])))).error == 0
            last = LIMIT * 2 - 1
            assert read_produced(connection.call(produce_frame("large", last, batch([b"x"])))).error == 56
        (line,) = (line for line in broker.log.splitlines() if "open files has no room" in line)
        assert "large-" in line
        assert "Data directory" not in broker.log


@pytest.mark.parametrize(("limit", "code"), [(400, 0), (250, 1)])
def test_a_limit_that_does_not_fit_the_partitions_is_told_at_the_start(tmp_path: Path, limit: int, code: int) -> None:
    with Broker(data_dir=tmp_path / "data") as broker:
        broker.create_topic("many", 220)
    serve = Ottla.command("serve", "-d", str(tmp_path / "data"), "-s", "listeners=PLAINTEXT://127.0.0.1:0")
    with subprocess.Popen(
        ["/bin/sh", "-c", f'ulimit -n {limit} && exec "$@"', "sh", *serve],
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as process:
        assert process.stderr is not None
        told = ""
        for line in process.stderr:
            told += line
            if " ready in " in line:
                process.terminate()
        assert process.wait(TIMEOUT_S) == code, told
    if code:
        assert f"ottla serve: the limit of {limit} open files is too low for the partitions in log.dirs" in told
    else:
        assert f"WARNING The limit of {limit} open files leaves " in told
        assert "220 partitions have one each" in told
