"""Exactly once (T13, F66): two applications copy a topic while they and the broker are killed and paused, under load.

All that clients did and heard is one history, which the history checker must find nothing in; and what comes out is what went in,
each partition in its order. What happens is decided by a seed; the short form is in `make test`, minutes of it are `slow`.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from ottla.sim.models.history import Commit, Committed, End, Event, Exhausted, Outcome, Poll, Seek, Send, anomalies
from ottla.testing import Broker
from tests.chaos.copier import GIVEN_UP
from tests.kit.wait import until

SOURCE, SINK, GROUP = "source", "sink", "copiers"
PARTITIONS = 4
COPIERS = 2
SETTLE_S = 180.0
BROKER = {
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1_000,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
    "log.segment.bytes": 200_000,  # rolls, snapshots and transaction indexes fall into it
}
QUIET = {"reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 200, "log_level": 0}
now = time.monotonic_ns


class Writer:
    """Feeds the source evenly, idempotently; all it sends is acknowledged in the end."""

    def __init__(self, servers: str, per_s: int) -> None:
        self.sends: list[list[Any]] = []  # partition, value, start, end, offset
        self._per_s = per_s
        self._stop = threading.Event()
        settings = {"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 10, "message.timeout.ms": 0, **QUIET}
        self._producer = Producer(settings)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.05):
            for _ in range(self._per_s // 20):
                number = len(self.sends)
                send = [number % PARTITIONS, b"%d" % number, now(), None, None]
                self.sends.append(send)

                def delivered(error: KafkaError | None, message: Message, send: list[Any] = send) -> None:
                    assert error is None, error
                    send[3], send[4] = now(), message.offset()

                self._producer.produce(SOURCE, send[1], partition=send[0], on_delivery=delivered)  # type: ignore[arg-type]
            self._producer.poll(0)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def finish(self) -> None:
        self.stop()
        assert self._producer.flush(60) == 0

    def events(self) -> Iterator[Event]:
        for partition, value, start, end, offset in self.sends:
            yield Send("feed", (SOURCE, partition), value, start, end, Outcome.OK, offset)


class Reader:
    """Reads a topic from its beginning, all the time."""

    def __init__(self, servers: str, topic: str, isolation: str) -> None:
        self.name, self.topic, self.committed = f"{isolation} {topic}", topic, isolation == "read_committed"
        self.history: list[Event] = [Seek(self.name, (topic, partition), 0) for partition in range(PARTITIONS)]
        self.values: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self.errors: list[str] = []
        self._stop = threading.Event()
        settings = {"group.id": "none", "isolation.level": isolation, "enable.auto.commit": False, "auto.offset.reset": "error"}
        self._consumer = Consumer({"bootstrap.servers": servers, **QUIET, **settings, "fetch.wait.max.ms": 100})
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            start = now()
            messages = self._consumer.consume(500, 0.1)
            end = now()
            given: dict[int, list[tuple[int, bytes]]] = {}
            for message in messages:
                error = message.error()
                if error is None:
                    given.setdefault(message.partition(), []).append((message.offset(), message.value()))  # type: ignore[arg-type]
                elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                    self.errors.append(str(error))
            for partition, records in given.items():
                self.values[partition] += [value for _, value in records]
                self.history.append(Poll(self.name, (self.topic, partition), tuple(records), start, end, self.committed))

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()

    def exhausted(self) -> list[Event]:
        return [Exhausted(self.name, (self.topic, partition)) for partition in range(PARTITIONS)]


class Copiers:
    """The applications as processes, each in a place with a transactional id of its own."""

    def __init__(self, path: Path, servers: str) -> None:
        self.path, self.servers = path, servers
        self.processes: list[subprocess.Popen[bytes]] = []
        self.runs = 0
        self.given_up = 0

    def start(self, place: int) -> subprocess.Popen[bytes]:
        reading = {
            "group.id": GROUP,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "session.timeout.ms": 2_000,
            "heartbeat.interval.ms": 300,
            "fetch.wait.max.ms": 50,
        }
        writing = {"transactional.id": f"copier-{place}", "transaction.timeout.ms": 3_000, "linger.ms": 1}
        config = {"common": {"bootstrap.servers": self.servers, **QUIET}, "consumer": reading, "producer": writing}
        run = f"{place}.{self.runs:03}"
        self.runs += 1
        command = [sys.executable, str(Path(__file__).with_name("copier.py")), str(self.path / f"run-{run}"), run]
        with (self.path / "errors").open("ab") as errors:
            return subprocess.Popen([*command, json.dumps(config), SOURCE, SINK], stderr=errors)

    def tend(self) -> None:
        """All are there; who gave up is started again."""
        for place in range(COPIERS):
            if place == len(self.processes):
                self.processes.append(self.start(place))
            code = self.processes[place].poll()
            if code is not None:
                assert code in (GIVEN_UP, -signal.SIGKILL), (self.path / "errors").read_text()
                self.given_up += code == GIVEN_UP
                self.processes[place] = self.start(place)

    def stop(self) -> None:
        for process in self.processes:
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            # By the signal itself: it had not yet begun.
            assert process.wait(60) in (0, GIVEN_UP, -signal.SIGTERM)

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()

    def events(self) -> Iterator[Event]:
        for path in sorted(self.path.glob("run-*")):
            yield from events_of(path)


def events_of(path: Path) -> list[Event]:
    """A copier's notes as events. What a kill left unsaid is unknown; what it had not asked for is not to be."""
    run = path.name
    found: list[Event] = []
    intended: dict[str, tuple[list[tuple[int, str]], dict[str, int], int]] = {}
    sent: dict[str, list[tuple[int | None, int, int | None]]] = {}
    asked: dict[str, int] = {}
    ended: dict[str, tuple[str, int]] = {}
    for line in path.read_text().split("\n")[:-1]:
        match json.loads(line):
            case ["committed", partition, offset, start, end]:
                found.append(Committed(GROUP, (SOURCE, partition), offset, start, end))
            case ["seek", partition, offset]:
                found.append(Seek(run, (SOURCE, partition), offset))
            case ["poll", partition, records, start, end]:
                those = tuple((offset, value.encode()) for offset, value in records)
                found.append(Poll(run, (SOURCE, partition), those, start, end))
            case ["begin", name, copies, ends, start]:
                intended[name] = copies, ends, start
            case ["sent", name, outcomes]:
                sent[name] = outcomes
            case ["commit", name, at]:
                asked[name] = at
            case ["end", name, outcome, at]:
                ended[name] = outcome, at
    for name, (copies, ends, start) in intended.items():
        outcomes = sent.get(name) or [(None, start, None)] * len(copies)
        for (partition, value), (offset, begun, heard) in zip(copies, outcomes, strict=True):
            outcome = Outcome.UNKNOWN if heard is None else Outcome.OK
            found.append(Send(run, (SINK, partition), value.encode(), begun or start, heard, outcome, offset, name))
        for partition, position in ends.items():
            found.append(Commit(GROUP, (SOURCE, int(partition)), position, start, None, Outcome.UNKNOWN, name))
        word, at = ended.get(name, ("unknown", None))
        if name in asked or name in ended:
            found.append(End(name, asked.get(name, start), at, Outcome(word)))
    return found


