"""A pipeline into tables whose driver is killed, and a model in Python of what the tables must hold.

Owns: the records, which say what a key is from now on or that it is gone; the driver, and its deaths at requests to the broker
and at moments of chance. The tables and what is looked at in them are the tests'.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.client.blocking import Client
from ottla.client.offsets import LATEST, committed_offsets, list_offsets
from ottla.client.options import plain_options
from ottla.testing import Broker
from ottla.types import TopicPartition
from tests.pipelines.kills.drivers import Driver
from tests.pipelines.kills.listening import DROP, Proxy
from tests.pipelines.kills.stage import PARTITIONS, PATIENCE_S

ROUNDS = int(os.environ.get("OTTLA_TEST_ROUNDS", "2"))
SEED = int(os.environ.get("OTTLA_TEST_SEED", "20"))
KEYS = 40
SOURCE = 'p.source("in", p.json("id long, amount double, gone boolean, n long"), name="orders", options={options})'


class Shop:
    def __init__(self, folder: Path, proxy: Proxy, flows: tuple[str, ...], env: Mapping[str, str] = os.environ) -> None:
        """`folder` has the pipeline and its settings, `flows` are those that read `in`."""
        self.folder, self.proxy, self.flows, self.env = folder, proxy, flows, env
        self.servers = f"127.0.0.1:{proxy.port}"
        self.random = random.Random(SEED)
        self.states: dict[int, list[float | None]] = {}
        """What each key was, one after the other. None: it was gone."""
        self.records: Counter[int] = Counter()
        """By key."""
        self.written = self.starts = 0
        self.driver = self._start_driver()

    def _start_driver(self) -> Driver:
        self.starts += 1
        return Driver(self.folder / "shop.py", self.servers, self.folder / f"driver{self.starts}.log", env=self.env)

    def write(self, count: int = 150) -> None:
        producer = Producer({"bootstrap.servers": self.servers, "enable.idempotence": True, "log_level": 0})
        for _ in range(count):
            key, gone = self.random.randrange(KEYS), self.random.random() < 0.3
            amount = float(self.random.randrange(3))
            record = {"id": key, "amount": amount, "gone": gone, "n": self.written}
            # One partition for each key: its records have an order.
            producer.produce("in", json.dumps(record), key=str(key), partition=key % PARTITIONS)
            states, state = self.states.setdefault(key, []), None if gone else amount
            if (states[-1] if states else None) != state:
                states.append(state)
            self.records[key] += 1
            self.written += 1
        assert producer.flush(PATIENCE_S) == 0

    # What the tables must hold

    @property
    def now(self) -> dict[int, float]:
        return {key: states[-1] for key, states in self.states.items() if states and states[-1] is not None}

    @property
    def versions(self) -> dict[int, list[float]]:
        found = {key: [state for state in states if state is not None] for key, states in self.states.items()}
        return {key: states for key, states in found.items() if states}

    @property
    def numbers(self) -> Counter[int]:
        """Of all records."""
        return Counter(range(self.written))

    # The driver

    def is_done(self) -> bool:
        places = [TopicPartition("in", number) for number in range(PARTITIONS)]
        with Client(plain_options(self.servers)) as client:
            ends = {where: entry.offset for where, entry in list_offsets(client, dict.fromkeys(places, LATEST)).items()}
            found = [committed_offsets(client, f"shop.{flow}") for flow in self.flows]
            return all({where: entry.offset for where, entry in each.items()} == ends for each in found)

    def wait(self, done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not done():
            assert time.monotonic() < deadline, f"{what}: not in time (seed {SEED})\n{self.driver.log[-5000:]}"
            if not self.driver.running:
                self.driver = self._start_driver()
            time.sleep(0.2)

    def settle(self) -> None:
        self.wait(self.is_done, "all batches")

    def dies(self, api_key: int, moment: str) -> None:
        """The driver dies at a request of one of its flows."""
        driver = self.driver

        def act() -> bool:
            driver.kill()
            return DROP

        blow = self.proxy.arm(api_key, moment, f"shop.{self.random.choice(self.flows)}", act)
        self.write()
        self.wait(blow.struck.is_set, "the blow")
        if blow.failure is not None:
            raise blow.failure

    def dies_by_chance(self, within_s: float) -> None:
        self.write()
        time.sleep(self.random.random() * within_s)
        self.driver.kill()


@contextmanager
def broker() -> Iterator[Proxy]:
    """A broker with the topic `in`, behind a proxy."""
    proxy = Proxy()
    advertised = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"}
    try:
        with Broker(advertised) as started:
            host, _, port = started._listeners[0].rpartition("//")[2].rpartition(":")
            proxy.upstream = host, int(port)
            admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{proxy.port}", "log_level": 0})
            admin.create_topics([NewTopic("in", PARTITIONS, 1)], operation_timeout=30)["in"].result(60)
            yield proxy
    finally:
        proxy.close()
