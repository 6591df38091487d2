"""A pipeline that is upgraded again and again beside its driver, and the blows that fall on both.

Owns: the rounds. Each makes a new version live, by `upgrade` to new code or by `rollback` to the code before. Rows carry the
number of the code that made them. Records are written, the command begins, a blow falls; the command is called again until it is
through. In every other round the old driver is run again before. The round is over when every record has come out. Each record
comes out once, and in a partition the versions of the rows follow each other as they went live.

A second flow sums over windows: a window comes out once, with all its records, whichever version closes it. With a database two
more flows write its tables: one appends each record, one keeps the sums of each customer by upsert.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.client.blocking import Client
from ottla.client.options import plain_options
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest
from tests.kit.databases import PostgreSQL, driver_jars
from tests.kit.peers import ApacheKafka
from tests.kit.wait import until
from tests.pipelines.kills.drivers import Driver
from tests.pipelines.kills.listening import AFTER, BEFORE, DROP, END_TXN, PASS, TXN_OFFSET_COMMIT, Blow, Proxy
from tests.pipelines.kills.stage import PARTITIONS, PATIENCE_S, AnyBroker, OtherBroker

INIT_PRODUCER_ID = 22
RECORDS = 60
WINDOW_S = 10
PIPELINE = f"""
from pyspark.sql import functions as F

from ottla import pipelines as p

SOURCE
orders = p.source("in", p.json("id long, customer string, at timestamp"), name="orders", cluster=SOURCE_NAME,
                  options={{"maxOffsetsPerTrigger": 40}})
p.sql(orders, to=p.sink("out", key="id"), name="copy", query="SELECT id, VERSION AS version FROM orders")


@p.flow(orders, to=p.sink("sums", key="customer"))
def sums(orders):
    found = orders.withWatermark("at", "5 seconds").groupBy(F.window("at", "{WINDOW_S} seconds"), "customer")
    found = found.agg(F.count(F.lit(1)).alias("records"), F.sum("id").alias("ids"), F.max(F.lit(VERSION)).alias("version"))
    return found.selectExpr("customer", "CAST(window.start AS long) AS start", "records", "ids", "version")
"""
TABLES = """

p.sql(orders, to=p.jdbc("DATABASE", "log"), name="log", query="SELECT id, VERSION AS version FROM orders")


@p.flow(orders, to=p.jdbc("DATABASE", "current", mode="upsert", key="customer"), output_mode="update")
def current(orders):
    found = orders.groupBy("customer").agg(F.count(F.lit(1)).alias("records"), F.sum("id").alias("ids"))
    return found.withColumn("version", F.lit(VERSION))
"""
SETTINGS = """
[pipeline]
name = "shop"
storage = "STORAGE"
trigger = "100 ms"
transaction_timeout = "60 seconds"

[kafka]
"client.id" = "CLIENT"

[spark]
master = "local[2]"