def chaos(seed: int, seconds: float, path: Path) -> None:
    chance = random.Random(seed)
    with Broker(BROKER) as broker:
        for topic in (SOURCE, SINK):
            broker.create_topic(topic, PARTITIONS)
        copied_through(
            broker.bootstrap_servers, path, lambda copiers: disturb(broker, copiers, chance, seconds), lambda: broker.log
        )
        assert "Traceback" not in broker.log, broker.log[-4000:]


def copied_through(servers: str, path: Path, blows: Callable[[Copiers], None], said: Callable[[], str]) -> None:
    """The topics are there; what is written to the source meanwhile is copied to the sink, whatever the blows are."""
    copiers = Copiers(path, servers)
    writer = Writer(servers, per_s=400)
    readers = [Reader(servers, SINK, "read_committed"), Reader(servers, SINK, "read_uncommitted")]
    source = Reader(servers, SOURCE, "read_uncommitted")
    try:
        copiers.tend()
        until(lambda: any(readers[0].values), "a first copy", SETTLE_S, every_s=0.1)
        blows(copiers)
        writer.finish()

        def copied() -> bool:
            copiers.tend()
            return sum(map(len, readers[0].values)) >= len(writer.sends)

        def counts() -> str:
            return f"{[len(each) for each in readers[0].values]} of {len(writer.sends)} copied\n{said()[-3000:]}"

        until(copied, counts, SETTLE_S, every_s=0.1)
        copiers.stop()
        until(lambda: sum(map(len, source.values)) >= len(writer.sends), "the source is read", SETTLE_S, every_s=0.1)
    finally:
        writer.stop()
        copiers.close()
        for reader in (*readers, source):
            reader.close()
    history = [*writer.events(), *copiers.events()]
    for reader in (*readers, source):
        history += reader.history
    ends = [event for event in history if isinstance(event, End)]
    history += [*readers[0].exhausted(), *source.exhausted()]
    assert [str(each) for each in anomalies(history)][:20] == []
    assert [error for reader in (*readers, source) for error in reader.errors] == []
    came_in = [[value for partition, value, *_ in writer.sends if partition == place] for place in range(PARTITIONS)]
    assert [[value.partition(b"@")[0] for value in values] for values in readers[0].values] == came_in
    assert sum(end.outcome is Outcome.OK for end in ends) > 10
    assert sum(map(len, readers[1].values)) >= len(writer.sends)


def disturb(broker: Broker, copiers: Copiers, chance: random.Random, seconds: float) -> None:
    """The first four are one of each, so that a short run has them all."""
    deadline = time.monotonic() + seconds
    first = ["kill copier", "pause broker", "kill broker", "pause copier"]
    chance.shuffle(first)
    while first or time.monotonic() < deadline:
        time.sleep(chance.uniform(0.3, 1.5))  # not a wait for anything: when the blow falls is the point
        copiers.tend()
        what = (
            first.pop() if first else chance.choice(["kill copier", "kill copier", "kill broker", "pause broker", "pause copier"])
        )
        victim = chance.choice(copiers.processes)
        if what == "kill copier":
            victim.kill()
            victim.wait()
        elif what == "kill broker":
            broker.kill()
            time.sleep(chance.choice([0, 0, 1]))
            broker.start()
        elif what == "pause broker":
            assert broker.process is not None
            pause(broker.process.pid, chance.choice([0.2, 1, 3]))
        else:
            # Longer than its session: the group goes on without it, and what it has begun must not be committed.
            pause(victim.pid, chance.choice([0.5, 3, 5]))


def pause(pid: int, seconds: float) -> None:
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        os.kill(pid, signal.SIGCONT)


def test_t13_exactly_once(tmp_path: Path) -> None:
    chaos(1, 12, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [11, 12, 13])
def test_t13_minutes_of_it(seed: int, tmp_path: Path) -> None:
    chaos(seed, 90, tmp_path)
