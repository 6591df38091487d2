"""Kafka Connect in a group of workers (F66): lines of a file reach another file exactly once, while workers are killed.

Workers find each other by a group of their own protocol, keep configurations, states and offsets in three compacted topics, and
with `exactly.once.source.support` write what a source says, and how far it has been read, in one transaction; who takes over a
task fences its former worker. The REST interface stops a connector, and puts its offsets back.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.kit.connect import connect_group
from tests.kit.peers import KAFKA_4, free_ports, single_jars
from tests.kit.subject import Subject

pytestmark = [pytest.mark.java, pytest.mark.slow]

FILE_CONNECTORS = (f"org.apache.kafka:connect-file:{KAFKA_4}",)


def test_lines_arrive_exactly_once_though_workers_are_killed(subject: Subject, tmp_path: Path) -> None:
    lines, copy = tmp_path / "lines", tmp_path / "copy"
    written = 0

    def write(count: int) -> None:
        nonlocal written
        with lines.open("a") as file:
            file.writelines(f"line-{number}\n" for number in range(written, written + count))
        written += count

    def arrived() -> Counter[str]:
        return Counter(copy.read_text().split()) if copy.exists() else Counter()

    name = f"connect-{tmp_path.name}"
    source = {
        "connector.class": "FileStreamSource",
        "file": str(lines),
        "topic": f"{name}-lines",
        "exactly.once.support": "required",
    }
    sink = {
        "connector.class": "FileStreamSink",
        "file": str(copy),
        "topics": f"{name}-lines",
        "consumer.override.isolation.level": "read_committed",
    }
    one, two = free_ports(2)
    write(500)
    jars = single_jars("kafka-connect", FILE_CONNECTORS)
    with connect_group(subject.bootstrap_servers, tmp_path, name, jars) as workers:
        workers.start(one)
        workers.insist("PUT", one, "/connectors/source/config", source)
        workers.wait(lambda: workers.call("GET", one, "/connectors/source/offsets") == 200, lambda: "no offsets")
        workers.start(two)
        workers.insist("GET", two, "/connectors")
        for port, other in ((one, two), (two, one)):
            # In the midst of it, whichever of them has the task; the other takes it over and fences it.
            write(500)
            workers.kill(port)
            write(500)
            workers.insist("GET", other, "/connectors/source/status")
            workers.start(port)
            workers.insist("GET", port, "/connectors")
        workers.insist("PUT", one, "/connectors/sink/config", sink)
        workers.wait(lambda: len(arrived()) >= written, lambda: f"{len(arrived())} of {written} lines")
        assert arrived() == Counter(f"line-{number}" for number in range(written))
        # Put back to the beginning, the sink reads it all once more.
        workers.insist("PUT", one, "/connectors/sink/stop")
        workers.insist("DELETE", one, "/connectors/sink/offsets")
        workers.insist("PUT", one, "/connectors/sink/resume")
        workers.wait(lambda: arrived().total() >= 2 * written, lambda: f"{arrived().total()} of {2 * written} lines")
        assert set(arrived().values()) == {2}
