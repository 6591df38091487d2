"""A pipeline that copies a topic, a broker behind a proxy, and the blows that may fall on them.

Owns: the rounds. In each, records are written, a blow falls at its moment, what died is started again, and the round is over when
every record has come out. At the end input and output are compared as multisets, under read_committed.

The pipeline shuffles its rows, and every driver cuts them into other tasks: what a retried task would send is never what it sent
before. With several tasks the batches go through Spark's shuffle before they are sent, with a single one they do not; a small
batch of a single task is sent by the driver.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.client.blocking import Client
from ottla.client.offsets import LATEST, committed_offsets, list_offsets
from ottla.client.options import plain_options
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest
from ottla.types import TopicPartition as Place
from tests.kit.wait import until
from tests.pipelines.kills.drivers import Driver
from tests.pipelines.kills.listening import AFTER, BEFORE, DROP, END_TXN, PASS, PRODUCE, TXN_OFFSET_COMMIT, Blow, Proxy

PARTITIONS = 3
RECORDS = 200
PER_BATCH = 1_200
MANY = 1_500
"""Records of which a batch is too large for the driver to send."""
FLOW = "shop.copy"
# Longer than a batch takes on a machine with too much to do.
TRANSACTION_TIMEOUT_S = 60
PIPELINE = f"""
import random

from ottla import pipelines as p

orders = p.source("in", p.json("id long, customer string"), name="orders", options={{"maxOffsetsPerTrigger": {PER_BATCH}}})


@p.flow(orders, to=p.sink("out", key="customer"))
def copy(orders):
    def shuffled(batches):
        import pyarrow as pa

        for batch in batches:
            rows = list(range(batch.num_rows))
            random.SystemRandom().shuffle(rows)
            yield batch.take(pa.array(rows, pa.int64()))

    return orders.repartition(random.SystemRandom().choice([1, 1, 2, 3, 5])).mapInArrow(shuffled, orders.schema)
"""
SETTINGS = f"""
[pipeline]
trigger = "100 ms"
transaction_timeout = "{TRANSACTION_TIMEOUT_S} seconds"

[kafka]
# A request that is held back for longer than a transaction's timeout is still waited for.
"request.timeout.ms" = {3000 * TRANSACTION_TIMEOUT_S}
"default.api.timeout.ms" = {6000 * TRANSACTION_TIMEOUT_S}

[spark]
master = "local[2,4]"