[spark.conf]
"spark.sql.shuffle.partitions" = 2
JARS
"""
UPGRADER, DRIVER, SWITCH = "upgrader", "driver", "shop.version-switch"
UPGRADE, ROLLBACK = "upgrade", "rollback"
START = 1_700_000_000


class Upgrades:
    def __init__(
        self, folder: Path, broker: AnyBroker, proxy: Proxy, database: PostgreSQL | None, source: OtherBroker | None
    ) -> None:
        """`source` is the cluster of the topic that the pipeline reads, if it is another one."""
        self.folder, self.broker, self.proxy, self.database, self.source = folder, broker, proxy, database, source
        self.url = "" if database is None else database.create_database("shop")
        self.servers = f"127.0.0.1:{proxy.port}"
        self.codes = [1]
        """The code of each version so far: a rollback makes a new version with the code of an older one."""
        self.written = 0
        self.seen: Counter[int] = Counter()
        self.sums: Counter[tuple[str, int]] = Counter()
        self.totals: dict[tuple[str, int], tuple[int, int]] = {}
        self._newest = [0] * PARTITIONS
        """By partition, the index in `codes` of the version whose row came last."""
        self._all: list[Driver] = []
        source_servers = self.servers if source is None else source.bootstrap_servers
        self._producer = Producer({"bootstrap.servers": source_servers, "enable.idempotence": True, "log_level": 0})
        self._consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "reader",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )
        places = [TopicPartition(topic, number, 0) for topic in ("out", "sums") for number in range(PARTITIONS)]
        self._consumer.assign(places)
        self._next = 1
        """The code of the version that the round makes live."""
        self.driver = self.run()

    # Processes

    def _file(self, code: int) -> Path:
        place = self.folder / f"v{code}"
        if not place.is_dir():
            place.mkdir()
            text = PIPELINE if self.database is None else PIPELINE + TABLES
            east = "" if self.source is None else f'p.cluster("east", {{"bootstrap.servers": "{self.source.bootstrap_servers}"}})'
            text = text.replace("SOURCE_NAME", "None" if self.source is None else '"east"').replace("SOURCE", east)
            place.joinpath("shop.py").write_text(text.replace("VERSION", str(code)).replace("DATABASE", self.url))
            jars = "" if self.database is None else f'"spark.jars" = "{",".join(map(str, driver_jars()))}"'
            for client in (UPGRADER, DRIVER):
                settings = SETTINGS.replace("STORAGE", str(self.folder / "storage")).replace("CLIENT", client)
                place.joinpath(f"{client}.toml").write_text(settings.replace("JARS", jars))
        return place / "shop.py"

    def _process(self, verb: str, client: str, code: int, *words: str) -> Driver:
        file = self._file(code)
        log = self.folder / f"{len(self._all)}-{verb}-{code}.log"
        settings = str(file.with_name(f"{client}.toml"))
        process = Driver(file, self.servers, log, "--settings", settings, *words, verb=verb)
        self._all.append(process)
        return process

    def run(self) -> Driver:
        return self._process("run", DRIVER, self.codes[-1])

    def switch(self, verb: str) -> Driver:
        """The command that makes the next version live."""
        if verb == UPGRADE:
            return self._process(UPGRADE, UPGRADER, max(self.codes) + 1, "--yes", "-n", "90")
        return self._process(ROLLBACK, UPGRADER, self.codes[-1], "--yes", "-n", "90", "--to", str(len(self.codes) - 1))

    # Records

    def write(self, count: int = RECORDS) -> None:
        """One a second."""
        for number in range(self.written, self.written + count):
            value = json.dumps({"id": number, "customer": f"c{number % 3}", "at": START + number})
            self._producer.produce("in", value, partition=number % PARTITIONS)
        assert self._producer.flush(PATIENCE_S) == 0
        self.written += count

    def read(self, seconds: float) -> None:
        for message in self._consumer.consume(500, seconds):
            if message.error() is not None:
                continue
            row = json.loads(message.value() or b"")
            if message.topic() == "out":
                self.seen[row["id"]] += 1
                place = message.partition() or 0
                version = self._newest[place]
                # The last one is under way.
                codes = [*self.codes, self._next]
                assert row["version"] in codes[version:], f"{row} after version {version + 1} of {codes}"
                self._newest[place] = codes.index(row["version"], version)
            else:
                window = row["customer"], row["start"]
                self.sums[window] += 1
                self.totals[window] = row["records"], row["ids"]

    def wait(self, done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not done():
            assert time.monotonic() < deadline, f"{what}: not in time\n{self._all[-1].log[-3000:]}\n{self.driver.log[-3000:]}"
            self.read(0.2)

    def drained(self) -> bool:
        return self.seen.total() >= self.written

    def has_markers(self) -> bool:
        """Whether the transaction of the switch has ended in all groups."""
        with Client(plain_options(self.servers)) as client:
            answer = client.call_coordinator(SWITCH, "transaction", DescribeTransactionsRequest(transactional_ids=[SWITCH]))
        return bool(answer.transaction_states[0].transaction_state == "CompleteCommit")

    # Rounds

    def round(self, name: str, number: int, verb: str) -> None:
        """One upgrade or rollback, with a blow."""
        self.write()
        self.wait(self.drained, "the old version writes")
        self._next = max(self.codes) + 1 if verb == UPGRADE else self.codes[-2]
        blow = BLOWS[name](self)
        self.write()
        command = self.switch(verb)
        # A blow that has begun may have ended the command, and is not over.
        self.wait(lambda: blow.struck.is_set() or not (command.running or blow.begun.is_set()), f"the blow {name!r}")
        assert blow.struck.is_set(), f"{name}: {command.log[-3000:]}"
        if blow.failure is not None:
            raise blow.failure
        while self._ended(command) != 0:
            assert "Traceback" not in command.log, command.log[-4000:]
            if number % 2 and not self.driver.running:
                self.driver = self.run()
                self.wait(lambda: not self.driver.running or self.drained(), "the old driver goes on")
            command = self.switch(verb)
        old = self.driver
        self.codes.append(self._next)
        self.driver = self.run()
        self.write()
        self.wait(self.drained, "the new version writes")
        self.wait(lambda: not old.running, "the old driver ends")
        assert old.process.returncode != 0
        assert "Traceback" not in old.log, old.log[-4000:]
        self.check()

    def _are_in_tables(self, database: PostgreSQL) -> bool:
        if database.rows("shop", "SELECT to_regclass('log'), to_regclass('current')") != [("log", "current")]:
            return False
        counts = "SELECT (SELECT count(*) FROM log), (SELECT coalesce(sum(records), 0) FROM current)"
        return all(int(count) >= self.written for count in database.rows("shop", counts)[0])

    def _check_tables(self, database: PostgreSQL) -> None:
        self.wait(lambda: self._are_in_tables(database), "the tables")
        log = Counter(int(row[0]) for row in database.rows("shop", "SELECT id FROM log"))
        assert log == Counter(range(self.written)), log - Counter(range(self.written))
        expected = {
            (f"c{rest}", str(len(ids)), str(sum(ids)))
            for rest in range(3)
            for ids in ([n for n in range(self.written) if n % 3 == rest],)
        }
        assert set(database.rows("shop", "SELECT customer, records, ids FROM current")) == expected

    def _ended(self, process: Driver) -> int:
        self.wait(lambda: not process.running, "the upgrade ends")
        return int(process.process.returncode)

    def check(self) -> None:
        self.read(1)
        if self.database is not None:
            self._check_tables(self.database)
        assert self.seen == Counter(range(self.written)), self._difference()
        assert set(self.sums.values()) <= {1}, [window for window, count in self.sums.items() if count > 1]
        for (customer, start), total in self.totals.items():
            ids = [n for n in range(self.written) if f"c{n % 3}" == customer and start <= START + n < start + WINDOW_S]
            assert total == (len(ids), sum(ids)), (customer, start, total, ids)

    def finish(self) -> None:
        """All windows that are closed have come out."""
        self.write()
        self.wait(self.drained, "the last records")
        closed = {
            (f"c{n % 3}", (START + n) // WINDOW_S * WINDOW_S)
            for n in range(self.written)
            if (START + n) // WINDOW_S * WINDOW_S + WINDOW_S <= START + self.written - 1 - 5
        }
        self.wait(lambda: self.sums.keys() >= closed, "the last windows")
        self.check()

    def _difference(self) -> str:
        lost = sorted(set(range(self.written)) - set(self.seen))
        twice = sorted(n for n, count in self.seen.items() if count > 1)
        return f"lost {lost[:20]} ({len(lost)}), more than once {twice[:20]} ({len(twice)})"

    def close(self) -> None:
        for each in self._all:
            each.close()
        self._consumer.close()


def _killed(api_key: int, moment: str, about: str) -> Callable[[Upgrades], Blow]:
    """The upgrade dies at its request."""

    def arm(stage: Upgrades) -> Blow:
        def act() -> bool:
            stage._all[-1].kill()
            return DROP

        return stage.proxy.arm(api_key, moment, about, act)

    return arm


def _old_driver_dies(moment: str) -> Callable[[Upgrades], Blow]:
    """The old driver dies at the end of a batch's transaction, after the upgrade has begun and before it holds a flow."""

    def arm(stage: Upgrades) -> Blow:
        driver, flow = stage.driver, "shop.sums" if stage.database is None else "shop.log"

        def die() -> bool:
            driver.kill()
            return DROP

        def act() -> bool:
            death = stage.proxy.arm(END_TXN, moment, flow, die)
            stage.write()
            assert death.struck.wait(PATIENCE_S), f"the driver ends no transaction\n{driver.log[-3000:]}"
            assert death.failure is None
            return PASS

        return stage.proxy.arm(INIT_PRODUCER_ID, AFTER, UPGRADER, act)

    return arm


