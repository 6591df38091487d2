"""kill -9 in the middle of produce, again and again, at every acks: what was acknowledged is there when the broker is back.

The page cache survives the death of a process, so acks 1 and all promise the same here. Three writers, one for each acks, each
on a connection and a partition of its own, keep five requests in flight, so that every kill falls between a write and its
acknowledgement somewhere. Segments are small: rolls happen under fire too. Checked after every restart, from where the last
round ended:

1. offsets have no gap and no double;
2. every acknowledged record is at the offset that was acknowledged, with its bytes;
3. what is there is what was sent, in the order it was sent, up to some point: nothing half-written, nothing invented;
4. a record once read by a consumer is never read differently later.

At the end Apache Kafka's DumpLogSegments walks every record and checks every index against its log.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from ottla.testing import Broker
from tests.kit.peers import KAFKA_4, run_tool
from tests.kit.raw import API_VERSIONS, RawConnection, batch, frame, produce_frame, read_produced

TOPIC = "kill"
IN_FLIGHT = 5
ACKS = [0, 1, -1]
NO_OPERATION = frame(API_VERSIONS, 0, 0, b"")


@dataclass
class Writer:
    """Writes numbered records to one partition until its connection breaks, and remembers what it was promised."""

    partition: int
    acks: int
    random: random.Random
    number: int = 0  # of the next record; numbers are never used twice, not even after a crash
    sent: list[bytes] = field(default_factory=list)  # this round's, in order
    promised: dict[int, bytes] = field(default_factory=dict)  # offset -> record, all rounds
    known: list[bytes] = field(default_factory=list)  # what consumers have read, by offset

    def run(self, connection: RawConnection, enough: threading.Semaphore) -> None:
        self.sent = []
        waiting: list[list[bytes]] = []
        try:
            while True:
                values = [self._value() for _ in range(self.random.choice([1, 1, 3, 40]))]
                self.sent += values
                connection.send(produce_frame(TOPIC, self.partition, batch(values), self.acks))
                waiting.append(values)
                if len(waiting) < IN_FLIGHT:
                    continue
                if self.acks == 0:
                    connection.call(NO_OPERATION)  # keeps this writer, which waits for nothing, in step with the others
                    waiting.clear()
                else:
                    reply = read_produced(connection.receive())
                    assert reply.error == 0
                    for index, value in enumerate(waiting.pop(0)):
                        self.promised[reply.base_offset + index] = value
                enough.release()
        except OSError:
            pass  # the kill
        finally:
            connection.close()

    def _value(self) -> bytes:
        self.number += 1
        return b"%d:%d:" % (self.partition, self.number) + bytes(self.random.choice([0, 10, 900]))

    def check(self, bootstrap: str) -> None:
        with RawConnection(bootstrap) as connection:
            found = connection.read_all(TOPIC, self.partition, len(self.known))
        offsets = [offset for offset, _ in found]
        assert offsets == list(range(len(self.known), len(self.known) + len(found)))
        values = [value for _, value in found]
        assert values == self.sent[: len(values)], f"acks={self.acks}: not what was sent"
        self.known += values
        for offset, value in self.promised.items():
            assert offset < len(self.known), (
                f"acks={self.acks}: offset {offset} was acknowledged and is gone; the log ends at {len(self.known)}"
            )
            assert self.known[offset] == value, f"acks={self.acks}: another record stands at offset {offset}"

    def check_again_from_the_start(self, bootstrap: str) -> None:
        with RawConnection(bootstrap) as connection:
            assert [value for _, value in connection.read_all(TOPIC, self.partition)] == self.known


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({"log.segment.bytes": 1_000_000, "log.index.interval.bytes": 1024}) as running:
        yield running


@pytest.mark.java
@pytest.mark.parametrize("kills", [15, pytest.param(50, marks=pytest.mark.slow)])
def test_kills_lose_nothing_acknowledged(broker: Broker, kills: int) -> None:
    seed = 20
    chance = random.Random(seed)
    writers = [Writer(partition, acks, random.Random(seed + partition)) for partition, acks in enumerate(ACKS)]
    broker.create_topic(TOPIC, len(writers))
    for _ in range(kills):
        enough = threading.Semaphore(0)
        threads = [
            threading.Thread(target=writer.run, args=(RawConnection(broker.bootstrap_servers), enough)) for writer in writers
        ]
        for thread in threads:
            thread.start()
        for _ in range(chance.randrange(5, 250)):
            assert enough.acquire(timeout=60), "no progress"
        broker.kill()
        for thread in threads:
            thread.join()
        broker.start()
        for writer in writers:
            writer.check(broker.bootstrap_servers)
    assert all(len(writer.known) > kills for writer in writers)
    for writer in writers:
        writer.check_again_from_the_start(broker.bootstrap_servers)
    broker.stop()
    assert broker.data_dir is not None
    segments = sorted(str(path) for path in broker.data_dir.glob(f"{TOPIC}-*/*.log"))
    indexes = sorted(str(path) for path in broker.data_dir.glob(f"{TOPIC}-*/*index"))
    assert len(segments) > len(writers), "no segment was rolled: the test lost its teeth"
    dump = run_tool(KAFKA_4, "DumpLogSegments", "--deep-iteration", "--files", ",".join(segments), timeout=300)
    assert dump.returncode == 0, dump.stderr
    assert "isvalid: false" not in dump.stdout
    assert dump.stdout.count("| offset: ") == sum(len(writer.known) for writer in writers)
    sane = run_tool(KAFKA_4, "DumpLogSegments", "--index-sanity-check", "--files", ",".join(indexes), timeout=300)
    assert sane.returncode == 0, sane.stderr
    assert sane.stdout.count("passed sanity check") == len(indexes), sane.stdout
