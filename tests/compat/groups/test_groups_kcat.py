"""kcat in a group (`-G`)."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

from tests.kit.peers import kcat


def test_kcat_reads_in_a_group_and_goes_on_where_it_stopped(servers: str, group: str, filled: Callable[..., str]) -> None:
    topic = filled(partitions=3, each=4)

    def read(count: int) -> list[str]:
        command = [kcat(), "-b", servers, "-G", group, "-c", str(count), "-q", "-X", "auto.offset.reset=earliest", topic]
        done = subprocess.run(command, capture_output=True, text=True, timeout=180)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    first = read(5)
    rest = read(7)
    assert sorted(first + rest) == sorted(f"{partition}:{number}" for partition in range(3) for number in range(4))