def _broker_dies(stage: Upgrades) -> Blow:
    def act() -> bool:
        if isinstance(stage.broker, ApacheKafka):
            # Kafka 4.3.0, a broker alone: killed before the markers of a decided commit are in the groups' partitions, it calls
            # the transaction complete after its restart without writing them.
            until(stage.has_markers, "the markers", PATIENCE_S, every_s=0.01)
        stage.broker.kill()
        stage.broker.start()
        return DROP

    return stage.proxy.arm(END_TXN, AFTER, SWITCH, act)


BLOWS: dict[str, Callable[[Upgrades], Blow]] = {
    "upgrade before the switch's EndTxn": _killed(END_TXN, BEFORE, SWITCH),
    "upgrade after the switch's EndTxn": _killed(END_TXN, AFTER, SWITCH),
    "upgrade after a hold's EndTxn": _killed(END_TXN, AFTER, UPGRADER),
    "old driver before EndTxn": _old_driver_dies(BEFORE),
    "upgrade after the switch's TxnOffsetCommit": _killed(TXN_OFFSET_COMMIT, AFTER, SWITCH),
    "broker after the switch's EndTxn": _broker_dies,
    "upgrade before a hold's EndTxn": _killed(END_TXN, BEFORE, UPGRADER),
    "old driver after EndTxn": _old_driver_dies(AFTER),
    "upgrade at the first InitProducerId": _killed(INIT_PRODUCER_ID, AFTER, UPGRADER),
    "upgrade at the hold's TxnOffsetCommit": _killed(TXN_OFFSET_COMMIT, BEFORE, UPGRADER),
}


@contextmanager
def upgraded(
    folder: Path, broker: AnyBroker, proxy: Proxy, database: PostgreSQL | None = None, source: OtherBroker | None = None
) -> Iterator[Upgrades]:
    stage = Upgrades(folder, broker, proxy, database, source)
    try:
        yield stage
        stage.finish()
    finally:
        stage.close()
