"""The broker under test: Ottla, or Apache Kafka for the reference result.

`OTTLA_COMPAT_BROKER` chooses: `ottla` (default), `kafka-4.3.0`, `kafka-3.9.2`, or `host:port` of one that runs already.
`OTTLA_COMPAT_BROKERS=3` makes it a cluster of as many, in which topics have a replica on each of up to three.
What passes on Apache Kafka must pass on Ottla; a test that fails on both is a bad test. Where a test needs a broker of its own,
its fixture takes `EITHER` as its params.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from tests.kit.peers import KAFKA_4, ApacheCluster, ApacheKafka, OttlaCluster
from tests.kit.wait import NotInTimeError, until

REFERENCE = f"kafka-{KAFKA_4}"
EITHER = ("ottla", pytest.param(REFERENCE, marks=[pytest.mark.java, pytest.mark.reference]))
"""Names for `running`. The second proves that what is asserted is Kafka's behaviour, and can find no fault of Ottla's broker:
`make reference` and `make test-all` run it, `make test` does not."""


KEEPING: dict[str, int] = {"log.initial.task.delay.ms": 86_400_000, "log.retention.check.interval.ms": 86_400_000}
"""Nobody looks for old records: many tests write records of 2023, or of 1970, which would be gone between two lines if a check of
retention, every five minutes, fell there. Tests of retention have brokers of their own."""


@dataclass(frozen=True, slots=True)
class Subject:
    name: str
    bootstrap_servers: str
    log: Callable[[], str] = str  # the broker's log so far
    replicas: int = 1

    def complaints(self) -> str:
        """The broker's log from the first error on."""
        lines = self.log().splitlines()
        first = next((at for at, line in enumerate(lines) if " ERROR " in line or " CRITICAL " in line), len(lines))
        return "\n".join(lines[first : first + 40])

    @property
    def host(self) -> str:
        return self.bootstrap_servers.split(",")[0].rsplit(":", 1)[0]

    @property
    def port(self) -> int:
        return int(self.bootstrap_servers.split(",")[0].rsplit(":", 1)[1])


def chosen() -> str:
    return os.environ.get("OTTLA_COMPAT_BROKER") or "ottla"


def broker_count() -> int:
    return int(os.environ.get("OTTLA_COMPAT_BROKERS") or 1)


@contextmanager
def running(name: str | None = None, *, broker_id: int = 1, brokers: int | None = None, **settings: Any) -> Iterator[Subject]:
    """The chosen broker, or a cluster of them, with these settings (Kafka's names, `_` for `.`), stopped at the end.

    A test that names data directories looks into them, and gets one broker."""
    name = name or chosen()
    settings = {**KEEPING} | {key.replace("_", "."): value for key, value in settings.items()}
    brokers = brokers or (1 if "log.dirs" in settings else broker_count())
    if brokers > 1 and name == "ottla":
        with OttlaCluster(brokers, **{"group.initial.rebalance.delay.ms": 0, **settings}) as ours:
            yield Subject(name, ours.bootstrap_servers, lambda: ours.broker_logs, min(3, brokers))
    elif brokers > 1 and name.startswith("kafka-"):
        with ApacheCluster(name.removeprefix("kafka-"), brokers, **settings) as theirs:
            yield Subject(name, theirs.bootstrap_servers, lambda: theirs.output, min(3, brokers))
    elif name == "ottla":
        from ottla.testing import Broker

        properties = {key: str(value) for key, value in settings.items()}
        base = {"broker.id": str(broker_id), "group.initial.rebalance.delay.ms": "0"}  # as peers.ApacheKafka sets it
        with Broker(base | properties) as broker:
            yield Subject(name, broker.bootstrap_servers, lambda: broker.log)
    elif name.startswith("kafka-"):
        with ApacheKafka(name.removeprefix("kafka-"), broker_id=broker_id, **settings) as kafka:
            yield Subject(name, kafka.bootstrap_servers, lambda: kafka.output)
    else:
        yield Subject("external", name)


def soon(condition: Callable[[], bool], within_s: float = 10) -> bool:
    """Whether the condition holds soon. A single Ottla broker answers an admin request when it is done: no waiting. Brokers of a
    cluster, and of KRaft, apply it a moment after the response."""
    at_once = chosen() == "ottla" and broker_count() == 1
    try:
        until(condition, timeout_s=0 if at_once else within_s, every_s=0.05)
    except NotInTimeError:
        return False
    return True
