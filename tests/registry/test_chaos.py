"""SR16: three registries that are killed, paused and cut off, while clients register through all of them.

Ids are unique, versions have no gaps, nothing that was acknowledged is lost or changed.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import threading
import time

import httpx
import pytest

from ottla.testing import Broker, Registry
from tests.kit.network import Network
from tests.kit.wait import until
from tests.registry.conftest import V1

SUBJECTS = [f"s{number}" for number in range(4)]
CLIENTS = 4
ROUNDS = 6


class Writer(threading.Thread):
    """Registers one new schema after the other, each until it is acknowledged or refused for good."""

    def __init__(self, name: str, urls: list[str], stop: threading.Event, network: Network | None = None) -> None:
        super().__init__(name=name, daemon=True)
        self._network = network
        self._random = random.Random(name)
        self._urls, self._ended = urls, stop
        self.acknowledged: dict[tuple[str, str], int] = {}
        self.refused: list[str] = []

    def run(self) -> None:
        place = contextlib.nullcontext() if self._network is None else self._network.inside("client")
        with place, httpx.Client(timeout=20, headers={"content-type": V1}) as http:
            for number in itertools.count():
                if self._ended.is_set():
                    return
                subject = self._random.choice(SUBJECTS)
                text = f'{{"type":"enum","name":"e","symbols":["{self.name}x{number}"]}}'
                self._persist(http, subject, text)

    def _persist(self, http: httpx.Client, subject: str, text: str) -> None:
        while True:
            url = self._random.choice(self._urls)
            with contextlib.suppress(httpx.TransportError):
                answer = http.post(f"{url}/subjects/{subject}/versions", json={"schema": text})
                if answer.status_code == 200:
                    self.acknowledged[subject, text] = answer.json()["id"]
                    return
                if answer.status_code < 500:
                    self.refused.append(answer.text)
                    return
            if self._ended.is_set():
                return
            time.sleep(0.05)


def pause(registry: Registry, paused_s: float) -> None:
    """A registry that the machine does not run for a while, and that then goes on as if nothing had been."""
    assert registry.process is not None
    os.kill(registry.process.pid, signal.SIGSTOP)
    time.sleep(paused_s)
    os.kill(registry.process.pid, signal.SIGCONT)


BROKER = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 1}


@pytest.mark.slow
def test_sr16_nothing_acknowledged_is_lost_by_cut_networks() -> None:
    """The leader, at the smallest address, is cut from the broker, both ways and one way, from the others, from everybody."""
    network = Network("broker", "r1", "r2", "r3", "client")
    with contextlib.ExitStack() as stack:
        stack.callback(network.close)
        broker = Broker(BROKER, listeners=f"PLAINTEXT://{network.address('broker')}:9092")
        stack.callback(broker.close)
        with network.inside("broker"):
            broker.start()
        registries = []
        for name in ("r1", "r2", "r3"):
            listen = f"{network.address(name)}:8081"
            registry = stack.enter_context(contextlib.closing(Registry(broker, options=["--listen", listen, "--auth", "none"])))
            registry.url = f"http://{listen}"
            registries.append(registry)
            with network.inside(name):
                registry.launch()
        for registry in registries:
            registry.await_ready()
        urls = [registry.url for registry in registries]
        with network.inside("client"):
            httpx.put(f"{urls[0]}/config", json={"compatibility": "NONE"}, timeout=60).raise_for_status()
        stop = threading.Event()
        writers = [Writer(f"w{number}", urls, stop, network) for number in range(CLIENTS)]
        for writer in writers:
            writer.start()

        def count() -> int:
            return sum(len(writer.acknowledged) for writer in writers)

        def grows(by: int = 5) -> None:
            before = count()
            until(lambda: count() > before + by, timeout_s=120)

        grows()
        for cut in (
            lambda: network.cut("r1", "broker"),
            lambda: network.cut("broker", "r1", both=False),
            lambda: network.cut("r1", ["r2", "r3"]),
            lambda: network.isolate("r1"),
        ):
            cut()
            grows()  # another one leads, or the one that was cut does not need what is cut
            network.heal()
            grows()
        stop.set()
        for writer in writers:
            writer.join(60)
            assert not writer.refused
        acknowledged = {place: schema_id for writer in writers for place, schema_id in writer.acknowledged.items()}
        with network.inside("client"):
            for url in urls:
                until(lambda: has_all(url, acknowledged), timeout_s=60)  # noqa: B023  # it may still read what it missed
                check(url, acknowledged)


def has_all(url: str, acknowledged: dict[tuple[str, str], int]) -> bool:
    shown = httpx.get(f"{url}/schemas", timeout=60).json()
    return len({(each["subject"], each["schema"]) for each in shown}) >= len(acknowledged)


@pytest.mark.slow
def test_sr16_nothing_acknowledged_is_lost_by_kills_and_pauses() -> None:
    chance = random.Random(16)
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(Broker(BROKER))
        registries = [stack.enter_context(contextlib.closing(Registry(broker))) for _ in range(3)]
        for registry in registries:
            registry.launch()
        for registry in registries:
            registry.await_ready()
        urls = [registry.url for registry in registries]
        httpx.put(f"{urls[0]}/config", json={"compatibility": "NONE"}, timeout=60).raise_for_status()
        stop = threading.Event()
        writers = [Writer(f"w{number}", urls, stop) for number in range(CLIENTS)]
        for writer in writers:
            writer.start()

        def count() -> int:
            return sum(len(writer.acknowledged) for writer in writers)

        until(lambda: count() > 5, timeout_s=60)
        # The leader has the smallest URL: it is the one that is hit most often.
        leader = min(registries, key=lambda each: each.url)
        for number in range(ROUNDS):
            victim = leader if number % 2 == 0 else chance.choice(registries)
            if number % 3 == 2:
                pause(victim, 13.0)  # longer than a session
            else:
                victim.kill()
                victim.start()
            before = count()
            until(lambda: count() > before + 5, timeout_s=90)  # noqa: B023
        stop.set()
        for writer in writers:
            writer.join(60)
            assert not writer.refused
        acknowledged = {place: schema_id for writer in writers for place, schema_id in writer.acknowledged.items()}
        for registry in registries:
            registry.kill()
        for registry in registries:
            registry.start()
            check(registry.url, acknowledged)


def check(url: str, acknowledged: dict[tuple[str, str], int]) -> None:
    with httpx.Client(base_url=url, timeout=60) as http:
        shown = http.get("/schemas").json()
        ids: dict[int, str] = {}
        for each in shown:
            assert ids.setdefault(each["id"], each["schema"]) == each["schema"], f"id {each['id']} is two schemas"
        for subject in SUBJECTS:
            versions = http.get(f"/subjects/{subject}/versions").json()
            assert versions == list(range(1, len(versions) + 1)), f"the versions of {subject} have gaps"
        places = {(each["subject"], each["schema"]): each["id"] for each in shown}
        lost = {place: schema_id for place, schema_id in acknowledged.items() if places.get(place) != schema_id}
        assert not lost, f"{len(lost)} of {len(acknowledged)} acknowledged schemas are lost or have another id"
