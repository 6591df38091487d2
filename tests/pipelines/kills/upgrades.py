"""A pipeline that is upgraded again and again beside its driver, and the blows that fall on both.

Owns: the rounds. Each has a new version, whose rows carry its number. Records are written, an upgrade begins, a blow falls; the
upgrade is called again until it is through. In every other round the old driver is run again before. The round is over when every
record has come out of the new driver's or the old one's hands. Each record comes out once, and no record of an older version
comes behind one of a newer version in its partition.

A second flow sums over windows: a window comes out once, with all its records, whichever version closes it. Two flows write
tables of PostgreSQL: one appends each record, one keeps the sums of each customer by upsert.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.kit.databases import PostgreSQL, driver_jars
from tests.pipelines.kills.drivers import Driver
from tests.pipelines.kills.listening import AFTER, BEFORE, DROP, END_TXN, TXN_OFFSET_COMMIT, Blow, Proxy
from tests.pipelines.kills.stage import PARTITIONS, PATIENCE_S, AnyBroker

INIT_PRODUCER_ID = 22
RECORDS = 60
WINDOW_S = 10
PIPELINE = f"""
from pyspark.sql import functions as F

from ottla import pipelines as p

orders = p.source("in", p.json("id long, customer string, at timestamp"), name="orders", options={{"maxOffsetsPerTrigger": 40}})
p.sql(orders, to=p.sink("out", key="id"), name="copy", query="SELECT id, VERSION AS version FROM orders")


@p.flow(orders, to=p.sink("sums", key="customer"))
def sums(orders):
    found = orders.withWatermark("at", "5 seconds").groupBy(F.window("at", "{WINDOW_S} seconds"), "customer")
    found = found.agg(F.count(F.lit(1)).alias("records"), F.sum("id").alias("ids"), F.max(F.lit(VERSION)).alias("version"))
    return found.selectExpr("customer", "CAST(window.start AS long) AS start", "records", "ids", "version")


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
"spark.jars" = "JARS"
"spark.sql.shuffle.partitions" = 2
"""
UPGRADER, DRIVER, SWITCH = "upgrader", "driver", "shop.version-switch"
START = 1_700_000_000


class Upgrades:
    def __init__(self, folder: Path, broker: AnyBroker, proxy: Proxy, database: PostgreSQL) -> None:
        self.folder, self.broker, self.proxy, self.database = folder, broker, proxy, database
        self.url = database.create_database("shop")
        self.servers = f"127.0.0.1:{proxy.port}"
        self.version = 1
        self.written = 0
        self.seen: Counter[int] = Counter()
        self.versions: dict[int, int] = {}
        self.sums: Counter[tuple[str, int]] = Counter()
        self.totals: dict[tuple[str, int], tuple[int, int]] = {}
        self._newest = [0] * PARTITIONS
        self._all: list[Driver] = []
        self._producer = Producer({"bootstrap.servers": self.servers, "enable.idempotence": True, "log_level": 0})
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
        self.driver = self.run()

    # Processes

    def _file(self, version: int) -> Path:
        place = self.folder / f"v{version}"
        if not place.is_dir():
            place.mkdir()
            place.joinpath("shop.py").write_text(PIPELINE.replace("VERSION", str(version)).replace("DATABASE", self.url))
            for client in (UPGRADER, DRIVER):
                settings = SETTINGS.replace("STORAGE", str(self.folder / "storage")).replace("CLIENT", client)
                settings = settings.replace("JARS", ",".join(map(str, driver_jars())))
                place.joinpath(f"{client}.toml").write_text(settings)
        return place / "shop.py"

    def _process(self, verb: str, client: str, version: int, *words: str) -> Driver:
        file = self._file(version)
        log = self.folder / f"{len(self._all)}-{verb}-{version}.log"
        settings = str(file.with_name(f"{client}.toml"))
        process = Driver(file, self.servers, log, "--settings", settings, *words, verb=verb)
        self._all.append(process)
        return process

    def run(self) -> Driver:
        return self._process("run", DRIVER, self.version)

    def upgrade(self) -> Driver:
        return self._process("upgrade", UPGRADER, self.version + 1, "--yes", "-n", "90")

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
                self.versions[row["id"]] = row["version"]
                place = message.partition() or 0
                assert row["version"] >= self._newest[place], f"version {row['version']} after {self._newest[place]}: {row}"
                self._newest[place] = row["version"]
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

    # Rounds

    def round(self, name: str, number: int) -> None:
        """One upgrade, with a blow."""
        self.write()
        self.wait(self.drained, "the old version writes")
        blow = BLOWS[name](self)
        self.write()
        upgrade = self.upgrade()
        self.wait(lambda: blow.struck.is_set() or not upgrade.running, f"the blow {name!r}")
        assert blow.struck.is_set(), f"{name}: {upgrade.log[-3000:]}"
        if blow.failure is not None:
            raise blow.failure
        while self._ended(upgrade) != 0:
            assert "Traceback" not in upgrade.log, upgrade.log[-4000:]
            if number % 2 and not self.driver.running:
                self.driver = self.run()
                self.wait(lambda: not self.driver.running or self.drained(), "the old driver goes on")
            upgrade = self.upgrade()
        old, self.version = self.driver, self.version + 1
        self.driver = self.run()
        self.write()
        self.wait(self.drained, "the new version writes")
        self.wait(lambda: not old.running, "the old driver ends")
        assert old.process.returncode != 0
        assert "Traceback" not in old.log, old.log[-4000:]
        self.check()

    def _in_tables(self) -> bool:
        if self.database.rows("shop", "SELECT to_regclass('log'), to_regclass('current')") != [("log", "current")]:
            return False
        return self._counts("log") >= self.written and self._records() >= self.written

    def _counts(self, table: str) -> int:
        return int(self.database.rows("shop", f"SELECT count(*) FROM {table}")[0][0])

    def _records(self) -> int:
        return int(self.database.rows("shop", "SELECT coalesce(sum(records), 0) FROM current")[0][0])

    def _check_tables(self) -> None:
        log = Counter(int(row[0]) for row in self.database.rows("shop", "SELECT id FROM log"))
        assert log == Counter(range(self.written)), log - Counter(range(self.written))
        expected = {
            (f"c{rest}", str(len(ids)), str(sum(ids)))
            for rest in range(3)
            for ids in ([n for n in range(self.written) if n % 3 == rest],)
        }
        assert set(self.database.rows("shop", "SELECT customer, records, ids FROM current")) == expected

    def _ended(self, process: Driver) -> int:
        self.wait(lambda: not process.running, "the upgrade ends")
        return int(process.process.returncode)

    def check(self) -> None:
        self.wait(self._in_tables, "the tables")
        self.read(1)
        self._check_tables()
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
    """The old driver dies at the end of a batch's transaction, after the upgrade has begun."""

    def arm(stage: Upgrades) -> Blow:
        def act() -> bool:
            stage.driver.kill()
            return DROP

        return stage.proxy.arm(END_TXN, moment, DRIVER, act)

    return arm


def _broker_dies(stage: Upgrades) -> Blow:
    def act() -> bool:
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
def upgraded(folder: Path, broker: AnyBroker, proxy: Proxy, database: PostgreSQL) -> Iterator[Upgrades]:
    stage = Upgrades(folder, broker, proxy, database)
    try:
        yield stage
        stage.finish()
    finally:
        stage.close()
