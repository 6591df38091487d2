"""F82: a table of one PostgreSQL follows that of another, through Debezium, a broker of Ottla and a pipeline, all of them killed.

Debezium's own connector reads the log of the one database in Kafka Connect; its events are upserted into the other.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from ottla.testing import Broker
from tests.kit.connect import connect_group
from tests.kit.databases import PostgreSQL, driver_jars
from tests.kit.peers import debezium_jars, free_ports
from tests.pipelines.kills.drivers import Driver

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.timeout(7200)]

ROUNDS = int(os.environ.get("OTTLA_TEST_ROUNDS", "1"))
SEED = int(os.environ.get("OTTLA_TEST_SEED", "20"))
PATIENCE_S = float(os.environ.get("OTTLA_TEST_PATIENCE_S", "480"))
TABLE = "CREATE TABLE things (id BIGINT, part VARCHAR(10), name TEXT, size INTEGER, at TIMESTAMPTZ, PRIMARY KEY (id, part))"
PIPELINE = """
from ottla import pipelines as p

things = p.source("shop.public.things", p.debezium("id long, part string, name string, size int, at timestamp"), name="things")
p.sql(things, to=p.jdbc("{url}", "things", mode="upsert", key=["id", "part"]), name="copy", query="SELECT * FROM things")
"""
SETTINGS = """
[pipeline]
trigger = "100 ms"
restart = "on-failure"

[spark]
master = "local[2]"

[spark.conf]
"spark.jars" = "{jars}"
"spark.sql.shuffle.partitions" = 2
"""
CONNECTOR = {
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "database.hostname": "127.0.0.1",
    "database.user": "postgres",
    "database.password": "any",
    "database.dbname": "shop",
    "topic.prefix": "shop",
    "plugin.name": "pgoutput",
    "table.include.list": "public.things",
    "publication.autocreate.mode": "filtered",
    "slot.drop.on.stop": "false",
}
CONVERTERS = {f"{what}.converter": "org.apache.kafka.connect.json.JsonConverter" for what in ("key", "value")}


class Changes:
    """Random statements of a seed."""

    def __init__(self, database: PostgreSQL) -> None:
        self.database, self.random = database, random.Random(SEED)

    def make(self, count: int) -> None:
        statements = ["BEGIN;"]
        for number in range(count):
            key = f"id = {self.random.randrange(60)} AND part = '{self.random.choice('ab')}'"
            new, name = (
                f"{self.random.randrange(60)}, '{self.random.choice('ab')}'",
                self.random.choice(["'ada'", "'it''s é 😀'", "NULL"]),
            )
            statements.append(
                self.random.choice(
                    (
                        f"INSERT INTO things VALUES ({new}, {name}, {number}, now()) ON CONFLICT DO NOTHING;",
                        f"UPDATE things SET name = {name}, size = {self.random.randrange(1000)} WHERE {key};",
                        f"UPDATE things SET id = id + 100 WHERE {key} AND id < 60"
                        " AND NOT EXISTS (SELECT 1 FROM things o WHERE o.id = things.id + 100 AND o.part = things.part);",
                        f"DELETE FROM things WHERE {key};",
                    )
                )
            )
            if self.random.random() < 0.2:
                statements.append(self.random.choice(("COMMIT; BEGIN;", "COMMIT; BEGIN;", "ROLLBACK; BEGIN;")))
        self.database.execute("shop", "\n".join([*statements, "COMMIT;"]))


def test_a_table_follows_another_though_everything_is_killed(tmp_path: Path) -> None:
    (rest,) = free_ports(1)
    with (
        PostgreSQL() as one,
        PostgreSQL() as other,
        Broker() as broker,
        connect_group(broker.bootstrap_servers, tmp_path, "changes", debezium_jars(), CONVERTERS) as workers,
    ):
        one.create_database("shop")
        one.execute("shop", TABLE)
        changes = Changes(one)
        changes.make(50)
        broker.create_topic("shop.public.things", 3)
        file = tmp_path / "shop.py"
        file.write_text(PIPELINE.format(url=other.create_database("copy")))
        file.with_suffix(".toml").write_text(SETTINGS.format(jars=",".join(map(str, driver_jars()))))
        drivers = [Driver(file, broker.bootstrap_servers, tmp_path / "driver0.out")]
        workers.start(rest)
        workers.insist("PUT", rest, "/connectors/things/config", {**CONNECTOR, "database.port": str(one.port)})

        def rows(database: PostgreSQL, name: str) -> list[tuple[str, ...]]:
            return database.rows(name, "SELECT id, part, name, size, at AT TIME ZONE 'UTC' FROM things ORDER BY id, part")

        def equal(what: str) -> None:
            deadline = time.monotonic() + PATIENCE_S
            while True:
                if not drivers[-1].running:
                    drivers.append(Driver(file, broker.bootstrap_servers, tmp_path / f"driver{len(drivers)}.out"))
                try:
                    found = rows(other, "copy")
                except RuntimeError:  # no table yet
                    found = []
                if found == rows(one, "shop"):
                    return
                logs = f"{drivers[-1].log[-3000:]}\n{(tmp_path / f'worker-{rest}.log').read_text()[-3000:]}"
                assert time.monotonic() < deadline, f"{what} (seed {SEED}): {found[:5]} {rows(one, 'shop')[:5]}\n{logs}"
                time.sleep(0.3)

        try:
            equal("the first rows")
            for _ in range(ROUNDS):
                changes.make(80)
                drivers[-1].kill()
                changes.make(80)
                equal("after the pipeline was killed")
                changes.make(80)
                broker.kill()
                changes.make(80)
                broker.start()
                equal("after the broker was killed")
                changes.make(80)
                workers.kill(rest)
                changes.make(80)
                workers.start(rest)
                equal("after the worker was killed")
                changes.make(80)
                other.kill()
                changes.make(80)
                other.start()
                equal("after the other database was killed")
        finally:
            for driver in drivers:
                driver.close()
