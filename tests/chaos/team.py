"""The members of the chaos test as processes, the records they are fed, and what is done to them: a list made from a seed."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Message, Producer

from tests.chaos import proof
from tests.kit.present import present

TOPIC = "chaos"
PARTITIONS = 24
MEMBERS = 6


@dataclass(frozen=True, slots=True)
class Step:
    """After `wait_s`, do `what` to the member in this place (of six; an empty place is filled, whatever was meant)."""

    wait_s: float
    what: str
    place: int


def steps(seed: int, seconds: float) -> Iterator[Step]:
    """What happens, and after how long, depends on the seed alone; the broker is killed early, and again and again."""
    chance = random.Random(seed)
    left = seconds
    count = 0
    while left > 0:
        wait = chance.uniform(0.2, 1.4)
        left -= wait
        what = chance.choices(["leave", "kill", "pause", "join"], [3, 3, 4, 2])[0]
        if count % 9 == 4:
            what = "broker"
        yield Step(wait, what, chance.randrange(MEMBERS))
        count += 1


class Team:
    """Six places; in each a running, a paused, or no member."""

    def __init__(self, path: Path, configs: list[dict[str, Any]]) -> None:
        self.path, self.configs = path, configs  # taken in turn by the places
        self.places: list[subprocess.Popen[bytes] | None] = [None] * MEMBERS
        self.paused: set[int] = set()
        self.leaving: list[subprocess.Popen[bytes]] = []
        self.started = 0

    def join(self, place: int) -> None:
        if self.places[place] is None:
            path = self.path / f"member-{self.started:03}"
            self.started += 1
            path.touch()
            config = self.configs[place % len(self.configs)] | {"client.id": path.name}
            command = [sys.executable, str(Path(__file__).with_name("member.py")), str(path), TOPIC, json.dumps(config)]
            self.places[place] = subprocess.Popen(command)

    def resume(self, place: int) -> None:
        process = self.places[place]
        if place in self.paused and process is not None:
            self.paused.discard(place)
            process.send_signal(signal.SIGCONT)

    def do(self, what: str, place: int) -> None:
        process = self.places[place]
        if process is None:
            self.join(place)
        elif place in self.paused and what != "kill":
            self.resume(place)
        elif what == "pause":
            process.send_signal(signal.SIGSTOP)
            self.paused.add(place)
        elif what == "kill":
            process.kill()
            process.wait()
            self.paused.discard(place)
            self.places[place] = None
        elif what == "leave":
            process.send_signal(signal.SIGTERM)
            self.leaving.append(process)  # it may take its time; the next member of this place does not wait
            self.places[place] = None

    def all_in(self) -> None:
        for place in range(MEMBERS):
            self.resume(place)
            self.join(place)

    def notes(self) -> list[proof.Notes]:
        return [proof.read(path) for path in sorted(self.path.glob("member-*"))]

    def current(self) -> list[proof.Notes]:
        """Of those who are members now."""
        return [proof.read(Path(process.args[2])) for process in self.places if process is not None]  # type: ignore[arg-type, index]

    def wait_for_leavers(self, timeout_s: float) -> None:
        for process in self.leaving:
            # By the signal itself only before it had a consumer: it was told to leave while it was still starting.
            code = process.wait(timeout_s)
            assert code in (0, -signal.SIGTERM), f"a member that left ended badly, with {code}"
        self.leaving.clear()

    def close(self) -> None:
        for process in [*self.places, *self.leaving]:
            if process is not None:
                process.kill()
                process.wait()


class Feed:
    """Produces evenly while the chaos goes on; `acknowledged` is what must be handed over."""

    def __init__(self, servers: str, seed: int, per_s: int) -> None:
        self.acknowledged: dict[tuple[int, int], str] = {}
        self.failed: list[str] = []
        self._chance = random.Random(seed)
        self._per_s = per_s
        self._stop = threading.Event()
        # No limit of time: what waits for a broker that is away is sent when it is back.
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "acks": "all",
                "linger.ms": 20,
                "message.timeout.ms": 0,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _delivered(self, error: object, message: Message) -> None:
        if error is not None:
            self.failed.append(str(error))
        else:
            self.acknowledged[message.partition(), message.offset()] = present(message.value()).decode()  # type: ignore[index]

    def _run(self) -> None:
        number = 0
        while not self._stop.wait(0.05):
            for _ in range(self._per_s // 20):
                partition = self._chance.randrange(PARTITIONS)
                self._producer.produce(TOPIC, b"%d" % number, partition=partition, on_delivery=self._delivered)
                number += 1
            self._producer.poll(0)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def finish(self, timeout_s: float) -> None:
        self.stop()
        left = self._producer.flush(timeout_s)
        assert (left, self.failed) == (0, []), "the producer got everything acknowledged"