[spark.conf]
"spark.sql.shuffle.partitions" = 2
"spark.default.parallelism" = 2
"""
WORKER_BLOWS_MAX = 10
# Time that a start of Spark may take on a machine with too much to do, and everything else with it.
PATIENCE_S = float(os.environ.get("OTTLA_TEST_PATIENCE_S", "480"))


class AnyBroker(Protocol):
    """Ours, or Apache Kafka: both keep their address and their data."""

    def start(self) -> Any: ...
    def kill(self) -> None: ...


class OtherBroker(AnyBroker, Protocol):
    """A cluster that the source names."""

    @property
    def bootstrap_servers(self) -> str: ...


class Stage:
    def __init__(
        self, folder: Path, broker: AnyBroker, proxy: Proxy, log: Callable[[], str], source: OtherBroker | None = None
    ) -> None:
        """`source` is the cluster of the topic that the pipeline reads, if it is another one."""
        self.folder, self.broker, self.proxy, self.broker_log, self.source = folder, broker, proxy, log, source
        self.servers = f"127.0.0.1:{proxy.port}"
        self.source_servers = self.servers if source is None else source.bootstrap_servers
        pipeline = PIPELINE
        if source is not None:
            east = f'p.cluster("east", {{"bootstrap.servers": "{self.source_servers}"}})'
            pipeline = pipeline.replace('name="orders"', f'name="orders", cluster={east}')
        self.written = 0
        self.starts = 0
        self.seen: Counter[int] = Counter()
        self.all: list[Driver] = []
        folder.joinpath("shop.py").write_text(pipeline)
        folder.joinpath("shop.toml").write_text(SETTINGS)
        self._producer = Producer({"bootstrap.servers": self.source_servers, "enable.idempotence": True, "log_level": 0})
        self._consumer = self._reader()
        self.driver = self.start_driver()

    def _reader(self) -> Consumer:
        settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": self.servers,
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 0,
        }
        consumer = Consumer(settings)
        consumer.assign([TopicPartition("out", number, 0) for number in range(PARTITIONS)])
        return consumer

    def start_driver(self, *words: str) -> Driver:
        self.starts += 1
        driver = Driver(self.folder / "shop.py", self.servers, self.folder / f"driver{self.starts}.log", *words)
        self.all.append(driver)
        return driver

    def write(self, count: int = RECORDS) -> None:
        for number in range(self.written, self.written + count):
            value = json.dumps({"id": number, "customer": f"c{number % 11}"})
            self._producer.produce("in", value, partition=number % PARTITIONS)
        assert self._producer.flush(PATIENCE_S) == 0
        self.written += count

    def wait(self, done: Callable[[], bool], what: str, *, may_end: bool = False) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not done():
            assert time.monotonic() < deadline, f"{what}: not in time\n{self.driver.log[-3000:]}\n{self.broker_log()[-2000:]}"
            if not self.driver.running:
                assert may_end, f"{what}: the driver ended with {self.driver.process.returncode}\n{self.driver.log[-6000:]}"
                self.driver = self.start_driver()
            self._read(0.1)

    def _read(self, seconds: float) -> None:
        for message in self._consumer.consume(500, seconds):
            if message.error() is None:
                self.seen[json.loads(message.value() or b"")["id"]] += 1

    def drained(self) -> bool:
        return self.seen.total() >= self.written

    # Blows

    def strike(self, name: str) -> None:
        """One round."""
        (BLOWS | BLOWS_OF_TWO_CLUSTERS)[name](self)
        self.wait(self.drained, f"after {name!r}", may_end=True)
        assert self.seen == Counter(range(self.written)), self._difference()
        if not self.driver.running:  # it died after its only batch was in
            self.driver = self.start_driver()

    def _difference(self) -> str:
        lost = sorted(set(range(self.written)) - set(self.seen))
        return f"lost {lost[:20]} ({len(lost)}), more than once {sorted(n for n, count in self.seen.items() if count > 1)[:20]}"

    def blow(self, api_key: int, moment: str, act: Callable[[], bool], records: int = RECORDS) -> Blow:
        """Falls while the records of this round are under way; returns when it has fallen."""
        blow = self.proxy.arm(api_key, moment, FLOW, act)
        self.write(records)
        self.wait(blow.struck.is_set, "the blow")
        if blow.failure is not None:
            raise blow.failure
        return blow

    def is_over(self) -> bool:
        """Whether the coordinator has ended the flow's transaction by itself."""
        with Client(plain_options(self.servers)) as client:
            request = DescribeTransactionsRequest(transactional_ids=[FLOW])
            answer = client.call_coordinator(FLOW, "transaction", request)
        return bool(answer.transaction_states[0].transaction_state == "CompleteAbort")

    def finish(self) -> None:
        """A stop in the midst of a batch, which is finished; then a look at everything with eyes that saw nothing before."""
        driver = self.driver

        def act() -> bool:
            driver.process.terminate()
            return PASS

        self.proxy.arm(END_TXN, BEFORE, FLOW, act)
        self.write(PER_BATCH // 2)
        assert driver.process.wait(PATIENCE_S) == 0, driver.log[-3000:]
        assert "stopping after the running batch" in driver.log
        begun, noted = (_batches(self.folder / ".ottla" / "shop" / "copy" / name) for name in ("offsets", "commits"))
        # A batch may have been planned while we stopped; none was left half done.
        assert begun - noted <= {max(begun)}
        self._read(1)
        if not self.drained():
            # What was written came in two batches, and the second was not begun.
            once = self.driver = self.start_driver("--once")
            assert once.process.wait(PATIENCE_S) == 0, once.log[-3000:]
        self._consumer.close()
        self._consumer = self._reader()
        self.seen.clear()
        deadline = time.monotonic() + PATIENCE_S
        while not self.drained():
            assert time.monotonic() < deadline, self._difference()
            self._read(0.5)
        self._read(1)
        assert self.seen == Counter(range(self.written)), self._difference()
        with Client(plain_options(self.servers)) as client:
            # No transaction was left open for ever.
            assert list_offsets(client, _places("out")) == list_offsets(client, _places("out"), read_committed=True)
        with Client(plain_options(self.source_servers)) as client:
            ends = {place: entry.offset for place, entry in list_offsets(client, _places("in")).items()}
            assert {place: entry.offset for place, entry in committed_offsets(client, FLOW).items()} == ends

    def close(self) -> None:
        for driver in self.all:
            driver.close()
        self._consumer.close()


def _batches(folder: Path) -> set[int]:
    return {int(file.name) for file in folder.iterdir() if file.name.isdecimal()}


def _places(topic: str) -> dict[Place, int]:
    return dict.fromkeys([Place(topic, number) for number in range(PARTITIONS)], LATEST)


def _driver_dies(api_key: int, moment: str, how: Callable[[Driver], None]) -> Callable[[Stage], None]:
    def fall(stage: Stage) -> None:
        driver = stage.driver

        def act() -> bool:
            how(driver)
            return DROP

        blow = stage.proxy.arm(api_key, moment, FLOW, act)
        stage.write()
        stage.wait(blow.begun.is_set, "the blow")
        stage.wait(blow.struck.is_set, "the blow", may_end=True)

    return fall


def _jvm_dies(stage: Stage) -> None:
    driver = stage.driver
    _driver_dies(PRODUCE, BEFORE, Driver.kill_jvm)(stage)
    stage.wait(lambda: not driver.running, "the driver notices", may_end=True)
    assert driver.process.returncode == 1, driver.log[-3000:]
    assert "no data is lost: run the pipeline again" in driver.log, driver.log[-3000:]


def _worker_dies(moment: str) -> Callable[[Stage], None]:
    def fall(stage: Stage) -> None:
        killed = []

        def act() -> bool:
            killed.append(stage.driver.kill_workers())
            # What a dead worker sent goes on to the broker all the same.
            return PASS

        before, said = stage.starts, stage.driver.log.count(" again (attempt ")
        for _ in range(WORKER_BLOWS_MAX):
            # The batch under way may be a small one: then no worker sends.
            stage.blow(PRODUCE, moment, act, MANY)
            stage.wait(stage.drained, "after a worker was killed")
            assert stage.starts == before
            if stage.driver.log.count(" again (attempt ") > said:
                break
        else:
            raise AssertionError(f"no worker died while it sent\n{stage.driver.log[-3000:]}")
        assert killed[-1] > 0

    return fall


def _restarted(api_key: int, moment: str, which: Callable[[Stage], AnyBroker | None], then: bool) -> Callable[[Stage], None]:
    """A broker dies and comes back at once. `then` says what happens to the request."""

    def fall(stage: Stage) -> None:
        broker = which(stage)
        assert broker is not None

        def act() -> bool:
            broker.kill()
            broker.start()
            return then

        before = stage.starts
        stage.blow(api_key, moment, act)
        stage.wait(stage.drained, "after a broker was killed")
        assert stage.starts == before, "a broker that comes back in time ends no pipeline"

    return fall


def _broker_dies(api_key: int, moment: str) -> Callable[[Stage], None]:
    return _restarted(api_key, moment, lambda stage: stage.broker, DROP)


def _source_dies(moment: str) -> Callable[[Stage], None]:
    return _restarted(END_TXN, moment, lambda stage: stage.source, PASS)


def _all_die(moment: str) -> Callable[[Stage], None]:
    def fall(stage: Stage) -> None:
        driver = stage.driver

        def act() -> bool:
            assert stage.source is not None
            driver.kill()
            for broker in (stage.source, stage.broker):
                broker.kill()
            for broker in (stage.source, stage.broker):
                broker.start()
            return DROP

        blow = stage.proxy.arm(END_TXN, moment, FLOW, act)
        stage.write()
        stage.wait(blow.struck.is_set, "the blow", may_end=True)
        if blow.failure is not None:
            raise blow.failure

    return fall


def _zombie(api_key: int) -> Callable[[Stage], None]:
    """A driver sleeps with a request under way; another one takes over and does its work; then both wake, driver and request."""

    def fall(stage: Stage) -> None:
        zombie, awake = stage.driver, threading.Event()

        def act() -> bool:
            zombie.pause()
            asleep.set()
            awake.wait(3 * PATIENCE_S)
            return PASS

        asleep = threading.Event()
        stage.proxy.arm(api_key, BEFORE, FLOW, act)
        stage.write()
        try:
            stage.wait(asleep.is_set, "the driver falls asleep")
            stage.driver = stage.start_driver()
            stage.wait(stage.drained, "another driver takes over")
        finally:
            awake.set()
            zombie.wake()
        # The one that has the flow may have to begin a batch again, no more.
        stage.write()
        stage.wait(lambda: not zombie.running, "the zombie ends", may_end=True)
        assert zombie.process.returncode == 1, zombie.log[-3000:]
        # Spark's own workers may say more, but ours is the last word.
        assert any(said in zombie.log[-600:] for said in ZOMBIE_SAYS), zombie.log[-3000:]

    return fall


# Ours, or Spark's, if the one that took over has done no batch more than the zombie's.
ZOMBIE_SAYS = ("stop the other driver that runs this flow", "CONCURRENT_STREAM_LOG_UPDATE")


def _timeout(stage: Stage) -> None:
    """A batch takes longer than its transaction may: the coordinator aborts it, and it runs again."""

    def act() -> bool:
        until(stage.is_over, "the coordinator aborts", 10 * TRANSACTION_TIMEOUT_S, every_s=0.2)
        return PASS

    before = stage.starts
    stage.blow(END_TXN, BEFORE, act)
    stage.wait(stage.drained, "after the timeout")
    assert stage.starts == before
    assert "raise transaction_timeout" in stage.driver.log


BLOWS: dict[str, Callable[[Stage], None]] = {
    "driver before EndTxn": _driver_dies(END_TXN, BEFORE, Driver.kill),
    "driver after EndTxn": _driver_dies(END_TXN, AFTER, Driver.kill),
    "worker at Produce": _worker_dies(BEFORE),
    "broker after EndTxn": _broker_dies(END_TXN, AFTER),
    "driver's Python before EndTxn": _driver_dies(END_TXN, BEFORE, Driver.kill_python),
    "driver's JVM at Produce": _jvm_dies,
    "driver at TxnOffsetCommit": _driver_dies(TXN_OFFSET_COMMIT, AFTER, Driver.kill),
    "worker after Produce": _worker_dies(AFTER),
    "broker before EndTxn": _broker_dies(END_TXN, BEFORE),
    "broker at Produce": _broker_dies(PRODUCE, AFTER),
    "transaction timeout": _timeout,
    "zombie with EndTxn": _zombie(END_TXN),
    "zombie with Produce": _zombie(PRODUCE),
}


BLOWS_OF_TWO_CLUSTERS: dict[str, Callable[[Stage], None]] = {
    "source before EndTxn": _source_dies(BEFORE),
    "source after EndTxn": _source_dies(AFTER),
    "everything before EndTxn": _all_die(BEFORE),
    "everything after EndTxn": _all_die(AFTER),
}


@contextmanager
def staged(
    folder: Path, broker: AnyBroker, proxy: Proxy, log: Callable[[], str], source: OtherBroker | None = None
) -> Iterator[Stage]:
    stage = Stage(folder, broker, proxy, log, source)
    try:
        yield stage
        stage.finish()
    finally:
        stage.close()
